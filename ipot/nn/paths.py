"""The ways to compute softmax(Q Kᵀ / √e) V. They agree up to rounding; the device decides.

plain     the formula, three operations: the reference for the others, and best for training on a
          CPU where scores are few; there the backward of the fused operator is an order of
          magnitude slower
fused     torch's own operator
native    ours for a CPU, in C++ (see `ipot.native.attention`): float32, where there is a compiler
halves    the same with products in bf16, where autocast asks for it and nothing is differentiated
blocks    ours for a CPU without one (see `ipot.nn.blockwise`), for training where scores are many,
          and for values narrower than keys, which the fused operator does by the formula
kernel    ours, for few queries or few keys (see `ipot.kernels.attention`); bf16 on a GPU
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ipot import kernels
from ipot.native import attention as native
from ipot.native.reach import available, exact, rounds
from ipot.nn import blockwise

PATHS = ("auto", "plain", "fused", "native", "halves", "blocks", "kernel")
FEW = 1 << 12
"""Scores of a batch up to which the formula is as quick as any other way."""
OURS = {
    "native": native.attend,
    "halves": native.attend_rounded,
    "blocks": blockwise.attend,
}
"""Those of our own for a CPU."""
_chosen = "auto"


@contextmanager
def attention_path(name: str) -> Iterator[None]:
    """Compute attention in one of PATHS, whatever the device; for measurements and tests."""
    global _chosen
    if name not in PATHS:
        raise ValueError(f"unknown path {name!r}; known: {', '.join(PATHS)}")
    before, _chosen = _chosen, name
    try:
        yield
    finally:
        _chosen = before


def path_is_free() -> bool:
    """Whether no path was asked for, so that the device decides."""
    return _chosen == "auto"


def by_the_book() -> bool:
    """Whether the plain version was asked for, so that no other shortcut is taken either."""
    return _chosen == "plain"


def path_of(query: Tensor, key: Tensor, heads: int | None = None, *, narrow: bool = False) -> str:
    """The way that attention between these goes; `heads` are how many lie side by side in their
    channels, `narrow` says that values are narrower than keys."""
    if _chosen != "auto":
        return _chosen
    if query.device.type == "cpu":
        if goes_native(query, key, heads):
            return "native"
        if goes_by_halves(query, key, heads):
            return "halves"
        trained = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
        if heads and blockwise.pays(query, key, heads, trained=trained, narrow=narrow):
            return "blocks"
        return "plain" if trained else "fused"
    # Rows of whole 16 bytes: others must not be loaded asynchronously.
    fits = query.dtype == torch.bfloat16 and not (query.shape[-1] % 8 or key.shape[-1] % 8)
    if heads:
        fits = fits and query.shape[-1] // heads <= kernels.WIDEST_HEAD
    return "kernel" if fits and kernels.available(query.device) else "fused"


def goes_native(query: Tensor, key: Tensor, heads: int | None) -> bool:
    """Whether compiled kernels attend between these on a CPU, whatever was asked for."""
    return exact(query, key) and _many(query, key, heads) and available()


def goes_by_halves(query: Tensor, key: Tensor, heads: int | None) -> bool:
    """The same of those with products in bf16."""
    return rounds(query, key) and _many(query, key, heads)


def _many(query: Tensor, key: Tensor, heads: int | None) -> bool:
    return len(key) * (heads or 0) * query.shape[-2] * key.shape[-2] > FEW


def goes_by_kernel(x: Tensor) -> bool:
    """Whether what is computed from this tensor now will go by our kernels."""
    kind = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
    if _chosen != "auto":
        return _chosen == "kernel"
    return x.device.type == "cuda" and kind == torch.bfloat16 and kernels.available(x.device)


def attention(
    query: Float[Tensor, "B H M e"],
    key: Float[Tensor, "B H N e"],
    value: Float[Tensor, "B H N f"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B H M f"]:
    """softmax(Q Kᵀ / √e) V over the real keys, heads apart."""
    path = path_of(query, key)
    if path == "plain":
        return plain_attention(query, key, value, mask)
    if path in OURS:
        heads = key.shape[1]
        query, key, value = (t.transpose(1, 2).flatten(2) for t in (query, key, value))
        return _split(OURS[path](query, key, value, heads, mask)[0], heads)
    bias = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def attend(
    query: Float[Tensor, "Bq M He"],
    pairs: Float[Tensor, "B N Hef"],
    heads: int,
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B M Hf"]:
    """The same as projections leave it: heads side by side, keys and behind them values.

    A query with a leading 1 serves the whole batch. Values may be narrower than keys.
    """
    path = path_of(query, pairs, heads)
    if path == "kernel":
        from ipot.kernels.attention import attend as kernel

        return kernel(query, pairs, heads, mask)
    if path in OURS:
        return OURS[path](query, pairs, None, heads, mask)[0]
    inner = query.shape[-1]
    return _apart(query, pairs[..., :inner], pairs[..., inner:], heads, mask)


def attend_narrow(
    query: Float[Tensor, "Bq M He"],
    key: Float[Tensor, "B N He"],
    value: Float[Tensor, "B N Hf"],
    heads: int,
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B M Hf"]:
    """The same for values of a few channels, apart from their keys."""
    path = path_of(query, key, heads, narrow=value.shape[-1] < key.shape[-1])
    if path == "kernel":
        from ipot.kernels.attention import attend_narrow as kernel

        return kernel(query, key, value, heads, mask)
    if path != "halves":  # which rounds what it has to, and not these
        value = value.to(key.dtype)
    if path in OURS:
        return OURS[path](query, key, value, heads, mask)[0]
    return _apart(query, key, value, heads, mask)


def _apart(query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    query = _split(query, heads).expand(len(key), -1, -1, -1)
    out = attention(query, _split(key, heads), _split(value, heads), mask)
    return out.transpose(1, 2).flatten(2)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """The same by its formula: the reference for every other path."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ value


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
