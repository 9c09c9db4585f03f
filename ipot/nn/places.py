"""A regular lattice of places in a domain: from input points to it, and from it to queries.

Every input speaks to the 2^D corners of the cell of the lattice that it lies in, and a place hears
the mean of the inputs around it, near ones far more than others:

    V(p) = Σ_i w_i(p) a_i / Σ_i w_i(p)        w_i(p) = Λ(x_i - p) / (|x_i - p|² + ε²)²
    r(p) = Σ_i w_i(p) (x_i - p) / Σ_i w_i(p)  how far off these inputs are
    c(p) = min(1, Σ_i Λ(x_i - p))             how much was heard there at all

Λ falls linearly to zero one gap away along every axis, and gaps are the unit of length. A place on
which an input lies takes its value, whatever else is near: an input grid that is the lattice, or
one that is finer, is taken as it is. Sums run over the inputs once: the cost is linear, and they
may come in pieces. Places that heard nothing take what coarser lattices have (`filled`).

An answer at a query comes from the 4^D places around it, by a cubic along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ipot.nn.globe import GLOBAL, around, on_globe
from ipot.nn.neighbours import Neighbours, grid_lines
from ipot.nn.points import UnitBox
from ipot.spec import Bounds, Spec

SPAN = 4
"""Places along an axis that a value between them is taken from: a cubic."""
NEAR = 0.03
"""ε, in gaps: inputs much nearer than this to a place count alike."""
UNEVEN = 0.02
"""Part of a gap by which the lines of a grid may lie off and still be a regular lattice."""
ROUNDING = 1e-4
"""Part of a gap by which a point may miss a place and still lie in the cell that begins there."""
UPSAMPLING = {1: "linear", 2: "bilinear", 3: "trilinear"}


class BoxChart(UnitBox):
    """Coordinates of a box, from 0 to 1 along every axis, and the way back."""

    def __init__(self, domain: Bounds, periods: Sequence[float | None]) -> None:
        super().__init__(domain)
        pairs = zip(periods, domain, strict=True)
        self.periods = [p and p / (high - low) for p, (low, high) in pairs]
        self.dimension = len(domain)

    def back(self, x: Float[Tensor, "... A"]) -> Float[Tensor, "... D"]:
        """The points with these coordinates."""
        return self.low + self.size * x


class GlobeChart(nn.Module):
    """Unit vectors as latitude and longitude, both from 0 to 1, beside what lies behind them.

    `region` are the degrees of longitude and latitude that are covered.
    """

    def __init__(self, region: Bounds, periods: Sequence[float | None]) -> None:
        super().__init__()
        (west, east), (south, north), *rest = region
        whole = east - west >= GLOBAL[0]
        degrees = ((south, north), (west, west + 360.0 if whole else east), *rest)
        self.box = BoxChart(degrees, (None, 360.0 if whole else None, *periods))
        self.periods = self.box.periods
        self.dimension = len(degrees) + 1
        self.middle = (west + east) / 2

    def forward(self, points: Float[Tensor, "... D"]) -> Float[Tensor, "... A"]:
        """The coordinates of points."""
        x, y, z = points[..., :3].unbind(-1)
        latitude = torch.rad2deg(torch.atan2(z, torch.hypot(x, y)))
        longitude = torch.rad2deg(torch.atan2(y, x))
        # Counted from the middle of the region, so that its ends are where it is cut.
        longitude = self.middle + around(longitude - self.middle)
        flat = torch.stack([latitude, longitude], -1)
        return self.box(torch.cat([flat, points[..., 3:]], -1))

    def back(self, x: Float[Tensor, "... A"]) -> Float[Tensor, "... D"]:
        """The points with these coordinates."""
        found = self.box.back(x)
        return on_globe(torch.cat([found[..., 1:2], found[..., :1], found[..., 2:]], -1))


def chart(spec: Spec) -> BoxChart | GlobeChart:
    """Coordinates for a lattice in the space of a problem's points."""
    if spec.sphere or spec.region:
        region = spec.region or ((-180.0, 180.0), (-90.0, 90.0), *spec.domain[3:])
        return GlobeChart(region, spec.periods[3:])
    return BoxChart(spec.domain, spec.periods)


