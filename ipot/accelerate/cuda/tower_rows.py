"""The kernels of `ipot.accelerate.cuda.tower`: passes over rows between the library's products.

Norms have no affine part here: it is folded into the weights after them. So the gradient of what
a norm leaves, its `values`, is all that comes back through it.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from ipot.accelerate.cuda.rows_backward import hidden_back
from ipot.accelerate.cuda.rows_forward import put, standardise, take


@triton.jit
@no_type_check
def normalise(x, values, factors, rows, D: tl.constexpr, ROWS: tl.constexpr):
    """Rows of mean 0 and variance 1, and the factors that made them so."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    found, factor = standardise(take(x, row, live, channel, D).to(tl.float32), D)
    put(values, row, live, channel, D, found)
    tl.store(factors + row, factor, mask=live)


@triton.jit
@no_type_check
def norm_pass_back(
    dn,
    values,
    factors,
    grad,
    more,
    dx,
    rounded,
    sums,
    rows,
    length,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    MORE: tl.constexpr,
):
    """What comes back through a norm, added to what comes past it (`grad`) and, with MORE, to what
    comes from elsewhere. A program has `length` rows, some at a time, and sums their gradients."""
    channel = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    begin = tl.program_id(0) * length
    end = tl.minimum(begin + length, rows)
    for first in range(begin, end, ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = row < end
        slope = take(dn, row, live, channel, D).to(tl.float32)
        value = take(values, row, live, channel, D).to(tl.float32)
        factor = tl.load(factors + row, mask=live, other=0.0)
        answer = take(grad, row, live, channel, D).to(tl.float32)
        if MORE:
            answer += take(more, row, live, channel, D).to(tl.float32)
        along = tl.sum(slope * value, 1) / D
        slope -= (tl.sum(slope, 1) / D)[:, None] + value * along[:, None]
        answer += factor[:, None] * slope
        put(dx, row, live, channel, D, answer)
        put(rounded, row, live, channel, D, answer)
        total += tl.sum(answer, 0)
    tl.store(sums + tl.program_id(0).to(tl.int64) * D + channel, total)


@triton.jit
@no_type_check
def gates_back(
    values,
    grad,
    packed,
    weights,
    gates,
    units,
    sums,
    rows,
    D: tl.constexpr,
    F: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """The hidden layer once more and the gradients of its gates, from what its norm left and the
    gradient after it: for some rows, HIDDEN of its units at a time."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = row < rows
    channel = tl.arange(0, D)
    inputs = take(values, row, live, channel, D)
    dy = take(grad, row, live, channel, D)
    target = sums + tl.program_id(0).to(tl.int64) * (2 * F)
    for first in range(0, F, HIDDEN):
        unit = first + tl.arange(0, HIDDEN)
        hidden, da, dg, _, _ = hidden_back(inputs, dy, packed, weights, unit, D, F, ROWS, HIDDEN)
        # Rows after the last have gates, by the biases, but no gradient.
        tl.store(target + unit, tl.sum(da, 0))
        tl.store(target + F + unit, tl.sum(dg, 0))
        put(units, row, live, unit, F, hidden)
        put(gates, row, live, unit, 2 * F, da)
        put(gates + F, row, live, unit, 2 * F, dg)
