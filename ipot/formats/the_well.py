"""The layout of The Well (polymathic-ai.org/the_well): trajectories of fields on one grid in HDF5.

    @dataset_name, @grid_type, @n_spatial_dims, @n_trajectories, @simulation_parameters
    dimensions/{time, x, y, ...}          @spatial_dims
    boundary_conditions/<name>            @associated_dims, @bc_type
    scalars/<name>                        @sample_varying, @time_varying
    t0_fields, t1_fields, t2_fields/<name>  @dim_varying, @sample_varying, @time_varying

Fields are (trajectory, time, *space, *components), without the axes along which they do not vary.
Nothing but coordinates and scalars is read before a trajectory is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ipot import files
from ipot.data.quantities import Agreement
from ipot.errors import DataError
from ipot.formats.case_units import trajectories_in_units
from ipot.formats.fields import Trajectories, TrajectoryField
from ipot.formats.hdf5 import array_at, children, group_at, opened, text
from ipot.formats.limits import BROKEN, check_memory, size_of, unwritable

RANKS = ("t0_fields", "t1_fields", "t2_fields")


def is_well(file: h5py.File) -> bool:
    """Whether an HDF5 file is of this layout."""
    return "dimensions" in file and any(rank in file for rank in RANKS)


def read_well(path: Path) -> Trajectories:
    """What a file of The Well holds; its fields are read trajectory by trajectory."""
    with opened(path) as file:
        return _Reader(path, file).read()


@dataclass(frozen=True, eq=False)
class _Field:
    """Reads pieces of one field."""

    path: Path
    group: str
    name: str
    by_trajectory: bool
    by_time: bool
    by_axis: tuple[bool, ...]
    grid: tuple[int, ...]
    steps: int
    components: int

    def __call__(self, trajectory: int, times: slice) -> np.ndarray:
        chosen = range(self.steps)[times]
        if chosen.step < 1:
            raise DataError(f"times must go forward, got {times}")
        key: tuple[Any, ...] = (trajectory,) if self.by_trajectory else ()
        if self.by_time:
            key += (slice(chosen.start, max(chosen.start, chosen.stop), chosen.step),)
        with opened(self.path) as file:
            array = array_at(self.path, group_at(self.path, file, self.group), self.name)
            # A piece as it lies in the file, and once more with the axes it does not vary along.
            rows = len(chosen) * math.prod(self.grid) * self.components
            check_memory(f"{self.name} of {self.path}", size_of((2, rows), array.dtype))
            piece = np.asarray(array[key])
        if not self.by_time:
            piece = piece[None]
        sizes = [n if varies else 1 for n, varies in zip(self.grid, self.by_axis, strict=True)]
        piece = piece.reshape(len(piece), *sizes, self.components)
        piece = np.broadcast_to(piece, (len(chosen), *self.grid, self.components))
        return piece.reshape(len(chosen), math.prod(self.grid), self.components)


class _Reader:
    """Goes through a file that is open."""

    def __init__(self, path: Path, file: h5py.File) -> None:
        self.path, self.file = path, file
        self.notes: list[str] = []
        self.dimensions = group_at(path, file, "dimensions")
        self.axes = tuple(_texts(self.dimensions.attrs.get("spatial_dims")))
        if not self.axes:
            self.axes = tuple(n for n in children(path, self.dimensions) if n != "time")
        self.lines = [self.line(axis) for axis in self.axes]
        self.times = self.line("time")
        self.grid = tuple(len(line) for line in self.lines)
        self.count = self.trajectories()

    def read(self) -> Trajectories:
        """All of it but the fields."""
        fields: dict[str, TrajectoryField] = {}
        units: dict[str, str] = {}
        for rank, group in enumerate(RANKS):
            found = group_at(self.path, self.file, group)
            for name in [] if found is None else children(self.path, found):
                array = array_at(self.path, found, name)
                if name in fields:
                    raise DataError(f"{self.path}: two fields are called {name}")
                fields[name] = self.field(group, name, array, rank)
                if unit := text(array.attrs.get("units")):
                    units[name] = unit
        if not fields:
            raise DataError(f"{self.path} is of The Well's layout and holds no field")
        check_memory(str(self.path), 8 * len(self.grid) * math.prod(self.grid))
        nodes = np.meshgrid(*self.lines, indexing="ij")
        kind = text(self.file.attrs.get("grid_type")) or "cartesian"
        if kind != "cartesian":
            self.notes.append(
                f"its grid is {kind}: points are given as ({', '.join(self.axes)}), and distances "
                "between them are not those in space"
            )
        return Trajectories(
            points=np.stack([node.ravel() for node in nodes], axis=1),
            grid=self.grid,
            times=self.times,
            fields=fields,
            parameters=self.parameters(),
            axes=self.axes,
            periods=self.periods(),
            units=units,
            name=text(self.file.attrs.get("dataset_name")),
            grid_type=kind,
            source=str(self.path),
            notes=tuple(self.notes),
        )

    def line(self, name: str) -> np.ndarray:
        """A coordinate or the times, which must be those of all trajectories."""
        if name not in self.dimensions:
            raise DataError(f"{self.path}: dimensions has no {name}, which every such file has")
        array = array_at(self.path, self.dimensions, name)
        found = np.asarray(array[()])
        while found.ndim > 1:
            if not len(found) or not (found == found[:1]).all():
                raise DataError(
                    f"{self.path}: {name} differs between trajectories or times, which is not "
                    "supported. Split the file."
                )
            found = found[0]
        if not found.size or not np.isfinite(found).all():
            raise DataError(f"{self.path}: dimensions/{name} must hold finite numbers, got {found}")
        return found

    def trajectories(self) -> int:
        """How many there are, by the attribute or by the first field that varies."""
        told = self.file.attrs.get("n_trajectories")
        if told is not None and np.size(told) == 1 and int(np.ravel(told)[0]) > 0:
            return int(np.ravel(told)[0])
        raise DataError(
            f"{self.path}: the attribute n_trajectories must be a positive number, got {told}"
        )

    def field(self, group: str, name: str, array: h5py.Dataset, rank: int) -> TrajectoryField:
        """A field, behind a check of its shape by what it says that it varies along."""
        by_axis = array.attrs.get("dim_varying")
        by_axis = [True] * len(self.axes) if by_axis is None else np.ravel(by_axis).tolist()
        if len(by_axis) != len(self.axes):
            raise DataError(
                f"{self.path}: dim_varying of {name} has {len(by_axis)} entries for the "
                f"{len(self.axes)} dimensions {', '.join(self.axes)}"
            )
        by_trajectory, by_time = (_flag(array, f"{n}_varying") for n in ("sample", "time"))
        d = len(self.axes)
        axes = [n for n, varies in zip(self.grid, by_axis, strict=True) if varies]
        lead = ([self.count] if by_trajectory else []) + ([len(self.times)] if by_time else [])
        forms = [(*lead, *axes, *[d] * rank)]
        if rank == 2:
            forms.append((*lead, *axes, d * d))
        if array.shape not in forms:
            raise DataError(
                f"{self.path}: {group}/{name} must have the shape {forms[0]} by what it says that "
                f"it varies along, got {array.shape}"
            )
        reader = _Field(
            path=self.path,
            group=group,
            name=name,
            by_trajectory=by_trajectory,
            by_time=by_time,
            by_axis=tuple(map(bool, by_axis)),
            grid=self.grid,
            steps=len(self.times),
            components=d**rank,
        )
        return TrajectoryField(
            shape=(self.count, len(self.times), math.prod(self.grid), d**rank),
            dtype=array.dtype,
            components=_components(name, self.axes, rank),
            steady=not by_time,
            pieces=reader,
        )

    def parameters(self) -> dict[str, np.ndarray]:
        """Numbers of a trajectory: those of the whole file, and scalars that vary by trajectory."""
        found: dict[str, np.ndarray] = {}
        for name in _texts(self.file.attrs.get("simulation_parameters")):
            value = np.ravel(self.file.attrs.get(name, ()))
            if value.dtype.kind in "biuf" and value.size == 1:
                found[name] = np.full(self.count, value[0])
            else:
                self.notes.append(f"parameter {name}: left alone, it is no single number")
        scalars = group_at(self.path, self.file, "scalars")
        for name in [] if scalars is None else children(self.path, scalars):
            array = array_at(self.path, scalars, name)
            if _flag(array, "time_varying"):
                self.notes.append(f"scalar {name}: left alone, it changes in time")
                continue
            value = np.ravel(array[()])
            if value.size not in (1, self.count):
                self.notes.append(f"scalar {name}: left alone, its shape is {array.shape}")
                continue
            found[name] = value if value.size == self.count else np.full(self.count, value[0])
        return found

    def periods(self) -> tuple[float | None, ...]:
        """The length of every axis with a periodic boundary; the last node is not the first."""
        wraps: set[str] = set()
        group = group_at(self.path, self.file, "boundary_conditions")
        for name in [] if group is None else children(self.path, group):
            boundary = group_at(self.path, group, name)
            if text(boundary.attrs.get("bc_type")).lower() == "periodic":
                wraps |= set(_texts(boundary.attrs.get("associated_dims")))
        out: list[float | None] = []
        for axis, line in zip(self.axes, self.lines, strict=True):
            steps = np.diff(line.astype(np.float64))
            if axis not in wraps or not len(steps):
                out.append(None)
                continue
            if not np.allclose(steps, steps.mean(), rtol=1e-2, atol=0):
                self.notes.append(f"{axis} is periodic and not evenly spaced: check its period")
            out.append(float(line[-1] - line[0]) + float(steps.mean()))
        return tuple(out)


def _components(name: str, axes: tuple[str, ...], rank: int) -> tuple[str, ...]:
    if rank == 0:
        return (name,)
    if rank == 1:
        return tuple(f"{name}_{a}" for a in axes)
    return tuple(f"{name}_{a}{b}" for a in axes for b in axes)


def _flag(array: h5py.Dataset, name: str) -> bool:
    """Whether an array varies along something; The Well's files always say so."""
    value = array.attrs.get(name, True)
    return bool(np.ravel(value)[0]) if np.size(value) else True


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [found for item in np.ravel(value) if (found := text(item))]


