"""Attention of few queries over a mesh that the samples of a batch share, on a CPU, in float32.

A key or value is (x + Σ t_j w_j) r. Its part x is the mesh's own, and so the products of queries
with it are computed once for several samples. See `mesh.cpp`.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

import ctypes

import torch
from torch import Tensor

from ipot.accelerate.cpu.build import call, loaded
from ipot.accelerate.cpu.interface import (
    Mesh,
    address,
    dense,
    differentiable_gradients,
    pointer,
    rows,
    threads,
)


def attend(
    query: Tensor, pairs: Tensor, slope: Tensor, factor: Tensor, extra: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    """Weighted means over the mesh: of r x (B, M, H f), and of r t (B, H, T, M).

    Queries (1, M, H e) and the parts x of keys and after them values (1, N, H (e + f)) are those
    of all samples; `factor` r (B, N) and `extra` t (B, N, T) are each sample's own, and nothing is
    differentiated with respect to them. `slope` (H, T, M) has the products of queries with w_j.
    """
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in (query, pairs, slope))
    way = _attend if differentiated or torch.compiler.is_compiling() else _forward
    return way(query, pairs, slope, factor, extra, heads)[:2]


def _forward(
    query: Tensor, pairs: Tensor, slope: Tensor, factor: Tensor, extra: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    mesh, held = _mesh(query, pairs, slope, factor, extra, heads)
    shares = loaded().ipot_mesh_shares(ctypes.byref(mesh))
    several = (shares, mesh.samples)
    out = pairs.new_empty(*several, mesh.queries, heads, mesh.value_width)
    means = pairs.new_empty(*several, heads, mesh.extras, mesh.queries)
    lse = pairs.new_empty(*several, heads, mesh.queries)
    places = [address(t) for t in (out, means, lse)]
    call("ipot_mesh_attend", ctypes.byref(mesh), *places)
    del held
    # Shares of the keys, each with its part of all weights.
    weight = lse.softmax(0)
    out = (out * weight.transpose(2, 3).unsqueeze(-1)).sum(0)
    return out.flatten(2), (means * weight.unsqueeze(3)).sum(0), lse.logsumexp(0)


def _backward(
    d_out: Tensor,
    d_means: Tensor,
    query: Tensor,
    pairs: Tensor,
    slope: Tensor,
    factor: Tensor,
    extra: Tensor,
    out: Tensor,
    means: Tensor,
    lse: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, pairs and slopes."""
    mesh, held = _mesh(query, pairs, slope, factor, extra, heads)
    shares = loaded().ipot_mesh_shares(ctypes.byref(mesh))
    groups = loaded().ipot_mesh_groups(ctypes.byref(mesh))
    delta = (d_out * out).unflatten(-1, (heads, -1)).sum(-1).transpose(1, 2)
    delta = (delta + (d_means * means).sum(2)).contiguous()
    held += [d_out.contiguous(), d_means.contiguous(), lse.contiguous(), delta]
    d_query = query.new_empty(groups * shares, *query.shape[1:])
    d_slope = slope.new_empty(groups * shares, *slope.shape)
    d_pairs = pairs.new_empty(groups, *pairs.shape[1:])
    inner = query.shape[-1]
    call(
        "ipot_mesh_backward",
        ctypes.byref(mesh),
        *(address(t) for t in (*held[-4:], d_query)),
        *(ctypes.byref(rows(part)) for part in (d_pairs[..., :inner], d_pairs[..., inner:])),
        address(d_slope),
    )
    del held
    return d_query.sum(0, keepdim=True), d_pairs.sum(0, keepdim=True), d_slope.sum(0)


def _mesh(
    query: Tensor, pairs: Tensor, slope: Tensor, factor: Tensor, extra: Tensor, heads: int
) -> tuple[Mesh, list[Tensor]]:
    """What the library reads, and the tensors that must live as long."""
    inner = query.shape[-1]
    held = [dense(query), dense(pairs[..., :inner]), dense(pairs[..., inner:])]
    numbers = [t.contiguous() for t in (slope, factor, extra)]
    parts = [rows(t) for t in held]
    addresses = [pointer(t) for t in numbers]
    widths = (inner // heads, (pairs.shape[-1] - inner) // heads, extra.shape[-1])
    sizes = (len(extra), heads, query.shape[1], pairs.shape[1], *widths)
    work = len(extra) * query.shape[1] * pairs.numel()
    return Mesh(*parts, *addresses, *sizes, widths[0] ** -0.5, threads(work)), held + numbers


def _formula(
    query: Tensor, pairs: Tensor, slope: Tensor, factor: Tensor, extra: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    """Attention over a mesh by torch's operators, for derivatives of derivatives."""
    inner = query.shape[-1]
    asked, key, value = (
        t[0].unflatten(-1, (heads, -1)).transpose(0, 1)
        for t in (query, pairs[..., :inner], pairs[..., inner:])
    )
    own = factor[:, None, None]
    scores = asked @ key.transpose(-1, -2) + (extra.unsqueeze(1) @ slope).transpose(-1, -2)
    weights = (scores * own * asked.shape[-1] ** -0.5).softmax(-1) * own
    out = (weights @ value).transpose(1, 2).flatten(2)
    return out, (weights @ extra.unsqueeze(1)).transpose(-1, -2)


_attend = torch.library.custom_op("ipot::attend_mesh", _forward, mutates_args=())
_differentiated = torch.library.custom_op("ipot::attend_mesh_backward", _backward, mutates_args=())


@_attend.register_fake
def _(query, pairs, slope, factor, extra, heads):
    inner, many = query.shape[-1], query.shape[1]
    out = pairs.new_empty(extra.shape[0], many, pairs.shape[-1] - inner)
    means = pairs.new_empty(extra.shape[0], heads, extra.shape[-1], many)
    return out, means, pairs.new_empty(extra.shape[0], heads, many)


@_differentiated.register_fake
def _(d_out, d_means, query, pairs, slope, factor, extra, out, means, lse, heads):
    return (
        query.new_empty(query.shape),
        pairs.new_empty(pairs.shape),
        slope.new_empty(slope.shape),
    )


def _keep(ctx, inputs, output) -> None:
    *tensors, heads = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.heads = heads
    ctx.mark_non_differentiable(output[2])


def _differentiate(ctx, d_out, d_means, _):
    if torch.is_grad_enabled():  # somebody wants derivatives of these as well
        *inputs, factor, extra = ctx.saved_tensors[:5]

        def formula(query: Tensor, pairs: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
            return _formula(query, pairs, slope, factor, extra, ctx.heads)

        return *differentiable_gradients(formula, inputs, (d_out, d_means)), None, None, None
    found = _differentiated(d_out, d_means, *ctx.saved_tensors, ctx.heads)
    return *found, None, None, None


_attend.register_autograd(_differentiate, setup_context=_keep)
