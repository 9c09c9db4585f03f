"""Blocks by kernels equal blocks by the book; interpreted where there is no GPU."""

import pytest
import torch
from ipot.nn.paths import attention_path
from torch import nn

from ipot.accelerate import cuda as kernels
from ipot.nn import fused
from ipot.nn.attention import AttentionBlock

rows = pytest.importorskip("ipot.accelerate.cuda.rows", reason="Triton is not installed")

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="float32 by kernels is for tests alone"),
]


def both(block, *arguments):
    results = []
    for path in ("kernel", "plain"):
        with attention_path(path):
            out = block(*arguments)
        leaves = [*block.parameters(), *(t for t in arguments if t is not None and t.requires_grad)]
        weight = torch.linspace(-1, 1, out.numel()).view_as(out)
        grads = torch.autograd.grad((out * weight).sum(), leaves)
        results.append([out, *grads])
    return results


@pytest.mark.parametrize("bias", [False, True])
def test_rows_that_attend_to_each_other(bias):
    torch.manual_seed(0)
    block = AttentionBlock(32, heads=4, bias=bias)
    state = torch.randn(2, 20, 32, requires_grad=True)
    with attention_path("kernel"):
        assert fused.fits_itself(block, state)
    for ours, theirs in zip(*both(block, state), strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm() + 1e-6


@pytest.mark.parametrize("shared", [True, False])
def test_rows_that_attend_to_others(shared):
    torch.manual_seed(0)
    block = AttentionBlock(32, heads=2, context=20, head_width=16)
    y = torch.randn(1 if shared else 3, 20, 32, requires_grad=True)
    x = torch.randn(3, 50, 20, requires_grad=True)
    mask = torch.rand(3, 50) < 0.7
    with attention_path("kernel"):
        assert fused.fits(block, y)
    for ours, theirs in zip(*both(block, y, x, mask), strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm() + 1e-6


def test_blocks_that_do_not_fit_go_by_the_book():
    plain = AttentionBlock(32, heads=4, gated=False)
    odd = AttentionBlock(24, heads=4)
    changes = AttentionBlock(32, heads=4, context=32, out=3, residual=False)
    with attention_path("kernel"):
        for block in (plain, odd, changes):
            assert not fused.fits(block, torch.zeros(1, 4, 32))
    fitting = AttentionBlock(32, heads=4)
    assert not fused.fits(fitting, torch.zeros(1, 4, 32))


def test_packed_once_for_several_calls():
    torch.manual_seed(0)
    block = AttentionBlock(32, heads=4)
    state = torch.randn(2, 20, 32)
    with attention_path("kernel"):
        packed = fused.pack(block)
        twice = block(block(state, None, None, packed), None, None, packed)
        torch.testing.assert_close(twice, block(block(state)))
        grads = torch.autograd.grad(twice.square().sum(), list(block.parameters()))
    with attention_path("plain"):
        exact = block(block(state)).square().sum()
        wanted = torch.autograd.grad(exact, list(block.parameters()))
    for ours, theirs in zip(grads, wanted, strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm() + 1e-5


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("width", "out"), [(32, 48), (64, 16)])
def test_a_norm_and_the_projection_behind_it(monkeypatch, width, out, bias):
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(width), nn.Linear(width, out, bias=bias)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(2, 21, width, requires_grad=True)
    leaves, weight = [x, *norm.parameters(), *linear.parameters()], torch.randn(2, 21, out)
    wanted = linear(norm(x))
    exact = torch.autograd.grad((wanted * weight).sum(), leaves)
    calls, known = [], rows.norm_project_packed
    monkeypatch.setattr(
        rows, "norm_project_packed", lambda *given: calls.append(given) or known(*given)
    )
    with attention_path("kernel"):
        found = fused.project(x, norm, linear)
    assert len(calls) == 1
    grads = torch.autograd.grad((found * weight).sum(), leaves)
    for ours, theirs in zip((found, *grads), (wanted, *exact), strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm()


def test_projections_that_do_not_fit_go_by_the_layers(monkeypatch):
    norm, linear = nn.LayerNorm(32), nn.Linear(32, 48)
    monkeypatch.setattr(rows, "norm_project_packed", lambda *given: pytest.fail("it does not fit"))
    x = torch.randn(1, 4, 32)
    assert torch.equal(fused.project(x, norm, linear), linear(norm(x)))  # no such path here
    with attention_path("kernel"):
        fused.project(torch.randn(1, 4, 24), nn.LayerNorm(24), nn.Linear(24, 48))
        fused.project(x, norm, nn.Linear(32, 20))
        fused.project(x, nn.LayerNorm(32, eps=1e-3), linear)
        fused.project(torch.randn(1, fused.FEW + 1, 32), norm, linear)
        linear.register_forward_hook(lambda *given: None)
        fused.project(x, norm, linear)
