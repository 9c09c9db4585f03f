"""Snapshots of fields on the sphere, in the HDF5 layout of the Dedalus project.

In a file, a task is an array (time, longitude, colatitude) in the group `tasks`. Times and angles,
in radians, are attached to its axes as dimension scales: `file["tasks/height"].dims[1][0]` are the
longitudes. Colatitudes run from π to 0. Here, fields are (time, latitude, longitude) from north to
south, as everywhere in this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from ipot import files
from ipot.data import readers
from ipot.data.guard import trial
from ipot.errors import DataError

AXES = ("t", "phi", "theta")
SCALES = "DIMENSION_LIST"
"""The attribute in which HDF5 keeps what is attached to the axes of an array."""


@dataclass(frozen=True)
class Snapshots:
    """Fields (time, latitude, longitude), and where and when they were taken."""

    fields: Mapping[str, np.ndarray]
    times: np.ndarray
    latitudes: np.ndarray
    longitudes: np.ndarray


def read(path: Path, names: Sequence[str], frames: int) -> Snapshots:
    """The first frames of the named tasks, which must be there and be finite."""
    path = readers.require(path)
    trial.tried("ipot.data.guard.hdf5:look", path)
    try:
        with h5py.File(path, "r") as file:
            tasks = {name: _task(path, file, name, frames) for name in names}
            first = next(iter(tasks.values()))
            for name, task in tasks.items():
                readers.expect_shape(path, f"tasks/{name}", task.shape, first.shape)
            times, longitudes, colatitudes = (_scale(path, first, axis) for axis in range(3))
            arrays = {name: task[:frames] for name, task in tasks.items()}
    except readers.BROKEN as error:
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) cannot be read: {error}. It is damaged, cut "
            "short or no HDF5 file: fetch or write it again."
        ) from error
    for name, array in arrays.items():
        readers.expect_finite(path, f"tasks/{name}", array)
    southward = np.argsort(colatitudes)
    fields = {name: array[..., southward].swapaxes(1, 2) for name, array in arrays.items()}
    return Snapshots(fields, times[:frames], np.pi / 2 - colatitudes[southward], longitudes)


def write(path: Path, snapshots: Snapshots) -> Path:
    """Snapshots as a file, whole or not at all."""
    colatitudes = np.pi / 2 - snapshots.latitudes[::-1]
    scales = (snapshots.times, snapshots.longitudes, colatitudes)
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w") as file:
            for label, values in zip(AXES, scales, strict=True):
                file.create_dataset(f"scales/{label}", data=values).make_scale(label)
            for name, field in snapshots.fields.items():
                task = file.create_dataset(f"tasks/{name}", data=field[:, ::-1].swapaxes(1, 2))
                for axis, label in enumerate(AXES):
                    task.dims[axis].label = label
                    task.dims[axis].attach_scale(file[f"scales/{label}"])
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror or error}. Make room or choose another folder."
        ) from error
    return path


def _task(path: Path, file: h5py.File, name: str, frames: int) -> h5py.Dataset:
    """A task with its three axes and enough frames."""
    task = file.get(f"tasks/{name}")
    if not isinstance(task, h5py.Dataset) or task.ndim != 3 or task.dtype.kind != "f":
        group = file.get("tasks")
        there = ", ".join(group) if isinstance(group, h5py.Group) else "no group `tasks`"
        raise DataError(
            f"{path} must have tasks/{name}, an array (time, longitude, colatitude) of real "
            f"numbers; it has {there}. Is it a file of snapshots that Dedalus wrote?"
        )
    if len(task) < frames:
        raise DataError(
            f"tasks/{name} of {path} has {len(task)} frames, {frames} are needed. Ask for fewer "
            "samples or steps, or fetch or write the file again if it was cut short."
        )
    return task


def _attached(path: Path, task: h5py.Dataset, axis: int) -> h5py.Dataset | None:
    """The first data set that is attached to an axis as its scale.

    The attribute is read here and not by `task.dims`: HDF5's own functions take its type for
    granted and crash on another one.
    """
    if SCALES not in task.attrs:
        return None
    about = task.attrs.get_id(SCALES)
    inner = h5py.check_vlen_dtype(about.dtype)
    known = inner is not None and h5py.check_ref_dtype(inner) is h5py.Reference
    if not known or about.shape != (task.ndim,):
        raise DataError(
            f"{path}: the attribute {SCALES} of {task.name} must hold references to the scales of "
            f"its {task.ndim} axes, got {about.dtype} of shape {about.shape}: fetch or write the "
            "file again."
        )
    references = task.attrs[SCALES][axis]
    scale = task.file[references[0]] if len(references) else None
    if scale is not None and not isinstance(scale, h5py.Dataset):
        raise DataError(f"{path}: the scale of axis {axis} of {task.name} is no array")
    return scale


def _scale(path: Path, task: h5py.Dataset, axis: int) -> np.ndarray:
    """The first scale that is attached to an axis."""
    scale = _attached(path, task, axis)
    values = np.empty(0) if scale is None else np.ravel(scale[...])
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise DataError(
            f"the scale of axis {axis} ({AXES[axis]}) of {task.name} in {path} must hold finite "
            f"real numbers, got {values.dtype}: fetch or write the file again."
        )
    if len(values) != task.shape[axis]:
        raise DataError(
            f"{task.name} of {path} must have a scale for its axis {axis} ({AXES[axis]}) with "
            f"{task.shape[axis]} values, got {len(values)}: without it the grid is unknown."
        )
    return values
