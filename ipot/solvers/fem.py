"""Nine-node quadrilaterals on a mesh that runs around a hole.

Nodes stand on L lines that lead outward, with R nodes on each; both counts come in twos: an
element spans three lines and three nodes of each. Lines close to a ring, so that a field at the
nodes is a tensor (B, L, R, components) and there is no table of elements. Gathering and summing
are slices, which give the same result at every call on every device.

    B batch   L lines   R nodes of a line   E = L/2 sectors   K = (R-1)/2 layers
    Q quadrature points   A nine nodes of an element, three of its first line, three of its second..

Local coordinates in [-1, 1]² are (outward, around). Hughes, "The Finite Element Method" (2000).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

NODES = 9
"""Nodes of an element."""


def shapes(local: Float[Tensor, "*Q 2"]) -> tuple[Float[Tensor, "*Q A"], Float[Tensor, "*Q A 2"]]:
    """The nine biquadratic functions at local coordinates, and their local gradients."""
    outward, around = local.unbind(-1)
    f, g = _quadratics(outward), _quadratics(around)
    df, dg = _quadratic_slopes(outward), _quadratic_slopes(around)

    def product(lines: Tensor, nodes: Tensor) -> Tensor:
        return (lines.unsqueeze(-1) * nodes.unsqueeze(-2)).flatten(-2)

    return product(g, f), torch.stack((product(g, df), product(dg, f)), -1)


def gauss(*, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """The 3 x 3 rule of Gauss: local coordinates (9, 2) and weights (9), which sum to four."""
    line = torch.tensor([-math.sqrt(0.6), 0.0, math.sqrt(0.6)], dtype=torch.float64, device=device)
    weight = torch.tensor([5 / 9, 8 / 9, 5 / 9], dtype=torch.float64, device=device)
    around, outward = torch.meshgrid(line, line, indexing="ij")
    return torch.stack((outward, around), -1).flatten(0, 1), torch.outer(weight, weight).flatten()


def elements(field: Float[Tensor, "B L R C"]) -> Float[Tensor, "B E K A C"]:
    """What a field is at the nodes of every element."""
    wrapped = torch.cat((field, field[:, :1]), 1)
    return wrapped.unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 4, 5, 3).flatten(3, 4)


def scatter(parts: Float[Tensor, "B E K A C"]) -> Float[Tensor, "B L R C"]:
    """Sums at the nodes of what every element contributes: the transpose of `elements`."""
    batch, sectors, layers, _, components = parts.shape
    parts = parts.unflatten(3, (3, 3))
    strips = parts.new_zeros(batch, sectors, 3, 2 * layers + 1, components)
    for layer in range(layers):
        strips[:, :, :, 2 * layer : 2 * layer + 3] += parts[:, :, layer]
    first, middle, last = strips.unbind(2)
    return torch.stack((first + last.roll(1, 1), middle), 2).flatten(1, 2)


def scatter_matrices(parts: Float[Tensor, "B E K a a"]) -> Float[Tensor, "B E n n"]:
    """Element matrices (a = nine nodes of two components) summed to one for each sector.

    A sector has three lines: n = 3 R 2 unknowns, line by line.
    """
    batch, sectors, layers = parts.shape[:3]
    nodes = 2 * layers + 1
    parts = parts.unflatten(4, (3, 3, 2)).unflatten(3, (3, 3, 2))
    total = parts.new_zeros(batch, sectors, 3, nodes, 2, 3, nodes, 2)
    for layer in range(layers):
        rows = slice(2 * layer, 2 * layer + 3)
        total[:, :, :, rows, :, :, rows] += parts[:, :, layer]
    return total.flatten(5, 7).flatten(2, 4)


def gradients(
    corners: Float[Tensor, "*E A 2"], slopes: Float[Tensor, "*Q A 2"]
) -> tuple[Float[Tensor, "*EQ A 2"], Float[Tensor, "*EQ"]]:
    """Gradients in space of the shape functions of elements, and the Jacobian's determinant.

    `slopes` are local gradients and may broadcast: (Q, A, 2) against corners (..., 1, A, 2).
    """
    inverse, det = _inverse(corners.mT @ slopes)
    return slopes @ inverse, det


def locate(
    corners: Float[Tensor, "*Q A 2"],
    places: Float[Tensor, "*Q 2"],
    start: Float[Tensor, "*q 2"],
    *,
    steps: int = 8,
) -> Float[Tensor, "*Q 2"]:
    """Local coordinates of places in elements, by Newton's method from a guess close by."""
    local = start.expand_as(places)
    for _ in range(steps):
        values, slopes = shapes(local)
        gap = places.unsqueeze(-1) - corners.mT @ values.unsqueeze(-1)
        local = local + (_inverse(corners.mT @ slopes)[0] @ gap).squeeze(-1)
    return local


def _inverse(jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of matrices (.., 2, 2) and their determinant."""
    (a, b), (c, d) = (row.unbind(-1) for row in jacobian.unbind(-2))
    det = a * d - b * c
    return torch.stack((d, -b, -c, a), -1).unflatten(-1, (2, 2)) / det[..., None, None], det


def _quadratics(x: Tensor) -> Tensor:
    return torch.stack((x * (x - 1) / 2, 1 - x * x, x * (x + 1) / 2), -1)


def _quadratic_slopes(x: Tensor) -> Tensor:
    return torch.stack((x - 0.5, -2 * x, x + 0.5), -1)
