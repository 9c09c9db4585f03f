"""Inputs that a view hides, interpolated from those that it shows.

A system that takes all points of a grid can so be asked with some of them missing. What it then
sees is a guess: values between seen points are smooth whatever the field is, and outside their
convex hull they are those of the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import interpolate
from scipy.spatial import Delaunay, KDTree, QhullError
from torch import Tensor

from ipot.data.dataset import Dataset, Ragged, Stacked
from ipot.data.latlon import unit_vectors
from ipot.errors import DataError, UnknownName, Unsupported, shown
from ipot.spec import Spec

METHODS = ("linear", "cubic", "nearest")
"""How to interpolate: linearly piece by piece, smoothly by cubics, or as the nearest point."""

View = Callable[[Dataset], Dataset]
Array = np.ndarray


def check(method: str) -> None:
    """Refuse a method that there is not."""
    if method not in METHODS:
        raise UnknownName(f"unknown way to fill {shown(method)}. Known: {', '.join(METHODS)}")


def fill(data: Dataset, view: View, spec: Spec, method: str) -> Dataset:
    """The data with all of their points, and with values that come from those in a view alone.

    Seen points keep their values bit for bit; grid and edges hold again. Points that all samples
    share are triangulated once for all of them.
    """
    check(method)
    if not spec.channels:
        raise Unsupported(
            f"{spec.name} has no input values: where its points lie is the input, and points that "
            "are hidden cannot be filled in"
        )
    shown = view(_numbered(data))
    if isinstance(data, Stacked):
        one = data.data.points.shape[0] == 1
        if one and isinstance(shown, Stacked) and shown.data.points.shape[0] == 1:
            values = filled(data.data.points[0], data.data.values, _rows(shown, 0), spec, method)
        else:
            values = torch.stack([_sample(data, shown, i, spec, method) for i in range(len(data))])
        return Stacked(replace(data.data, values=values), check=False)
    samples = [
        replace(data[i], values=_sample(data, shown, i, spec, method)) for i in range(len(data))
    ]
    return Ragged(samples, check=False)


def filled(
    points: Float[Tensor, "N D"],
    values: Float[Tensor, "S N C"],
    seen: Int[Tensor, " n"],
    spec: Spec,
    method: str,
) -> Float[Tensor, "S N C"]:
    """Values of S samples on the same points, all but those at the rows `seen` interpolated."""
    if len(seen) == 0:
        raise DataError("no input point is seen: there is nothing to interpolate from")
    hidden = torch.ones(len(points), dtype=torch.bool, device=points.device)
    hidden[seen] = False
    if not hidden.any():
        return values
    samples, _, channels = values.shape
    known = values[:, seen].transpose(0, 1).flatten(1)
    here, there = _array(points[seen]), _array(points[hidden])
    found = _interpolate(here, _array(known), there, spec, method)
    made = torch.from_numpy(found).to(values).unflatten(1, (samples, channels))
    out = values.clone()
    out[:, hidden] = made.transpose(0, 1)
    return out


def carried(
    points: Float[Tensor, "n D"],
    values: Float[Tensor, "n C"],
    places: Float[Tensor, "N D"],
    spec: Spec,
    method: str,
) -> Float[Tensor, "N C"]:
    """Values at some points as interpolated at other places."""
    check(method)
    if len(points) == 0:
        raise DataError("there is no input point to interpolate from")
    found = _interpolate(_array(points), _array(values), _array(places), spec, method)
    return torch.from_numpy(found).to(values)


def _numbered(data: Dataset) -> Dataset:
    """The data with the number of its row as the value of every point: a view then tells which
    rows it shows, whatever it is."""
    if isinstance(data, Stacked):
        size, count = data.data.values.shape[:2]
        rows = torch.arange(count, dtype=torch.float64, device=data.data.values.device)
        values = rows.view(1, -1, 1).expand(size, -1, -1)
        return Stacked(replace(data.data, values=values), check=False)
    samples = [data[i] for i in range(len(data))]
    rows = [torch.arange(len(s.points), dtype=torch.float64).unsqueeze(-1) for s in samples]
    return Ragged([replace(s, values=r) for s, r in zip(samples, rows, strict=True)], check=False)


def _rows(shown: Dataset, index: int) -> Tensor:
    return shown[index].values[:, 0].long()


def _sample(data: Dataset, shown: Dataset, index: int, spec: Spec, method: str) -> Tensor:
    """The values of one sample, filled."""
    sample = data[index]
    return filled(sample.points, sample.values.unsqueeze(0), _rows(shown, index), spec, method)[0]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


def _interpolate(seen: Array, values: Array, wanted: Array, spec: Spec, method: str) -> Array:
    """Values (n, columns) at the places `seen` (n, D), carried to those `wanted`."""
    found = np.full((len(wanted), values.shape[1]), np.nan)
    if method != "nearest":
        (here, periods), (there, _) = _flat(seen, spec), _flat(wanted, spec)
        places, rows = _repeated(here, periods)
        between = _on_a_line if here.shape[1] == 1 else _in_triangles
        found = between(places, values[rows], there, method, spec)
    outside = np.isnan(found).any(1)
    if outside.any():
        found[outside] = values[_nearest(seen, wanted[outside], spec)]
    return found


def _on_a_line(places: Array, values: Array, wanted: Array, method: str, spec: Spec) -> Array:
    """Splines; not-a-number beyond the ends."""
    x, first = np.unique(places[:, 0], return_index=True)
    degree = min(1 if method == "linear" else 3, len(x) - 1)
    spline = interpolate.make_interp_spline(x, values[first], k=degree)
    return spline(wanted[:, 0], extrapolate=False)


def _in_triangles(places: Array, values: Array, wanted: Array, method: str, spec: Spec) -> Array:
    """Over a Delaunay triangulation; not-a-number outside the convex hull."""
    if method == "cubic" and places.shape[1] != 2:
        raise Unsupported(
            f"cubic interpolation is for one or two coordinates, and {spec.name} has "
            f"{places.shape[1]}: use --fill linear"
        )
    try:
        mesh = Delaunay(places)
    except QhullError:  # too few points, or all on one line: their hull is empty
        return np.full((len(wanted), values.shape[1]), np.nan)
    cubic, linear = interpolate.CloughTocher2DInterpolator, interpolate.LinearNDInterpolator
    return (linear if method == "linear" else cubic)(mesh, values)(wanted)


def _nearest(seen: Array, wanted: Array, spec: Spec) -> Array:
    """The row of the nearest seen point, on the sphere where the points lie on one."""
    if spec.sphere or spec.latlon:
        seen, wanted = (p if spec.sphere else unit_vectors(*(np.pi * p).T) for p in (seen, wanted))
        return KDTree(seen).query(wanted)[1]
    places, rows = _repeated(seen, spec.periods)
    return rows[KDTree(places).query(wanted)[1]]


def _flat(points: Array, spec: Spec) -> tuple[Array, tuple[float | None, ...]]:
    """Coordinates to interpolate in and their periods: latitude and longitude for unit vectors."""
    if not spec.sphere:
        return points, spec.periods
    x, y, z = points.T
    return np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], 1), (None, 2 * np.pi)


def _repeated(points: Array, periods: tuple[float | None, ...]) -> tuple[Array, Array]:
    """The points and their copies one period to each side, with the row that each comes from."""
    rows = np.arange(len(points))
    for axis, period in enumerate(periods):
        if period is None:
            continue
        shift = np.zeros(points.shape[1])
        shift[axis] = period
        points = np.concatenate([points - shift, points, points + shift])
        rows = np.tile(rows, 3)
    return points, rows
