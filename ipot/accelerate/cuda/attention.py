"""Attention between few and many: inducing points over inputs, queries over inducing points.

The kernels at hand divide their work among blocks of queries (forward) or of keys (backward). With
a few hundred inducing points on one side that leaves most of a GPU idle. Here the long side is
divided in both directions: each program takes a share of it, and the short side's sums over the
shares are added up in a fixed order, so that a result does not depend on chance.

    gather   few queries, many keys: the keys are shared out
    spread   many queries, few keys: the queries are shared out

Queries may serve a whole batch; values may be narrower than keys. The backward pass computes the
weights anew from the logarithm of their sum, so nothing of size queries times keys is stored. It
leaves out the gradient of queries that want none.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

import torch
from torch import Tensor

from ipot.accelerate.cuda import on_its_device, plainly
from ipot.accelerate.cuda._attention_division import Division, Sizes
from ipot.accelerate.cuda._attention_launch import (
    add_parts,
    backward,
    forward,
    side_by_side,
    sum_parts,
    values_of,
)
from ipot.accelerate.cuda.self_attention import self_gradients

SCRATCH = 256 << 20
"""Bytes that parts of a gradient may take before a batch is worked off in groups."""


def attend(query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    """Attention: (Bq, M, H e) and (B, N, H (e + f)) to (B, M, H f)."""
    return attend_with_lse(query, pairs, heads, mask)[0]


def attend_with_lse(
    query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`attend`, and the natural logarithm of the sum of the weights (B, H, M)."""
    call = _attend_function if plainly() else _attend
    return call(query, pairs.to(query.dtype), None, mask, heads, query.requires_grad)


def chunk_gradients(
    gradient: Tensor,
    query: Tensor,
    pairs: Tensor,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor]:
    """The gradients of queries and of a chunk of pairs, where answer and logarithm are those of
    all chunks together."""
    given = gradient, query, pairs, None, mask, out, lse.float(), heads
    return _attend_backward(*given, True)[:2]


def attend_self(triples: Tensor, mask: Tensor | None, heads: int) -> Tensor:
    """Rows attend to each other: (B, Z, 3 H e) of queries, keys and values to (B, Z, H e)."""
    call = _attend_self_function if plainly() else _attend_self
    return call(triples, mask, heads)[0]


