"""softmax(Q Kᵀ / √e) V on a CPU by compiled kernels, forward and backward, in float32; forward
with products in bf16 as well.

The scores of a block are held at a time, in registers and the nearest cache. The backward pass
makes them anew from the logarithm of the sum of the weights. Sums are taken in an order that
depends on sizes alone, so that results do not depend on the number of threads.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

import ctypes

import torch
from torch import Tensor

from ipot.accelerate.cpu.build import call
from ipot.accelerate.cpu.interface import (
    Problem,
    address,
    attention_operator,
    dense,
    rows,
    threads,
)
from ipot.nn.attention import attention, join_heads, split_heads


def attend_rounded(
    query: Tensor,
    pairs: Tensor,
    value: Tensor | None,
    heads: int,
    mask: Tensor | None = None,
    *,
    logs: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention with queries, keys and values rounded to bf16, where nothing is differentiated.

    Values of a few channels are not rounded, and what comes out is float32. Numbers that are large
    beyond measure, or none, are left to the exact kernels. Without `logs` there are none.
    """
    query, pairs = query.float(), pairs.float()
    value = None if value is None else value.float()
    problem, held = _problem(query, pairs, value, mask, heads)
    out, lse = _places(problem, pairs)
    lse = lse if logs else lse.new_empty(0)
    done = ctypes.c_int()
    given = address(out), address(lse) if logs else None, ctypes.byref(done)
    call("ipot_half_attend", ctypes.byref(problem), *given)
    del held
    return (out, lse) if done else _forward(query, pairs, value, mask, heads)


def _forward(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    problem, held = _problem(query, pairs, value, mask, heads)
    out, lse = _places(problem, pairs)
    call("ipot_attend", ctypes.byref(problem), address(out), address(lse))
    del held
    return out, lse


def _places(problem: Problem, like: Tensor) -> tuple[Tensor, Tensor]:
    out = like.new_empty(problem.samples, problem.queries, problem.heads * problem.value_width)
    return out, like.new_empty(problem.samples, problem.heads, problem.queries)


def _backward(
    gradient: Tensor,
    query: Tensor,
    pairs: Tensor,
    value: Tensor | None,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, of pairs and of values (empty where those are in the pairs)."""
    problem, held = _problem(query, pairs, value, mask, heads)
    held += [gradient.contiguous(), out.contiguous(), lse.contiguous()]
    d_query = query.new_empty(query.shape)
    d_pairs = pairs.new_empty(pairs.shape)
    d_value = pairs.new_empty(0 if value is None else value.shape)
    d_parts = _apart(d_pairs, None if value is None else d_value, query.shape[-1])
    places = [ctypes.byref(rows(part)) for part in d_parts]
    given = [address(t) for t in (*held[-3:], d_query)]
    call("ipot_attend_backward", ctypes.byref(problem), *given, *places)
    del held
    return d_query, d_pairs, d_value


def _problem(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, heads: int
) -> tuple[Problem, list[Tensor]]:
    """What the library reads, and the tensors that must live as long."""
    inner = query.shape[-1]
    query, key, value = held = [dense(query), *map(dense, _apart(pairs, value, inner))]
    real = None
    if mask is not None:
        held.append(mask.contiguous().view(torch.uint8))
        real = held[-1].data_ptr()
    sizes = (len(key), len(query), heads, query.shape[1], key.shape[1])
    widths = (inner // heads, value.shape[-1] // heads)
    parts = [rows(t) for t in (query, key, value)]
    work = len(key) * query.shape[1] * key.shape[1] * (inner + value.shape[-1])
    return Problem(*parts, real, *sizes, *widths, widths[0] ** -0.5, threads(work)), held


def _apart(pairs: Tensor, value: Tensor | None, inner: int) -> tuple[Tensor, Tensor]:
    return (pairs[..., :inner], pairs[..., inner:]) if value is None else (pairs, value)


def _formula(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, heads: int
) -> Tensor:
    """Attention by torch's operators, for derivatives of derivatives."""
    parts = (query, *_apart(pairs, value, query.shape[-1]))
    query, key, value = (split_heads(t, heads) for t in parts)
    return join_heads(attention(query, key, value, mask))


attend, gradients = attention_operator("attend_native", _forward, _backward, _formula)
