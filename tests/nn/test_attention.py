"""Attention by its formula."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ipot.nn.attention import AttentionBlock, GatedFeedForward, MultiHead, attention


def inputs(*, gradient: bool):
    random = torch.Generator().manual_seed(0)

    def draw(rows):
        t = torch.randn(2, 3, rows, 4, generator=random, dtype=torch.float64)
        return t.requires_grad_(gradient)

    return draw(5), draw(7), draw(7)


MASK = torch.tensor([[True] * 7, [True, False, True, True, False, False, True]])


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_the_formula_in_numpy(mask):
    q, k, v = inputs(gradient=False)
    scores = np.einsum("bhme,bhne->bhmn", q, k) / np.sqrt(4)
    if mask is not None:
        scores = np.where(mask.numpy()[:, None, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhmn,bhne->bhme", weights, v)
    np.testing.assert_allclose(attention(q, k, v, mask), expected, atol=1e-12)


def test_masked_keys_are_never_read():
    q, k, v = inputs(gradient=False)
    hidden = ~MASK[:, None, :, None]
    poisoned = (torch.where(hidden, 1e6, k), torch.where(hidden, -1e6, v))
    assert torch.equal(attention(q, *poisoned, MASK), attention(q, k, v, MASK))


def test_a_query_with_a_leading_one_serves_the_whole_batch():
    layer = MultiHead(6, context=5, heads=2, head_width=3, out=4)
    query, context = torch.randn(1, 3, 6), torch.randn(2, 7, 5)
    shared = layer(query, context, MASK)
    assert shared.shape == (2, 3, 4)
    torch.testing.assert_close(shared, layer(query.expand(2, -1, -1), context, MASK))


def test_projections_have_a_bias_only_at_the_output():
    layer = MultiHead(6, context=5, heads=2, head_width=3, out=4)
    biases = {n for n, _ in layer.named_parameters() if n.endswith("bias")}
    assert biases == {"norm.bias", "norm_context.bias", "to_out.bias"}
    assert MultiHead(6, context=None, heads=2, head_width=3, out=4).norm_context is None


def test_the_gate_is_a_gelu_of_the_second_half():
    layer = GatedFeedForward(4, 2).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    hidden = F.linear(F.layer_norm(x, (4,)), layer.into.weight, layer.into.bias)
    value, gate = hidden[:, :8], hidden[:, 8:]
    expected = F.linear(
        value * gate * 0.5 * (1 + torch.erf(gate / 2**0.5)), layer.out.weight, layer.out.bias
    )
    torch.testing.assert_close(layer(x), expected)


def test_the_residual_can_be_left_out():
    torch.manual_seed(0)
    block = AttentionBlock(6, heads=2, context=5)
    y, x = torch.randn(2, 3, 6), torch.randn(2, 7, 5)
    update = block.attend(y, x)
    torch.testing.assert_close(block(y, x), y + update + block.feed_forward(y + update))
    block.residual = False
    torch.testing.assert_close(block(y, x), update + block.feed_forward(update))


def test_a_width_must_divide_among_the_heads():
    with pytest.raises(ValueError, match="width of 6 does not divide among 4 heads"):
        AttentionBlock(6, heads=4)


def test_a_plain_block_has_biases_and_no_gate():
    block = AttentionBlock(6, heads=2, context=5, multiplier=3, bias=True, gated=False).double()
    biased = {n for n, _ in block.attend.named_parameters() if n.endswith("bias")}
    assert biased >= {"to_query.bias", "to_key_value.bias", "to_out.bias"}
    layer, x = block.feed_forward, torch.randn(3, 6, dtype=torch.float64)
    hidden = F.linear(F.layer_norm(x, (6,)), layer.into.weight, layer.into.bias)
    assert hidden.shape == (3, 18)
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    torch.testing.assert_close(layer(x), F.linear(hidden, layer.out.weight, layer.out.bias))
