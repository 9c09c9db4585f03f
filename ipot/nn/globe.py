"""Longitude and latitude as unit vectors: no seam at the date line, no poles that stretch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.spec import Bounds

GLOBAL = (300.0, 120.0)
"""Degrees of longitude and latitude beyond which a region is the globe."""
LINES = 61
"""Lines along each side of a region at which the bounds of its unit vectors are looked for."""


def on_globe(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D_plus_1"]:
    """(longitude, latitude, ...) in degrees as (x, y, z, ...); further coordinates are kept.

    Longitudes that differ by 360 degrees give the same vector, to the last bit.
    """
    longitude, latitude = torch.deg2rad(around(x[..., 0])), torch.deg2rad(x[..., 1])
    flat = latitude.cos()
    vector = torch.stack([flat * longitude.cos(), flat * longitude.sin(), latitude.sin()], -1)
    return torch.cat([vector, x[..., 2:]], -1)


def around(longitude: Tensor) -> Tensor:
    """Longitudes mapped to above -180 and up to 180 degrees, without rounding."""
    turned = torch.fmod(longitude, 360.0)
    turned = torch.where(turned > 180.0, turned - 360.0, turned)
    return torch.where(turned <= -180.0, turned + 360.0, turned)


def is_global(region: Bounds) -> bool:
    """True if longitudes and latitudes cover (nearly) the whole globe."""
    return all(high - low >= most for (low, high), most in zip(region, GLOBAL, strict=False))


def vector_bounds(region: Bounds) -> Bounds:
    """The box that the unit vectors of a region lie in; the whole cube for the globe."""
    rest = tuple(region[2:])
    if is_global(region):
        return ((-1.0, 1.0),) * 3 + rest
    lines = [torch.linspace(low, high, LINES, dtype=torch.float64) for low, high in region[:2]]
    vectors = on_globe(torch.cartesian_prod(*lines))
    low, high = vectors.amin(0), vectors.amax(0)
    # A narrow side would blow up what is noise along it.
    half = ((high - low) / 2).clamp_min(0.02 * float((high - low).max()) + 1e-6)
    centre = (low + high) / 2
    box = zip((centre - half).tolist(), (centre + half).tolist(), strict=True)
    return tuple((float(a), float(b)) for a, b in box) + rest
