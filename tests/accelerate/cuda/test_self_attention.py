"""Gradients of self-attention against the formula in float64; interpreted where there is no GPU."""

import pytest
import torch

from ipot.accelerate import cuda as kernels
from ipot.nn.attention import attention as plain_attention

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if not kernels.available(DEVICE):
    pytest.skip("Triton is not here, or not for this device", allow_module_level=True)

from ipot.accelerate.cuda import self_attention  # noqa: E402
from ipot.accelerate.cuda.attention import attend_self, attend_self_with_lse  # noqa: E402

EXACT = 1e-5
SIZES = [(2, 37, 2, 8), (1, 64, 1, 32), (1, 130, 2, 16), (1, 5, 3, 48), (1, 70, 1, 128)]


@pytest.fixture(params=["together", "apart"])
def way(request, monkeypatch):
    """Both parts in one launch, and one behind the other."""
    programs = 0 if request.param == "apart" else 10**6
    monkeypatch.setattr(self_attention, "enough", lambda device: programs)


def draw(*shape, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random).to(DEVICE)


def plain(triples, heads):
    query, key, value = (
        t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in triples.chunk(3, dim=-1)
    )
    return plain_attention(query, key, value, None).transpose(1, 2).flatten(2)


def expected_for(triples, upstream, heads):
    exact = triples.double().requires_grad_()
    plain(exact, heads).backward(upstream.double())
    return exact.grad


def off(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(("b", "z", "heads", "width"), SIZES)
def test_gradients_are_those_of_the_formula(way, b, z, heads, width):
    triples, upstream = draw(b, z, 3 * heads * width), draw(b, z, heads * width, seed=1)
    out, lse = attend_self_with_lse(triples, heads)
    found = self_attention.self_gradients(upstream, triples, out, lse, heads)
    expected = expected_for(triples, upstream, heads)
    for part, other in zip(found.chunk(3, -1), expected.chunk(3, -1), strict=True):
        assert off(part, other) < EXACT


@pytest.mark.parametrize(("b", "z", "heads", "width"), SIZES)
def test_sums_are_those_of_the_queries_gradients(way, b, z, heads, width):
    triples, upstream = draw(b, z, 3 * heads * width), draw(b, z, heads * width, seed=1)
    out, lse = attend_self_with_lse(triples, heads)
    blocks = self_attention.blocks_of(z, width)
    sums = torch.full((b * blocks, heads * width), torch.nan, device=DEVICE)
    self_attention.self_gradients(upstream, triples, out, lse, heads, sums)
    expected = expected_for(triples, upstream, heads)[..., : heads * width]
    each = sums.view(b, blocks, -1).sum(1)
    assert off(each, expected.sum(1)) < 10 * EXACT


def test_what_does_not_lie_side_by_side(way):
    triples, upstream = draw(48, 20, 2).transpose(0, 2), draw(16, 20, 2, seed=1).transpose(0, 2)
    out, lse = attend_self_with_lse(triples.contiguous(), 2)
    found = self_attention.self_gradients(upstream, triples, out, lse, 2)
    assert off(found, expected_for(triples, upstream, 2)) < EXACT


def test_the_operator_takes_them(way):
    triples, upstream = draw(2, 33, 48).requires_grad_(), draw(2, 33, 16, seed=1)
    attend_self(triples, None, 2).backward(upstream)
    assert off(triples.grad, expected_for(triples.detach(), upstream, 2)) < EXACT


def test_large_scores_do_not_overflow(way):
    triples, upstream = 30 * draw(1, 40, 96), draw(1, 40, 32, seed=1)
    out, lse = attend_self_with_lse(triples, 2)
    found = self_attention.self_gradients(upstream, triples, out, lse, 2)
    assert off(found, expected_for(triples, upstream, 2)) < 1e-3


def test_shifted_keys_have_gradients_that_add_up_to_nothing():
    """What towers rely on: a shift of all keys changes no weight, and weights add up to one."""
    triples, upstream = draw(2, 50, 48), draw(2, 50, 16, seed=1)
    out, lse = attend_self_with_lse(triples, 2)
    _, keys, values = self_attention.self_gradients(upstream, triples, out, lse, 2).chunk(3, -1)
    assert keys.sum(1).abs().max() < 1e-4 * keys.abs().sum(1).max()
    torch.testing.assert_close(values.sum(1), upstream.sum(1), rtol=1e-4, atol=1e-4)
