"""Attention between few and many: inducing points over inputs, queries over inducing points.

The kernels at hand divide their work among blocks of queries (forward) or of keys (backward). With
a few hundred inducing points on one side that leaves most of a GPU idle. Here the long side is
divided in both directions: each program takes a share of it, and the short side's sums over the
shares are added up in a fixed order, so that a result does not depend on chance.

    gather   few queries, many keys: the keys are shared out
    spread   many queries, few keys: the queries are shared out

Queries may serve a whole batch; values may be narrower than keys. The backward pass computes the
weights anew from the logarithm of their sum, so nothing of size queries times keys is stored.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

import torch
import triton
from torch import Tensor

from ipot.kernels import on_its_device, plainly
from ipot.kernels._attention import backward_kernel, forward_kernel
from ipot.kernels._attention_narrow import narrow_backward_kernel
from ipot.kernels._attention_plan import Plan, Sizes, forward_blocks, padded, shares
from ipot.kernels._attention_sums import combine_kernel, fold_kernel

LOG2E = 1.4426950408889634
SCRATCH = 256 << 20
"""Bytes that parts of a gradient may take before a batch is worked off in groups."""


def attend(query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    """As `ipot.nn.paths.attend`: (Bq, M, H e) and (B, N, H (e + f)) to (B, M, H f)."""
    return attend_with_lse(query, pairs, heads, mask)[0]


def attend_with_lse(
    query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same and, (B, H, M), the natural logarithm of the sum of the weights."""
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
    """The same without padding and, (B, H, Z), the natural logarithm of the sum of the weights;
    for those who differentiate by `self_gradients`."""
    return _attend_self_function(triples, None, heads)