def join_trajectories(parts: Sequence[Trajectories], source: str) -> Trajectories:
    """The trajectories of files one after the other, where grids, times and fields are alike."""
    first, agreed = parts[0], Agreement(parts[0].source)
    parts = [first, *(trajectories_in_units(p, first.units, agreed) for p in parts[1:])]
    agreed.say()
    for part in parts[1:]:
        if (unlike := _unlike(first, part)) is not None:
            raise DataError(
                f"{part.source} has other {unlike} than {first.source}: files of one folder are "
                "read as one set, and must have the same. Give one of them, or put those that "
                "agree into a folder of their own."
            )
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    starts = np.cumsum([0, *(len(part) for part in parts)])
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return replace(
        first,
        fields={name: _field(name, parts, owners, starts) for name in first.fields},
        parameters={
            name: np.concatenate([part.parameters[name] for part in parts])
            for name in first.parameters
        },
        source=source,
        notes=(f"{len(parts)} files with {len(owners)} trajectories in all", *notes),
    )


def _field(
    name: str, parts: Sequence[Trajectories], owners: np.ndarray, starts: np.ndarray
) -> TrajectoryField:
    def read(trajectory: int, times: slice) -> np.ndarray:
        owner = int(owners[trajectory])
        return parts[owner].fields[name].pieces(trajectory - int(starts[owner]), times)

    found = parts[0].fields[name]
    dtype = np.result_type(*(part.fields[name].dtype for part in parts))
    return replace(found, shape=(len(owners), *found.shape[1:]), dtype=dtype, pieces=read)


