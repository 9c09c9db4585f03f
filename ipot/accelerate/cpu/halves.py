"""Rows, points and a shared mesh through linear layers on a CPU with products in bf16.

Norms, residuals, features and sums are in float32, and nothing here is differentiated. See
`half_block.cpp`, `half_project.cpp` and `half_mesh.cpp`. Layers are given as torch has them; they
are rounded and packed at every call, since weights may have changed.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cpu.build import call
from ipot.accelerate.cpu.interface import (
    Linear,
    Rows,
    Tokens,
    address,
    dense,
    pointer,
    rows,
    threads,
)
from ipot.accelerate.cpu.project import Waves, given_features


class RoundedLayer(NamedTuple):
    """A linear layer whose products are rounded, and the weights of the norm before it if any."""

    weight: Float[Tensor, "outputs inputs"]
    bias: Float[Tensor, " outputs"] | None
    scale: Float[Tensor, " inputs"] | None = None
    shift: Float[Tensor, " inputs"] | None = None

    @property
    def work(self) -> int:
        """Multiplications for a row."""
        return self.weight.numel()

    def as_read(self) -> tuple[Linear, list[Tensor]]:
        """The layer as the library reads it, and the tensors that must live as long."""
        held = [dense(self.weight)]
        held += [t.contiguous() for t in self[1:] if t is not None]
        left = iter(held[1:])
        at = [None if t is None else pointer(next(left)) for t in self[1:]]
        outputs, inputs = self.weight.shape
        return Linear(pointer(held[0]), *at, held[0].stride(0), inputs, outputs), held


def norm_project(
    x: Float[Tensor, "*rows d"], layers: tuple[RoundedLayer, ...], epsilon: float
) -> Float[Tensor, "*rows p"]:
    """Normalised rows through layers side by side, whose outputs `blocks.fits`."""
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], sum(len(layer.weight) for layer in layers))
    read = [layer.as_read() for layer in layers]
    array = (Linear * len(layers))(*(found for found, _ in read))
    count = x.numel() // x.shape[-1]
    many = threads(count * sum(layer.work for layer in layers))
    given = address(x), ctypes.c_long(count), array, ctypes.c_long(len(layers))
    call("ipot_half_norm_project", *given, ctypes.c_float(epsilon), address(out), many)
    del read
    return out


def finish(
    x: Float[Tensor, "B1 M d"],
    attended: Float[Tensor, "B M i"],
    project: RoundedLayer,
    opened: RoundedLayer,
    closed: RoundedLayer,
    epsilon: float,
) -> Float[Tensor, "B M d"]:
    """h = x + project(attended), then h + closed(y * gelu(g)) with [y, g] = opened(norm(h))."""
    x, attended = x.contiguous(), attended.contiguous()
    out = x.new_empty(*attended.shape[:-1], x.shape[-1])
    own, count = x.numel() // x.shape[-1], out.numel() // out.shape[-1]
    read = [layer.as_read() for layer in (project, opened, closed)]
    many = threads(count * sum(layer.work for layer in (project, opened, closed)))
    call(
        "ipot_half_finish",
        *(address(x), ctypes.c_long(own), address(attended), ctypes.c_long(count)),
        *(ctypes.byref(found) for found, _ in read),
        *(ctypes.c_float(epsilon), address(out), many),
    )
    del read
    return out


def project(
    points: Float[Tensor, "B N D"],
    values: Float[Tensor, "B N C"] | None,
    waves: Waves,
    layer: RoundedLayer,
    epsilon: float,
) -> Float[Tensor, "B N p"]:
    """The layer of [features, values] after its norm."""
    out = points.new_empty(*points.shape[:2], len(layer.weight))
    _project(points, values, waves, layer, epsilon, out, None)
    return out


def mesh_products(
    points: Float[Tensor, "B N D"], waves: Waves, layer: RoundedLayer
) -> tuple[Float[Tensor, "B N p"], Float[Tensor, "B N 2"]]:
    """The layer of features without a norm but for its scale, and the sums of the features of each
    point and of their squares."""
    out = points.new_empty(*points.shape[:2], len(layer.weight))
    totals = points.new_empty(*points.shape[:2], 2)
    _project(points, None, waves, layer, 0.0, out, totals)
    return out, totals


def _project(
    points: Tensor,
    values: Tensor | None,
    waves: Waves,
    layer: RoundedLayer,
    epsilon: float,
    out: Tensor,
    totals: Tensor | None,
) -> None:
    given, held = given_features(points, waves, len(layer.weight))
    own, width = Rows(), 0
    if values is not None:
        held.append(dense(values))
        own, width = rows(held[-1]), values.shape[-1]
    linear, read = layer.as_read()
    call(
        "ipot_half_project",
        *(ctypes.byref(given), ctypes.byref(own), ctypes.c_long(width), ctypes.byref(linear)),
        *(ctypes.c_float(epsilon), address(out), None if totals is None else address(totals)),
    )
    del held, read


def attend_mesh(
    query: Float[Tensor, "1 M i"],
    products: Float[Tensor, "1 N p"],
    sums: Float[Tensor, "1 N 2"],
    values: Float[Tensor, "B N C"],
    layer: RoundedLayer,
    epsilon: float,
    heads: int,
) -> Float[Tensor, "B M j"] | None:
    """The attention of queries over a layer of normalised tokens [features, values]: keys and
    after them values. The features are those of a shared mesh: `products` are what the layer and
    its scale make of them, and `sums` are of them and of their squares.

    None where numbers are large beyond measure, or none.
    """
    inner = query.shape[-1]
    key, value = products[..., :inner], products[..., inner:]
    held = [dense(t) for t in (query, key, value, values)]
    linear, read = layer.as_read()
    held += [*read, sums.contiguous()]
    many, count, wide = query.shape[1], products.shape[1], value.shape[-1]
    sizes = (len(values), heads, many, count, inner // heads, wide // heads, values.shape[-1])
    work = len(values) * many * products.numel()
    numbers = (inner // heads) ** -0.5, epsilon
    parts = [rows(t) for t in held[:4]]
    tokens = Tokens(*parts, pointer(held[-1]), linear, *sizes, *numbers, threads(work))
    out = products.new_empty(len(values), many, wide)
    done = ctypes.c_int()
    call("ipot_half_mesh_attend", ctypes.byref(tokens), address(out), ctypes.byref(done))
    del held
    return out if done else None
