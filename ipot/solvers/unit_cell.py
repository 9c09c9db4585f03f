"""A unit square of rubber with a cavity, held at its bottom and pulled at its top.

The mesh runs around the cavity: lines from equal angles of the cavity to equispaced places on
the sides of the square. With 36 sectors and 3 layers it has 972 Gauss points, as many as that of
Li et al., "Fourier neural operator with learned deformations" (2023), whose own mesh is
unstructured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.solvers import fem, hyperelastic

CENTRE = 0.5
Radius = Callable[[Tensor], Tensor]
"""Angles (L) about the centre to radii of cavities (B, L)."""


@torch.no_grad()
def stress(
    radius: Radius,
    *,
    sectors: int = 36,
    layers: int = 3,
    refine: int = 1,
    traction: float = 100.0,
    material: hyperelastic.MooneyRivlin | None = None,
    device: torch.device | None = None,
) -> tuple[Float[Tensor, "B Q 2"], Float[Tensor, "B Q"]]:
    """The Gauss points of the mesh and the equivalent stress there, in float64.

    With `refine` the stress comes from a mesh that is finer by that odd factor in both
    directions, at the same points.
    """
    material = material or hyperelastic.MooneyRivlin()
    coarse = ring(radius(angles(2 * sectors, device=device)), layers)
    points = gauss_points(coarse)
    if refine == 1:
        body, u = pulled(coarse, traction, material)
        return points, material.von_mises(body.gradient(u)).flatten(1)
    fine = ring(radius(angles(2 * refine * sectors, device=device)), refine * layers)
    _, u = pulled(fine, traction, material)
    sector, layer, start = (t.to(points.device) for t in refined(sectors, layers, refine))
    corners, moved = (fem.elements(field)[:, sector, layer] for field in (fine, u))
    slopes, _ = fem.gradients(corners, fem.shapes(fem.locate(corners, points, start))[1])
    return points, material.von_mises(moved.mT @ slopes)


def pulled(
    nodes: Float[Tensor, "B L R 2"], traction: float, material: hyperelastic.MooneyRivlin
) -> tuple[hyperelastic.Body, Float[Tensor, "B L R 2"]]:
    """The sheet with its material, and its displacement under a traction upward on its top."""
    lines, count = nodes.shape[1:3]
    body = hyperelastic.Body(nodes, material)
    load = traction * top_shares(lines, count).to(nodes)
    return body, hyperelastic.solve(body, load, bottom(lines, count).to(nodes.device))


def angles(lines: int, *, device: torch.device | None = None) -> Float[Tensor, " L"]:
    """The angles of the lines about the centre, from the lower right corner on."""
    step = torch.arange(lines, dtype=torch.float64, device=device)
    return 2 * math.pi * step / lines - math.pi / 4


def ring(radius: Float[Tensor, "B L"], layers: int) -> Float[Tensor, "B L R 2"]:
    """Nodes from a cavity, whose radius is given at `angles`, to the sides of the square.

    They are equispaced on every side, the corners among them, and along every line.
    """
    lines = radius.shape[-1]
    if lines % 8:
        raise ValueError(f"whole elements on four sides take a multiple of 8 lines, got {lines}")
    phi = angles(lines, device=radius.device)
    inner = CENTRE + radius.double().unsqueeze(-1) * torch.stack((phi.cos(), phi.sin()), -1)
    t = torch.arange(lines // 4, dtype=torch.float64, device=radius.device) / (lines // 4)
    one, zero = torch.ones_like(t), torch.zeros_like(t)
    sides = ((one, t), (1 - t, one), (zero, 1 - t), (t, zero))
    outer = torch.cat([torch.stack(side, -1) for side in sides])
    depth = torch.linspace(0, 1, 2 * layers + 1, dtype=torch.float64, device=radius.device)
    return torch.lerp(inner.unsqueeze(2), outer.unsqueeze(1), depth.unsqueeze(-1))


def gauss_points(nodes: Float[Tensor, "B L R 2"]) -> Float[Tensor, "B Q 2"]:
    """Where the Gauss points lie: sector by sector, layer by layer, nine in each element."""
    values, _ = fem.shapes(fem.gauss(device=nodes.device)[0])
    return (values @ fem.elements(nodes)).flatten(1, 3)


def top_shares(lines: int, count: int) -> Float[Tensor, "L R 2"]:
    """What a unit traction upward on the top puts on the nodes: 1 : 4 : 1 from every edge."""
    quarter = lines // 4
    share = torch.tensor([2.0, 4.0], dtype=torch.float64).repeat(quarter // 2 + 1)[: quarter + 1]
    share[0] = share[-1] = 1
    load = torch.zeros(lines, count, 2, dtype=torch.float64)
    load[quarter : 2 * quarter + 1, -1, 1] = share / share.sum()
    return load


def bottom(lines: int, count: int) -> Bool[Tensor, "L R"]:
    """The nodes of the bottom, its two corners among them."""
    held = torch.zeros(lines, count, dtype=torch.bool)
    held[3 * lines // 4 :, -1] = held[0, -1] = True
    return held


def refined(sectors: int, layers: int, factor: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the Gauss points of a mesh lie in one that is finer by an odd factor.

    Their sectors and layers (Q) in the fine mesh and local coordinates there (Q, 2), as if the
    curved lines of both meshes agreed. By an even factor points would come to lie on edges,
    where the stress jumps.
    """
    if factor % 2 == 0:
        raise ValueError(f"a mesh is refined by an odd factor, got {factor}")
    local, _ = fem.gauss()
    steps = torch.arange(sectors).double(), torch.arange(layers).double()
    # Cells count (around, outward), local coordinates are (outward, around).
    cells = torch.cartesian_prod(*steps).unsqueeze(1)
    fine = factor * (cells + (local.flip(-1) + 1) / 2).flatten(0, 1)
    cell = fine.floor()
    sector, layer = cell.long().unbind(-1)
    return sector, layer, (2 * (fine - cell) - 1).flip(-1)
