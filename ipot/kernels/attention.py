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

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from ipot.kernels import on_its_device, plainly
from ipot.kernels._attention import backward_kernel, combine_kernel, fold_kernel, forward_kernel

LOG2E = 1.4426950408889634
SCRATCH = 256 << 20
"""Bytes that parts of a gradient may take before a batch is worked off in groups."""


@dataclass(frozen=True)
class Blocks:
    """The sides of the tiles, and how a program runs on a GPU."""

    short: int
    long: int
    warps: int
    stages: int

    def options(self) -> dict[str, Any]:
        """As a launch takes them."""
        return {"num_warps": self.warps, "num_stages": self.stages}


def forward_blocks(width: int, *, gather: bool) -> Blocks:
    """For the forward pass, by the (padded) width of a head. Measured on an H200."""
    if width > 64:
        return Blocks(64, 64, 4, 2)
    return Blocks(64, 64, 4, 3) if gather else Blocks(64, 128, 4, 3)


def backward_blocks(width: int, short: int, long: int, *, gather: bool) -> Blocks:
    """For the backward pass, also by the lengths of the two sides."""
    if width > 64:
        return Blocks(64, 32, 4, 2)
    if long <= 2 * short:  # attention of a few hundred to themselves
        return Blocks(64, 64, 4, 2 if width > 16 else 3)
    if gather:
        return Blocks(256, 64, 8, 1)
    return Blocks(128, 64, 4, 1) if width > 32 else Blocks(64, 64, 4, 3)


