"""The backward kernel of `ipot.accelerate.cuda.self_attention`.

Rows beyond the last are read as zeros. Weights are computed in base two: the logarithms that are
stored are natural ones. Offsets of samples are 64 bits wide.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def rows_of(source, row, real, stride, E: tl.constexpr, PAD_E: tl.constexpr):
    """A head's channels of some rows."""
    e = tl.arange(0, PAD_E)
    inside = real[:, None] & (e < E)[None, :]
    return tl.load(source + row[:, None] * stride + e[None, :], mask=inside, other=0.0)


@triton.jit
@no_type_check
def put_rows(target, row, real, stride, value, E: tl.constexpr, PAD_E: tl.constexpr):
    """Store rows of a head, rounded to what is stored there."""
    e = tl.arange(0, PAD_E)
    inside = real[:, None] & (e < E)[None, :]
    value = value.to(target.dtype.element_ty)
    tl.store(target + row[:, None] * stride + e[None, :], value, mask=inside)


@triton.jit
@no_type_check
def times_transposed(a, b, PRECISION: tl.constexpr):
    """a bᵀ."""
    return tl.dot(a, tl.trans(b), input_precision=PRECISION)


@triton.jit
@no_type_check
def of_queries(
    triples,
    out,
    gradient,
    lse,
    deltas,
    found,
    sums,
    count,
    scale,
    first,
    H: tl.constexpr,
    E: tl.constexpr,
    PAD_E: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
    SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of a block of queries, from all keys."""
    WIDE: tl.constexpr = 3 * H * E
    row = first + tl.arange(0, ROWS)
    real = row < count
    q = rows_of(triples, row, real, WIDE, E, PAD_E)
    given = rows_of(gradient, row, real, H * E, E, PAD_E)
    answer = rows_of(out, row, real, H * E, E, PAD_E)
    delta = tl.sum(given.to(tl.float32) * answer.to(tl.float32), 1)
    tl.store(deltas + row, delta, mask=real)
    level = tl.load(lse + row, mask=real, other=0.0) * LOG2E
    total = tl.zeros([ROWS, PAD_E], tl.float32)
    for start in range(0, count, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < count
        k = rows_of(triples + H * E, column, there, WIDE, E, PAD_E)
        v = rows_of(triples + 2 * H * E, column, there, WIDE, E, PAD_E)
        weight = tl.exp2(times_transposed(q, k, PRECISION) * (scale * LOG2E) - level[:, None])
        if not WHOLE:
            weight = tl.where(there[None, :], weight, 0.0)
        change = weight * (times_transposed(given, v, PRECISION) - delta[:, None])
        total = tl.dot(change.to(k.dtype), k, total, input_precision=PRECISION)
    total = total * scale
    put_rows(found, row, real, WIDE, total, E, PAD_E)
    if SUMS:
        e = tl.arange(0, PAD_E)
        tl.store(sums + e, tl.sum(total, 0), mask=e < E)


@triton.jit
@no_type_check
def of_pairs(
    triples,
    out,
    gradient,
    lse,
    deltas,
    found,
    count,
    scale,
    first,
    H: tl.constexpr,
    E: tl.constexpr,
    PAD_E: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
    READY: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of a block of keys and values, from all queries. READY says that the sums of
    gradients times answers are there already."""
    WIDE: tl.constexpr = 3 * H * E
    row = first + tl.arange(0, ROWS)
    real = row < count
    k = rows_of(triples + H * E, row, real, WIDE, E, PAD_E)
    v = rows_of(triples + 2 * H * E, row, real, WIDE, E, PAD_E)
    keys = tl.zeros([ROWS, PAD_E], tl.float32)
    values = tl.zeros([ROWS, PAD_E], tl.float32)
    for start in range(0, count, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < count
        q = rows_of(triples, column, there, WIDE, E, PAD_E)
        given = rows_of(gradient, column, there, H * E, E, PAD_E)
        # Queries after the last weigh nothing by themselves: their gradients are zero.
        level = tl.load(lse + column, mask=there, other=0.0) * LOG2E
        if READY:
            delta = tl.load(deltas + column, mask=there, other=0.0)
        else:
            answer = rows_of(out, column, there, H * E, E, PAD_E)
            delta = tl.sum(given.to(tl.float32) * answer.to(tl.float32), 1)
        weight = tl.exp2(times_transposed(k, q, PRECISION) * (scale * LOG2E) - level[None, :])
        if not WHOLE:
            weight = tl.where(real[:, None], weight, 0.0)
        change = weight * (times_transposed(v, given, PRECISION) - delta[None, :])
        keys = tl.dot(change.to(q.dtype), q, keys, input_precision=PRECISION)
        values = tl.dot(weight.to(q.dtype), given.to(q.dtype), values, input_precision=PRECISION)
    put_rows(found + H * E, row, real, WIDE, keys * scale, E, PAD_E)
    put_rows(found + 2 * H * E, row, real, WIDE, values, E, PAD_E)


@triton.jit
@no_type_check
def backward_kernel(
    triples,
    out,
    gradient,
    lse,
    deltas,
    found,
    sums,
    count,
    scale,
    H: tl.constexpr,
    E: tl.constexpr,
    PAD_E: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
    QUERIES: tl.constexpr,
    PAIRS: tl.constexpr,
    SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of a block of QUERIES or of PAIRS; where both are asked for at once, every
    other program has the one."""
    blocks = tl.cdiv(count, ROWS)
    pid = tl.program_id(0)
    BOTH: tl.constexpr = QUERIES and PAIRS
    of_pair = PAIRS
    if BOTH:
        of_pair = pid % 2 == 1
        pid = pid // 2
    first = (pid % blocks) * ROWS
    h = (pid // blocks) % H
    b = (pid // (blocks * H)).to(tl.int64)
    triples += b * count * (3 * H * E) + h * E
    found += b * count * (3 * H * E) + h * E
    out += b * count * (H * E) + h * E
    gradient += b * count * (H * E) + h * E
    lse += (b * H + h) * count
    deltas += (b * H + h) * count
    sums += ((b * blocks + pid % blocks) * H + h) * E
    if of_pair:
        of_pairs(
            *(triples, out, gradient, lse, deltas, found, count, scale, first),
            *(H, E, PAD_E, ROWS, COLUMNS, WHOLE, not BOTH, PRECISION),
        )
    else:
        of_queries(
            *(triples, out, gradient, lse, deltas, found, sums, count, scale, first),
            *(H, E, PAD_E, ROWS, COLUMNS, WHOLE, SUMS, PRECISION),
        )
