"""Airfoils and the C-mesh around them.

A NACA 0012 of unit chord is bent by a design element: the box [-1/4, 5/4] x [-1/10, 1/10] has four
nodes below and four above, each is moved up or down, and what lies inside follows by cubic
interpolation along x and linear interpolation along y. The mesh runs from the outflow along the
wake to the trailing edge, around the airfoil and back; its lines leave the wall straight, towards a
half circle of radius 40 and two lines that close it downstream.

Shapes, sizes and spacing are those of Li, Huang, Liu and Anandkumar, "Fourier neural operator with
learned deformations for PDEs on general geometries" (2023).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from scipy.optimize import root_scalar
from torch import Tensor

WAKE, BODY, ACROSS = 50, 120, 50
"""Cells along one side of the wake, around the body, and from the wall outwards."""

RADIUS = 40.0
_CENTRE = 1.0  # of the half circle, on the x axis
_FIRST = 2 / 120  # the height of the cells at the wall
_BOX_X = (-0.25, 0.25, 0.75, 1.25)
_BOX_Y = 0.1
# Cells may grow by this ratio for three quarters of a line; the rest takes what is left.
_GENTLE = 1.02


def c_mesh(displacements: Float[Tensor, "B 8"]) -> Float[Tensor, "B 221 51 2"]:
    """The mesh around every bent airfoil, in the dtype and on the device of `displacements`.

    The first axis starts far downstream above the wake; nodes 50 and 170 are the trailing edge and
    110 is the nose. The wake is stored twice, from above and from below.
    """
    x, y = surface()
    chord_end = math.hypot(x[0] - x[1], y[0] - y[1])
    along = torch.tensor(spaced(WAKE + 1, chord_end / (RADIUS - 1)), dtype=torch.float64)
    across = torch.tensor(spaced(ACROSS + 1, _FIRST / RADIUS), dtype=torch.float64)
    along, across = along.to(displacements), across.to(displacements)

    body = bent(torch.tensor([x, y], dtype=torch.float64).T.to(displacements), displacements)
    end = along.new_tensor([RADIUS, 0.0])
    wake = torch.lerp(body[:, :1], end, along.flip(0)[:, None])
    inner = torch.cat((wake, body[:, 1:-1], wake.flip(1)), dim=1)[:, :, None]
    return inner + (_outer().to(displacements)[:, None] - inner) * across[:, None]


def surface() -> tuple[list[float], list[float]]:
    """The undeformed airfoil, from the trailing edge over the upper side to the nose and back.

    Spaced evenly along the chord but for one more node close to the nose.
    """
    half = BODY // 2
    x = [0.0, 0.25 / (half - 1), *(k / (half - 1) for k in range(1, half))]
    # At the trailing edge the polynomial leaves a rounding error, which would open the wake.
    y = [*(thickness(place) for place in x[:-1]), 0.0]
    return x[::-1] + x[1:], y[::-1] + [-height for height in y[1:]]


def thickness(x: float) -> float:
    """Half the thickness of a NACA 0012 whose trailing edge is closed."""
    powers = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    return 0.6 * (0.2969 * math.sqrt(x) + powers)


def bent(
    points: Float[Tensor, "N 2"], displacements: Float[Tensor, "B 8"]
) -> Float[Tensor, "B N 2"]:
    """Points after the nodes of the box have moved: four below from left to right, then back."""
    x, y = points.unbind(-1)
    basis = []
    for node in _BOX_X:
        others = [other for other in _BOX_X if other != node]
        basis.append(math.prod([(x - other) / (node - other) for other in others], start=x * 0 + 1))
    below, above = (_BOX_Y - y) / (2 * _BOX_Y), (_BOX_Y + y) / (2 * _BOX_Y)
    shapes = torch.stack([phi * below for phi in basis] + [phi * above for phi in basis[::-1]])
    lift = (displacements[:, :, None] * shapes).sum(1)
    return torch.stack((x.expand_as(lift), y + lift), dim=-1)


def spaced(count: int, first: float) -> list[float]:
    """Places from 0 to 1 whose gaps start at `first` and grow geometrically.

    Where one ratio would have to be steep, three quarters of the places grow gently.
    """
    gaps, gap, ratio = [], first, _ratio(1.0, first, count - 1, 1.5)
    if ratio > _GENTLE:
        gaps = [first * _GENTLE**k for k in range(3 * count // 4 - 1)]
        gap = gaps[-1] * _GENTLE
        ratio = _ratio(1 - sum(gaps), gap, count - 1 - len(gaps), 2.0)
    gaps += [gap * ratio**k for k in range(count - 1 - len(gaps))]
    places = [0.0]
    for gap in gaps[:-1]:
        places.append(places[-1] + gap)
    return [*places, 1.0]


def _ratio(length: float, first: float, gaps: int, steepest: float) -> float:
    """The growth from gap to gap that fills a length."""

    def excess(ratio: float) -> float:
        return (ratio - 1) * length - first * (ratio**gaps - 1)

    return float(root_scalar(excess, bracket=(1 + 1e-4, steepest), xtol=1e-14).root)


def _outer() -> Float[Tensor, "221 2"]:
    """The far boundary, node by node opposite to the wake and the body."""
    angle = torch.linspace(math.pi / 2, 3 * math.pi / 2, BODY + 1, dtype=torch.float64)
    arc = RADIUS * torch.stack((angle.cos(), angle.sin()), dim=-1)
    arc[:, 0] += _CENTRE
    flat = torch.linspace(RADIUS, _CENTRE, WAKE + 1, dtype=torch.float64)
    above = torch.stack((flat, torch.full_like(flat, RADIUS)), dim=-1)
    below = above.flip(0) * above.new_tensor([1.0, -1.0])
    return torch.cat((above[:-1], arc, below[1:]))
