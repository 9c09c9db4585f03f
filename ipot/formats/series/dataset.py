"""Values of windows as a data set, without what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.arrays import tensor
from ipot.data.dataset import Ragged, Stacked
from ipot.data.layout import with_places
from ipot.data.own import Dataset, InTime, Layout
from ipot.data.scaling import Scaling
from ipot.errors import DataError
from ipot.formats.series.description import Series, kept
from ipot.formats.series.places import Places, find_west, widest_gap
from ipot.formats.series.windows import Windows
from ipot.samples import Batch, Sample
from ipot.spec import frame_name

AROUND = 60.0
"""Degrees without a point that longitudes may leave and still go around."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowValues:
    """What was read, NaN where it is missing."""

    values: np.ndarray
    """(S, N, C)"""
    targets: np.ndarray
    """(S, T, M, K)"""
    parameters: np.ndarray
    """(S, P)"""
    scalings: Mapping[str, Scaling | None] = field(default_factory=dict)
    """The changes of units that these are in."""

    def with_parameters(self, more: np.ndarray) -> WindowValues:
        """These arrays with more parameters (S, P) behind their own, in units as they come."""
        found = dict(self.scalings)
        if (own := found.get("parameters")) is not None:
            count = more.shape[1]
            found["parameters"] = Scaling(
                (*own.offset, *(0.0,) * count), (*own.scale, *(1.0,) * count)
            )
        parameters = np.concatenate([self.parameters, more], 1)
        return replace(self, parameters=parameters, scalings=found)


def join(
    arrays: WindowValues,
    series: Series,
    given: Places | None,
    told: Places,
    windows: Windows,
    past: int,
    notes: Sequence[str],
    name: str,
    season: np.ndarray | None = None,
) -> tuple[Dataset, Series]:
    """The data set of these values, and the series with what was found out on the way; `season`
    is the time of the year of every target (S, T).

    Missing values are taken out in place: nothing is held twice.
    """
    if given is not None and given.geographic != told.geographic:
        raise DataError(
            f"inputs are at ({', '.join(given.names)}) and targets at ({', '.join(told.names)}): "
            "both need longitude and latitude, or neither."
        )
    longitudes = np.concatenate([p.longitudes for p in (given, told) if p is not None])
    west = find_west(longitudes)
    rows, seen, known, left_out = _usable(arrays, series, placed=given is not None)
    notes = [*notes, *left_out]
    inside, asked = np.asarray(seen.any(0)), np.asarray(known.any(0))
    points = np.zeros((0, len(told.names))) if given is None else given.points(west)[inside]
    queries = told.points(west)[asked]
    seen_at = points if len(points) else None
    layout = with_places(
        Layout(timed=series.lead > 0), seen_at, queries, geographic=told.geographic
    )
    for kind, scaling in arrays.scalings.items():
        layout = layout.with_scaling(kind, scaling)
    grid = given.grid if given is not None and inside.all() else None
    facts: dict[str, Any] = {
        "values": squeezed(arrays.values, rows, inside, axis=0),
        "targets": squeezed(arrays.targets, rows, asked, axis=1),
        "parameters": arrays.parameters[rows] if arrays.parameters.shape[1] else None,
        "weights": _area(told, asked),
        "grids": (grid, told.grid if asked.all() else None),
        "times": tuple(float(t + 1) for t in range(arrays.targets.shape[1])),
    }
    places = (
        tensor("points", points, layout.scaling("points") if len(points) else None),
        tensor("queries", queries, layout.scaling("queries")),
    )
    if torch.equal(*places):
        places = places[0], places[0]
    if seen[:, inside].all() and known[:, asked].all():
        data = _stacked(places, **facts)
    else:
        data = _ragged(places, seen[:, inside], known[:, asked], **facts)
    dataset = Dataset.of(
        data,
        layout=layout,
        inputs=input_names(series),
        outputs=series.targets,
        parameter_names=parameter_names(series) or None,
        units={k: v.get("units", "") for k, v in series.attributes.items()},
        input_units=_by_channel(series),
        geographic=told.geographic,
        history=past,
        name=name,
        in_time=InTime(series.lines(), None if season is None else season[rows]),
    )
    return dataset, replace(
        series,
        west=west,
        wraps=told.geographic and widest_gap(longitudes) < AROUND,
        places=kept(told if asked.all() else replace(told, used=asked)),
        notes=tuple(notes),
        starts=windows.starts[rows],
        members=windows.members[rows],
    )


