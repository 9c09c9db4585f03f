"""Keys and values of a shared mesh: its projection, once for the batch, and each sample's values.

`ipot.accelerate.shared_mesh` has the algebra. What is left for a sample is one pass over its keys
and values:

    out = (shared + value A - μ row) / σ + offset

with the mean μ and deviation σ of a token from two sums of its features and its values. Here a
program holds a tile of what is shared and goes through the samples, so that this pass costs one
write forward and one read backward. Points and values have no gradient; the rest does.

Backward, the rows that serve all samples and tokens are sums over both. Every program writes its
own, and a second kernel adds these up in a fixed order. Where values have a channel or two, a
program sums without products of matrices and adds up its tokens once, in the end, while the
samples to come are on their way.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from ipot.accelerate.cuda import on_its_device
from ipot.accelerate.cuda.programs import enough

MOST = 14
"""Channels of values; with two sums they fill a side of the smallest matrix product."""
ROWS = 32
COLUMNS = 128
OPTIONS: dict[str, Any] = {"num_warps": 4}
FEW = 2
"""Channels of values up to which the backward pass sums them tile by tile."""
FEW_ROWS = 32
AHEAD = 3
"""Samples that it has loaded or is loading; one where rows are no whole 32 bytes."""
SUM = {"DEPTH": 256, "COLUMNS": 8}
"""Shares and columns that a step of a program adds up."""


def supports(channels: int) -> bool:
    """Whether the kernels take so many channels of values."""
    return 1 <= channels <= MOST


@torch.library.custom_op("ipot::shared_pairs", mutates_args=())
@on_its_device
def shared_pairs(
    shared: Tensor,
    sums: Tensor,
    value: Tensor,
    weight: Tensor,
    row: Tensor,
    offset: Tensor,
    width: int,
    eps: float,
) -> Tensor:
    """(N, p), (N, 2), (B, N, C), (C, p), (p,), (p,) to (B, N, p).

    `sums` are those of a token's features and of their squares, `width` is how many channels a
    token has in all.
    """
    (n, p), (b, _, c) = shared.shape, value.shape
    out = shared.new_empty(b, n, p)
    columns = min(COLUMNS, triton.next_power_of_2(p))
    tiles = triton.cdiv(n, ROWS) * triton.cdiv(p, columns)
    groups = max(1, min(b, triton.cdiv(2 * enough(shared.device), tiles)))
    _forward_kernel[(tiles, groups)](
        *(shared, sums, value, weight, row, offset, out),
        *(b, n, p, triton.cdiv(b, groups), width, eps),
        C=c,
        ROWS=ROWS,
        COLUMNS=columns,
        **OPTIONS,
    )
    return out


@shared_pairs.register_fake
def _(shared, sums, value, weight, row, offset, width, eps):
    return shared.new_empty(value.shape[0], *shared.shape)


@torch.library.custom_op("ipot::shared_pairs_backward", mutates_args=())
@on_its_device
def _backward(
    gradient: Tensor, sums: Tensor, value: Tensor, width: int, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient of `shared`, and of the (C + 2, p) rows that serve all: A, -row, offset."""
    b, n, p = gradient.shape
    gradient = gradient.contiguous()
    c, columns = value.shape[-1], min(COLUMNS, triton.next_power_of_2(p))
    kernel, block, options = _backward_kernel, ROWS, OPTIONS
    if c <= FEW:
        ahead = 1 if p % 16 else AHEAD
        kernel, block, options = _few_backward_kernel, FEW_ROWS, {**OPTIONS, "AHEAD": ahead}
    blocks = triton.cdiv(n, block)
    dshared = gradient.new_empty(n, p)
    parts = gradient.new_empty(blocks, c + 2, p, dtype=torch.float32)
    kernel[(blocks * triton.cdiv(p, columns),)](
        *(gradient, sums, value, dshared, parts),
        *(b, n, p, width, eps),
        C=c,
        ROWS=block,
        COLUMNS=columns,
        **options,
    )
    rows = parts.new_empty(c + 2, p)
    _sum_kernel[(triton.cdiv(rows.numel(), SUM["COLUMNS"]),)](
        parts, rows, blocks, rows.numel(), **SUM, **OPTIONS
    )
    return dshared, rows


