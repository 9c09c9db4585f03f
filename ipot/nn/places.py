"""A regular lattice in a domain: from input points to its places, and from its places to queries.

The places of a lattice are its nodes, numbered along every axis. Each input contributes to the 2^D
corners of the cell that it lies in, so a place p has a weighted mean of the inputs around it:

    V(p) = Σ_i w_i(p) a_i / Σ_i w_i(p)        w_i(p) = Λ(x_i - p) / (|x_i - p|² + ε²)²
    r(p) = Σ_i w_i(p) (x_i - p) / Σ_i w_i(p)  the mean offset of these inputs from the place
    c(p) = min(1, Σ_i Λ(x_i - p))             coverage: 0 without inputs around, 1 with enough

All distances are in gaps of the lattice. Λ is 1 at zero and falls linearly to 0 one gap away along
every axis. The weight w is so steep that an input on a place decides its value alone; an input grid
that is the lattice, or one that contains it, is therefore taken as it is. The sums run over the
inputs once, so the cost is linear, and the sums over several pieces of the inputs add up. Where
c(p) < 1 the value is mixed with that of coarser lattices (`filled`).

An answer at a query is a cubic along each axis through the 4^D places around it.

In the code, Λ is `tent`, w is `weight`, V `values`, and (r, 1 - c) together are the `support`.
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
"""Places along an axis that an interpolated value depends on: a cubic has four."""
NEAR = 0.03
"""ε, in gaps: inputs much nearer to a place than this all count the same."""
UNEVEN = 0.02
"""Lines of a grid may be uneven by this part of a gap and still make a regular lattice."""
ROUNDING = 1e-4
"""A point this part of a gap short of a place is counted into the cell that begins there, so that
rounding does not move points of a grid into the cell before."""
UPSAMPLING = {1: "linear", 2: "bilinear", 3: "trilinear"}


class BoxChart(UnitBox):
    """Maps a box to coordinates from 0 to 1 along every axis, and back."""

    def __init__(self, domain: Bounds, periods: Sequence[float | None]) -> None:
        super().__init__(domain)
        pairs = zip(periods, domain, strict=True)
        self.periods = [p and p / (high - low) for p, (low, high) in pairs]
        self.dimension = len(domain)

    def inverse(self, x: Float[Tensor, "... A"]) -> Float[Tensor, "... D"]:
        """The points with these coordinates."""
        return self.low + self.size * x


class GlobeChart(nn.Module):
    """Maps unit vectors to latitude and longitude, both from 0 to 1, and back. Further coordinates,
    such as time, are mapped as in a box.

    `region` has the degrees of longitude and latitude that are covered, then the bounds of further
    coordinates.
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
        # Of unit vectors, whose squares float32 holds; ONNX has no hypot.
        latitude = torch.rad2deg(torch.atan2(z, (x * x + y * y).sqrt()))
        longitude = torch.rad2deg(torch.atan2(y, x))
        # The jump of 360 degrees is put opposite to the middle of the region.
        longitude = self.middle + around(longitude - self.middle)
        flat = torch.stack([latitude, longitude], -1)
        return self.box(torch.cat([flat, points[..., 3:]], -1))

    def inverse(self, x: Float[Tensor, "... A"]) -> Float[Tensor, "... D"]:
        """The points with these coordinates."""
        found = self.box.inverse(x)
        return on_globe(torch.cat([found[..., 1:2], found[..., :1], found[..., 2:]], -1))


def chart(spec: Spec) -> BoxChart | GlobeChart:
    """The map from the points of a problem to the coordinates that its lattice is regular in."""
    if spec.sphere or spec.region:
        region = spec.region or ((-180.0, 180.0), (-90.0, 90.0), *spec.domain[3:])
        return GlobeChart(region, spec.periods[3:])
    return BoxChart(spec.domain, spec.periods)


