"""What a block does to its rows in C++, against the layers in float64."""

import pytest
import torch
from torch import nn

from ipot.accelerate.cpu import blocks
from ipot.accelerate.cpu.blocks import _before, _behind
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.nn.attention import AttentionBlock
from tests.accelerate.cpu.threads import with_one_and_with_three

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")


def drawn(width, inner, multiplier, *, bias=False, context=None):
    torch.manual_seed(0)
    made = AttentionBlock(
        width,
        heads=1,
        head_width=inner,
        multiplier=multiplier,
        bias=bias,
        context=context,
    )
    for p in made.parameters():
        nn.init.normal_(p, std=0.3)
    return made.requires_grad_(False)


def gap(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("count", [0, 1, 48, 49, 500])
@pytest.mark.parametrize("bias", [False, True])
def test_a_norm_and_a_projection(count, bias):
    part = drawn(20, 16, 1, bias=bias).attend
    rows = 3 * torch.randn(count, 20) + 1
    weights = _before(part.norm, part.to_query, part.to_key_value)
    found = blocks.norm_project(rows, weights, part.norm.eps)
    normed = part.double().norm(rows.double())
    wanted = torch.cat([part.to_query(normed), part.to_key_value(normed)], -1)
    assert found.shape == wanted.shape == (count, 48)
    assert count == 0 or gap(found, wanted) < 1e-6


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize(("width", "inner", "multiplier"), [(64, 32, 2), (16, 10, 5), (32, 64, 1)])
def test_what_is_behind_the_attention(width, inner, multiplier, samples):
    made = drawn(width, inner, multiplier)
    rows, attended = torch.randn(1, 75, width), torch.randn(samples, 75, inner)
    part, last = made.attend, made.feed_forward
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    found = blocks.finish_rows(rows, attended, *behind, last.norm.eps)
    made.double()
    update = rows.double() + part.to_out(attended.double())
    wanted = update + last(update)
    assert found.shape == wanted.shape == (samples, 75, width)
    assert gap(found, wanted) < 1e-6


def test_gates_far_from_zero():
    """A GELU of large numbers is these numbers, or nothing."""
    width = 16
    made = drawn(width, width, 1)
    last = made.feed_forward
    nn.init.zeros_(last.into.weight)
    last.into.bias.copy_(torch.cat([torch.ones(16), torch.linspace(-40, 40, 16)]))
    last.out.weight.copy_(torch.eye(16))
    behind = _behind(made.attend.to_out, last.norm, last.into, last.out)
    zeros = torch.zeros(1, 1, width)
    found = blocks.finish_rows(zeros, zeros, *behind, 1e-5)[0, 0]
    rest = made.attend.to_out.bias + last.out.bias
    wanted = nn.functional.gelu(torch.linspace(-40, 40, 16).double())
    assert (found - rest - wanted).abs().max() < 2e-6


def test_epsilon_counts_where_rows_hardly_differ():
    made = drawn(16, 16, 1)
    part, last = made.attend, made.feed_forward
    nn.init.zeros_(part.to_out.bias)
    rows = 1e-3 * torch.randn(1, 75, 16)
    weights = _before(part.norm, part.to_query, part.to_key_value)
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    found = (
        blocks.norm_project(rows, weights, 1e-5),
        blocks.finish_rows(rows, 0 * rows, *behind, 1e-5),
    )
    made.double()
    normed, rows = part.norm(rows.double()), rows.double()
    wanted = torch.cat([part.to_query(normed), part.to_key_value(normed)], -1), rows + last(rows)
    assert gap(found[0], wanted[0]) < 1e-6
    assert gap(found[1], wanted[1]) < 1e-6


def test_layers_without_a_bias():
    made = drawn(32, 32, 1)
    part, last = made.attend, made.feed_forward
    for layer in (last.norm, part.to_out, last.into, last.out):
        nn.init.zeros_(layer.bias)
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    bare = [weights._replace(bias=None) for weights in behind]
    rows = torch.randn(1, 75, 32)
    # Twice: what was left behind by the first must not count in the second.
    for attended in (torch.randn(1, 75, 32), torch.randn(1, 75, 32)):
        wanted = blocks.finish_rows(rows, attended, *behind, 1e-5)
        torch.testing.assert_close(blocks.finish_rows(rows, attended, *bare, 1e-5), wanted)
        wanted = blocks.norm_project(rows, behind[1], 1e-5)
        torch.testing.assert_close(blocks.norm_project(rows, bare[1], 1e-5), wanted)


def test_results_do_not_depend_on_threads():
    made = drawn(64, 64, 2)
    part, last = made.attend, made.feed_forward
    weights = _before(part.norm, part.to_query, part.to_key_value)
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    rows, attended = torch.randn(2, 10_000, 64), torch.randn(2, 10_000, 64)
    projected = with_one_and_with_three(lambda: blocks.norm_project(rows, weights, 1e-5))
    assert torch.equal(*projected)
    finished = with_one_and_with_three(lambda: blocks.finish_rows(rows, attended, *behind, 1e-5))
    assert torch.equal(*finished)


def test_rows_may_lie_anyhow():
    made = drawn(16, 16, 1)
    part, last = made.attend, made.feed_forward
    weights = _before(part.norm, part.to_query, part.to_key_value)
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    rows, attended = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    others = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (rows, attended)]
    assert not others[0].is_contiguous()
    wanted = blocks.norm_project(rows, weights, 1e-5)
    assert torch.equal(blocks.norm_project(others[0], weights, 1e-5), wanted)
    wanted = blocks.finish_rows(rows, attended, *behind, 1e-5)
    assert torch.equal(blocks.finish_rows(*others, *behind, 1e-5), wanted)


def test_widths_that_fill_vectors():
    assert blocks.fits(16, 64, 128)
    # Half of the largest vectors will not do, though there are machines that have such.
    assert not any(blocks.fits(*widths) for widths in [(16, 20), (20, 16), (24,), (8, 16)])


def test_what_is_not_a_number_is_not_lost():
    made = drawn(16, 16, 1)
    part, last = made.attend, made.feed_forward
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    rows = torch.randn(1, 5, 16)
    rows[0, 2, 3] = torch.nan
    found = blocks.finish_rows(rows, rows, *behind, 1e-5)
    assert found.isnan().any(-1).tolist() == [[False, False, True, False, False]]
