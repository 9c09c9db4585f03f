"""Derivatives of fields in space, for a loss that also looks at slopes.

On a grid they are central differences along its axes, at the points that have two neighbours there
(all of them along a periodic axis), divided by the distance between the two. On scattered points
they are slopes of a plane through the nearest neighbours, by least squares in which every neighbour
counts as a slope along its own direction. Both are fixed by the mesh and linear in the field, so
that neighbours and coefficients are found once, before training, and a step only reads them. A
symmetry that moves a mesh turns its derivatives and leaves their joint norm as it is: the
coefficients of the original mesh also serve the moved one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import KDTree
from torch import Tensor, nn

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import Unsupported
from ipot.nn.globe import on_globe
from ipot.spec import Spec

FLAT = 0.1
"""A direction in which the neighbours reach less than this part of the largest has no slope: across
the surface of a sphere, say."""
MOST_BYTES = 8 << 30
"""Neighbours and coefficients of samples with meshes of their own may take so much."""


class GradientError(nn.Module):
    """The relative L2 error of a prediction's gradients, as a mean over samples.

    One norm for each sample, jointly over times, queries, channels and directions. Where a target
    is constant, the error is the norm of the prediction's gradient.
    """

    def __init__(self, scale: Float[Tensor, " K"] | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", None if scale is None else scale.float())

    def forward(
        self,
        prediction: Float[Tensor, "B T M K"],
        target: Float[Tensor, "B T M K"],
        index: Tensor | None = None,
        mask: Bool[Tensor, "B M"] | None = None,
        weights: Float[Tensor, "B1 M"] | None = None,
    ) -> Float[Tensor, ""]:
        """One number for a batch; `index` says which samples of the data it holds."""
        error = prediction - target
        if self.scale is not None:
            error, target = error / self.scale, target / self.scale
        factor = weights
        if mask is not None:
            factor = mask.to(error.dtype) if weights is None else weights * mask
        wrong = self.energy(error, index, factor)
        norm = self.energy(target, index, factor)
        # The square root has no derivative at zero.
        wrong = (wrong + torch.finfo(wrong.dtype).tiny).sqrt()
        return (wrong / torch.where(norm > 0, norm, torch.ones_like(norm)).sqrt()).mean()

    def energy(
        self, field: Float[Tensor, "B T M K"], index: Tensor | None, factor: Tensor | None
    ) -> Float[Tensor, " B"]:
        """The sum of squared derivatives of each sample, queries weighted by a factor."""
        raise NotImplementedError


class OnGrid(GradientError):
    """Central differences along the axes of a grid that all samples have."""

    def __init__(
        self,
        grid: tuple[int, ...],
        wraps: tuple[bool, ...],
        queries: Float[Tensor, "S M E"],
        periods: tuple[float | None, ...],
        scale: Tensor | None = None,
    ) -> None:
        super().__init__(scale)
        self.grid = grid
        # Along an axis of one or two points there is no central difference.
        self.axes = [a for a, n in enumerate(grid) if n > 2]
        self.wraps = wraps
        self.shared = queries.shape[0] == 1
        for axis in self.axes:
            gap = _gaps(queries.double().unflatten(1, grid), 1 + axis, wraps[axis], periods)
            rate = torch.where(gap > 0, 1 / gap.where(gap > 0, 1.0), 0.0).to(queries.dtype)
            self.register_buffer(f"rate{axis}", rate, persistent=False)

    def energy(
        self, field: Float[Tensor, "B T M K"], index: Tensor | None, factor: Tensor | None
    ) -> Float[Tensor, " B"]:
        """Axis by axis."""
        field = field.unflatten(2, self.grid)
        factor = None if factor is None else factor.unflatten(1, self.grid)
        total = field.new_zeros(field.shape[0])
        for axis in self.axes:
            rate = getattr(self, f"rate{axis}")
            if not self.shared:
                rate = rate[index]
            slope = _difference(field, 2 + axis, self.wraps[axis])
            square = (slope * rate.unsqueeze(1).unsqueeze(-1)).square()
            if factor is not None:
                inner = factor
                if not self.wraps[axis]:
                    inner = factor.narrow(1 + axis, 1, self.grid[axis] - 2)
                square = square * inner.unsqueeze(1).unsqueeze(-1)
            total = total + square.flatten(1).sum(1)
        return total


class OnPoints(GradientError):
    """Least-squares slopes over the nearest neighbours, on one mesh or on one for each sample."""

    neighbours: Tensor
    slopes: Tensor

    def __init__(
        self,
        neighbours: Tensor,
        slopes: Float[Tensor, "S M k E"],
        scale: Tensor | None = None,
    ) -> None:
        super().__init__(scale)
        self.shared = neighbours.shape[0] == 1
        self.register_buffer("neighbours", neighbours, persistent=False)
        self.register_buffer("slopes", slopes, persistent=False)

    def energy(
        self, field: Float[Tensor, "B T M K"], index: Tensor | None, factor: Tensor | None
    ) -> Float[Tensor, " B"]:
        """Directions one by one, as sums over neighbours."""
        rows, k = field.shape[2], self.neighbours.shape[-1]
        near, slopes = self.neighbours, self.slopes
        if not self.shared:
            near, slopes = near[index], slopes[index]
        # Samples of several sizes are padded to less than the largest of all, or to more.
        most = min(rows, near.shape[1])
        near, slopes = near[:, :most], slopes[:, :most]
        flat = near.reshape(near.shape[0], 1, most * k, 1)
        found = field.gather(2, flat.expand(*field.shape[:2], -1, field.shape[-1]))
        found = found.unflatten(2, (most, k))
        total = field.new_zeros(field.shape[0])
        for direction in slopes.unbind(-1):
            # Not a product of matrices, which autocast would round.
            square = (found * direction[:, None, :, :, None]).sum(3).square()
            if factor is not None:
                square = square * factor[:, None, :most, None]
            total = total + square.flatten(1).sum(1)
        return total


def gradient_error(
    data: Dataset, spec: Spec, device: torch.device, scale: Tensor | None = None
) -> GradientError:
    """The comparison of gradients on these data, with all that depends on their meshes."""
    first = data[0]
    if first.queries.ndim == 3:
        raise Unsupported(
            f"--training.gradient-loss: the mesh of {spec.name} moves in time, which it cannot "
            "follow. Leave it out."
        )
    meshes = _meshes(data, spec)
    count, dtype = max(len(m) for m in meshes), first.truth.dtype
    grids = {data[i].query_grid for i in range(1 if data.stacked else len(data))}
    grid = grids.pop() if len(grids) == 1 else None
    wraps, periods = _wraps(spec, grid)
    if grid is not None and max(grid) > 2:
        made: GradientError = OnGrid(grid, wraps, torch.stack(meshes).to(dtype), periods, scale)
        return made.to(device)
    if count < 2:
        raise Unsupported(
            f"--training.gradient-loss: a gradient needs two queries at least, {spec.name} has "
            f"{count}. Leave it out."
        )
    dimension = meshes[0].shape[-1]
    k = min(2 * dimension + 2, count - 1) + 1
    size = len(meshes) * count * k * (8 + dimension * dtype.itemsize)
    if size > MOST_BYTES:
        raise Unsupported(
            f"--training.gradient-loss would keep {size / 2**30:.1f} GiB of neighbours for "
            f"{len(meshes)} meshes. Leave it out, or train on fewer samples."
        )
    neighbours = torch.zeros(len(meshes), count, k, dtype=torch.long)
    slopes = torch.zeros(len(meshes), count, k, dimension, dtype=dtype)
    for i, mesh in enumerate(meshes):
        near, slope = plane_slopes(mesh, periods, k)
        neighbours[i, : len(mesh), : near.shape[1]] = near
        slopes[i, : len(mesh), : near.shape[1]] = slope.to(dtype)
    return OnPoints(neighbours, slopes, scale).to(device)


def plane_slopes(
    mesh: Float[Tensor, "M E"], periods: tuple[float | None, ...], k: int
) -> tuple[Tensor, Float[Tensor, "M k E"]]:
    """For each point, itself and its k - 1 nearest neighbours, and the coefficients of its slopes.

    Points at the very same place are ignored, and there is no slope in directions without a
    neighbour.
    """
    places = mesh.double().cpu()
    k = min(k, len(places))
    if k < 2:
        return torch.zeros(len(places), 1).long(), torch.zeros(len(places), 1, places.shape[1])
    box = np.array([p or 0.0 for p in periods])
    low = places.amin(0).numpy()
    inside = places.numpy() - low
    for axis, period in enumerate(box):
        if period:
            inside[:, axis] %= period
    _, near = KDTree(inside, boxsize=box).query(inside, k)
    near = torch.from_numpy(np.asarray(near))
    near[:, 0] = torch.arange(len(places))  # of several at one place, another may have been found
    apart = wrapped(places[near] - places.unsqueeze(1), periods)
    far = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
    inverse = torch.where(far > 0, 1 / far.where(far > 0, 1.0), 0.0)
    # Each neighbour gives (u_j - u_i) / r, which the slope along its direction is to equal.
    solved = torch.linalg.pinv(apart * inverse, rtol=FLAT).transpose(-1, -2) * inverse
    solved[:, 0] = -solved.sum(1)
    return near, solved


def wrapped(apart: Float[Tensor, "*n E"], periods: tuple[float | None, ...]) -> Tensor:
    """Differences of places; of periodic coordinates the shorter of the two."""
    if not any(periods):
        return apart
    columns = [
        column if not period else column - period * (column / period).round()
        for column, period in zip(apart.unbind(-1), periods, strict=True)
    ]
    return torch.stack(columns, -1)


def _meshes(data: Dataset, spec: Spec) -> list[Tensor]:
    """The queries of every sample, or of one where all share them; unit vectors on the globe."""
    if isinstance(data, Stacked):
        places: Any = data.data.queries
    else:
        places = [data[i].queries for i in range(len(data))]
    return [on_globe(p) if spec.geographic else p for p in places]


def _wraps(
    spec: Spec, grid: tuple[int, ...] | None
) -> tuple[tuple[bool, ...], tuple[float | None, ...]]:
    """Which axes of a grid of queries are periodic, and the periods of coordinates."""
    periods = spec.query_periods
    if spec.geographic:
        wraps, periods = (False,) * len(periods), (None, None, None, *periods[2:])
    elif spec.sphere:
        wraps = spec.wraps
    else:
        wraps = tuple(p is not None for p in periods)
    axes = 0 if grid is None else len(grid)
    # A grid with other axes than coordinates (a curved surface) says nothing of its ends.
    return (wraps if len(wraps) == axes else (False,) * axes), periods


def _gaps(
    places: Float[Tensor, "S *grid E"], axis: int, wraps: bool, periods: tuple[float | None, ...]
) -> Tensor:
    """From each point's predecessor to its successor along an axis, through the point itself."""
    ahead = places.roll(-1, axis) - places
    steps = torch.linalg.vector_norm(wrapped(ahead, periods), dim=-1)
    gaps = steps + steps.roll(1, axis)
    return gaps if wraps else gaps.narrow(axis, 1, gaps.shape[axis] - 2)


def _difference(field: Tensor, axis: int, wraps: bool) -> Tensor:
    """The successor's value less the predecessor's, at all points or at the inner ones."""
    if wraps:
        return field.roll(-1, axis) - field.roll(1, axis)
    inner = field.shape[axis] - 2
    return field.narrow(axis, 2, inner) - field.narrow(axis, 0, inner)