def attend(query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    """As `ipot.nn.paths.attend`: (Bq, M, H e) and (B, N, H (e + f)) to (B, M, H f)."""
    return attend_with_lse(query, pairs, heads, mask)[0]


def attend_with_lse(
    query: Tensor, pairs: Tensor, heads: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same and, (B, H, M), the natural logarithm of the sum of the weights."""
    call = _attend_function if plainly() else _attend
    return call(query, pairs.to(query.dtype), None, mask, heads)


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
    return _attend_backward(gradient, query, pairs, None, mask, out, lse.float(), heads)[:2]


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
    return call(query, key.to(query.dtype), value.float(), mask, heads)[0]


@on_its_device
def _attend_function(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """`pairs` are keys and behind them values, or keys alone where `value` has those."""
    sizes = _Sizes(query, pairs, value, heads)
    query, pairs = _rows(query), _rows(pairs)
    value = _values(pairs, value, sizes)
    blocks = forward_blocks(sizes.pad_e, gather=sizes.gather)
    rows, columns = blocks.short, blocks.long
    if not sizes.gather:
        rows, columns = columns, rows
    rows = min(rows, _padded(sizes.m))
    columns = min(columns, _padded(sizes.n))
    row_blocks = triton.cdiv(sizes.m, rows)
    splits, share = _shares(sizes.n, columns, row_blocks * sizes.b * sizes.h, query.device)
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
        **sizes.constants(),
        ROWS=rows,
        COLUMNS=columns,
        SPLITS=splits,
        MASKED=mask is not None,
        WHOLE=mask is None and sizes.n % columns == 0,
        PRECISION=_precision(query),
        **blocks.options(),
    )
    if splits > 1:
        rows = min(64, _padded(sizes.m))
        combine_kernel[(triton.cdiv(sizes.m, rows) * sizes.b * sizes.h,)](
            part,
            part_lse,
            out,
            lse,
            sizes.b,
            sizes.m,
            H=sizes.h,
            F=sizes.f,
            PAD_F=sizes.pad_f,
            ROWS=rows,
            SPLITS=splits,
        )
    return out, lse


_attend = torch.library.custom_op("ipot::attend", _attend_function, mutates_args=())


@_attend.register_fake
def _(query, pairs, value, mask, heads):
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
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = _Sizes(query, pairs, value, heads)
    query, pairs, gradient = _rows(query), _rows(pairs), gradient.contiguous()
    shared = query.shape[0] == 1 and sizes.b > 1
    # What a shared query collects from a large batch would be many times its own size.
    bytes_each = sizes.m * query.shape[-1] * query.element_size()
    group = sizes.b
    if shared and not sizes.gather:
        group = max(1, min(sizes.b, SCRATCH // bytes_each))
    if group >= sizes.b:
        return _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, shared)
    total, pieces = torch.zeros_like(query, dtype=torch.float32), []
    for start in range(0, sizes.b, group):
        part = slice(start, min(start + group, sizes.b))
        own = None if value is None else value[part]
        some = None if mask is None else mask[part]
        few = _Sizes(query, pairs[part], own, heads)
        dq, *rest = _backward_group(
            gradient[part], query, pairs[part], own, some, out[part], lse[part], few, shared
        )
        total += dq
        pieces.append(rest)
    dpairs, dvalue = (torch.cat(each) for each in zip(*pieces, strict=True))
    return total.to(query.dtype), dpairs, dvalue


@_attend_backward.register_fake
def _(gradient, query, pairs, value, mask, out, lse, heads):
    dvalue = pairs.new_empty(0) if value is None else value.new_empty(value.shape)
    return query.new_empty(query.shape), pairs.new_empty(pairs.shape), dvalue


def _backward_group(gradient, query, pairs, value, mask, out, lse, sizes, shared):
    """The gradients of a batch, or of some of it."""
    plan = _Plan(sizes, query.device)
    kind, inner = query.dtype, query.shape[-1]
    dq = query.new_empty(plan.parts_q, sizes.b, sizes.m, inner, dtype=plan.kind_q(kind))
    wide = (plan.parts_kv, sizes.b, sizes.n, pairs.shape[-1])
    dpairs = pairs.new_empty(wide, dtype=plan.kind_kv(kind))
    dvalue = dpairs[..., inner:] if value is None else value.new_empty(plan.parts_kv, *value.shape)
    own = _values(pairs, value, sizes)
    _launch_backward(plan, sizes, query, pairs, own, mask, out, gradient, lse, dq, dpairs, dvalue)
    dq = _sum(dq.flatten(0, 1), kind).unsqueeze(0) if shared else _sum(dq, kind)
    dvalue = pairs.new_empty(0) if value is None else _sum(dvalue, value.dtype)
    return dq, _sum(dpairs, kind), dvalue


class _Plan:
    """How the backward pass of a call is divided, and in how many parts its gradients come."""

    def __init__(self, sizes: "_Sizes", device: torch.device) -> None:
        short, long = (sizes.m, sizes.n) if sizes.gather else (sizes.n, sizes.m)
        self.blocks = backward_blocks(sizes.pad_e, short, long, gather=sizes.gather)
        self.still = min(self.blocks.short, _padded(short))
        self.moving = min(self.blocks.long, _padded(long))
        still_blocks = triton.cdiv(short, self.still)
        programs = still_blocks * sizes.b * sizes.h
        self.splits, self.share = _shares(long, self.moving, programs, device)
        self.programs = programs * self.splits
        self.gather = sizes.gather
        self.parts_q = self.splits if sizes.gather else still_blocks
        self.parts_kv = still_blocks if sizes.gather else self.splits

    def kind_q(self, kind: torch.dtype) -> torch.dtype:
        """Sums over a long side keep their precision until they are put together."""
        return torch.float32 if self.gather and self.parts_q > 1 else kind

    def kind_kv(self, kind: torch.dtype) -> torch.dtype:
        """The same for keys and values."""
        return torch.float32 if not self.gather and self.parts_kv > 1 else kind


def _launch_backward(
    plan, sizes, query, pairs, value, mask, out, gradient, lse, dq, dpairs, dvalue
) -> None:
    backward_kernel[(plan.programs,)](
        *(query, pairs, value, mask if mask is not None else pairs, out, gradient, lse),
        *(dq, dpairs, dvalue),
        0 if query.shape[0] == 1 else query.stride(0),
        query.stride(1),
        *(pairs.stride(0), pairs.stride(1), value.stride(0), value.stride(1)),
        *(dq.stride(2), dpairs.stride(2), dvalue.stride(2)),
        *(sizes.b, sizes.m, sizes.n, plan.share, sizes.scale),
        **sizes.constants(),
        STILL=plan.still,
        MOVING=plan.moving,
        SPLITS=plan.splits,
        GATHER=sizes.gather,
        NARROW=sizes.f <= 4 and not sizes.gather,
        MASKED=mask is not None,
        WHOLE=mask is None and sizes.n % (plan.moving if sizes.gather else plan.still) == 0,
        PRECISION=_precision(query),
        **plan.blocks.options(),
    )


def _sum(parts: Tensor, kind: torch.dtype) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(0, dtype=torch.float32).to(kind)


def _setup(ctx, inputs, output) -> None:
    query, pairs, value, mask, heads = inputs
    out, lse = output
    ctx.save_for_backward(query, pairs, value, mask, out, lse)
    ctx.heads = heads
    ctx.mark_non_differentiable(lse)


def _differentiate(ctx, gradient, _):
    query, pairs, value, mask, out, lse = ctx.saved_tensors
    dq, dpairs, dvalue = _attend_backward(gradient, query, pairs, value, mask, out, lse, ctx.heads)
    return dq, dpairs, None if value is None else dvalue, None, None


_attend.register_autograd(_differentiate, setup_context=_setup)


def _attend_self_function(
    triples: Tensor, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Rows attend to each other: (B, Z, 3 H e) of queries, keys and values to (B, Z, H e), and the
    logarithm of the sum of the weights. One tensor in means one gradient out, with no pass over
    it to put it together."""
    inner = triples.shape[-1] // 3
    return _attend_function(triples[..., :inner], triples[..., inner:], None, mask, heads)


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
    sizes = _Sizes(query, pairs, None, heads)
    plan = _Plan(sizes, triples.device)
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


class _Sizes:
    """The sizes of a call, and which side is the long one."""

    def __init__(self, query: Tensor, pairs: Tensor, value: Tensor | None, heads: int) -> None:
        inner = query.shape[-1]
        outer = pairs.shape[-1] - inner if value is None else value.shape[-1]
        self.b, self.h, self.m, self.n = pairs.shape[0], heads, query.shape[1], pairs.shape[1]
        self.e, self.f = inner // heads, outer // heads
        self.pad_e, self.pad_f = _padded(self.e), _padded(self.f)
        self.scale = self.e**-0.5
        self.gather = self.m < self.n

    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        return {
            "H": self.h,
            "E": self.e,
            "F": self.f,
            "PAD_E": self.pad_e,
            "PAD_F": self.pad_f,
        }


def _padded(count: int) -> int:
    """The matrix units work on sides of 16 and more, powers of two."""
    return max(16, triton.next_power_of_2(count))


def _rows(x: Tensor) -> Tensor:
    """The same with its channels side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _values(pairs: Tensor, value: Tensor | None, sizes: _Sizes) -> Tensor:
    """The values, wherever they lie."""
    return pairs[..., sizes.h * sizes.e :] if value is None else _rows(value)


def _precision(x: Tensor) -> str:
    return "ieee" if x.dtype in (torch.float32, torch.float64) else "tf32"


def _shares(length: int, block: int, programs: int, device: torch.device) -> tuple[int, int]:
    """How many programs share the long side, and how much of it each takes.

    Enough to fill the GPU twice, while each has a few blocks to itself.
    """
    units = 4
    if device.type == "cuda":
        units = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    blocks = triton.cdiv(length, block)
    splits = max(1, min(units // programs, triton.cdiv(blocks, 2)))
    share = triton.cdiv(blocks, splits) * block
    return triton.cdiv(length, share), share
