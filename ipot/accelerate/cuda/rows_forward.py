"""The forward kernels of `ipot.accelerate.cuda.rows`, and what the backward ones share with them.

Parameters come packed in one tensor, in the order of `ipot.accelerate.cuda.rows`, and once more as
`weights`, where those of the products may be rounded already; if not, they are as they are loaded.
Sums are float32. Rows after the last are read as zeros.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from ipot.accelerate.cuda import interpreted, rows_layout

EPS = tl.constexpr(rows_layout.EPS)
INTERPRETED = tl.constexpr(interpreted())


@triton.jit
@no_type_check
def take(source, row, live, column, WIDTH: tl.constexpr):
    """Some columns of some rows of a table. `row` is int64: a table may be past 2³¹ numbers."""
    return tl.load(source + row[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)


@triton.jit
@no_type_check
def put(target, row, live, column, WIDTH: tl.constexpr, value):
    """Store rows, rounded to the type of what is stored there."""
    value = value.to(target.dtype.element_ty)
    tl.store(target + row[:, None] * WIDTH + column[None, :], value, mask=live[:, None])


@triton.jit
@no_type_check
def tile(source, row, column, WIDTH: tl.constexpr, kind: tl.constexpr):
    """A piece of a weight, as the products take it."""
    return tl.load(source + row[:, None] * WIDTH + column[None, :]).to(kind)


@triton.jit
@no_type_check
def line(source, column):
    """A piece of a bias, to add to every row."""
    return tl.load(source + column)[None, :].to(tl.float32)


@triton.jit
@no_type_check
def dot(a, b, total):
    """total + a b, in float32. The interpreter has no products of bf16: there the rounded numbers
    are widened again, which changes none of them."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
@no_type_check
def standardise(x, D: tl.constexpr):
    """Rows of mean 0 and variance 1, and the factor that made them so."""
    x = x - (tl.sum(x, 1) / D)[:, None]
    factor = tl.rsqrt(tl.sum(x * x, 1) / D + EPS)
    return x * factor[:, None], factor


@triton.jit
@no_type_check
def normal(g):
    """The normal distribution up to g, and e^(-g²/2).

    By Hastings' rational approximation of the error function, which is off by 1.5e-7 at most. It
    takes that exponential as a factor, which a gradient needs as well: a third of the operations of
    an error function beside one.
    """
    bell = tl.exp(-0.5 * g * g)
    t = 1.0 / (1.0 + 0.23164189 * tl.abs(g))  # 0.3275911 / √2
    tail = t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    tail = t * (0.127414796 + tail) * bell
    return tl.where(g > 0, 1.0 - tail, tail), bell


@triton.jit
@no_type_check
def attended(
    x,
    o,
    weight,
    bias,
    row,
    live,
    shared,
    D: tl.constexpr,
    INNER: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """x + o Wᵀ + b. Where x has fewer rows than o, they serve again and again."""
    channel = tl.arange(0, D)
    kind = o.dtype.element_ty
    again = (row.to(tl.int32) % shared).to(tl.int64)  # the remainder of an int64 is slow
    out = take(x, again, live, channel, D).to(tl.float32) + line(bias, channel)
    for first in range(0, INNER, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        left = take(o, row, live, column, INNER)
        right = tile(weight, channel, column, INNER, kind)
        out = dot(left, tl.trans(right), out)
    return out


@triton.jit
@no_type_check
def project(
    x,
    packed,
    weights,
    out,
    rows,
    P: tl.constexpr,
    D: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """LN(x) Wᵀ + b: a program has some rows and some columns of it."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    kind = out.dtype.element_ty
    bias = packed + P * D
    gamma = bias + P if BIAS else bias
    values, _ = standardise(take(x, row, live, channel, D).to(tl.float32), D)
    normed = (values * line(gamma, channel) + line(gamma + D, channel)).to(kind)
    weight = tile(weights, column, channel, D, kind)
    answer = dot(normed, tl.trans(weight), tl.zeros((ROWS, COLUMNS), tl.float32))
    if BIAS:
        answer += line(bias, column)
    put(out, row, live, column, P, answer)


@triton.jit
@no_type_check
def finish(
    x,
    o,
    packed,
    weights,
    out,
    inside,
    factors,
    behind,
    next_factors,
    rows,
    shared,
    D: tl.constexpr,
    F: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HIDDEN: tl.constexpr,
    KEEP: tl.constexpr,
):
    """All of a block after its attention. The hidden layer is never whole: it comes and goes
    HIDDEN channels at a time. KEEP writes down what the norm inside leaves and what the next norm,
    of the answer, will leave, each with its factors."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    kind = o.dtype.element_ty
    BACK: tl.constexpr = 2 * F * (D + 1)  # where the second and third weight begin
    OUT: tl.constexpr = BACK + D * (F + 1)
    into_bias = packed + 2 * F * D
    bias = packed + BACK + D * F
    out_bias = packed + OUT + D * INNER
    gamma = out_bias + D
    start = attended(x, o, weights + OUT, out_bias, row, live, shared, D, INNER, COLUMNS)
    values, factor = standardise(start, D)
    if KEEP:
        put(inside, row, live, channel, D, values)
        tl.store(factors + row, factor, mask=live)
    normed = (values * line(gamma, channel) + line(gamma + D, channel)).to(kind)
    answer = start + line(bias, channel)
    for first in range(0, F, HIDDEN):
        unit = first + tl.arange(0, HIDDEN)
        into = tile(weights, unit, channel, D, kind)
        gates = tile(weights + F * D, unit, channel, D, kind)
        zeros = tl.zeros((ROWS, HIDDEN), tl.float32)
        a = dot(normed, tl.trans(into), zeros) + line(into_bias, unit)
        g = dot(normed, tl.trans(gates), zeros) + line(into_bias + F, unit)
        below, _ = normal(g)
        hidden = (a * g * below).to(kind)
        back = tile(weights + BACK, channel, unit, F, kind)
        answer = dot(hidden, tl.trans(back), answer)
    put(out, row, live, channel, D, answer)
    if KEEP:
        values, factor = standardise(answer, D)
        put(behind, row, live, channel, D, values)
        tl.store(next_factors + row, factor, mask=live)
