"""The published files of the elasticity problem: one sample for each column.

    Random_UnitCell_XY_10.npy       (972, 2, N)   points
    Random_UnitCell_rr_10.npy       (42, N)       the cavity's radius at angles from 0 to 2π
    Random_UnitCell_sigma_10.npy    (972, N)      stress
    Random_UnitCell_theta_10.npy    (N, 10)       the numbers that the cavity was drawn from

They lie in a folder `Meshes`, below `elasticity` in the archive. Files written here may be of any
length, so a fifth array says which samples belong to which split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from ipot.data import published, readers
from ipot.data.store import Fields
from ipot.errors import DataError

POINTS, ANGLES, NUMBERS = 972, 42, 10
XY, RADII, STRESS, THETA = FILES = (
    "Random_UnitCell_XY_10.npy",
    "Random_UnitCell_rr_10.npy",
    "Random_UnitCell_sigma_10.npy",
    "Random_UnitCell_theta_10.npy",
)
ROWS = "Random_UnitCell_rows_10.npy"
ORDER = ("train", "validation", "test")
BELOW = ("", "Meshes", "elasticity/Meshes")
"""Where the files may lie in the folder that is given."""


def read(split: str, count: int, files: Path | None, sizes: Mapping[str, int]) -> Fields:
    """The first samples of a split, checked."""
    folder = published.folder(files, "elasticity", FILES, BELOW)
    points = _array(folder / XY, (POINTS, 2, None))
    total = points.shape[-1]
    habit = published.first_and_last(total, sizes)
    own = published.rows_beside(folder / ROWS, split, ORDER, total, habit)
    columns = published.take(folder / XY, split, count, own)
    theta = _array(folder / THETA, (total, NUMBERS), (NUMBERS, total))
    if theta.shape != (total, NUMBERS):
        theta = theta.T
    radii = _array(folder / RADII, (ANGLES, total))
    stress = _array(folder / STRESS, (POINTS, total))
    return {
        "theta": _tensor(folder / THETA, theta[columns], torch.float64),
        "radii": _within(folder / RADII, "radii", radii[:, columns], 0.0, 0.5),
        "points": _within(folder / XY, "coordinates", points[..., columns], 0.0, 1.0),
        "stress": _within(folder / STRESS, "stresses", stress[:, columns], 0.0, np.inf),
    }


def write(splits: Mapping[str, Fields], folder: Path) -> list[Path]:
    """Splits one after the other, in `Meshes`."""
    fields, marks = published.join(splits, ORDER)
    folder = folder / "Meshes"
    last = {XY: "points", RADII: "radii", STRESS: "stress"}
    arrays = {file: np.moveaxis(fields[name].numpy(), 0, -1) for file, name in last.items()}
    arrays[THETA] = fields["theta"].numpy()
    arrays[ROWS] = np.concatenate([marks[f"rows_{split}"] for split in ORDER])
    return [
        readers.write_npy(folder / file, np.ascontiguousarray(array))
        for file, array in arrays.items()
    ]


def _array(path: Path, *shapes: Sequence[int | None]) -> np.ndarray:
    """An array of one of the shapes."""
    array = readers.read_npy(path)
    for shape in shapes[1:]:
        if array.shape == tuple(shape):
            return array
    readers.expect_shape(path, "the array", array.shape, shapes[0])
    return array


def _tensor(path: Path, rows: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    readers.expect_finite(path, "the array", rows)
    return torch.from_numpy(np.ascontiguousarray(rows)).to(dtype)


def _within(path: Path, what: str, columns: np.ndarray, low: float, high: float) -> torch.Tensor:
    """Columns as rows, where all lie between two numbers: other units would be learned from."""
    readers.expect_finite(path, "the array", columns)
    if columns.min() < low or columns.max() > high:
        raise DataError(
            f"{what} in {path} must lie between {low:g} and {high:g}, they reach from "
            f"{columns.min():g} to {columns.max():g}. It is not the published file of that name."
        )
    return _tensor(path, np.moveaxis(columns, -1, 0), torch.float32)