def attend_self_with_lse(triples: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """`attend_self` without padding, and the natural logarithm of the sum of the weights (B, H, Z),
    for callers that differentiate by `ipot.accelerate.cuda.self_attention`."""
    return _attend_self_function(triples, None, heads)


def attend_narrow(
    query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None = None
) -> Tensor:
    """Values apart from their keys, in float32 as is the answer: for a few channels a head."""
    call = _attend_function if plainly() else _attend
    return call(query, key.to(query.dtype), value.float(), mask, heads, query.requires_grad)[0]


@on_its_device
def _attend_function(
    query: Tensor,
    pairs: Tensor,
    value: Tensor | None,
    mask: Tensor | None,
    heads: int,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """`pairs` are keys and after them values, or keys alone where `value` has those. `wanted` is
    for the backward pass: whether queries get a gradient."""
    return forward(query, pairs, value, mask, Sizes(query, pairs, value, heads))


_attend = torch.library.custom_op("ipot::attend", _attend_function, mutates_args=())


@_attend.register_fake
def _(query, pairs, value, mask, heads, wanted):
    inner = query.shape[-1]
    b, m = pairs.shape[0], query.shape[1]
    if value is None:
        out = pairs.new_empty(b, m, pairs.shape[-1] - inner)
    else:
        out = value.new_empty(b, m, value.shape[-1])
    return out, query.new_empty(b, heads, m, dtype=torch.float32)


@torch.library.custom_op("ipot::attend_backward", mutates_args=())
@on_its_device
def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    pairs: Tensor,
    value: Tensor | None,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What is not wanted, or has no tensor of its own, comes empty."""
    sizes = Sizes(query, pairs, value, heads)
    query, pairs, gradient = side_by_side(query), side_by_side(pairs), gradient.contiguous()
    shared = query.shape[0] == 1 and sizes.b > 1
    # What a shared query collects from a large batch would be many times its own size.
    bytes_each = sizes.m * query.shape[-1] * query.element_size()
    group = sizes.b
    if wanted and shared and not sizes.gather:
        group = max(1, min(sizes.b, SCRATCH // bytes_each))
    if group >= sizes.b:
        division = Division(sizes, query.device, wanted=wanted)
        return _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, division)
    total, pieces = torch.zeros_like(query, dtype=torch.float32), []
    for start in range(0, sizes.b, group):
        part = slice(start, min(start + group, sizes.b))
        own = None if value is None else value[part]
        some = None if mask is None else mask[part]
        few = Sizes(query, pairs[part], own, heads)
        dq, *rest = _backward_group(
            *(gradient[part], query, pairs[part], own, some, out[part], lse[part]),
            *(few, Division(few, query.device)),
        )
        total += dq
        pieces.append(rest)
    dpairs, dvalue = (torch.cat(each) for each in zip(*pieces, strict=True))
    return total.to(query.dtype), dpairs, dvalue


@_attend_backward.register_fake
def _(gradient, query, pairs, value, mask, out, lse, heads, wanted):
    dq = query.new_empty(query.shape if wanted else 0)
    dvalue = pairs.new_empty(0) if value is None else value.new_empty(value.shape)
    return dq, pairs.new_empty(pairs.shape), dvalue


def _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, division):
    """The gradients of a batch, or of some of it."""
    kind, inner = query.dtype, query.shape[-1]
    places = (division.parts_q, sizes.b, sizes.m, inner) if division.wanted else (0, 0, 0, inner)
    dq = query.new_empty(places, dtype=division.kind_q(kind))
    wide = (division.parts_kv, sizes.b, sizes.n, pairs.shape[-1])
    dpairs = pairs.new_empty(wide, dtype=division.kind_kv(kind))
    dvalue = (
        dpairs[..., inner:] if value is None else value.new_empty(division.parts_kv, *value.shape)
    )
    own = values_of(pairs, value, sizes)
    backward(division, sizes, query, pairs, own, mask, out, gradient, lse, dq, dpairs, dvalue)
    if not division.wanted:
        dq = query.new_empty(0)
    elif query.shape[0] < sizes.b:  # one serves all
        dq = sum_parts(dq.flatten(0, 1), kind).unsqueeze(0)
    else:
        dq = sum_parts(dq, kind)
    dvalue = pairs.new_empty(0) if value is None else sum_parts(dvalue, value.dtype)
    return dq, sum_parts(dpairs, kind), dvalue


def _setup(ctx, inputs, output) -> None:
    query, pairs, value, mask, ctx.heads, ctx.wanted = inputs
    out, lse = output
    ctx.save_for_backward(query, pairs, value, mask, out, lse)
    ctx.mark_non_differentiable(lse)


def _differentiate(ctx, gradient, _):
    saved = ctx.saved_tensors  # once: a checkpoint computes them for one reading
    dq, dpairs, dvalue = _attend_backward(gradient, *saved, ctx.heads, ctx.wanted)
    dq, dvalue = dq if ctx.wanted else None, None if saved[2] is None else dvalue
    return dq, dpairs, dvalue, None, None, None


_attend.register_autograd(_differentiate, setup_context=_setup)


def _attend_self_function(
    triples: Tensor, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Rows attend to each other: (B, Z, 3 H e) of queries, keys and values to (B, Z, H e), and the
    logarithm of the sum of the weights. One tensor in means one gradient out, with no pass over
    it to put it together."""
    inner = triples.shape[-1] // 3
    return _attend_function(triples[..., :inner], triples[..., inner:], None, mask, heads, True)


_attend_self = torch.library.custom_op("ipot::attend_self", _attend_self_function, mutates_args=())


@_attend_self.register_fake
def _(triples, mask, heads):
    b, z, wide = triples.shape
    lse = triples.new_empty(b, heads, z, dtype=torch.float32)
    return triples.new_empty(b, z, wide // 3), lse


@torch.library.custom_op("ipot::attend_self_backward", mutates_args=())
@on_its_device
def _attend_self_backward(
    gradient: Tensor, triples: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, heads: int
) -> Tensor:
    if mask is None:
        return self_gradients(gradient, triples, out, lse, heads)
    inner = triples.shape[-1] // 3
    triples = side_by_side(triples)
    query, pairs = triples[..., :inner], triples[..., inner:]
    sizes = Sizes(query, pairs, None, heads)
    division = Division(sizes, triples.device)
    found = torch.empty_like(triples, memory_format=torch.contiguous_format)
    dq, dpairs = found[..., :inner].unsqueeze(0), found[..., inner:].unsqueeze(0)
    if division.parts_q > 1:
        dq = dq.new_empty(division.parts_q, *dq.shape[1:], dtype=division.kind_q(dq.dtype))
    if division.parts_kv > 1:
        kind = division.kind_kv(dpairs.dtype)
        dpairs = dpairs.new_empty(division.parts_kv, *dpairs.shape[1:], dtype=kind)
    value, dvalue = values_of(pairs, None, sizes), dpairs[..., inner:]
    gradient = gradient.contiguous()
    backward(division, sizes, query, pairs, value, mask, out, gradient, lse, dq, dpairs, dvalue)
    if division.parts_q > 1:
        add_parts(dq, found[..., :inner])
    if division.parts_kv > 1:
        add_parts(dpairs, found[..., inner:])
    return found


@_attend_self_backward.register_fake
def _(gradient, triples, mask, out, lse, heads):
    return triples.new_empty(triples.shape)


def _setup_self(ctx, inputs, output) -> None:
    triples, mask, ctx.heads = inputs
    out, lse = output
    ctx.save_for_backward(triples, mask, out, lse)
    ctx.mark_non_differentiable(lse)


def _differentiate_self(ctx, gradient, _):
    triples, mask, out, lse = ctx.saved_tensors
    return _attend_self_backward(gradient, triples, mask, out, lse, ctx.heads), None, None


_attend_self.register_autograd(_differentiate_self, setup_context=_setup_self)