@_backward.register_fake
def _(gradient, sums, value, width, eps):
    _, n, p = gradient.shape
    rows = gradient.new_empty(value.shape[-1] + 2, p, dtype=torch.float32)
    return gradient.new_empty(n, p), rows


def _setup(ctx, inputs, output) -> None:
    _, sums, value, _, _, _, ctx.width, ctx.eps = inputs
    ctx.save_for_backward(sums, value)


def _differentiate(ctx, gradient):
    sums, value = ctx.saved_tensors
    dshared, rows = _backward(gradient, sums, value, ctx.width, ctx.eps)
    c = value.shape[-1]
    return dshared, None, None, rows[:c], -rows[c], rows[c + 1], None, None


shared_pairs.register_autograd(_differentiate, setup_context=_setup)


@triton.jit
@no_type_check
def _forward_kernel(
    shared,
    sums,
    value,
    weight,
    row,
    offset,
    out,
    b_count,
    n_count,
    p_count,
    group,
    width,
    eps,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of what is shared, for a group of samples."""
    across = tl.cdiv(p_count, COLUMNS)
    tile = tl.program_id(0)
    wide = tile.to(tl.int64) * 0  # makes offsets of samples 64 bits wide
    n = (tile // across) * ROWS + tl.arange(0, ROWS)
    p = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    n_real = n < n_count
    p_real = p < p_count
    inside = n_real[:, None] & p_real[None, :]
    place = n[:, None].to(tl.int64) * p_count + p[None, :]
    common = tl.load(shared + place, mask=inside, other=0.0).to(tl.float32)
    total = tl.load(sums + 2 * n, mask=n_real, other=0.0)
    squares = tl.load(sums + 2 * n + 1, mask=n_real, other=1.0)
    ones = tl.load(row + p, mask=p_real, other=0.0)
    level = tl.load(offset + p, mask=p_real, other=0.0)
    first = tl.program_id(1) * group
    for sample in range(first, tl.minimum(first + group, b_count)):
        b = sample + wide
        at = value + (b * n_count + n) * C
        acc = common
        s, q = total, squares
        for c in tl.static_range(C):
            v = tl.load(at + c, mask=n_real, other=0.0).to(tl.float32)
            s += v
            q += v * v
            acc += v[:, None] * tl.load(weight + c * p_count + p, mask=p_real, other=0.0)[None, :]
        mean = s / width
        scale = tl.rsqrt(q / width - mean * mean + eps)
        acc = (acc - mean[:, None] * ones[None, :]) * scale[:, None] + level[None, :]
        to = out + b * n_count * p_count + place
        tl.store(to, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def _backward_kernel(
    gradient,
    sums,
    value,
    dshared,
    parts,
    b_count,
    n_count,
    p_count,
    width,
    eps,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of the mesh for all samples: its own sum over them, and its share of the rows'."""
    across = tl.cdiv(p_count, COLUMNS)
    tile = tl.program_id(0)
    wide = tile.to(tl.int64) * 0  # makes offsets of samples 64 bits wide
    n = (tile // across) * ROWS + tl.arange(0, ROWS)
    p = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    j = tl.arange(0, 16)
    n_real = n < n_count
    inside = n_real[:, None] & (p < p_count)[None, :]
    place = n[:, None].to(tl.int64) * p_count + p[None, :]
    total = tl.load(sums + 2 * n, mask=n_real, other=0.0)
    squares = tl.load(sums + 2 * n + 1, mask=n_real, other=1.0)
    collected = tl.zeros([ROWS, COLUMNS], tl.float32)
    rows = tl.zeros([16, COLUMNS], tl.float32)
    for sample in range(b_count):
        b = sample + wide
        at = value + b * n_count * C
        own = n[:, None] * C + j[None, :]
        v = tl.load(at + own, mask=n_real[:, None] & (j < C)[None, :], other=0.0).to(tl.float32)
        mean = (total + tl.sum(v, 1)) / width
        scale = tl.rsqrt((squares + tl.sum(v * v, 1)) / width - mean * mean + eps)
        g = tl.load(gradient + b * n_count * p_count + place, mask=inside, other=0.0).to(tl.float32)
        collected += scale[:, None] * g
        factor = tl.where((j == C)[None, :], mean[:, None], v) * scale[:, None]
        factor = tl.where((j == C + 1)[None, :], 1.0, factor)
        rows = tl.dot(tl.trans(factor), g, rows)
    tl.store(dshared + place, collected.to(dshared.dtype.element_ty), mask=inside)
    to = parts + ((tile // across) * (C + 2) + j).to(tl.int64)[:, None] * p_count + p[None, :]
    tl.store(to, rows, mask=(j < C + 2)[:, None] & (p < p_count)[None, :])


@triton.jit
@no_type_check
def _few_backward_kernel(
    gradient,
    sums,
    value,
    dshared,
    parts,
    b_count,
    n_count,
    p_count,
    width,
    eps,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """The kernel for one or two channels of values."""
    across = tl.cdiv(p_count, COLUMNS)
    tile = tl.program_id(0)
    wide = tile.to(tl.int64) * 0  # makes offsets of samples 64 bits wide
    n = (tile // across) * ROWS + tl.arange(0, ROWS)
    p = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    n_real = n < n_count
    p_real = p < p_count
    inside = n_real[:, None] & p_real[None, :]
    place = n[:, None].to(tl.int64) * p_count + p[None, :]
    total = tl.load(sums + 2 * n, mask=n_real, other=0.0)
    squares = tl.load(sums + 2 * n + 1, mask=n_real, other=1.0)
    collected = tl.zeros([ROWS, COLUMNS], tl.float32)
    plain = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = tl.zeros([ROWS, COLUMNS], tl.float32)
    second = tl.zeros([ROWS, COLUMNS], tl.float32)
    for sample in tl.range(0, b_count, num_stages=AHEAD):
        start = (sample + wide) * n_count
        at = value + (start + n) * C
        g = tl.load(gradient + start * p_count + place, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(at, mask=n_real, other=0.0).to(tl.float32)
        s, q = total + v, squares + v * v
        if C == 2:
            u = tl.load(at + 1, mask=n_real, other=0.0).to(tl.float32)
            s, q = s + u, q + u * u
        mean = s / width
        scaled = tl.rsqrt(q / width - mean * mean + eps)[:, None] * g
        collected += scaled
        plain += g
        first += v[:, None] * scaled
        if C == 2:
            second += u[:, None] * scaled
    tl.store(dshared + place, collected.to(dshared.dtype.element_ty), mask=inside)
    to = parts + (tile // across).to(tl.int64) * (C + 2) * p_count + p
    values = tl.sum(first, 0)
    tl.store(to, values, mask=p_real)
    if C == 2:
        others = tl.sum(second, 0)
        tl.store(to + p_count, others, mask=p_real)
        values += others
    # A token's mean is that of its features and its values.
    means = (tl.sum(total[:, None] * collected, 0) + values) / width
    tl.store(to + C * p_count, means, mask=p_real)
    tl.store(to + (C + 1) * p_count, tl.sum(plain, 0), mask=p_real)


@triton.jit
@no_type_check
def _sum_kernel(parts, rows, blocks, total, DEPTH: tl.constexpr, COLUMNS: tl.constexpr):
    """The shares of all programs, added up for some columns of their rows."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real = column < total
    found = tl.zeros([DEPTH, COLUMNS], tl.float32)
    for begin in range(0, blocks, DEPTH):
        block = (begin + tl.arange(0, DEPTH)).to(tl.int64)
        live = (block < blocks)[:, None] & real[None, :]
        found += tl.load(parts + block[:, None] * total + column[None, :], mask=live, other=0.0)
    tl.store(rows + column, tl.sum(found, 0), mask=real)
