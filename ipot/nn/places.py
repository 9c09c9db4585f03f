"""Points spread evenly over a domain, the same every time."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.spec import Bounds


def spread(count: int, domain: Bounds, *, sphere: bool = False) -> Float[Tensor, "count D"]:
    """A low-discrepancy sequence in a box, or a spiral of equal areas on the unit sphere.

    In a box: multiples of the powers of 1/φ, where φ^(D + 1) = φ + 1 (the golden ratio for D = 1),
    modulo one. On the sphere: Fibonacci's lattice, whose points turn by the golden angle.
    """
    number = torch.arange(count, dtype=torch.float64) + 0.5
    if sphere:
        height = 1 - 2 * number / count
        angle = math.pi * (3 - math.sqrt(5)) * number
        radius = (1 - height.square()).sqrt()
        return torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)
    dimension = len(domain)
    phi = 2.0
    for _ in range(60):  # a contraction: the root to rounding
        phi = (1 + phi) ** (1 / (dimension + 1))
    steps = torch.tensor([phi ** -(axis + 1) for axis in range(dimension)], dtype=torch.float64)
    low = torch.tensor([a for a, _ in domain], dtype=torch.float64)
    high = torch.tensor([b for _, b in domain], dtype=torch.float64)
    return low + (high - low) * torch.remainder(0.5 + number[:, None] * steps, 1.0)