class Places(nn.Module):
    """A lattice: `counts` places along each axis, the first at `origin`, `gap` apart, both in the
    coordinates of a chart.

    It spans the domain, or one period of an axis, until `measure` has seen points which form a
    regular grid of as many; then it lies on those, and they are its places exactly.
    """

    origin: Tensor
    gap: Tensor
    steps: Tensor

    def __init__(self, chart: BoxChart | GlobeChart, counts: Sequence[int]) -> None:
        super().__init__()
        self.chart, self.counts = chart, tuple(counts)
        self.wraps = tuple(bool(p) for p in chart.periods)
        ways = zip(chart.periods, self.counts, strict=True)
        gaps = [p / n if p else 1 / max(1, n - 1) for p, n in ways]
        self.register_buffer("origin", torch.zeros(len(gaps)))
        self.register_buffer("gap", torch.tensor(gaps))
        lines = (torch.arange(float(n)) for n in self.counts)
        steps = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, -2)
        self.register_buffer("steps", steps, persistent=False)

    @property
    def number(self) -> int:
        """How many places there are."""
        return math.prod(self.counts)

    @torch.no_grad()
    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Lie on some points if they are a regular grid of as many along each axis."""
        lines = grid_lines(self.chart(points.to(self.gap)))
        if lines is None or tuple(map(len, lines)) != self.counts or min(self.counts) < 2:
            return
        gaps = torch.stack([(x[-1] - x[0]) / (len(x) - 1) for x in lines])
        uneven = [float(((x.diff() - g) / g).abs().max()) for x, g in zip(lines, gaps, strict=True)]
        closed = [
            not p or abs(p / float(g) - len(x)) < UNEVEN
            for x, g, p in zip(lines, gaps, self.chart.periods, strict=True)
        ]
        if max(uneven) < UNEVEN and all(closed):
            self.origin.copy_(torch.stack([x[0] for x in lines]))
            self.gap.copy_(gaps)

    def coordinates(self) -> Float[Tensor, "1 Z D"]:
        """The places, in the coordinates of points."""
        return self.chart.back(self.origin + self.gap * self.steps).unsqueeze(0)

    def numbers(self, points: Float[Tensor, "G N D"]) -> Float[Tensor, "G N A"]:
        """Where points lie between the places of each axis, which are numbered from 0."""
        exact = torch.promote_types(points.dtype, self.gap.dtype)
        return (self.chart(points.to(exact)) - self.origin) / self.gap

    def forward(self, queries: Float[Tensor, "G M D"]) -> Neighbours:
        """For all queries, the places around them and what each counts in a cubic along every axis:
        one at a query that lies on a place."""
        at = self.numbers(queries)
        numbers, shares = [], []
        for axis, count in enumerate(self.counts):
            number, share = cubic(at[..., axis], count, wraps=self.wraps[axis])
            numbers.append(number)
            shares.append(share)
        index, weight = numbers[0], shares[0]
        for count, number, share in zip(self.counts[1:], numbers[1:], shares[1:], strict=True):
            index = (index.unsqueeze(-1) * count + number.unsqueeze(-2)).flatten(-2)
            weight = (weight.unsqueeze(-1) * share.unsqueeze(-2)).flatten(-2)
        return Neighbours(index, weight)


def cubic(
    at: Float[Tensor, "G M"], count: int, *, wraps: bool
) -> tuple[Int[Tensor, "G M s"], Float[Tensor, "G M s"]]:
    """The places around coordinates along one axis, and their shares by Lagrange's polynomials."""
    span = min(SPAN, count)
    first = at.detach().floor() - (span - 1) // 2
    if not wraps:  # beyond the ends it goes on for one gap
        at = at.clamp(-1.0, float(count))
        first = first.clamp(0.0, float(count - span))
    way = at - first
    shares = []
    for j in range(span):
        others = [(way - m) / (j - m) for m in range(span) if m != j]
        shares.append(math.prod(others, start=torch.ones_like(way)))
    number = first.long().unsqueeze(-1) + torch.arange(span, device=at.device)
    return number % count, torch.stack(shares, -1)


class Heard(NamedTuple):
    """What places heard of some inputs, as sums: those of several pieces of the inputs add up."""

    points: Float[Tensor, "G Z A2"]
    """Sums of Λ, of w, and of w (x - p)."""
    values: Float[Tensor, "B Z C"]
    """Sums of w a."""

    def and_also(self, other: Heard) -> Heard:
        """What was heard of both pieces."""
        return Heard(self.points + other.points, self.values + other.values)


class Corners(NamedTuple):
    """For every input the corners of its cell, and what they hear of its place."""

    index: Int[Tensor, "G N c"]
    weight: Float[Tensor, "G N c"]
    """w."""
    told: Float[Tensor, "G N c A2"]
    """Λ, w, and w (x - p)."""