def _unlike(one: Trajectories, other: Trajectories) -> str | None:
    """What two files do not share, in words."""
    if (one.axes, one.grid, one.grid_type) != (other.axes, other.grid, other.grid_type):
        return f"grids ({_grid(other)} and not {_grid(one)})"
    if not _close(one.points, other.points):
        return "coordinates"
    if not _close(one.times, other.times):
        return f"times ({_times(other)} and not {_times(one)})"
    if one.periods != other.periods:
        return "boundaries (periodic or not)"
    for what, left, right in (
        ("fields", _facts(one), _facts(other)),
        ("parameters", set(one.parameters), set(other.parameters)),
    ):
        if left != right:
            names = ", ".join(sorted(map(str, left ^ right)))
            return f"{what} ({names})"
    return None


def _facts(part: Trajectories) -> set[tuple[str, int, str]]:
    return {(n, f.shape[3], "steady" if f.steady else "") for n, f in part.fields.items()}


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Numbers that differ by rounding alone."""
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-12)


def _grid(part: Trajectories) -> str:
    return " x ".join(map(str, part.grid))


def _times(part: Trajectories) -> str:
    return f"{len(part.times)} from {part.times[0]:g} to {part.times[-1]:g}"


def write_well(path: Path, data: Trajectories) -> None:
    """Trajectories in The Well's layout, whole or not at all."""
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w") as file:
            _write(file, data)
    except BROKEN as error:
        raise unwritable(path, error) from error