class Places(nn.Module):
    """A regular lattice: `counts` places along each axis, the first at `origin`, then one every
    `gap`, in the coordinates of a chart (`BoxChart`, `GlobeChart`).

    It spans the domain, or one period of a periodic axis. If the points given to `measure` form a
    regular grid with the same counts, the lattice is moved onto that grid.

    Called with queries, it gives the places around each query and their interpolation weights.
    """

    origin: Tensor
    gap: Tensor
    steps: Tensor

    def __init__(self, chart: BoxChart | GlobeChart, counts: Sequence[int]) -> None:
        super().__init__()
        self.chart, self.counts = chart, tuple(counts)
        self.wraps = tuple(bool(p) for p in chart.periods)
        axes = zip(chart.periods, self.counts, strict=True)
        gaps = [p / n if p else 1 / max(1, n - 1) for p, n in axes]
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
        """Move the lattice onto these points if they are a regular grid with the same counts."""
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
        """All places, in the coordinates of points; the last axis runs fastest."""
        return self.chart.inverse(self.origin + self.gap * self.steps).unsqueeze(0)

    def in_gaps(self, points: Float[Tensor, "G N D"]) -> Float[Tensor, "G N A"]:
        """Positions of points in units of the gap, along each axis: k at place number k."""
        exact = torch.promote_types(points.dtype, self.gap.dtype)
        return (self.chart(points.to(exact)) - self.origin) / self.gap

    def forward(self, queries: Float[Tensor, "G M D"]) -> Neighbours:
        """The places around all queries, and their weights in the product of a cubic along each
        axis. A query on a place has weight one there and zero elsewhere."""
        at = self.in_gaps(queries)
        index, weight = cubic(at[..., 0], self.counts[0], wraps=self.wraps[0])
        for axis, count in list(enumerate(self.counts))[1:]:
            number, share = cubic(at[..., axis], count, wraps=self.wraps[axis])
            index = (index.unsqueeze(-1) * count + number.unsqueeze(-2)).flatten(-2)
            weight = (weight.unsqueeze(-1) * share.unsqueeze(-2)).flatten(-2)
        return Neighbours(index, weight)


def cubic(
    at: Float[Tensor, "G M"], count: int, *, wraps: bool
) -> tuple[Int[Tensor, "G M s"], Float[Tensor, "G M s"]]:
    """Numbers and Lagrange weights of the places around positions (in gaps) along one axis. An axis
    of fewer than four places has a polynomial of lower degree."""
    span = min(SPAN, count)
    first = at.detach().floor() - (span - 1) // 2
    if not wraps:  # extrapolate by one gap beyond the ends, and no further
        at = at.clamp(-1.0, float(count))
        first = first.clamp(0.0, float(count - span))
    x = at - first
    weights = []
    for j in range(span):
        factors = [(x - m) / (j - m) for m in range(span) if m != j]
        weights.append(math.prod(factors, start=torch.ones_like(x)))
    number = first.long().unsqueeze(-1) + torch.arange(span, device=at.device)
    return number % count, torch.stack(weights, -1)


class Sums(NamedTuple):
    """The sums over some inputs, for every place. Sums over two pieces of the inputs add up."""

    moments: Float[Tensor, "G Z A2"]
    """Σ Λ, Σ w and Σ w (x - p)."""
    values: Float[Tensor, "B Z C"]
    """Σ w a."""

    def plus(self, other: Sums) -> Sums:
        """The sums over both pieces."""
        return Sums(self.moments + other.moments, self.values + other.values)


class Corners(NamedTuple):
    """The 2^D corners of the cell of every input, and its terms in their sums."""

    index: Int[Tensor, "G N c"]
    """Numbers of the corners among all places."""
    weight: Float[Tensor, "G N c"]
    """w."""
    moments: Float[Tensor, "G N c A2"]
    """Λ, w, and w (x - p)."""


