"""What a block of attention does to each row by itself, on a CPU, where nothing is differentiated.

See `block.cpp`. Layers are given as it reads them, inputs by outputs; `fits` says which it takes.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cpu.build import call
from ipot.accelerate.cpu.interface import Layer, address, pointer, threads

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


def finish(
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
