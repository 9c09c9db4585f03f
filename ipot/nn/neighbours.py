"""A field at any place, from the input points near it.

A stencil has 3^D places around a point x (2 D + 1 where D > 2), a spacing δ apart. The field at
each is taken from the inputs next to it:

    h(x + δ o) ≈ Σ_j λ_j h(x_j)        λ_j ≥ 0 or from a local linear fit, Σ_j λ_j = 1

So the weights of the offsets o serve any points: on the grid whose spacing is δ they are a
convolution of 3^D, on a finer grid the dilated one, and on few sensors they see the nearest ones
there are. A place outside of the domain finds a point at its border; periodic axes wrap. None of it
is differentiated: where points lie is data.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree
from torch import Tensor, nn

from ipot.nn.graph import Space
from ipot.spec import Bounds

AT_ONCE = 1 << 24
"""Pairs of places and points that a search compares at a time."""
TREE = 1 << 26
"""Pairs beyond which a search on a CPU goes by a tree."""
TILT = 1e-3
"""Part of a spacing by which places are moved, along no axis and no diagonal, so that of two points
at the same distance the same one is nearest however the points are numbered."""
RIDGE = 3e-3
"""Part of the mean squared distance of neighbours that is added to their spread in a linear fit:
neighbours on a line tell nothing of the slope across it."""

BENT = 1e-4
"""The ridge for a parabola, whose terms are in units of the farthest neighbour."""


class Grid(NamedTuple):
    """A full grid of points in row-major order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Points from one place of a stencil to the next, along each axis."""
    wraps: tuple[bool, ...]


class Neighbours(NamedTuple):
    """The neighbours of every place among the input points, and their weights."""

    index: Int[Tensor, "G M k"]
    weight: Float[Tensor, "G M k"] | None = None
    """None where there is one neighbour for each place, which counts fully."""
    grid: Grid | None = None
    """Said of stencils at points that are known to be a grid which holds all of their places."""

    def look_up(self, field: Float[Tensor, "B N c"]) -> Float[Tensor, "B M c"]:
        """The field at the places; neighbours on a shared mesh (G = 1) serve all samples."""
        groups, places, count = self.index.shape
        if groups == 1:
            found = field.index_select(1, self.index.flatten())
        else:
            rows = self.index.flatten(1).unsqueeze(-1).expand(-1, -1, field.shape[-1])
            found = field.gather(1, rows)
        if self.weight is None:
            return found
        found = found.unflatten(1, (places, count))
        return (self.weight.unsqueeze(-1).to(field.dtype) * found).sum(2)


def offsets(axes: int) -> Float[Tensor, "S D"]:
    """The offsets of a stencil in units of the spacing: all 3^D up to two axes, beyond that only
    along axes."""
    steps = product((-1.0, 0.0, 1.0), repeat=axes)
    return torch.tensor([s for s in steps if axes <= 2 or sum(map(abs, s)) <= 1])


class Surroundings(nn.Module):
    """Finds the input points around points and queries, in units of the domain's box.

    `spacing` is that of the points in training, one number for each axis. It is found when a new
    model first sees data, and kept with its weights.
    """

    spacing: Tensor
    offsets: Tensor

    def __init__(
        self,
        domain: Bounds,
        periods: tuple[float | None, ...],
        *,
        shape: tuple[int, ...] = (),
        count: int = 1,
        query_count: int = 8,
    ) -> None:
        super().__init__()
        self.space = Space(domain, periods)
        self.count, self.query_count = count, query_count
        self.curved = False
        """Whether fields are met by parabolas instead of planes."""
        self.register_buffer("offsets", offsets(len(domain)), persistent=False)
        self.register_buffer("spacing", torch.zeros(len(domain)))
        self.register_buffer("expected", self._expected(shape), persistent=False)

    def _expected(self, shape: tuple[int, ...]) -> Float[Tensor, " D"]:
        """The spacing before any data have been seen: that of a grid over the domain."""
        axes, periods = self.space.axes, self.space.periods
        if len(shape) != axes:
            points = max(2.0, float(torch.Size(shape).numel() if shape else 1000))
            shape = (max(2, round(points ** (1 / axes))),) * axes
        pairs = zip(shape, periods, strict=True)
        return torch.tensor([p / n if p else 1 / max(1, n - 1) for n, p in pairs])

    @property
    def delta(self) -> Float[Tensor, " D"]:
        """The spacing that stencils have."""
        return torch.where(self.spacing > 0, self.spacing, self.expected)

    @torch.no_grad()
    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Take the spacing from some points, unless it is known already.

        On a full grid that is the usual gap along each axis; elsewhere the usual distance to the
        neighbour number 2 D, which is the same on a square grid.
        """
        if bool(self.spacing.any()) or len(points) < 2:
            return
        places = self.space(points.to(self.spacing.device))
        lines = grid_lines(places)
        if lines is not None:
            gaps = [
                x.diff().median() if len(x) > 1 else d
                for x, d in zip(lines, self.expected, strict=True)
            ]
            self.spacing.copy_(torch.stack(gaps))
            return
        rank = min(2 * self.space.axes, len(places) - 1)
        far = self._search(places[None], places[None], rank + 1, None)[1][0, :, rank]
        typical = far.median()
        self.spacing.copy_(torch.where(typical > 0, typical, self.expected))

    def forward(
        self,
        points: Float[Tensor, "G N D"],
        queries: Float[Tensor, "Q M D"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Neighbours:
        """The neighbours of all queries; without queries, those of the stencils' places."""
        if queries is None:
            return self.stencils(points, mask)
        return self.near(points, queries, mask)

    @torch.no_grad()
    def grid_of(self, points: Float[Tensor, "N D"]) -> Grid | None:
        """The grid that some points are, in row-major order, if it is regular and its gaps divide
        the spacing of stencils. This waits for the device."""
        places = self.space(points.to(self.spacing.dtype))
        lines = grid_lines(places)
        if lines is None or len(lines) > 2:
            return None
        laid = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, -2)
        strides, wraps = [], []
        tolerance = 0.05 * self.delta
        if bool(((laid - places).abs() > tolerance).any()):
            return None
        for line, delta, period in zip(lines, self.delta, self.space.periods, strict=True):
            gaps = line.diff()
            if not len(gaps):
                return None
            step = round(float(delta / gaps.mean()))
            even = bool(((gaps - gaps.mean()).abs() < 0.05 * gaps.mean()).all())
            around = period is not None
            closed = not around or abs(float(period / gaps.mean()) - len(line)) < 0.05
            fits = abs(float(delta / gaps.mean()) - step) < 0.05 and 0 < step < len(line)
            if not (even and closed and fits):
                return None
            strides.append(step)
            wraps.append(around)
        return Grid(tuple(map(len, lines)), tuple(strides), tuple(wraps))

    @torch.no_grad()
    def stencils(
        self, points: Float[Tensor, "G N D"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Neighbours:
        """The neighbours of the places x_i + δ o of all points; offset after offset, each with all
        of the points."""
        inputs, mask = self._laid_out(points, mask)
        places = inputs.unsqueeze(1) + (self.delta * self.offsets)[:, None]
        if not torch.compiler.is_compiling():
            return self._interpolate(inputs, places.flatten(1, 2), self.count, mask)
        # A graph with open sizes has no pieces of a search: offset after offset, it holds less.
        parts = [self._interpolate(inputs, y, self.count, mask) for y in places.unbind(1)]
        weights = [part.weight for part in parts if part.weight is not None]
        index = torch.cat([part.index for part in parts], 1)
        return Neighbours(index, torch.cat(weights, 1) if weights else None)

    @torch.no_grad()
    def near(
        self,
        points: Float[Tensor, "G N D"],
        queries: Float[Tensor, "Q M D"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Neighbours:
        """The neighbours of all queries."""
        inputs, mask = self._laid_out(points, mask)
        places = self.space(queries.to(self.spacing.dtype))
        groups = max(len(inputs), len(places))
        inputs = inputs.expand(groups, -1, -1)
        return self._interpolate(inputs, places.expand(groups, -1, -1), self.query_count, mask)

    def _laid_out(self, points: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        places = self.space(points.to(self.spacing.dtype))
        return (places if mask is None else places.expand(len(mask), -1, -1)), mask

    def _interpolate(
        self,
        inputs: Float[Tensor, "G N D"],
        places: Float[Tensor, "G P D"],
        count: int,
        mask: Bool[Tensor, "G N"] | None,
    ) -> Neighbours:
        if not inputs.shape[1]:  # parameters alone: there is nothing around
            none = places.new_zeros(*places.shape[:2], 0)
            return Neighbours(none.long(), none)
        if not torch.compiler.is_compiling():
            count = min(count, inputs.shape[1])
        if count == 1:
            index, far = self._search(inputs, places, 1, mask)
            return Neighbours(index) if mask is None else Neighbours(index, far.isfinite().float())
        index, far = self._search(inputs, places, count, mask)
        rows = index.flatten(1).unsqueeze(-1).expand(-1, -1, inputs.shape[-1])
        found = inputs.gather(1, rows).unflatten(1, index.shape[1:])
        displacement = self.space.displacement(places.unsqueeze(2), found) / self.delta
        weigh = curved_weights if self.curved else linear_weights
        return Neighbours(index, weigh(displacement, far.isfinite()))

    def _search(
        self, inputs: Tensor, places: Tensor, count: int, mask: Tensor | None
    ) -> tuple[Int[Tensor, "G P k"], Float[Tensor, "G P k"]]:
        """The nearest inputs to places and their distances, nearest first; infinite for padding.

        Distances are counted in units of the box: that of a spacing may differ between axes.
        """
        places = self._tilted(places)
        if torch.compiler.is_compiling():
            return self._compare(inputs, places, count, mask)
        pairs = inputs.shape[1] * places.shape[1]
        if mask is None and inputs.device.type == "cpu" and pairs > TREE:
            found = [self._by_tree(x, y, count) for x, y in zip(inputs, places, strict=True)]
            return torch.stack([i for i, _ in found]), torch.stack([d for _, d in found])
        piece = max(1, AT_ONCE // max(1, inputs.shape[0] * inputs.shape[1]))
        parts = [self._compare(inputs, y, count, mask) for y in places.split(piece, 1)]
        return torch.cat([i for i, _ in parts], 1), torch.cat([d for _, d in parts], 1)

    def _tilted(self, places: Tensor) -> Tensor:
        axes = torch.arange(2.0, 2.0 + self.space.axes, device=self.delta.device)
        return places + (TILT * self.delta / axes.sqrt()).to(places.device)

    def _compare(
        self, inputs: Tensor, places: Tensor, count: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """By comparing all with all, axis by axis: a matrix product would round away small
        distances."""
        square = None
        for axis in range(self.space.axes):
            apart = self.space.along(axis, places[..., None, axis], inputs[:, None, :, axis])
            square = apart.square() if square is None else square + apart.square()
        assert square is not None
        if mask is not None:
            square = square.masked_fill(~mask.unsqueeze(1), math.inf)
        if count == 1:
            found = square.min(-1, keepdim=True)
            return found.indices, found.values.sqrt()
        if torch.compiler.is_compiling():  # where nobody knows whether there are as many
            square = F.pad(square, (0, count - 1), value=math.inf)
        found = square.topk(count, dim=-1, largest=False)
        return found.indices.clamp(max=inputs.shape[1] - 1), found.values.sqrt()

    def _by_tree(self, inputs: Tensor, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self._in_tree(self.tree(inputs), places, count)

    def tree(self, inputs: Float[Tensor, "N D"]) -> KDTree:
        """A tree of places, on a CPU; on a torus if axes are periodic."""
        wraps = [p or 0.0 for p in self.space.periods]
        return KDTree(self._wrapped(inputs).numpy(), boxsize=wraps if any(wraps) else None)

    def near_in(
        self,
        tree: KDTree,
        inputs: Float[Tensor, "N D"],
        places: Float[Tensor, "P D"],
        count: int,
    ) -> Neighbours:
        """The neighbours of some places among the inputs that a tree holds."""
        index, far = self._in_tree(tree, self._tilted(places), count)
        if count == 1:
            return Neighbours(index.unsqueeze(0))
        delta = self.delta.to(places.device)
        displacement = self.space.displacement(places.unsqueeze(1), inputs[index]) / delta
        return Neighbours(index[None], linear_weights(displacement[None], far.isfinite()[None]))

    def _in_tree(self, tree: KDTree, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
        asked = self._wrapped(places).numpy()
        far, index = tree.query(asked, k=list(range(1, count + 1)), workers=-1)
        return torch.from_numpy(index), torch.from_numpy(far).to(places.dtype)

    def _wrapped(self, places: Tensor) -> Tensor:
        """Places of one period, as a tree of a torus takes them."""
        found = places.double()
        periods = self.space.periods
        if not any(periods):
            return found
        columns = zip(found.unbind(-1), periods, strict=True)
        return torch.stack([x.remainder(p) if p else x for x, p in columns], -1)


def linear_weights(
    displacement: Float[Tensor, "G P k D"], real: Bool[Tensor, "G P k"]
) -> Float[Tensor, "G P k"]:
    """The weight of each neighbour: inverse squared distances that fade out towards the farthest,
    corrected so that linear fields are interpolated exactly; one for a neighbour at distance zero.

    The fit is bounded where neighbours are on one side or on a line.
    """
    far = torch.linalg.vector_norm(displacement, dim=-1).masked_fill(~real, 0.0)
    reach = 1.001 * far.amax(-1, keepdim=True) + 1e-6
    share = ((reach - far) / (reach * far.clamp(min=1e-6))).square() * real
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-30)
    # Of their distance and not of their spread alone, so that neighbours which count little, or lie
    # almost in one place, get no say by a steep slope.
    # At least something, and by no sum: exporters take a summand of 1e-12 for none.
    ridge = (RIDGE * (share * far.square()).sum(-1)).clamp(min=1e-12)
    return _corrected(share, displacement, ridge)


def curved_weights(
    displacement: Float[Tensor, "G P k D"], real: Bool[Tensor, "G P k"]
) -> Float[Tensor, "G P k"]:
    """As `linear_weights`, corrected so that parabolas are interpolated exactly."""
    far = torch.linalg.vector_norm(displacement, dim=-1).masked_fill(~real, 0.0)
    reach = 1.001 * far.amax(-1, keepdim=True) + 1e-6
    near = (far / reach).clamp(min=1e-6)
    share = ((1 - near) / near).square() * real
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-30)
    straight = (displacement / reach.unsqueeze(-1)).unbind(-1)
    bent = [a * b for i, a in enumerate(straight) for b in straight[i:]]
    terms = torch.stack([*straight, *bent], -1)
    ridge = (BENT * (share * near.square()).sum(-1)).clamp(min=1e-9)
    return _corrected(share, terms, ridge)


def _corrected(
    share: Float[Tensor, "G P k"], terms: Float[Tensor, "G P k T"], ridge: Float[Tensor, "G P"]
) -> Float[Tensor, "G P k"]:
    """Weights with which every one of some terms adds up to zero, up to the ridge."""
    mean = (share.unsqueeze(-1) * terms).sum(2)
    apart = terms - mean.unsqueeze(2)
    spread = torch.einsum("gpk,gpkd,gpke->gpde", share, apart, apart)
    slope = solved(spread, ridge, mean)
    return share * (1 - (apart @ slope.unsqueeze(-1)).squeeze(-1))


def solved(
    matrix: Float[Tensor, "G P D D"], ridge: Float[Tensor, "G P"], right: Float[Tensor, "G P D"]
) -> Float[Tensor, "G P D"]:
    """Solve (matrix + ridge) x = right for small symmetric matrices that are not negative, by
    elimination in plain operations, which can be captured and exported."""
    rows = [
        [*row.unbind(-1), r] for row, r in zip(matrix.unbind(-2), right.unbind(-1), strict=True)
    ]
    size = len(rows)
    for i, row in enumerate(rows):
        row[i] = row[i] + ridge
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(size):
            if k != i:
                factor = rows[k][i]
                rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    return torch.stack([row[-1] for row in rows], -1)


def grid_lines(places: Float[Tensor, "N D"]) -> list[Float[Tensor, " n"]] | None:
    """The coordinates along every axis of points that form a full grid in some order, else None."""
    lines = []
    for x in places.unbind(-1):
        line = x.unique()
        if len(line) > 1:  # numbers that differ by rounding are one
            close = line.diff() < 1e-5 * (line[-1] - line[0])
            line = line[torch.cat([close.new_ones(1), ~close])]
        lines.append(line)
    return lines if math.prod(map(len, lines)) == len(places) else None
