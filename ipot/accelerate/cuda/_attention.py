"""The kernels of `ipot.accelerate.cuda.attention`.

Rows and columns after the last are read as zeros. Weights are computed in base two: the logarithms
that are stored are natural ones. Offsets of samples and rows are 64 bits wide.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def forward_kernel(
    query,
    pairs,
    value,
    mask,
    out,
    lse,
    stride_qb,
    stride_qm,
    stride_kb,
    stride_kn,
    stride_vb,
    stride_vn,
    b_count,
    m_count,
    n_count,
    share,
    scale,
    H: tl.constexpr,
    E: tl.constexpr,
    F: tl.constexpr,
    PAD_E: tl.constexpr,
    PAD_F: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A block of queries over a share of the keys; `scale` includes the change to base two."""
    row_blocks = tl.cdiv(m_count, ROWS)
    pid = tl.program_id(0)
    block = pid % row_blocks
    split = (pid // row_blocks) % SPLITS
    h = (pid // (row_blocks * SPLITS)) % H
    b = (pid // (row_blocks * SPLITS * H)).to(tl.int64)
    m = block * ROWS + tl.arange(0, ROWS)
    e = tl.arange(0, PAD_E)
    f = tl.arange(0, PAD_F)
    m_real = m < m_count
    at = query + b * stride_qb + m.to(tl.int64)[:, None] * stride_qm + (h * E + e)[None, :]
    q = tl.load(at, mask=m_real[:, None] & (e < E)[None, :], other=0.0)
    keys = pairs + b * stride_kb + h * E
    values = value + b * stride_vb + h * F
    first = split * share
    last = tl.minimum(first + share, n_count)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PAD_F], tl.float32)
    for start in range(first, last, COLUMNS):
        n = start + tl.arange(0, COLUMNS)
        real = n < last
        row = n.to(tl.int64)
        k = tl.load(
            keys + row[None, :] * stride_kn + e[:, None],
            mask=real[None, :] & (e < E)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision=PRECISION)
        if MASKED:
            real = real & (tl.load(mask + b * n_count + n, mask=real, other=0) != 0)
        if not WHOLE:
            scores = tl.where(real[None, :], scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1) * scale)
        # Where no key was real so far there is nothing to rescale, and no difference of infinities.
        base = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp2(scores * scale - base[:, None])
        change = tl.exp2(top - base)
        total = total * change + tl.sum(weight, 1)
        acc = acc * change[:, None]
        if F <= 4:  # a few channels are summed as they are, unrounded
            for i in tl.static_range(F):
                one = tl.load(values + row * stride_vn + i, mask=n < last, other=0.0)
                part = tl.sum(weight * one.to(tl.float32)[None, :], 1)
                acc += tl.where((f == i)[None, :], part[:, None], 0.0)
        else:
            v = tl.load(
                values + row[:, None] * stride_vn + f[None, :],
                mask=(n < last)[:, None] & (f < F)[None, :],
                other=0.0,
            ).to(q.dtype)
            acc = tl.dot(weight.to(q.dtype), v, acc, input_precision=PRECISION)
        top = new
    safe = tl.where(total > 0, total, 1.0)
    acc = acc / safe[:, None]
    place = (split * b_count + b) * m_count + m
    at = out + place[:, None] * (H * F) + (h * F + f)[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=m_real[:, None] & (f < F)[None, :])
    found = tl.where(total > 0, (top + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    tl.store(lse + ((split * b_count + b) * H + h) * m_count + m, found, mask=m_real)


@triton.jit
@no_type_check
def backward_kernel(
    query,
    pairs,
    value,
    mask,
    out,
    gradient,
    lse,
    dq,
    dpairs,
    dvalue,
    stride_qb,
    stride_qm,
    stride_kb,
    stride_kn,
    stride_vb,
    stride_vn,
    stride_dq,
    stride_dk,
    stride_dv,
    b_count,
    m_count,
    n_count,
    share,
    scale,
    H: tl.constexpr,
    E: tl.constexpr,
    F: tl.constexpr,
    PAD_E: tl.constexpr,
    PAD_F: tl.constexpr,
    STILL: tl.constexpr,
    MOVING: tl.constexpr,
    SPLITS: tl.constexpr,
    GATHER: tl.constexpr,
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
    WANTED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A block of the short side stays and collects; a share of the long side moves past it.

    The short side is that of the queries (gather) or of the keys (spread). Its sums over the share
    are one part of its gradient; what a moving row gets from this block is one part of that row's.
    Where the gradient of the queries is not wanted it is neither computed nor stored.
    """
    still_count = m_count if GATHER else n_count
    moving_count = n_count if GATHER else m_count
    blocks = tl.cdiv(still_count, STILL)
    pid = tl.program_id(0)
    block = pid % blocks
    split = (pid // blocks) % SPLITS
    h = (pid // (blocks * SPLITS)) % H
    b = (pid // (blocks * SPLITS * H)).to(tl.int64)
    part_q = split if GATHER else block
    part_kv = block if GATHER else split
    e = tl.arange(0, PAD_E)
    f = tl.arange(0, PAD_F)
    e_real = e < E
    f_real = f < F
    queries = query + b * stride_qb + h * E
    keys = pairs + b * stride_kb + h * E
    values = value + b * stride_vb + h * F
    grads = gradient + b * m_count * (H * F) + h * F
    outs = out + b * m_count * (H * F) + h * F
    sums = lse + (b * H + h) * m_count
    to_q = dq + (part_q * b_count + b) * m_count * stride_dq + h * E
    to_k = dpairs + (part_kv * b_count + b) * n_count * stride_dk + h * E
    to_v = dvalue + (part_kv * b_count + b) * n_count * stride_dv + h * F

    s = block * STILL + tl.arange(0, STILL)
    s_real = s < still_count
    s_row = s.to(tl.int64)
    if GATHER:
        a = tl.load(
            queries + s_row[:, None] * stride_qm + e[None, :],
            mask=s_real[:, None] & e_real[None, :],
            other=0.0,
        )
        inside = s_real[:, None] & f_real[None, :]
        wide = s_row[:, None] * (H * F) + f[None, :]
        given = tl.load(grads + wide, mask=inside, other=0.0)
        answer = tl.load(outs + wide, mask=inside, other=0.0)
        delta = tl.sum(given.to(tl.float32) * answer.to(tl.float32), 1)
        a_part = given.to(a.dtype)
        level = tl.load(sums + s, mask=s_real, other=0.0) * 1.4426950408889634
    else:
        a = tl.load(
            keys + s_row[:, None] * stride_kn + e[None, :],
            mask=s_real[:, None] & e_real[None, :],
            other=0.0,
        )
        a_part = tl.load(
            values + s_row[:, None] * stride_vn + f[None, :],
            mask=s_real[:, None] & f_real[None, :],
            other=0.0,
        ).to(a.dtype)
        s_seen = s_real
        if MASKED:
            s_seen = s_real & (tl.load(mask + b * n_count + s, mask=s_real, other=0) != 0)

    collected = tl.zeros([STILL, PAD_E], tl.float32)
    collected_value = tl.zeros([STILL, PAD_F], tl.float32)
    first = split * share
    last = tl.minimum(first + share, moving_count)
    for start in range(first, last, MOVING):
        t = start + tl.arange(0, MOVING)
        t_real = t < last
        t_row = t.to(tl.int64)
        e_inside = t_real[:, None] & e_real[None, :]
        f_inside = t_real[:, None] & f_real[None, :]
        if GATHER:
            c = tl.load(keys + t_row[:, None] * stride_kn + e[None, :], mask=e_inside, other=0.0)
            c_part = tl.load(
                values + t_row[:, None] * stride_vn + f[None, :], mask=f_inside, other=0.0
            ).to(a.dtype)
        else:
            c = tl.load(queries + t_row[:, None] * stride_qm + e[None, :], mask=e_inside, other=0.0)
            wide = t_row[:, None] * (H * F) + f[None, :]
            given = tl.load(grads + wide, mask=f_inside, other=0.0)
            answer = tl.load(outs + wide, mask=f_inside, other=0.0)
            delta = tl.sum(given.to(tl.float32) * answer.to(tl.float32), 1)
            c_part = given.to(c.dtype)
            level = tl.load(sums + t, mask=t_real, other=0.0) * 1.4426950408889634
        scores = tl.dot(a, tl.trans(c), input_precision=PRECISION) * (scale * 1.4426950408889634)
        # Padded queries weigh nothing by themselves: their gradient and their level are zero.
        if GATHER:
            weight = tl.exp2(scores - level[:, None])
            if not WHOLE:
                seen = t_real
                if MASKED:
                    seen = t_real & (tl.load(mask + b * n_count + t, mask=t_real, other=0) != 0)
                weight = tl.where(seen[None, :], weight, 0.0)
        else:
            weight = tl.exp2(scores - level[None, :])
            if not WHOLE:
                weight = tl.where(s_seen[:, None], weight, 0.0)
        change = tl.dot(a_part, tl.trans(c_part), input_precision=PRECISION)
        if GATHER:
            change = weight * (change - delta[:, None])
        else:
            change = weight * (change - delta[None, :])
        weight = weight.to(c.dtype)
        change = change.to(c.dtype)
        if WANTED or not GATHER:
            collected = tl.dot(change, c, collected, input_precision=PRECISION)
        if WANTED or GATHER:
            moved = tl.dot(tl.trans(change), a, input_precision=PRECISION) * scale
        if GATHER:
            tl.store(
                to_k + t_row[:, None] * stride_dk + e[None, :],
                moved.to(dpairs.dtype.element_ty),
                mask=e_inside,
            )
            moved_value = tl.dot(tl.trans(weight), a_part, input_precision=PRECISION)
            tl.store(
                to_v + t_row[:, None] * stride_dv + f[None, :],
                moved_value.to(dvalue.dtype.element_ty),
                mask=f_inside,
            )
        else:
            if WANTED:
                tl.store(
                    to_q + t_row[:, None] * stride_dq + e[None, :],
                    moved.to(dq.dtype.element_ty),
                    mask=e_inside,
                )
            collected_value = tl.dot(weight, c_part, collected_value, input_precision=PRECISION)
    inside = s_real[:, None] & e_real[None, :]
    collected = collected * scale
    if GATHER:
        if WANTED:
            at = to_q + s_row[:, None] * stride_dq + e[None, :]
            tl.store(at, collected.to(dq.dtype.element_ty), mask=inside)
    else:
        at = to_k + s_row[:, None] * stride_dk + e[None, :]
        tl.store(at, collected.to(dpairs.dtype.element_ty), mask=inside)
        at = to_v + s_row[:, None] * stride_dv + f[None, :]
        tl.store(
            at, collected_value.to(dvalue.dtype.element_ty), mask=s_real[:, None] & f_real[None, :]
        )
