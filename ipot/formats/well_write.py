"""Trajectories written in the layout of The Well."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from ipot import files
from ipot.errors import DataError
from ipot.formats.case import Trajectories, TrajectoryField
from ipot.formats.limits import BROKEN, unwritable
from ipot.formats.well import RANKS


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
