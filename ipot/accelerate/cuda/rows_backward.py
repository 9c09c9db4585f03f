"""The backward kernels of `ipot.accelerate.cuda.rows`.

Nothing of the forward pass is kept but its inputs. Sums over rows go in two passes, without
atomics: every program writes its share, and `add_shares` adds the shares up in a fixed order.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from ipot.accelerate.cuda.rows_forward import (
    attended,
    dot,
    line,
    normal,
    put,
    standardise,
    take,
    tile,
)

DENSITY = tl.constexpr(0.3989422804014327)  # 1/√(2π)


@triton.jit
@no_type_check
def norm_back(dn, values, factor, gamma, D: tl.constexpr):
    """The gradient through a LayerNorm, of rows that `standardise` left as `values`."""
    dn = dn * gamma
    along = tl.sum(dn * values, 1) / D
    return factor[:, None] * (dn - (tl.sum(dn, 1) / D)[:, None] - values * along[:, None])


@triton.jit
@no_type_check
def norm_sums(dn, values, target, channel, D: tl.constexpr):
    """This program's share of the gradients of gamma and, after it, of beta."""
    tl.store(target + channel, tl.sum(dn * values, 0))
    tl.store(target + D + channel, tl.sum(dn, 0))


@triton.jit
@no_type_check
def project_back(
    x,
    packed,
    weights,
    grad,
    past,
    more,
    dx,
    shares,
    sums,
    rows,
    blocks,
    length,
    P: tl.constexpr,
    D: tl.constexpr,
    BIAS: tl.constexpr,
    PAST: tl.constexpr,
    MORE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Both gradients of `project`. The last `blocks` programs have some rows of x each, the others,
    which take longer, some rows of the weight, and of them all a stretch of `length` rows of x.
    With PAST, what comes to x past the projection is added, with MORE what comes from elsewhere."""
    channel = tl.arange(0, D)
    kind = grad.dtype.element_ty
    gamma = packed + P * D + (P if BIAS else 0)
    scale = line(gamma, channel)
    TOTAL: tl.constexpr = P * D + (P if BIAS else 0)
    index = tl.program_id(0) - (tl.num_programs(0) - blocks)
    if index >= 0:
        row = (index * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        live = row < rows
        values, factor = standardise(take(x, row, live, channel, D).to(tl.float32), D)
        dn = tl.zeros((ROWS, D), tl.float32)
        for first in range(0, P, COLUMNS):
            column = first + tl.arange(0, COLUMNS)
            left = take(grad, row, live, column, P)
            dn = dot(left, tile(weights, column, channel, D, kind), dn)
        norm_sums(dn, values, sums + index.to(tl.int64) * 2 * D, channel, D)
        answer = norm_back(dn, values, factor, scale, D)
        if PAST:
            answer += take(past, row, live, channel, D).to(tl.float32)
        if MORE:
            answer += take(more, row, live, channel, D).to(tl.float32)
        put(dx, row, live, channel, D, answer)
    else:
        index = tl.program_id(0)
        column = (index % (P // COLUMNS)) * COLUMNS + tl.arange(0, COLUMNS)
        part = index // (P // COLUMNS)
        shift = line(gamma + D, channel)
        total = tl.zeros((COLUMNS, D), tl.float32)
        count = tl.zeros((COLUMNS,), tl.float32)
        end = tl.minimum((part + 1) * length, rows)
        for first in range(part * length, end, ROWS):
            row = (first + tl.arange(0, ROWS)).to(tl.int64)
            live = row < end
            values, _ = standardise(take(x, row, live, channel, D).to(tl.float32), D)
            left = take(grad, row, live, column, P)
            right = (values * scale + shift).to(kind)
            total = dot(tl.trans(left), right, total)
            count += tl.sum(left.to(tl.float32), 0)
        shares += part.to(tl.int64) * TOTAL
        tl.store(shares + column[:, None] * D + channel[None, :], total)
        if BIAS:
            tl.store(shares + P * D + column, count)


@triton.jit
@no_type_check
def gate_back(a, g, dh):
    """The units a ⊙ gelu(g), and the gradients of a and g from that of the units."""
    below, bell = normal(g)
    return a * g * below, dh * g * below, dh * a * (below + g * DENSITY * bell)


@triton.jit
@no_type_check
def hidden_back(
    inputs,
    dy,
    packed,
    weights,
    unit,
    D: tl.constexpr,
    F: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """Some units of a hidden layer, the gradients of what they and their gates come from, and the
    two weights in front of them."""
    channel = tl.arange(0, D)
    kind = inputs.dtype
    bias = packed + 2 * F * D
    into = tile(weights, unit, channel, D, kind)
    gates = tile(weights + F * D, unit, channel, D, kind)
    zeros = tl.zeros((ROWS, HIDDEN), tl.float32)
    a = dot(inputs, tl.trans(into), zeros) + line(bias, unit)
    g = dot(inputs, tl.trans(gates), zeros) + line(bias + F, unit)
    dh = dot(dy, tile(weights + 2 * F * (D + 1), channel, unit, F, kind), zeros)
    units, da, dg = gate_back(a, g, dh)
    return units, da, dg, into, gates


@triton.jit
@no_type_check
def finish_back(
    x,
    o,
    packed,
    weights,
    grad,
    dx,
    do,
    normed,
    dgates,
    hidden,
    sums,
    rows,
    shared,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HIDDEN: tl.constexpr,
    LEAN: tl.constexpr,
):
    """The gradients of `finish` that have rows: of x and o, and what `finish_products` makes the
    gradients of the weights from. `LEAN` computes what comes before the hidden layer again after
    it, and so keeps registers free for more rows."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    kind = o.dtype.element_ty
    OUT: tl.constexpr = 2 * F * (D + 1) + D * (F + 1)  # where the third weight begins
    out_bias = packed + OUT + D * INNER
    gamma = out_bias + D
    start = attended(x, o, weights + OUT, out_bias, row, live, shared, D, INNER, COLUMNS)
    values, factor = standardise(start, D)
    scale = line(gamma, channel)
    inputs = (values * scale + line(gamma + D, channel)).to(kind)
    put(normed, row, live, channel, D, inputs)
    dy = take(grad, row, live, channel, D)
    rounded = dy.to(kind)
    dn = tl.zeros((ROWS, D), tl.float32)
    for first in range(0, F, HIDDEN):
        unit = first + tl.arange(0, HIDDEN)
        found, da, dg, into, gates = hidden_back(
            inputs, rounded, packed, weights, unit, D, F, ROWS, HIDDEN
        )
        put(hidden, row, live, unit, F, found)
        da, dg = da.to(kind), dg.to(kind)
        put(dgates, row, live, unit, 2 * F, da)
        put(dgates + F, row, live, unit, 2 * F, dg)
        dn = dot(dg, gates, dot(da, into, dn))
    if LEAN:
        start = attended(x, o, weights + OUT, out_bias, row, live, shared, D, INNER, COLUMNS)
        values, factor = standardise(start, D)
        dy = take(grad, row, live, channel, D)
    norm_sums(dn, values, sums + tl.program_id(0).to(tl.int64) * 2 * D, channel, D)
    dstart = dy + norm_back(dn, values, factor, scale, D)
    put(dx, row, live, channel, D, dstart)
    for first in range(0, INNER, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        right = tile(weights + OUT, channel, column, INNER, kind)
        answer = dot(dstart.to(kind), right, tl.zeros((ROWS, COLUMNS), tl.float32))
        put(do, row, live, column, INNER, answer)


@triton.jit
@no_type_check
def product_tile(
    a,
    b,
    target,
    index,
    begin,
    end,
    A: tl.constexpr,
    B: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    kind: tl.constexpr,
):
    """One tile of aᵀ b over a stretch of rows; after the product, sums of the columns of a."""
    left_column = (index // (B // N)) * M + tl.arange(0, M)
    right_column = (index % (B // N)) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    count = tl.zeros((M,), tl.float32)
    for first in range(begin, end, ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = row < end
        left = take(a, row, live, left_column, A)
        right = take(b, row, live, right_column, B).to(kind)
        total = dot(tl.trans(left.to(kind)), right, total)
        count += tl.sum(left.to(tl.float32), 0)
    tl.store(target + left_column[:, None] * B + right_column[None, :], total)
    if index % (B // N) == 0:
        tl.store(target + A * B + left_column, count)


@triton.jit
@no_type_check
def finish_products(
    dgates,
    normed,
    grad,
    hidden,
    dx,
    o,
    shares,
    rows,
    length,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    GATES: tl.constexpr,
    CHANNELS: tl.constexpr,
    HIDDEN: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradients of all three weights and their biases: tiles of each, over stretches of
    `length` rows. The names in capitals are the edges of the tiles."""
    FIRST: tl.constexpr = (2 * F // GATES) * (D // CHANNELS)
    SECOND: tl.constexpr = (D // CHANNELS) * (F // HIDDEN)
    THIRD: tl.constexpr = (D // CHANNELS) * (INNER // COLUMNS)
    TOTAL: tl.constexpr = 2 * F * (D + 1) + D * (F + 1) + D * (INNER + 1)
    kind = o.dtype.element_ty
    index = tl.program_id(0) % (FIRST + SECOND + THIRD)
    part = tl.program_id(0) // (FIRST + SECOND + THIRD)
    begin = part * length
    end = tl.minimum(begin + length, rows)
    shares += part.to(tl.int64) * TOTAL
    if index < FIRST:
        product_tile(
            dgates, normed, shares, index, begin, end, 2 * F, D, GATES, CHANNELS, ROWS, kind
        )
    elif index < FIRST + SECOND:
        shares += 2 * F * (D + 1)
        index -= FIRST
        product_tile(grad, hidden, shares, index, begin, end, D, F, CHANNELS, HIDDEN, ROWS, kind)
    else:
        shares += 2 * F * (D + 1) + D * (F + 1)
        index -= FIRST + SECOND
        product_tile(dx, o, shares, index, begin, end, D, INNER, CHANNELS, COLUMNS, ROWS, kind)


@triton.jit
@no_type_check
def add_columns(
    source, target, first, many, WIDTH: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr
):
    """The sums of some columns of a table of `many` rows."""
    column = first + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, many, DEPTH):
        row = (begin + tl.arange(0, DEPTH)).to(tl.int64)
        live = (row < many)[:, None] & (column < WIDTH)[None, :]
        total += tl.sum(
            tl.load(source + row[:, None] * WIDTH + column[None, :], mask=live, other=0.0), 0
        )
    tl.store(target + column, total.to(target.dtype.element_ty), mask=column < WIDTH)


@triton.jit
@no_type_check
def add_shares(
    shares,
    sums,
    out,
    parts,
    blocks,
    TOTAL: tl.constexpr,
    NORM: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEW: tl.constexpr,
):
    """The gradient of the packed parameters: shares of weights and biases added up, and after
    them those of the LayerNorm."""
    WIDE: tl.constexpr = (TOTAL + COLUMNS - 1) // COLUMNS
    index = tl.program_id(0)
    if index < WIDE:
        add_columns(shares, out, index * COLUMNS, parts, TOTAL, PARTS, COLUMNS)
    else:
        first = (index - WIDE) * FEW
        add_columns(sums, out + TOTAL, first, blocks, NORM, BLOCKS, FEW)
