"""A made-up climate for toy weather: what is usual for the place and the day, and random winds.

Temperatures fall from 300 K at the equator towards the poles, by 20 K more on Antarctica. Seasons
are a few Kelvin at sea and up to twenty on land, with the lag that each has behind the sun; land
also has the time of day, always seen at 00:00 UTC. Winds are two westerly jets and waves of random
amplitude that drift as Rossby's do. Numbers are round and plausible: none is fitted to a record,
but winds are as slow as anomalies of a day need to be correlated by 0.75 to 0.85 with the next.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ipot.solvers.sphere import Transform

RADIUS = 6.371e6
YEAR = 365.25
_SPEED = 86400 / RADIUS
"""From metres per second to radii per day."""
SOLSTICE = -10.0
"""Day of the year, from its first, on which the sun stands lowest in the north."""
LAG_LAND, LAG_SEA = 30.0, 55.0
LIFETIME_LAND, LIFETIME_SEA = 10.0, 5.0

JET = 10.0
"""Metres per second at 45 degrees."""
WAVES = 7.0
"""Root mean square speed of the waves, in metres per second."""
DEGREES = (4, 12)
"""Degrees of the waves, the first and the last; their orders run from 1 up."""
MEMORY = 4.0
"""Days in which a wave forgets its amplitude."""
DRIFT = 0.15
"""How far the mean westerlies carry a wave, in radians per day."""
DEFORMATION = 30.0
"""Square of the radius of the Earth over that of deformation, which slows the longest waves."""
KNOTS = 4
"""Times a day at which amplitudes are drawn; between them they are interpolated."""


def seasons(
    latitude: Float[Tensor, "*grid"],
    longitude: Float[Tensor, "*grid"],
    land: Float[Tensor, "*grid"],
) -> Float[Tensor, "parts ..."]:
    """The usual temperature as mean, cosine and sine of the year, in Kelvin.

    Latitude and longitude in degrees, `land` the fraction of land from 0 to 1.
    """
    sine, cosine = torch.deg2rad(latitude).sin(), torch.deg2rad(latitude).cos()
    antarctica = 20 * torch.sigmoid(-(latitude + 70) / 3)
    hour = longitude / 15 - 15  # the warmest is three in the afternoon
    daily = 3 * cosine * torch.cos(2 * math.pi * hour / 24)
    mean = 300 - 45 * sine**2 - antarctica + land * (daily - 4)
    amplitude_land, amplitude_sea = land * (8 + 12 * sine**2), (1 - land) * (2 + sine**2)

    def wave(amplitude: Tensor, lag: float) -> tuple[Tensor, Tensor]:
        coldest = 2 * math.pi * (SOLSTICE + lag) / YEAR
        return -amplitude * sine * math.cos(coldest), -amplitude * sine * math.sin(coldest)

    over_land, over_sea = wave(amplitude_land, LAG_LAND), wave(amplitude_sea, LAG_SEA)
    return torch.stack([mean, over_land[0] + over_sea[0], over_land[1] + over_sea[1]])


def season(day: Float[Tensor, "*days"]) -> Float[Tensor, "*days parts"]:
    """What to weigh the three parts of `seasons` by on a day, counted from the first of a year."""
    phase = 2 * math.pi * day / YEAR
    return torch.stack([torch.ones_like(phase), phase.cos(), phase.sin()], -1)


def damping(land: Float[Tensor, "*grid"]) -> Float[Tensor, "*grid"]:
    """How quickly anomalies fade, per day."""
    return land / LIFETIME_LAND + (1 - land) / LIFETIME_SEA


def jets(sphere: Transform) -> Complex[Tensor, "m l"]:
    """The stream function of two westerly jets, of zero wind at the equator and at the poles."""
    sine, cosine = sphere.latitudes.sin(), sphere.latitudes.cos()
    profile = cosine**3 * sine**2 * (1 + 2 * sine**2) / 2**-1.5
    east = (JET * _SPEED * profile)[:, None].expand(sphere.rows, sphere.columns)
    vorticity, _ = sphere.rotation(east, torch.zeros_like(east))
    return sphere.inverse_laplacian * vorticity


def modes() -> tuple[Tensor, Tensor]:
    """The orders m and the degrees l of the waves, one entry for each."""
    first, last = DEGREES
    pairs = [(m, degree) for degree in range(first, last + 1) for m in range(1, degree + 1)]
    order, degree = torch.tensor(pairs).unbind(1)
    return order, degree


def amplitudes(noise: Float[Tensor, "knots members 2 modes"]) -> Complex[Tensor, "knots members w"]:
    """Ornstein-Uhlenbeck amplitudes of unit variance at all knots, from unit normal noise."""
    rho = math.exp(-1 / (KNOTS * MEMORY))
    draws = torch.complex(noise[:, :, 0], noise[:, :, 1]) / math.sqrt(2)
    rows = [draws[0]]
    for draw in draws[1:]:
        rows.append(rho * rows[-1] + math.sqrt(1 - rho**2) * draw)
    return torch.stack(rows)


def waves(
    amplitude: Complex[Tensor, "knots members w"],
    times: Float[Tensor, " stages"],
    sphere: Transform,
) -> Complex[Tensor, "stages members m l"]:
    """The stream function of the waves at times in days from the first knot.

    A wave of degree l has a mean energy like 1 / l(l + 1). It drifts eastward with the winds and
    westward as Rossby's waves do, by 2Ω / (l(l + 1) + F).
    """
    device = amplitude.device
    order, degree = (x.to(device) for x in modes())
    knot = (times * KNOTS).clamp(0, len(amplitude) - 1)
    before = knot.floor().long().clamp(max=len(amplitude) - 2)
    part = (knot - before)[:, None, None]
    now = torch.lerp(amplitude[before], amplitude[before + 1], part.to(amplitude.dtype))

    square = (degree * (degree + 1)).double()
    # The mean square speed of a wave is 2 l(l+1) |ψ_lm|² / 4π: each mode twice, for ±m.
    energy = 1 / square
    size = (WAVES * _SPEED) * (2 * math.pi * energy / (square * energy.sum())).sqrt()
    turn = order * (DRIFT - 4 * math.pi / (square + DEFORMATION))
    phase = torch.polar(torch.ones(1, device=device).double(), -turn * times[:, None])
    stream = amplitude.new_zeros(*now.shape[:2], sphere.lmax + 1, sphere.lmax + 1)
    stream[..., order, degree] = size * phase[:, None] * now
    return stream