def _usable(
    arrays: WindowValues, series: Series, *, placed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """The samples that can be learnt from, which of their values and targets are known at each
    place, and what was left out; `placed` says that inputs have places."""
    seen = np.stack([np.isfinite(v).all(1) for v in arrays.values])
    known = np.stack([np.isfinite(t).all((0, 2)) for t in arrays.targets])
    whole = np.isfinite(arrays.parameters).all(1)
    fine = np.asarray(known.any(1) & whole)
    if placed:
        fine = fine & seen.any(1)
    rows = np.flatnonzero(fine)
    if not len(rows):
        raise DataError(
            f"all {len(fine)} samples miss their inputs ({', '.join(series.inputs)}) at every "
            f"place, or their targets ({', '.join(series.targets)}): nothing is left to learn from"
        )
    return rows, seen[rows], known[rows], _left_out(seen, known, fine, placed)


def input_names(series: Series) -> tuple[str, ...]:
    """The channels: frame by frame from the oldest, then what is static."""
    return _over_time(series.inputs, series) + series.static


def parameter_names(series: Series) -> tuple[str, ...]:
    """The parameters: one variable after another, then the season."""
    names = tuple(n for s in series.scalars for n in _over_time((s,), series))
    return (*names, "cos(season)", "sin(season)") if series.season else names


def _by_channel(series: Series) -> dict[str, str]:
    """The units of channels and parameters, by their names."""
    one = _over_time(series.inputs, series)
    names = series.inputs * (len(one) // max(1, len(series.inputs)))
    pairs = [*zip(one, names, strict=True), *((n, n) for n in series.static)]
    pairs += [(label, n) for n in series.scalars for label in _over_time((n,), series)]
    return {label: series.units[n] for label, n in pairs if n in series.units}


def squeezed(array: np.ndarray, rows: np.ndarray, keep: np.ndarray, *, axis: int) -> np.ndarray:
    """Some rows, and of each what is kept along an axis, moved together within the same memory."""
    if len(rows) == len(array) and keep.all():
        return array
    flat, shape = array.reshape(-1), ()
    for place, row in enumerate(rows):
        part = np.compress(keep, array[row], axis=axis)
        # What is kept is never more than there was: the part lands before the next row is read.
        flat[place * part.size : (place + 1) * part.size] = part.reshape(-1)
        shape = part.shape
    count = len(rows) * int(np.prod(shape, dtype=int))
    return flat[:count].reshape(len(rows), *shape)


def _stacked(
    places: tuple[Tensor, Tensor],
    *,
    values: np.ndarray,
    targets: np.ndarray,
    parameters: np.ndarray | None,
    weights: np.ndarray | None,
    grids: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    times: tuple[float, ...],
) -> Stacked:
    points = places[0].unsqueeze(0)
    batch = Batch(
        points=points,
        values=torch.from_numpy(values),
        queries=points if places[0] is places[1] else places[1].unsqueeze(0),
        targets=torch.from_numpy(targets),
        parameters=None if parameters is None else _float(parameters),
        weights=None if weights is None else _float(weights).unsqueeze(0),
        times=times,
        grid=grids[0],
        query_grid=grids[1],
    )
    return Stacked(batch, check=False)


def _ragged(
    places: tuple[Tensor, Tensor],
    seen: np.ndarray,
    known: np.ndarray,
    *,
    values: np.ndarray,
    targets: np.ndarray,
    parameters: np.ndarray | None,
    weights: np.ndarray | None,
    grids: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    times: tuple[float, ...],
) -> Ragged:
    # Samples that miss the same places share one tensor of them.
    parts: dict[tuple[int, bytes], Tensor] = {}

    def some(which: int, mask: np.ndarray) -> Tensor:
        key = (0 if places[0] is places[1] else which, mask.tobytes())
        if key not in parts:
            parts[key] = places[which] if mask.all() else places[which][torch.from_numpy(mask)]
        return parts[key]

    samples = []
    for i, (here, there) in enumerate(zip(seen, known, strict=True)):
        area = None if weights is None else _float(weights[there])
        one = np.zeros(1, int)
        samples.append(
            Sample(
                points=some(0, here),
                values=torch.from_numpy(squeezed(values[i : i + 1], one, here, axis=0)[0]),
                queries=some(1, there),
                targets=torch.from_numpy(squeezed(targets[i : i + 1], one, there, axis=1)[0]),
                parameters=None if parameters is None else _float(parameters[i]),
                weights=area,
                times=times,
                grid=grids[0] if here.all() else None,
                query_grid=grids[1] if there.all() else None,
                index=i,
            )
        )
    return Ragged(samples, check=False)


def _left_out(seen: np.ndarray, known: np.ndarray, fine: np.ndarray, placed: bool) -> list[str]:
    """What is missing, in words."""
    notes, count = [], len(fine)
    if lost := int((~fine).sum()):
        notes.append(f"{lost} of {count} samples have no complete input or target and are left out")
    sides = (("input", seen), ("target", known)) if placed else (("target", known),)
    for word, mask in sides:
        mask = mask[fine]
        if not mask.size:
            continue
        never = ~np.asarray(mask.any(0))
        if never.any():
            notes.append(f"{int(never.sum())} of {len(never)} {word} places never have all values")
        sometimes = mask[:, ~never]
        if not sometimes.all():
            notes.append(
                f"{100 * (1 - sometimes.mean()):.2g} % of {word} values are missing at other "
                "places, which are left out sample by sample"
            )
    return notes


def _over_time(names: tuple[str, ...], series: Series) -> tuple[str, ...]:
    if series.clock is None:
        return names
    return tuple(frame_name(n, back) for back in reversed(range(series.history)) for n in names)


def _area(places: Places, used: np.ndarray) -> np.ndarray | None:
    """What the points of a grid on the globe stand for, with mean one."""
    if not places.geographic or places.grid is None:
        return None
    cosine = np.cos(np.radians(places.points()[used, 1])).clip(min=0)
    return cosine / cosine.mean() if cosine.mean() > 1e-6 else None


def _float(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
