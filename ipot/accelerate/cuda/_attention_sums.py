"""The kernels that put together what the programs of the attention kernels leave in parts.

Parts are added up in their order, whatever program comes first.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def combine_kernel(
    part,
    part_lse,
    out,
    lse,
    b_count,
    m_count,
    H: tl.constexpr,
    F: tl.constexpr,
    PAD_F: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The shares of a block of queries put together."""
    row_blocks = tl.cdiv(m_count, ROWS)
    pid = tl.program_id(0)
    block = pid % row_blocks
    h = (pid // row_blocks) % H
    b = (pid // (row_blocks * H)).to(tl.int64)
    m = block * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, PAD_F)
    real = m < m_count
    inside = real[:, None] & (f < F)[None, :]
    sums = part_lse + (b * H + h) * m_count + m
    place = (b * m_count + m)[:, None] * (H * F) + (h * F + f)[None, :]
    top = tl.full([ROWS], float("-inf"), tl.float32)
    for split in range(SPLITS):
        one = tl.load(sums + (split * b_count + 0 * b) * H * m_count, mask=real, other=0.0)
        top = tl.maximum(top, one)
    base = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PAD_F], tl.float32)
    for split in range(SPLITS):
        step = (split * b_count + 0 * b) * m_count
        weight = tl.exp(tl.load(sums + step * H, mask=real, other=0.0) - base)
        total += weight
        acc += weight[:, None] * tl.load(part + step * (H * F) + place, mask=inside, other=0.0)
    safe = tl.where(total > 0, total, 1.0)
    tl.store(out + place, (acc / safe[:, None]).to(out.dtype.element_ty), mask=inside)
    found = tl.where(total > 0, base + tl.log(safe), float("-inf"))
    tl.store(lse + (b * H + h) * m_count + m, found, mask=real)


@triton.jit
@no_type_check
def add_kernel(
    parts,
    to,
    rows,
    stride,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows of the sum of all parts."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.arange(0, PADDED)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    total = tl.zeros([ROWS, PADDED], tl.float32)
    for part in tl.static_range(PARTS):
        at = parts + (part * rows + row)[:, None] * WIDTH + column[None, :]
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    at = to + row[:, None] * stride + column[None, :]
    tl.store(at, total.to(to.dtype.element_ty), mask=inside)
