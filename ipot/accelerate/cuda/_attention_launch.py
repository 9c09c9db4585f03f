"""Launches of the attention kernels, and what of a gradient is left to add up."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ipot.accelerate.cuda._attention import backward_kernel, forward_kernel
from ipot.accelerate.cuda._attention_division import Division, Sizes, forward_tile
from ipot.accelerate.cuda._attention_narrow import narrow_backward_kernel
from ipot.accelerate.cuda._attention_sums import add_kernel, combine_kernel
from ipot.accelerate.cuda.programs import few_enough, padded, shares

LOG2E = 1.4426950408889634
MOST_ADDED = 64
"""Parts of a gradient that one program adds up, one after the other."""


def forward(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """The answer, and the logarithm of the sum of the weights."""
    query, pairs = side_by_side(query), side_by_side(pairs)
    value, mask = values_of(pairs, value, sizes), _whole(mask)
    tile = forward_tile(sizes)
    rows, columns = tile.rows, tile.columns
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
        **tile.options(),
    )
    if splits > 1:
        rows = few_enough(min(64, padded(sizes.m)), sizes.m, sizes.b * sizes.h, query.device)
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


def _whole(mask: Tensor | None) -> Tensor | None:
    """A mask with its rows one after the other, as the kernels read it; parts of one are not."""
    return None if mask is None else mask.contiguous()


def backward(
    division: Division,
    sizes: Sizes,
    query: Tensor,
    pairs: Tensor,
    value: Tensor,
    mask: Tensor | None,
    out: Tensor,
    gradient: Tensor,
    lse: Tensor,
    dq: Tensor,
    dpairs: Tensor,
    dvalue: Tensor,
) -> None:
    """Write the parts of the gradients, each (parts, B, rows, channels)."""
    narrow, mask = sizes.narrow and not sizes.gather, _whole(mask)
    way = {} if narrow else {"GATHER": sizes.gather}
    (narrow_backward_kernel if narrow else backward_kernel)[(division.programs,)](
        *(query, pairs, value, mask if mask is not None else pairs, out, gradient, lse),
        *(dq, dpairs, dvalue),
        0 if query.shape[0] == 1 else query.stride(0),
        query.stride(1),
        *(pairs.stride(0), pairs.stride(1), value.stride(0), value.stride(1)),
        *(dq.stride(2), dpairs.stride(2), dvalue.stride(2)),
        *(sizes.b, sizes.m, sizes.n, division.share, sizes.scale),
        **sizes.constants(products=not narrow or sizes.f > 1),
        STILL=division.still,
        MOVING=division.moving,
        SPLITS=division.splits,
        **way,
        MASKED=mask is not None,
        WHOLE=mask is None and sizes.n % (division.moving if sizes.gather else division.still) == 0,
        WANTED=division.wanted,
        PRECISION=_precision(query),
        **division.tile.options(),
    )


def sum_parts(parts: Tensor, kind: torch.dtype) -> Tensor:
    """All parts (P, ...) in one, of this type."""
    if len(parts) == 1:
        return parts[0]
    if len(parts) > MOST_ADDED:  # the library's reduction divides these among programs as well
        return parts.sum(0, dtype=torch.float32).to(kind)
    total = parts.new_empty(parts.shape[1:], dtype=kind)
    add_parts(parts, total)
    return total


def add_parts(parts: Tensor, to: Tensor) -> None:
    """Add up parts (P, ..., w) into a table (..., w), or into columns of a wider one."""
    count, width = parts.shape[0], parts.shape[-1]
    rows, pad = parts[0].numel() // width, triton.next_power_of_2(width)
    block = few_enough(max(1, 2048 // pad), rows, 1, parts.device, least=max(1, 512 // pad))
    add_kernel[(triton.cdiv(rows, block),)](
        *(parts, to, rows, to.stride(-2)),
        PARTS=count,
        WIDTH=width,
        PADDED=pad,
        ROWS=block,
    )


def side_by_side(x: Tensor) -> Tensor:
    """The tensor with its channels side by side, copied if they are not."""
    return x if x.stride(-1) == 1 else x.contiguous()


def values_of(pairs: Tensor, value: Tensor | None, sizes: Sizes) -> Tensor:
    """The values, wherever they lie."""
    return pairs[..., sizes.h * sizes.e :] if value is None else side_by_side(value)


def _precision(x: Tensor) -> str:
    return "ieee" if x.dtype in (torch.float32, torch.float64) else "tf32"
