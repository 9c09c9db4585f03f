"""Attention of few queries over any number of keys, which come in chunks and are not kept.

Each chunk gives an answer and the logarithm of the sum of its weights; from these chunks are joined
exactly. Only the answers of a few chunks are held, each as large as the queries. The backward pass
computes every chunk again: from the joined logarithm follow the weights that its keys had among all
of them, from these the gradients of its keys and values, and these go on to whatever the chunk was
made from. So memory depends on the size of a chunk and not on the number of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ipot.accelerate.attention import goes_by_halves, goes_native, path_of
from ipot.accelerate.chunks import Chunks
from ipot.accelerate.cpu import attention as native
from ipot.accelerate.cpu import blockwise
from ipot.accelerate.twins import Target

JOINED_AT_ONCE = 32
"""Chunks whose answers are kept before they become one ..."""
NUMBERS_KEPT = 1 << 21
"""... or fewer, where these are as many numbers: joining holds some copies in float64."""


@torch.compiler.disable
def attend_chunks(
    target: Target,
    query: Float[Tensor, "Bq M He"],
    chunks: Chunks,
    pairs_of: Callable[[Any], Tensor],
    heads: int,
) -> Float[Tensor, "B M Hf"]:
    """As `attend`, over keys and values (B, n, H (e + f)) that `pairs_of` makes from the tokens of
    each chunk. The weights that it uses must be among those of the chunks.
    """
    context = _autocast(query.device.type)
    weights = [w for w in chunks.weights if w.requires_grad]
    rows = [t for t in chunks.rows if t is not None]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (query, *weights, *rows)):
        return _Attend.apply(
            target, query, chunks, pairs_of, heads, context, *chunks.rows, *weights
        )
    with context():
        return _joined(target, query, chunks, pairs_of, heads)[0].to(query.dtype)


def attend_with_lse(
    target: Target,
    query: Float[Tensor, "Bq M He"],
    pairs: Float[Tensor, "B n Hef"],
    heads: int,
    mask: Bool[Tensor, "B n"] | None = None,
) -> tuple[Float[Tensor, "B M Hf"], Float[Tensor, "B H M"]]:
    """The attention over one chunk, and the logarithm of the sum of its weights.

    For a sample without real keys the answer is 0 and its logarithm minus infinity.
    """
    if path_of(target, pairs, pairs) == "kernel":
        from ipot.accelerate.cuda.attention import attend_with_lse as kernel

        return kernel(query.to(pairs.dtype), pairs, heads, mask)
    if goes_native(pairs, pairs, heads):
        return native.attend(query.to(pairs.dtype), pairs, None, heads, mask)
    parts = _apart(query, pairs, heads)
    if parts[0].device.type != "cpu":
        out, lse = _plain(*parts, mask)
    elif mask is None and parts[1].shape == parts[2].shape:
        asked = parts[0].expand(len(pairs), -1, -1, -1)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(asked, *parts[1:])
    else:
        dtype = parts[0].dtype
        return blockwise.attend(query.to(dtype), pairs.to(dtype), None, heads, mask)
    return out.transpose(1, 2).flatten(2), lse


def gradients(
    target: Target,
    gradient: Float[Tensor, "B M Hf"],
    query: Float[Tensor, "Bq M He"],
    pairs: Float[Tensor, "B n Hef"],
    mask: Bool[Tensor, "B n"] | None,
    out: Float[Tensor, "B M Hf"],
    lse: Float[Tensor, "B H M"],
    heads: int,
) -> tuple[Float[Tensor, "Bq M He"], Float[Tensor, "B n Hef"]]:
    """One chunk's contribution to the gradient of the queries, and the gradient of its keys and
    values.

    `out` and `lse` are those of all chunks together.
    """
    if path_of(target, pairs, pairs) == "kernel":
        from ipot.accelerate.cuda.attention import chunk_gradients

        return chunk_gradients(gradient, query.to(pairs.dtype), pairs, mask, out, lse, heads)
    if pairs.device.type == "cpu":
        dtype = torch.promote_types(pairs.dtype, torch.float32)
        gradient, query, pairs, out, lse = (t.to(dtype) for t in (gradient, query, pairs, out, lse))
        if goes_native(pairs, pairs, heads):
            return native.gradients(gradient, query, pairs, mask, out, lse, heads)
        return blockwise.gradients(gradient, query, pairs, mask, out, lse, heads)
    shared = query.shape[0] == 1 and pairs.shape[0] > 1
    query, key, value = _apart(query, pairs, heads)
    gradient, out = (_split(t, heads).to(query.dtype) for t in (gradient, out))
    scale = query.shape[-1] ** -0.5
    weights = _scores(query, key, mask).sub_(_finite(lse).unsqueeze(-1)).exp_()
    d_value = weights.transpose(-1, -2) @ gradient
    d_scores = gradient @ value.transpose(-1, -2)
    d_scores = d_scores.sub_((gradient * out).sum(-1, keepdim=True)).mul_(weights).mul_(scale)
    d_key = d_scores.transpose(-1, -2) @ query
    d_query = d_scores @ key
    if shared:
        d_query = d_query.sum(0, keepdim=True)
    d_query, d_key, d_value = (t.transpose(1, 2).flatten(2) for t in (d_query, d_key, d_value))
    return d_query, torch.cat([d_key, d_value], -1)


class _Running:
    """The answers of the chunks so far, and the logarithms of their sums.

    Several chunks are joined at a time, since a GPU takes longer to start a small operation than to
    do it. They are joined in float64, so that thousands of chunks add up without loss.
    """

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.parts: list[tuple[Tensor, Tensor]] = []

    def add(self, out: Tensor, lse: Tensor) -> None:
        """Add a chunk."""
        self.parts.append((out, lse))
        most = max(2, min(JOINED_AT_ONCE, NUMBERS_KEPT // max(1, out.numel())))
        if len(self.parts) >= most:
            self.parts = [self._join()]

    def joined(self) -> tuple[Tensor, Tensor]:
        """The attention over all chunks, and its logarithm."""
        if not self.parts:
            raise ValueError("there is nothing to attend to: no rows, and no tokens after them")
        return self._join()

    def _join(self) -> tuple[Tensor, Tensor]:
        out = torch.stack([_split(out.double(), self.heads) for out, _ in self.parts])
        lse = torch.stack([lse.double() for _, lse in self.parts]).unsqueeze(-1)
        top = _finite(lse.amax(0))  # where there was no real key, nothing is scaled by nothing
        weight = (lse - top).exp()
        total = weight.sum(0)
        # A chunk without a real key may have left anything.
        out = torch.where(weight > 0, out * weight, 0.0).sum(0) / torch.where(total > 0, total, 1.0)
        return out.transpose(1, 2).flatten(2), (top + total.log()).squeeze(-1)


class _Attend(torch.autograd.Function):
    """The attention over all chunks with its gradient. It saves no chunk, only inputs, answer and
    logarithm."""

    @staticmethod
    def forward(ctx: Any, target, query, chunks, pairs_of, heads, context, *tensors) -> Any:
        """The attention over all chunks."""
        with context():
            out, lse = _joined(target, query, chunks, pairs_of, heads)
        # The tensors are saved for a complaint if something changes them before the backward pass.
        present = [t for t in tensors if t is not None]
        ctx.save_for_backward(query, out, lse, *present)
        ctx.given = target, chunks, pairs_of, heads, context, tensors
        return out.to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        """Compute every chunk again, with its gradients."""
        gradient, (query, out, lse, *_) = grad_outputs[0], ctx.saved_tensors
        target, chunks, pairs_of, heads, context, tensors = ctx.given
        wanted, cut = ctx.needs_input_grad[6:], len(chunks.rows)
        d_query: Tensor = torch.zeros_like(query, dtype=lse.dtype)
        sums: list[Any] = [
            torch.zeros_like(t) if w else None for t, w in zip(tensors, wanted, strict=True)
        ]
        for part in chunks.parts():
            rows = [
                t.detach().requires_grad_() if wanted[i] and t is not None else t
                for i, t in enumerate(chunks.cut(part))
            ]
            with torch.enable_grad(), context():
                tokens, mask = chunks.made(part, rows)
                pairs = pairs_of(tokens)
            d_part, d_pairs = _exact(
                gradients, target, gradient, query, pairs, mask, out, lse, heads
            )
            d_query += d_part
            if not pairs.requires_grad:
                continue
            leaves = {i: t for i, t in enumerate(rows) if wanted[i] and t is not None}
            leaves |= {i: t for i, t in enumerate(tensors) if i >= cut and wanted[i]}
            found = torch.autograd.grad(
                pairs, tuple(leaves.values()), d_pairs.to(pairs.dtype), allow_unused=True
            )
            for i, value in zip(leaves, found, strict=True):
                place = sums[i][:, part] if i < cut else sums[i]
                if value is not None:
                    place += value
        return None, d_query.to(query.dtype), None, None, None, None, *sums


def _joined(
    target: Target,
    query: Tensor,
    chunks: Chunks,
    pairs_of: Callable[[Any], Tensor],
    heads: int,
) -> tuple[Tensor, Tensor]:
    """The attention over all chunks and its logarithm, at least in float32."""
    running = _Running(heads)
    for part in chunks.parts():
        tokens, mask = chunks.made(part, chunks.cut(part))
        pairs = pairs_of(tokens)
        if target.free and goes_by_halves(query, pairs, heads):
            running.add(*native.attend_rounded(query, pairs, None, heads, mask, logs=True))
        else:
            running.add(*_exact(attend_with_lse, target, query, pairs, heads, mask))
    dtype = torch.promote_types(query.dtype, torch.float32)
    out, lse = running.joined()
    return out.to(dtype), lse.to(dtype)


def _exact(function: Callable, target: Target, *given: Any) -> Any:
    """The function without autocast, so that nothing is rounded to a lower precision."""
    given = tuple(t.detach() if isinstance(t, Tensor) else t for t in given)
    with torch.no_grad(), torch.autocast(target.device.type, enabled=False):
        return function(target, *given)


def _plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    scores = _scores(query, key, mask)
    top = _finite(scores.amax(-1, keepdim=True))
    weights = scores.sub_(top).exp_()
    total = weights.sum(-1, keepdim=True)
    # The largest weight is 1, so a smaller sum is that of no key at all.
    out = (weights @ value) / total.clamp_min(1.0)
    return out, (top + total.log()).squeeze(-1)


def _scores(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores.masked_fill_(~mask[:, None, None, :], float("-inf"))
    return scores


def _apart(query: Tensor, pairs: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with their heads apart, at least in float32."""
    dtype = torch.promote_types(pairs.dtype, torch.float32)
    inner = query.shape[-1]
    key, value = pairs.to(dtype).split([inner, pairs.shape[-1] - inner], -1)
    return _split(query.to(dtype), heads), _split(key, heads), _split(value, heads)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _finite(top: Tensor) -> Tensor:
    return top.masked_fill(top == float("-inf"), 0.0)


def _autocast(device_type: str) -> Callable[[], Any]:
    """The current autocast, to be entered later. Without its cache, so that the backward pass gets
    a weight's gradient in every chunk, and a captured graph rounds weights at every replay."""
    dtype, enabled = torch.get_autocast_dtype(device_type), torch.is_autocast_enabled(device_type)
    return partial(torch.autocast, device_type, dtype, enabled=enabled, cache_enabled=False)
