"""The backward attention kernel for many queries, few keys and values of a few
channels: a decoder that leaves its outputs and nothing else.

Products with the channels of a value are written out, unrounded: padded to what matrix units take
they would be as long as those with the keys. Sums over queries are one such product where there are
several channels, which would need more registers than there are.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def narrow_backward_kernel(
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
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
    WANTED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A block of keys stays and collects; a share of the queries moves past it.

    Its sums over the share are one part of the gradient of the keys; what a query gets from this
    block is one part of its own, if that is wanted at all.
    """
    blocks = tl.cdiv(n_count, STILL)
    pid = tl.program_id(0)
    block = pid % blocks
    split = (pid // blocks) % SPLITS
    h = (pid // (blocks * SPLITS)) % H
    b = (pid // (blocks * SPLITS * H)).to(tl.int64)
    e = tl.arange(0, PAD_E)
    f = tl.arange(0, PAD_F)
    e_real = e < E
    queries = query + b * stride_qb + h * E
    keys = pairs + b * stride_kb + h * E
    values = value + b * stride_vb + h * F
    grads = gradient + b * m_count * (H * F) + h * F
    outs = out + b * m_count * (H * F) + h * F
    sums = lse + (b * H + h) * m_count
    to_q = dq + (block * b_count + b) * m_count * stride_dq + h * E
    to_k = dpairs + (split * b_count + b) * n_count * stride_dk + h * E
    to_v = dvalue + (split * b_count + b) * n_count * stride_dv + h * F

    s = block * STILL + tl.arange(0, STILL)
    s_real = s < n_count
    s_row = s.to(tl.int64)
    s_inside = s_real[:, None] & e_real[None, :]
    v_inside = s_real[:, None] & (f < F)[None, :]
    k = tl.load(keys + s_row[:, None] * stride_kn + e[None, :], mask=s_inside, other=0.0)
    at = values + s_row[:, None] * stride_vn + f[None, :]
    v = tl.load(at, mask=v_inside, other=0.0).to(tl.float32)
    seen = s_real
    if MASKED:
        seen = s_real & (tl.load(mask + b * n_count + s, mask=s_real, other=0) != 0)

    collected = tl.zeros([STILL, PAD_E], tl.float32)
    collected_value = tl.zeros([STILL, PAD_F], tl.float32)
    first = split * share
    last = tl.minimum(first + share, m_count)
    for start in range(first, last, MOVING):
        t = start + tl.arange(0, MOVING)
        t_real = t < last
        t_row = t.to(tl.int64)
        t_inside = t_real[:, None] & e_real[None, :]
        q = tl.load(queries + t_row[:, None] * stride_qm + e[None, :], mask=t_inside, other=0.0)
        level = tl.load(sums + t, mask=t_real, other=0.0) * LOG2E
        if F == 1:
            given = tl.load(grads + t_row * H, mask=t_real, other=0.0).to(tl.float32)
            answer = tl.load(outs + t_row * H, mask=t_real, other=0.0).to(tl.float32)
            delta = given * answer
        else:
            wide = t_row[:, None] * (H * F) + f[None, :]
            f_inside = t_real[:, None] & (f < F)[None, :]
            given = tl.load(grads + wide, mask=f_inside, other=0.0)
            answer = tl.load(outs + wide, mask=f_inside, other=0.0)
            delta = tl.sum(given.to(tl.float32) * answer.to(tl.float32), 1)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        # Padded queries weigh nothing by themselves: their gradient and their level are zero.
        weight = tl.exp2(scores * (scale * LOG2E) - level[None, :])
        if not WHOLE:
            weight = tl.where(seen[:, None], weight, 0.0)
        change = tl.broadcast_to(-delta[None, :], [STILL, MOVING])
        for i in tl.static_range(F):
            mine = tl.sum(tl.where((f == i)[None, :], v, 0.0), 1)
            one = tl.load(grads + t_row * (H * F) + i, mask=t_real, other=0.0).to(tl.float32)
            change += mine[:, None] * one[None, :]
        if F == 1:
            collected_value += tl.sum(weight * given[None, :], 1)[:, None]
        else:
            collected_value = tl.dot(
                weight.to(q.dtype), given.to(q.dtype), collected_value, input_precision=PRECISION
            )
        change = (weight * change).to(q.dtype)
        collected = tl.dot(change, q, collected, input_precision=PRECISION)
        if WANTED:
            moved = tl.dot(tl.trans(change), k, input_precision=PRECISION) * scale
            to = to_q + t_row[:, None] * stride_dq + e[None, :]
            tl.store(to, moved.to(dq.dtype.element_ty), mask=t_inside)
    at = to_k + s_row[:, None] * stride_dk + e[None, :]
    tl.store(at, (collected * scale).to(dpairs.dtype.element_ty), mask=s_inside)
    at = to_v + s_row[:, None] * stride_dv + f[None, :]
    tl.store(at, collected_value.to(dvalue.dtype.element_ty), mask=v_inside)
