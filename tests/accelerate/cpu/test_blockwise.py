"""Attention in blocks against its formula, forward and backward."""

from __future__ import annotations

import pytest
import torch

from ipot.accelerate import accelerate
from ipot.accelerate.attention import attend, attend_narrow, attention, path_of
from ipot.accelerate.cpu import blockwise
from ipot.accelerate.streaming import attend_with_lse, gradients
from ipot.nn.attention import attention as plain_attention
from ipot.nn.points import FourierFeatures
from tests.accelerate.models import target

EXACT = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 8 by 24 at most, so that small tensors have several of them."""
    monkeypatch.setattr(blockwise, "SCORES", 192)
    monkeypatch.setattr(blockwise, "SHORT", 8)


def drawn(
    rows: int,
    columns: int,
    *,
    heads: int = 2,
    width: int = 3,
    values: int = 3,
    batch: int = 2,
    shared: bool = False,
    gain: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values with their heads side by side."""
    generator = torch.Generator().manual_seed(rows + 31 * columns)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)

    query = gain * normal(1 if shared else batch, rows, heads * width)
    return (
        query.requires_grad_(),
        normal(batch, columns, heads * width).requires_grad_(),
        normal(batch, columns, heads * values).requires_grad_(),
    )


def apart(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, N, H e) to (B, H, N, e)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def formula(query, key, value, heads, mask=None):
    """The answer in three operations, heads side by side again."""
    query = apart(query.expand(len(key), -1, -1), heads)
    out = plain_attention(query, apart(key, heads), apart(value, heads), mask)
    return out.transpose(1, 2).flatten(2)


def some_hidden(batch: int, columns: int) -> torch.Tensor:
    """A mask with real keys for every sample, and a whole block without any for the first."""
    mask = torch.rand(batch, columns, generator=torch.Generator().manual_seed(0)) > 0.4
    mask[0, : columns // 2] = False
    mask[:, -1] = True
    return mask


@pytest.mark.parametrize("gain", [1.0, 1000.0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "heads", "values"),
    [(7, 61, 2, 3), (61, 7, 2, 3), (8, 48, 1, 3), (24, 24, 1, 3), (50, 51, 5, 3), (61, 9, 3, 1)],
)
def test_equals_formula(rows, columns, heads, values, shared, masked, gain):
    tensors = drawn(rows, columns, heads=heads, values=values, shared=shared, gain=gain)
    mask = some_hidden(2, columns) if masked else None
    out, lse = blockwise.attend(*tensors, heads, mask)
    expected = formula(*tensors, heads, mask)
    torch.testing.assert_close(out, expected, **EXACT)
    query, key, _ = (apart(t, heads) for t in tensors)
    scores = query @ key.transpose(-1, -2) / 3**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-11, atol=1e-9)
    gradient = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, gradient)
    wanted = torch.autograd.grad(expected, tensors, gradient)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9 * gain)


@pytest.mark.parametrize("shared", [False, True])
def test_keys_and_values_in_one(shared):
    query, key, value = drawn(40, 30, shared=shared)
    pairs = torch.cat([key, value], -1).detach().requires_grad_()
    out, _ = blockwise.attend(query, pairs, None, 2)
    expected, _ = blockwise.attend(query, key, value, 2)
    torch.testing.assert_close(out, expected, **EXACT)
    gradient = torch.randn_like(out)
    d_query, d_pairs = torch.autograd.grad(out, (query, pairs), gradient)
    wanted = torch.autograd.grad(expected, (query, key, value), gradient)
    torch.testing.assert_close(d_query, wanted[0], **EXACT)
    torch.testing.assert_close(d_pairs, torch.cat(wanted[1:], -1), **EXACT)


def test_numerical_derivatives():
    tensors = drawn(9, 26, heads=1, width=2, values=2, shared=True)
    mask = some_hidden(2, 26)

    def answer(query, key, value):
        return blockwise.attend(query, key, value, 1, mask)[0]

    assert torch.autograd.gradcheck(answer, tensors)


@pytest.mark.parametrize("gain", [1.0, 1000.0])
def test_without_a_real_key(gain):
    """Nothing is answered and nothing learnt, and the other samples do not mind."""
    tensors = drawn(9, 40, gain=gain)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[1] = False
    out, lse = blockwise.attend(*tensors, 2, mask)
    query, key, value = tensors
    torch.testing.assert_close(out[:1], formula(query[:1], key[:1], value[:1], 2), **EXACT)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert bool((lse[1] == float("-inf")).all())
    for gradient in torch.autograd.grad(out.square().sum(), tensors):
        assert bool(gradient.isfinite().all())
        assert bool(gradient[0].any())
        assert not bool(gradient[1].any())


