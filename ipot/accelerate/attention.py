"""The implementations of softmax(Q Kᵀ / √e) V. They agree up to rounding.

plain     the formula (`ipot.nn.attention`), three operations; best for training on a CPU where
          scores are few: there the backward of the fused operator is an order of magnitude slower
fused     torch's own operator
native    ours for a CPU, in C++ (`ipot.accelerate.cpu.attention`): float32, needs a compiler
halves    the same with products in bf16, where autocast asks for it and nothing is differentiated
blocks    ours for a CPU without a compiler (`ipot.accelerate.cpu.blockwise`), for training where
          scores are many, and for values narrower than keys, which the fused operator does by the
          formula
kernel    ours in Triton, for few queries or few keys (`ipot.accelerate.cuda.attention`); bf16 on
          a GPU
"""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.accelerate import cuda
from ipot.accelerate.cpu import attention as native
from ipot.accelerate.cpu import blockwise
from ipot.accelerate.cpu.interface import available, exact, rounds
from ipot.accelerate.twins import Target
from ipot.nn.attention import attention as plain_attention
from ipot.nn.attention import join_heads, split_heads

FEW = 1 << 12
"""Scores of a batch up to which the formula is as quick as anything else."""
OURS = {
    "native": native.attend,
    "halves": native.attend_rounded,
    "blocks": blockwise.attend,
}
"""Those of our own for a CPU."""


def path_of(
    target: Target, query: Tensor, key: Tensor, heads: int | None = None, *, narrow: bool = False
) -> str:
    """Which implementation computes attention between these tensors. `heads` is how many heads lie
    side by side in their channels, `narrow` says that values are narrower than keys."""
    if not target.free:
        return target.attention
    if query.device.type == "cpu":
        if goes_native(query, key, heads):
            return "native"
        if goes_by_halves(query, key, heads):
            return "halves"
        trained = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
        if heads and blockwise.pays(query, key, heads, trained=trained, narrow=narrow):
            return "blocks"
        # Nor has the fused operator derivatives in forward mode.
        return "plain" if trained or forward._current_level >= 0 else "fused"
    # Rows of whole 16 bytes: others must not be loaded asynchronously.
    fits = query.dtype == torch.bfloat16 and not (query.shape[-1] % 8 or key.shape[-1] % 8)
    if heads:
        fits = fits and query.shape[-1] // heads <= cuda.WIDEST_HEAD
    return "kernel" if fits and cuda.available(query.device) else "fused"


def goes_native(query: Tensor, key: Tensor, heads: int | None) -> bool:
    """True if our C++ kernels compute this attention in float32."""
    return exact(query, key) and _many(query, key, heads) and available()


def goes_by_halves(query: Tensor, key: Tensor, heads: int | None) -> bool:
    """True if our C++ kernels compute this attention with products in bf16."""
    return rounds(query, key) and _many(query, key, heads)


def _many(query: Tensor, key: Tensor, heads: int | None) -> bool:
    return len(key) * (heads or 0) * query.shape[-2] * key.shape[-2] > FEW


def attention(
    target: Target,
    query: Float[Tensor, "Bq H M e"],
    key: Float[Tensor, "B H N e"],
    value: Float[Tensor, "B H N f"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B H M f"]:
    """softmax(Q Kᵀ / √e) V over the real keys, with the heads as an axis of their own."""
    path = path_of(target, query, key)
    if path == "plain":
        return plain_attention(query, key, value, mask)
    if path in OURS:
        heads = key.shape[1]
        query, key, value = (join_heads(t) for t in (query, key, value))
        return split_heads(OURS[path](query, key, value, heads, mask)[0], heads)
    bias = None if mask is None else mask[:, None, None, :]
    query = query.expand(len(key), -1, -1, -1)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def attend(
    target: Target,
    query: Float[Tensor, "Bq M He"],
    pairs: Float[Tensor, "B N Hef"],
    heads: int,
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B M Hf"]:
    """Attention from projections: heads side by side, keys and values packed in one tensor.

    A query with a leading 1 serves the whole batch. Values may be narrower than keys.
    """
    path = path_of(target, query, pairs, heads)
    if path == "kernel":
        from ipot.accelerate.cuda.attention import attend as kernel

        return kernel(query, pairs, heads, mask)
    if path in OURS:
        return OURS[path](query, pairs, None, heads, mask)[0]
    inner = query.shape[-1]
    return _apart(target, query, pairs[..., :inner], pairs[..., inner:], heads, mask)


def attend_narrow(
    target: Target,
    query: Float[Tensor, "Bq M He"],
    key: Float[Tensor, "B N He"],
    value: Float[Tensor, "B N Hf"],
    heads: int,
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B M Hf"]:
    """Attention with values of a few channels, given apart from their keys."""
    path = path_of(target, query, key, heads, narrow=value.shape[-1] < key.shape[-1])
    if path == "kernel":
        from ipot.accelerate.cuda.attention import attend_narrow as kernel

        return kernel(query, key, value, heads, mask)
    if path != "halves":  # which rounds what it has to, and not these
        value = value.to(key.dtype)
    if path in OURS:
        return OURS[path](query, key, value, heads, mask)[0]
    return _apart(target, query, key, value, heads, mask)


def _apart(
    target: Target, query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None
) -> Tensor:
    query, key, value = (split_heads(t, heads) for t in (query, key, value))
    return join_heads(attention(target, query, key, value, mask))
