"""Attention blocks with C++ kernels, where nothing is differentiated.

The kernels of `block.cpp` take layers inputs by outputs, with a norm's own weights in the layer
after it; `fits` says which. These are made at every call, which takes a hundredth of it. What was
kept could be of weights that have changed since: torch's fused optimisers leave no sign. Where
autocast asks for bf16, `ipot.accelerate.cpu.halves` does the same with products in it, and takes
layers as they are.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.accelerate.attention import attend
from ipot.accelerate.cpu import halves
from ipot.accelerate.cpu.build import call
from ipot.accelerate.cpu.interface import Layer, address, pointer, readable, rounds, served, threads
from ipot.accelerate.fixed_mesh import with_norm
from ipot.accelerate.twins import Target, plain_after_attention, plain_before_self_attention

UNIT = 16
"""Outputs must be a multiple of this: the largest vectors that there are."""


class Weights(NamedTuple):
    """A linear layer: `weight` is contiguous."""

    weight: Float[Tensor, "inputs outputs"]
    bias: Float[Tensor, " outputs"] | None

    def layer(self) -> Layer:
        """The layer as the library reads it."""
        bias = None if self.bias is None else pointer(self.bias)
        return Layer(pointer(self.weight), bias, *self.weight.shape)


def fits(*widths: int) -> bool:
    """True if layers with so many outputs can be taken."""
    return all(width % UNIT == 0 for width in widths)


def norm_project(
    rows: Float[Tensor, "*rows d"], weights: Weights, epsilon: float
) -> Float[Tensor, "*rows p"]:
    """Normalised rows times the weights, which have the norm's own in them."""
    rows = rows.contiguous()
    out = rows.new_empty(*rows.shape[:-1], weights.weight.shape[1])
    count, many = rows.numel() // rows.shape[-1], threads(rows.numel() * weights.weight.shape[1])
    layer, small = ctypes.byref(weights.layer()), ctypes.c_float(epsilon)
    given = address(rows), ctypes.c_long(count)
    call("ipot_norm_project", *given, layer, small, address(out), many)
    return out


def finish_rows(
    rows: Float[Tensor, "B1 M d"],
    attended: Float[Tensor, "B M i"],
    project: Weights,
    opened: Weights,
    closed: Weights,
    epsilon: float,
) -> Float[Tensor, "B M d"]:
    """h = rows + project(attended), then h + closed(x * gelu(g)) with [x, g] = opened(norm(h))."""
    rows, attended = rows.contiguous(), attended.contiguous()
    out = rows.new_empty(*attended.shape[:-1], rows.shape[-1])
    own, count = rows.numel() // rows.shape[-1], out.numel() // out.shape[-1]
    layers = [ctypes.byref(w.layer()) for w in (project, opened, closed)]
    many = threads(count * sum(w.weight.numel() for w in (project, opened, closed)))
    call(
        "ipot_finish",
        *(address(rows), ctypes.c_long(own), address(attended), ctypes.c_long(count)),
        *(*layers, ctypes.c_float(epsilon), address(out), many),
    )
    return out


def finishes(block: Any) -> bool:
    """True if kernels can do what a block does after its attention."""
    if not plain_after_attention(block):
        return False
    part, last = block.attend, block.feed_forward
    if not _float32(part.to_out, last.norm, last.into, last.out):
        return False
    return fits(part.to_out.out_features, last.out.in_features)


def applies(block: Any) -> bool:
    """True if kernels can do the whole of a block whose rows attend to each other."""
    part = block.attend
    if not plain_before_self_attention(block):
        return False
    if not _float32(part.norm, part.to_query, part.to_key_value):
        return False
    return fits(part.to_query.out_features) and finishes(block)


def may_read(x: Tensor) -> bool:
    """True if kernels may be called now, for rows like these: nobody differentiates, compiles or
    transforms what is done to them."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling()) and served(x)


def apply(target: Target, block: Any, state: Tensor, mask: Tensor | None) -> Tensor:
    """A block of self-attention on (B, Z, d)."""
    part = block.attend
    if rounds(state):
        layers = tuple(_layer(m, part.norm) for m in (part.to_query, part.to_key_value))
        triples = halves.norm_project(state, layers, part.norm.eps)
    else:
        weights = _before(part.norm, part.to_query, part.to_key_value)
        triples = norm_project(state, weights, part.norm.eps)
    query, pairs = triples.split([part.to_query.out_features, part.to_key_value.out_features], -1)
    return finish(block, state, attend(target, query, pairs, part.heads, mask))


def finish(block: Any, y: Tensor, attended: Tensor) -> Tensor:
    """What a block does after its attention, (B, M, i), to the rows (B or 1, M, d) it adds to."""
    part, last = block.attend, block.feed_forward
    if rounds(y, attended):
        layers = _layer(part.to_out), _layer(last.into, last.norm), _layer(last.out)
        return halves.finish(y, attended.float(), *layers, last.norm.eps)
    behind = _behind(part.to_out, last.norm, last.into, last.out)
    return finish_rows(y, attended, *behind, last.norm.eps)


def projects_rounded(x: Tensor, norm: nn.LayerNorm, linear: nn.Linear) -> bool:
    """True if kernels can do linear(norm(x)) with products in bf16, and are to."""
    if torch.is_grad_enabled() or not rounds(x):
        return False
    return readable(x, *_weights(norm, linear)) and fits(len(linear.weight))


def project_rounded(x: Tensor, norm: nn.LayerNorm, linear: nn.Linear) -> Tensor:
    """linear(norm(x)), of float32 and in it but for the products."""
    return halves.norm_project(x, (_layer(linear, norm),), norm.eps)


def _layer(linear: nn.Linear, norm: nn.LayerNorm | None = None) -> halves.RoundedLayer:
    own = (None, None) if norm is None else (norm.weight, norm.bias)
    return halves.RoundedLayer(linear.weight, linear.bias, *own)


def _float32(*layers: nn.Module) -> bool:
    return all(w.dtype == torch.float32 for w in _weights(*layers))


def _weights(*layers: nn.Module) -> list[Tensor]:
    return [w for layer in layers for w in layer._parameters.values() if w is not None]


def _before(norm: nn.LayerNorm, query: nn.Linear, pairs: nn.Linear) -> Weights:
    weight = torch.cat([query.weight, pairs.weight])
    bias = None if query.bias is None else torch.cat([query.bias, pairs.bias])
    return _normed(norm, weight, bias)


def _behind(
    project: nn.Linear, norm: nn.LayerNorm, into: nn.Linear, out: nn.Linear
) -> tuple[Weights, Weights, Weights]:
    """The layers after a block's attention."""
    return _turned(project), _normed(norm, into.weight, into.bias), _turned(out)


def _normed(norm: nn.LayerNorm, weight: Tensor, bias: Tensor | None) -> Weights:
    """A layer with the weights of the norm before it in its own."""
    weight, offset = with_norm(norm, weight, bias)
    return Weights(weight.T.contiguous(), offset.contiguous())


def _turned(linear: nn.Linear) -> Weights:
    bias = None if linear.bias is None else linear.bias.contiguous()
    return Weights(linear.weight.T.contiguous(), bias)