@pytest.mark.parametrize("size", [59.0, 61.0, 1e4])
def test_large_scores_in_float32(size):
    """Scores up to either side of what exp can take as it is, and far beyond."""
    keys = torch.linspace(-1, 1, 100).view(1, -1, 1)
    query = torch.tensor([size, -size, 0.0]).view(1, 3, 1)
    value = torch.arange(100.0).view(1, -1, 1)
    out, lse = blockwise.attend(query, keys, value, 1)
    expected = formula(query.double(), keys.double(), value.double(), 1)
    torch.testing.assert_close(out.double(), expected, rtol=2e-5, atol=1e-4)
    exact = (query.double() @ keys.double().mT).logsumexp(-1)
    torch.testing.assert_close(lse.double(), exact.unsqueeze(1), rtol=1e-6, atol=1e-5)


def test_steady_sums_say_the_same_as_careful_ones(monkeypatch):
    tensors = drawn(30, 70)
    steady, _ = blockwise.attend(*tensors, 2)
    monkeypatch.setattr(blockwise, "STEADY", 0.0)
    careful, _ = blockwise.attend(*tensors, 2)
    torch.testing.assert_close(steady, careful, **EXACT)


def test_no_gradient_for_what_needs_none():
    query, key, value = drawn(20, 30)
    out, _ = blockwise.attend(query.detach(), key, value.detach(), 2)
    (found,) = torch.autograd.grad(out.sum(), key)
    (wanted,) = torch.autograd.grad(formula(query, key, value, 2).sum(), key)
    torch.testing.assert_close(found, wanted, **EXACT)


def test_every_entrance_has_the_path():
    query, key, value = drawn(40, 30, shared=True)
    expected = formula(query, key, value, 2)
    blocks, pairs = target("blocks"), torch.cat([key, value], -1)
    torch.testing.assert_close(attend(blocks, query, pairs, 2), expected, **EXACT)
    torch.testing.assert_close(attend_narrow(blocks, query, key, value, 2), expected, **EXACT)
    heads = (apart(t, 2) for t in (query.expand(2, -1, -1), key, value))
    out = attention(blocks, *heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out, expected, **EXACT)


@pytest.mark.usefixtures("without_native")
def test_chosen_by_sizes():
    many = torch.empty(1, 5000, 8, requires_grad=True)
    few = torch.empty(4, 256, 8, requires_grad=True)
    assert path_of(target(), few, many.expand(4, -1, -1), 1) == "blocks"
    assert path_of(target(), few, few, 1) == "plain"
    assert path_of(target(), few, many.bfloat16(), 1) == "plain"
    with torch.no_grad():
        assert path_of(target(), many, few, 1) == "fused"
        assert path_of(target(), many, few, 1, narrow=True) == "blocks"
        assert path_of(target(), many[:, :9], few, 1, narrow=True) == "fused"
    assert path_of(target("plain"), few, many.expand(4, -1, -1), 1) == "plain"


@pytest.mark.parametrize("masked", [False, True])
def test_chunks_of_a_stream(masked):
    """Gradients of two chunks, from the joined logarithm, are those of all keys together."""
    query, key, value = drawn(12, 50, shared=True)
    mask = some_hidden(2, 50) if masked else None
    pairs = torch.cat([key, value], -1).detach()
    with torch.no_grad():
        out, lse = blockwise.attend(query, pairs, None, 2, mask)
    gradient = torch.randn_like(out)
    expected = formula(query, key, value, 2, mask)
    wanted = torch.autograd.grad(expected, (query, key, value), gradient)
    parts = []
    for part in (slice(0, 30), slice(30, 50)):
        real = None if mask is None else mask[:, part]
        got = attend_with_lse(target(), query.detach(), pairs[:, part], 2, real)
        alone = blockwise.attend(query.detach(), pairs[:, part], None, 2, real)
        for one, other in zip(got, alone, strict=True):
            torch.testing.assert_close(one, other, **EXACT)
        parts.append(
            gradients(target(), gradient, query.detach(), pairs[:, part], real, out, lse, 2)
        )
    torch.testing.assert_close(parts[0][0] + parts[1][0], wanted[0], **EXACT)
    joined = torch.cat([d_pairs for _, d_pairs in parts], 1)
    torch.testing.assert_close(joined, torch.cat(wanted[1:], -1), **EXACT)


@pytest.mark.compile
def test_within_compiled_code(backend):
    tensors = drawn(20, 60, dtype=torch.float32)

    def scaled(query, key, value):
        return 2 * blockwise.attend(query + 1, key, value, 2)[0]

    out, expected = (
        torch.compile(scaled, fullgraph=True, backend=backend)(*tensors),
        scaled(*tensors),
    )
    torch.testing.assert_close(out, expected)
    found = torch.autograd.grad(out.square().sum(), tensors)
    wanted = torch.autograd.grad(expected.square().sum(), tensors)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("without_native")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_are_the_same_to_the_last_bit(dtype):
    periodic = {"domain": ((0.0, 1.0), (-2.0, 3.0)), "periods": (None, 5.0)}
    for features in (
        FourierFeatures((3, 5), (9.0, 7.0)),
        FourierFeatures((3, 4), (8.0, 8.0), **periodic),
    ):
        points = torch.rand(2, 17, 2, dtype=dtype)
        expected, quick = features(points), accelerate(features)
        assert torch.equal(quick(points), expected)
        assert torch.equal(quick(points.requires_grad_()), expected)