class ToPlaces(nn.Module):
    """From input points to the places of a lattice: V, and beside it r and 1 - c."""

    ends: Tensor

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        ends = tuple(product((0, 1), repeat=len(places.counts)))
        self.register_buffer("ends", torch.tensor(ends), persistent=False)

    def forward(
        self,
        points: Float[Tensor, "G N D"],
        values: Float[Tensor, "B N C"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B Z C"], Float[Tensor, "G1 Z A1"]]:
        """V at all places, and how it was come by: zero where an input lies on every place."""
        return self.mean(self.heard(points, values, mask))

    def heard(
        self,
        points: Float[Tensor, "G N D"],
        values: Float[Tensor, "B N C"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Heard:
        """The sums over these inputs."""
        corners = self.corners(points, mask)
        values = values.to(torch.promote_types(values.dtype, corners.weight.dtype))
        fields = (corners.weight.unsqueeze(-1) * values.unsqueeze(2)).flatten(1, 2)
        index = corners.index.flatten(1)
        number = self.places.number
        return Heard(
            _summed(corners.told.flatten(1, 2), index, number), _summed(fields, index, number)
        )

    def corners(
        self, points: Float[Tensor, "G N D"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Corners:
        """Which places hear of which input, and how much; padding says nothing."""
        at = self.places.numbers(points)
        if mask is not None:
            at = at.expand(len(mask), -1, -1)
        low, part = cell(at, self.places.counts, self.places.wraps)
        off = part.unsqueeze(-2) - self.ends
        tent = (1 - off.abs()).clamp(min=0.0).prod(-1, keepdim=True)
        if mask is not None:
            tent = tent * mask[..., None, None]
        near = tent / (off.square().sum(-1, keepdim=True) + NEAR**2).square()
        # Beyond an open end, where Λ is zero, it is the number of any place.
        number = torch.zeros_like(low[..., :1])
        for axis, count in enumerate(self.places.counts):
            number = number * count + (low[..., axis, None] + self.ends[:, axis]) % count
        return Corners(number, near.squeeze(-1), torch.cat([tent, near, near * off], -1))

    def mean(self, heard: Heard) -> tuple[Float[Tensor, "B Z C"], Float[Tensor, "G1 Z A1"]]:
        """V, and r and 1 - c, of these sums."""
        tent, near, off = heard.points.split([1, 1, heard.points.shape[-1] - 2], -1)
        sure = tent.clamp(max=1.0)
        near = near.clamp(min=torch.finfo(near.dtype).tiny)
        image, known = (
            rows.transpose(1, 2).unflatten(2, self.places.counts)
            for rows in (heard.values / near, sure)
        )
        values = filled(image, known.to(image.dtype)) if image.shape[1] else image
        return values.flatten(2).transpose(1, 2), torch.cat([off / near, 1 - sure], -1)


def cell(
    at: Float[Tensor, "G N A"], counts: Sequence[int], wraps: Sequence[bool]
) -> tuple[Int[Tensor, "G N A"], Float[Tensor, "G N A"]]:
    """The first corner of the cell around each point, and where in the cell it lies. What lies
    beyond an open end is put onto it."""
    lows, parts = [], []
    for axis, (count, wrap) in enumerate(zip(counts, wraps, strict=True)):
        x = at[..., axis] if wrap else at[..., axis].clamp(0.0, count - 1.0)
        low = (x.detach() + ROUNDING).floor()
        lows.append(low.long() % count)
        parts.append(x - low)
    return torch.stack(lows, -1), torch.stack(parts, -1)


def _summed(
    rows: Float[Tensor, "B R c"], index: Int[Tensor, "G R"], number: int
) -> Float[Tensor, "B Z c"]:
    """The sums of the rows that go to each place."""
    sums = rows.new_zeros(len(rows), number, rows.shape[-1])
    return sums.scatter_add(1, index.unsqueeze(-1).expand(rows.shape), rows)


def filled(
    values: Float[Tensor, "B C *grid"], sure: Float[Tensor, "G 1 *grid"]
) -> Float[Tensor, "B C *grid"]:
    """Values everywhere: where they are not sure, those of coarser lattices fill in, on which
    2^D places are one and the sure ones among them count."""
    shape = values.shape[2:]
    if max(shape) == 1:
        return values
    windows = [min(2, n) for n in shape]
    known, shares = _pooled(values * sure, windows), _pooled(sure, windows)
    coarse = filled(known / shares.clamp(min=1e-6), (shares * math.prod(windows)).clamp(max=1.0))
    finer = F.interpolate(
        coarse,
        size=[w * n for w, n in zip(windows, coarse.shape[2:], strict=True)],
        mode=UPSAMPLING[len(shape)],
    )
    finer = finer[(..., *(slice(n) for n in shape))]
    return sure * values + (1 - sure) * finer


def _pooled(x: Float[Tensor, "B C *grid"], windows: Sequence[int]) -> Float[Tensor, "B C *coarse"]:
    """Means over windows; beyond the end of an odd axis is nothing, which counts as zero."""
    for axis, window in enumerate(windows, start=2):
        if window == 1:
            continue
        if x.shape[axis] % 2:
            x = torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1))], axis)
        x = x.unflatten(axis, (-1, 2)).mean(axis + 1)
    return x