def self_gradients(
    gradient: Tensor, triples: Tensor, out: Tensor, lse: Tensor, heads: int
) -> Tensor:
    """The gradient of the triples."""
    return _attend_self_backward(gradient, triples, None, out, lse, heads)


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
    """`pairs` are keys and behind them values, or keys alone where `value` has those. `wanted` is
    for the backward pass: whether queries get a gradient."""
    sizes = Sizes(query, pairs, value, heads)
    query, pairs = _rows(query), _rows(pairs)
    value = _values(pairs, value, sizes)
    blocks = forward_blocks(sizes.pad_e, gather=sizes.gather)
    rows, columns = blocks.short, blocks.long
    if not sizes.gather:
        rows, columns = columns, rows
    rows = min(rows, padded(sizes.m))
    columns = min(columns, padded(sizes.n))
    row_blocks = triton.cdiv(sizes.m, rows)
    splits, share = shares(sizes.n, columns, row_blocks * sizes.b * sizes.h, query.device)
    out = value.new_empty(sizes.b, sizes.m, sizes.h * sizes.f)
    lse = query.new_empty(sizes.b, sizes.h, sizes.m, dtype=torch.float32)
    part, part_lse = out, lse
    if splits > 1:
        part = out.new_empty(splits, *out.shape, dtype=torch.float32)
        part_lse = lse.new_empty(splits, *lse.shape)
    forward_kernel[(row_blocks * splits * sizes.b * sizes.h,)](
        query,
        pairs,
        value,
        mask if mask is not None else pairs,
        part,
        part_lse,
        0 if query.shape[0] == 1 else query.stride(0),
        query.stride(1),
        pairs.stride(0),
        pairs.stride(1),
        value.stride(0),
        value.stride(1),
        sizes.b,
        sizes.m,
        sizes.n,
        share,
        sizes.scale * LOG2E,
        **sizes.constants(products=not sizes.narrow),
        ROWS=rows,
        COLUMNS=columns,
        SPLITS=splits,
        MASKED=mask is not None,
        WHOLE=mask is None and sizes.n % columns == 0,
        PRECISION=_precision(query),
        **blocks.options(),
    )
    if splits > 1:
        rows = min(64, padded(sizes.m))
        combine_kernel[(triton.cdiv(sizes.m, rows) * sizes.b * sizes.h,)](
            part,
            part_lse,
            out,
            lse,
            sizes.b,
            sizes.m,
            H=sizes.h,
            F=sizes.f,
            PAD_F=triton.next_power_of_2(sizes.f),
            ROWS=rows,
            SPLITS=splits,
        )
    return out, lse


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
    query, pairs, gradient = _rows(query), _rows(pairs), gradient.contiguous()
    shared = query.shape[0] == 1 and sizes.b > 1
    # What a shared query collects from a large batch would be many times its own size.
    bytes_each = sizes.m * query.shape[-1] * query.element_size()
    group = sizes.b
    if wanted and shared and not sizes.gather:
        group = max(1, min(sizes.b, SCRATCH // bytes_each))
    if group >= sizes.b:
        plan = Plan(sizes, query.device, wanted=wanted)
        return _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, plan)
    total, pieces = torch.zeros_like(query, dtype=torch.float32), []
    for start in range(0, sizes.b, group):
        part = slice(start, min(start + group, sizes.b))
        own = None if value is None else value[part]
        some = None if mask is None else mask[part]
        few = Sizes(query, pairs[part], own, heads)
        dq, *rest = _backward_group(
            *(gradient[part], query, pairs[part], own, some, out[part], lse[part]),
            *(few, Plan(few, query.device)),
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


def _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, plan):
    """The gradients of a batch, or of some of it."""
    kind, inner = query.dtype, query.shape[-1]
    places = (plan.parts_q, sizes.b, sizes.m, inner) if plan.wanted else (0, 0, 0, inner)
    dq = query.new_empty(places, dtype=plan.kind_q(kind))
    wide = (plan.parts_kv, sizes.b, sizes.n, pairs.shape[-1])
    dpairs = pairs.new_empty(wide, dtype=plan.kind_kv(kind))
    dvalue = dpairs[..., inner:] if value is None else value.new_empty(plan.parts_kv, *value.shape)
    own = _values(pairs, value, sizes)
    _launch_backward(plan, sizes, query, pairs, own, mask, out, gradient, lse, dq, dpairs, dvalue)
    if not plan.wanted:
        dq = query.new_empty(0)
    elif query.shape[0] < sizes.b:  # one serves all
        dq = _sum(dq.flatten(0, 1), kind).unsqueeze(0)
    else:
        dq = _sum(dq, kind)
    dvalue = pairs.new_empty(0) if value is None else _sum(dvalue, value.dtype)
    return dq, _sum(dpairs, kind), dvalue


def _launch_backward(
    plan, sizes, query, pairs, value, mask, out, gradient, lse, dq, dpairs, dvalue
) -> None:
    narrow = sizes.narrow and not sizes.gather
    way = {} if narrow else {"GATHER": sizes.gather}
    (narrow_backward_kernel if narrow else backward_kernel)[(plan.programs,)](
        *(query, pairs, value, mask if mask is not None else pairs, out, gradient, lse),
        *(dq, dpairs, dvalue),
        0 if query.shape[0] == 1 else query.stride(0),
        query.stride(1),
        *(pairs.stride(0), pairs.stride(1), value.stride(0), value.stride(1)),
        *(dq.stride(2), dpairs.stride(2), dvalue.stride(2)),
        *(sizes.b, sizes.m, sizes.n, plan.share, sizes.scale),
        **sizes.constants(products=not narrow),
        STILL=plan.still,
        MOVING=plan.moving,
        SPLITS=plan.splits,
        **way,
        MASKED=mask is not None,
        WHOLE=mask is None and sizes.n % (plan.moving if sizes.gather else plan.still) == 0,
        WANTED=plan.wanted,
        PRECISION=_precision(query),
        **plan.blocks.options(),
    )


def _sum(parts: Tensor, kind: torch.dtype) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(0, dtype=torch.float32).to(kind)


def _setup(ctx, inputs, output) -> None:
    query, pairs, value, mask, ctx.heads, ctx.wanted = inputs
    out, lse = output
    ctx.save_for_backward(query, pairs, value, mask, out, lse)
    ctx.mark_non_differentiable(lse)


def _differentiate(ctx, gradient, _):
    value = ctx.saved_tensors[2]
    given = gradient, *ctx.saved_tensors, ctx.heads, ctx.wanted
    dq, dpairs, dvalue = _attend_backward(*given)
    dq, dvalue = dq if ctx.wanted else None, None if value is None else dvalue
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
    inner = triples.shape[-1] // 3
    triples = _rows(triples)
    query, pairs = triples[..., :inner], triples[..., inner:]
    sizes = Sizes(query, pairs, None, heads)
    plan = Plan(sizes, triples.device)
    found = torch.empty_like(triples, memory_format=torch.contiguous_format)
    dq, dpairs = found[..., :inner].unsqueeze(0), found[..., inner:].unsqueeze(0)
    if plan.parts_q > 1:
        dq = dq.new_empty(plan.parts_q, *dq.shape[1:], dtype=plan.kind_q(dq.dtype))
    if plan.parts_kv > 1:
        kind = plan.kind_kv(dpairs.dtype)
        dpairs = dpairs.new_empty(plan.parts_kv, *dpairs.shape[1:], dtype=kind)
    value, dvalue = _values(pairs, None, sizes), dpairs[..., inner:]
    gradient = gradient.contiguous()
    _launch_backward(plan, sizes, query, pairs, value, mask, out, gradient, lse, dq, dpairs, dvalue)
    if plan.parts_q > 1:
        _fold(dq, found[..., :inner])
    if plan.parts_kv > 1:
        _fold(dpairs, found[..., inner:])
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


def _fold(parts: Tensor, to: Tensor) -> None:
    """Add up parts (P, B, Z, w) into columns of a wider table (B, Z, W)."""
    count, width = parts.shape[0], parts.shape[-1]
    rows = parts[0].numel() // width
    block = max(1, 2048 // triton.next_power_of_2(width))
    fold_kernel[(triton.cdiv(rows, block),)](
        *(parts, to, rows, to.stride(1)),
        PARTS=count,
        WIDTH=width,
        PADDED=triton.next_power_of_2(width),
        ROWS=block,
    )


def _rows(x: Tensor) -> Tensor:
    """The same with its channels side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _values(pairs: Tensor, value: Tensor | None, sizes: Sizes) -> Tensor:
    """The values, wherever they lie."""
    return pairs[..., sizes.h * sizes.e :] if value is None else _rows(value)


def _precision(x: Tensor) -> str:
    return "ieee" if x.dtype in (torch.float32, torch.float64) else "tf32"
