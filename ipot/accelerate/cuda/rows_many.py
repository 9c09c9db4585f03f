"""The backward pass of `finish` for very many rows: products by the library, the rest by kernels.

One kernel for all of it (`rows_backward.finish_back`) keeps everything between the products in
registers, and so has few rows at a time and a seventh of a GPU's arithmetic. At tens of thousands
of rows it pays to write the hidden layer down instead: the library multiplies at several times that
rate, and what is left between its products are three passes over memory.

    enter    normed = LN(x + o Woᵀ + bo), the gradient dy rounded
    --       gates = normed W1ᵀ,  dhidden = dy W2
    gate     in their place: the gradients of the gates, and the units
    --       dn = dgates W1
    leave    the gradient after the LayerNorm
    --       do = dstart Wo, and the gradients of the three weights
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from ipot.accelerate.cuda.rows_backward import gate_back, norm_back, norm_sums
from ipot.accelerate.cuda.rows_forward import attended, line, put, standardise, take
from ipot.accelerate.cuda.rows_layout import depth, share, transposed_product, views_of_finish

ROWS = 64
"""Of a program, in all three passes: their sums over rows are columns of one table."""
WARPS = 4


@triton.jit
@no_type_check
def enter(
    x,
    o,
    packed,
    weights,
    grad,
    normed,
    rounded,
    sums,
    rows,
    shared,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """What the products of the hidden layer start from; sums of dy."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    OUT: tl.constexpr = 2 * F * (D + 1) + D * (F + 1)
    gamma = packed + OUT + D * (INNER + 1)
    start = attended(
        x, o, weights + OUT, packed + OUT + D * INNER, row, live, shared, D, INNER, COLUMNS
    )
    values, _ = standardise(start, D)
    put(normed, row, live, channel, D, values * line(gamma, channel) + line(gamma + D, channel))
    dy = take(grad, row, live, channel, D)
    put(rounded, row, live, channel, D, dy)
    target = sums + tl.program_id(0).to(tl.int64) * (2 * F + 4 * D) + 2 * F
    tl.store(target + channel, tl.sum(dy.to(tl.float32), 0))


@triton.jit
@no_type_check
def gate(
    gates,
    units,
    packed,
    sums,
    rows,
    D: tl.constexpr,
    F: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """[a, g] without their biases becomes [da, dg], the gradient of the units the units."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    unit = tl.program_id(1) * HIDDEN + tl.arange(0, HIDDEN)
    bias = packed + 2 * F * D
    a = take(gates, row, live, unit, 2 * F).to(tl.float32) + line(bias, unit)
    g = take(gates + F, row, live, unit, 2 * F).to(tl.float32) + line(bias + F, unit)
    dh = take(units, row, live, unit, F).to(tl.float32)
    found, da, dg = gate_back(a, g, dh)
    put(units, row, live, unit, F, found)
    put(gates, row, live, unit, 2 * F, da)
    put(gates + F, row, live, unit, 2 * F, dg)
    target = sums + tl.program_id(0).to(tl.int64) * (2 * F + 4 * D)
    tl.store(target + unit, tl.sum(da, 0))
    tl.store(target + F + unit, tl.sum(dg, 0))


@triton.jit
@no_type_check
def leave(
    x,
    o,
    packed,
    weights,
    grad,
    dn,
    dx,
    rounded,
    sums,
    rows,
    shared,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dy and what comes back through the LayerNorm; sums for the bias before it, and for its own
    parameters."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    OUT: tl.constexpr = 2 * F * (D + 1) + D * (F + 1)
    gamma = packed + OUT + D * (INNER + 1)
    start = attended(
        x, o, weights + OUT, packed + OUT + D * INNER, row, live, shared, D, INNER, COLUMNS
    )
    values, factor = standardise(start, D)
    back = take(dn, row, live, channel, D).to(tl.float32)
    dstart = take(grad, row, live, channel, D).to(tl.float32)
    dstart += norm_back(back, values, factor, line(gamma, channel), D)
    put(dx, row, live, channel, D, dstart)
    put(rounded, row, live, channel, D, dstart)
    target = sums + tl.program_id(0).to(tl.int64) * (2 * F + 4 * D) + 2 * F + D
    tl.store(target + channel, tl.sum(dstart, 0))
    norm_sums(back, values, target + D, channel, D)


@triton.jit
@no_type_check
def place_sums(
    sums,
    out,
    blocks,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    BLOCKS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sums of all programs, each where it belongs among the packed parameters."""
    WIDTH: tl.constexpr = 2 * F + 4 * D
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, blocks, BLOCKS):
        row = (begin + tl.arange(0, BLOCKS)).to(tl.int64)
        some = sums + row[:, None] * WIDTH + column[None, :]
        total += tl.sum(tl.load(some, mask=(row < blocks)[:, None], other=0.0), 0)
    # Biases stand after their weights: W1 b1 W2 b2 Wo bo gamma beta.
    place = column + 2 * F * D
    place += tl.where(column >= 2 * F, D * F, 0) + tl.where(column >= 2 * F + D, D * INNER, 0)
    tl.store(out + place, total)


def finish_back_by_library(
    x: Tensor,
    o: Tensor,
    packed: Tensor,
    weights: Tensor,
    grad: Tensor,
    hidden: int,
    columns: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x (of every row of o, before equal ones are added up), o and parameters."""
    (rows, inner), (again, width) = o.shape, x.shape
    kind, blocks = o.dtype, triton.cdiv(rows, ROWS)
    sizes = {"D": width, "F": hidden}
    block = {"ROWS": ROWS, "num_warps": WARPS}
    around = sizes | block | {"INNER": inner, "COLUMNS": columns, "num_stages": 2}
    into, weight, out_weight = views_of_finish(weights.to(kind), width, hidden, inner)
    sums = x.new_empty((blocks, 2 * hidden + 4 * width), dtype=torch.float32)
    normed, rounded = (o.new_empty((rows, width)) for _ in range(2))
    with torch.cuda.device_of(x):
        enter[(blocks,)](x, o, packed, weights, grad, normed, rounded, sums, rows, again, **around)
        gates, units = normed @ into.T, rounded @ weight
        some = share(hidden, 64)
        within = sizes | block | {"HIDDEN": some}
        gate[(blocks, hidden // some)](gates, units, packed, sums, rows, **within)
        gradient = torch.empty_like(packed, dtype=torch.float32)
        into_grad, weight_grad, out_grad = views_of_finish(gradient, width, hidden, inner)
        transposed_product(gates, normed, into_grad)
        transposed_product(rounded, units, weight_grad)
        dx, dn = x.new_empty((rows, width)), gates @ into
        leave[(blocks,)](x, o, packed, weights, grad, dn, dx, rounded, sums, rows, again, **around)
        transposed_product(rounded, o, out_grad)
        few = 16
        place_sums[(triton.cdiv(sums.shape[1], few),)](
            sums, gradient, blocks, INNER=inner, BLOCKS=depth(blocks, 256), COLUMNS=few, **sizes
        )
    return dx, rounded @ out_weight, gradient.to(packed.dtype)