def _write(file: h5py.File, data: Trajectories) -> None:
    d = len(data.grid)
    axes = data.axes or tuple("xyz"[:d])
    file.attrs.update(
        dataset_name=data.name, grid_type=data.grid_type, n_spatial_dims=d, n_trajectories=len(data)
    )
    file.attrs["simulation_parameters"] = np.array([], dtype=h5py.string_dtype())
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = np.array(axes, dtype=h5py.string_dtype())
    nodes = data.points.reshape(*data.grid, d)
    lines = [nodes[tuple(slice(None) if b == a else 0 for b in range(d))][:, a] for a in range(d)]
    for name, line in zip((*axes, "time"), (*lines, data.times), strict=True):
        array = dimensions.create_dataset(name, data=line)
        array.attrs.update(sample_varying=False, time_varying=False)
    boundaries = file.create_group("boundary_conditions")
    for axis, period in zip(axes, data.periods, strict=False):
        boundary = boundaries.create_group(f"{axis}_{'open' if period is None else 'periodic'}")
        boundary.attrs["bc_type"] = "OPEN" if period is None else "PERIODIC"
        boundary.attrs["associated_dims"] = np.array([axis], dtype=h5py.string_dtype())
        boundary.attrs.update(sample_varying=False, time_varying=False)
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = np.array(list(data.parameters), dtype=h5py.string_dtype())
    for name, values in data.parameters.items():
        array = scalars.create_dataset(name, data=values)
        array.attrs.update(sample_varying=True, time_varying=False)
    for name, field in data.fields.items():
        if field.shape[3] not in (1, d, d * d):
            raise DataError(
                f"{name} has {field.shape[3]} components: scalars, vectors and tensors in {d} "
                "dimensions can be written"
            )
    for rank, group in enumerate(RANKS):
        chosen = {n: f for n, f in data.fields.items() if f.shape[3] == d**rank}
        # On a line scalars, vectors and tensors have one component each.
        if d == 1 and rank:
            chosen = {}
        inner = file.create_group(group)
        inner.attrs["field_names"] = np.array(list(chosen), dtype=h5py.string_dtype())
        for name, field in chosen.items():
            _write_field(inner, name, field, data.grid, rank, data.units.get(name, ""))


def _write_field(
    group: h5py.Group,
    name: str,
    field: TrajectoryField,
    grid: tuple[int, ...],
    rank: int,
    unit: str,
) -> None:
    d, (count, steps, _, _) = len(grid), field.shape
    form = (*grid, *[d] * rank)
    lead = (count,) if field.steady else (count, steps)
    array = group.create_dataset(name, (*lead, *form), field.dtype)
    for i in range(count):
        piece = field.read(i, slice(0, 1) if field.steady else slice(None))
        array[i] = piece.reshape((*lead[1:], *form))
    array.attrs.update(sample_varying=True, time_varying=not field.steady)
    array.attrs["dim_varying"] = np.ones(d, bool)
    if unit:
        array.attrs["units"] = unit