class ToPlaces(nn.Module):
    """From values at input points to values at the places of a lattice: V, and r and 1 - c."""

    ends: Tensor

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        ends = tuple(product((0, 1), repeat=len(places.counts)))
        self.register_buffer("ends", torch.tensor(ends), persistent=False)
        self.fill = Fill()

    def forward(
        self,
        points: Float[Tensor, "G N D"],
        values: Float[Tensor, "B N C"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B Z C"], Float[Tensor, "G1 Z A1"]]:
        """V at all places, and its support (r, 1 - c): zero if there is an input on every place."""
        return self.mean(self.sums(points, values, mask))

    def sums(
        self,
        points: Float[Tensor, "G N D"],
        values: Float[Tensor, "B N C"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Sums:
        """The sums of all places over these inputs."""
        corners = self.corners(points, mask)
        values = values.to(torch.promote_types(values.dtype, corners.weight.dtype))
        fields = (corners.weight.unsqueeze(-1) * values.unsqueeze(2)).flatten(1, 2)
        index = corners.index.flatten(1)
        number = self.places.number
        return Sums(
            _summed(corners.moments.flatten(1, 2), index, number), _summed(fields, index, number)
        )

    def corners(
        self, points: Float[Tensor, "G N D"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Corners:
        """The corners that each input contributes to, and its weights there: zero for padding."""
        at = self.places.in_gaps(points)
        if mask is not None:
            at = at.expand(len(mask), -1, -1)
        low, part = cell(at, self.places.counts, self.places.wraps)
        offset = part.unsqueeze(-2) - self.ends
        tent = (1 - offset.abs()).clamp(min=0.0).prod(-1, keepdim=True)
        if mask is not None:
            tent = tent * mask[..., None, None]
        weight = tent / (offset.square().sum(-1, keepdim=True) + NEAR**2).square()
        # A corner beyond an open end gets the number of some place; Λ and w are zero there.
        number = torch.zeros_like(low[..., :1])
        for axis, count in enumerate(self.places.counts):
            number = number * count + (low[..., axis, None] + self.ends[:, axis]) % count
        moments = torch.cat([tent, weight, weight * offset], -1)
        return Corners(number, weight.squeeze(-1), moments)

    def mean(self, sums: Sums) -> tuple[Float[Tensor, "B Z C"], Float[Tensor, "G1 Z A1"]]:
        """V and (r, 1 - c) from these sums."""
        tent, weight, offset = sums.moments.split([1, 1, sums.moments.shape[-1] - 2], -1)
        coverage = tent.clamp(max=1.0)
        weight = weight.clamp(min=torch.finfo(weight.dtype).tiny)
        image, covered = (
            rows.transpose(1, 2).unflatten(2, self.places.counts)
            for rows in (sums.values / weight, coverage)
        )
        values = self.fill(image, covered.to(image.dtype)) if image.shape[1] else image
        support = torch.cat([offset / weight, 1 - coverage], -1)
        return values.flatten(2).transpose(1, 2), support


def cell(
    at: Float[Tensor, "G N A"], counts: Sequence[int], wraps: Sequence[bool]
) -> tuple[Int[Tensor, "G N A"], Float[Tensor, "G N A"]]:
    """The lowest corner of the cell around each position, and the position within the cell, from 0
    to 1. Positions are in gaps; those beyond an open end are moved onto it."""
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
    """Adds up the rows that belong to each place."""
    sums = rows.new_zeros(len(rows), number, rows.shape[-1])
    return sums.scatter_add(1, index.unsqueeze(-1).expand(rows.shape), rows)


class Fill(nn.Module):
    """`filled` as a module, so that it can be compiled: it is many small passes."""

    def forward(
        self, values: Float[Tensor, "B C *grid"], coverage: Float[Tensor, "G 1 *grid"]
    ) -> Float[Tensor, "B C *grid"]:
        """c V + (1 - c) V'."""
        return filled(values, coverage)


def filled(
    values: Float[Tensor, "B C *grid"], coverage: Float[Tensor, "G 1 *grid"]
) -> Float[Tensor, "B C *grid"]:
    """c V + (1 - c) V', where V' is from the next coarser lattice, whose places are the mean of 2^D
    of these, weighted by c; that lattice is filled in the same way."""
    shape = values.shape[2:]
    if max(shape) == 1:
        return values
    windows = [min(2, n) for n in shape]
    total, weight = _pooled(values * coverage, windows), _pooled(coverage, windows)
    mean = total / weight.clamp(min=1e-6)
    coarse = filled(mean, (weight * math.prod(windows)).clamp(max=1.0))
    finer = F.interpolate(
        coarse,
        size=[w * n for w, n in zip(windows, coarse.shape[2:], strict=True)],
        mode=UPSAMPLING[len(shape)],
    )
    finer = finer[(..., *(slice(n) for n in shape))]
    return coverage * values + (1 - coverage) * finer


def _pooled(x: Float[Tensor, "B C *grid"], windows: Sequence[int]) -> Float[Tensor, "B C *coarse"]:
    """Means over windows of 2 along each axis; an odd axis is continued by zeros."""
    for axis, window in enumerate(windows, start=2):
        if window == 1:
            continue
        if x.shape[axis] % 2:
            x = torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1))], axis)
        x = x.unflatten(axis, (-1, 2)).mean(axis + 1)
    return x
