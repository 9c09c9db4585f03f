"""The published files of the airfoil problem: one sample for each row.

    NACA_Cylinder_X.npy    (N, 221, 51)       where the nodes lie, x
    NACA_Cylinder_Y.npy    (N, 221, 51)       and y
    NACA_Cylinder_Q.npy    (N, 5, 221, 51)    density, velocity (x and y), pressure, Mach number

They lie in a folder `naca`. Files written here may be of any length and size, so a fourth array
says which rows belong to which split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ipot.data import published, readers
from ipot.data.store import Fields
from ipot.errors import DataError

X, Y, Q = FILES = ("NACA_Cylinder_X.npy", "NACA_Cylinder_Y.npy", "NACA_Cylinder_Q.npy")
ROWS = "NACA_Cylinder_rows.npy"
ORDER = ("train", "test", "validation")
CHANNELS = 5
# The Mach number is in the files, and follows from the state: both must tell the same.
_AGREE = 1e-3

Shape = Callable[[int], tuple[int, ...]]
Mach = Callable[[Tensor], Tensor]


def nodes(files: Path) -> int:
    """Nodes around the airfoil in the files of a folder."""
    path = _folder(files) / X
    return _rows_of(path, (None, None, None)).shape[1]


def read(
    split: str, count: int, files: Path | None, sizes: Mapping[str, int], shape: Shape, mach: Mach
) -> Fields:
    """The first samples of a split, checked; `shape` gives all nodes from those around."""
    folder = _folder(published.folder(files, "airfoil"))
    around = nodes(folder)
    grid = shape(around)
    x = _rows_of(folder / X, (None, *grid))
    total = len(x)
    y = _rows_of(folder / Y, (total, *grid))
    flow = _rows_of(folder / Q, (total, CHANNELS, *grid))
    rows = published.take(folder / X, split, count, _split(folder, split, total, sizes))
    mesh = np.stack([_finite(folder / X, x[rows]), _finite(folder / Y, y[rows])], axis=1)
    body = slice(around // 4, -(around // 4))
    if np.abs(mesh[:, 1, body, 0]).max() > 0.4 or not 0 < mesh[:, 0, body, 0].mean() < 1:
        raise DataError(
            f"{folder / X} and {folder / Y} must hold coordinates in chords, the airfoil between "
            "(0, 0) and (1, 0) along the first line of nodes: exchanged, or in other units?"
        )
    states = torch.from_numpy(np.ascontiguousarray(_finite(folder / Q, flow[rows]))).float()
    _check_flow(folder / Q, states, mach)
    return {
        "mesh": torch.from_numpy(mesh).float(),
        "state": states[:, : CHANNELS - 1].contiguous(),
    }


def write(splits: Mapping[str, Fields], folder: Path, mach: Mach) -> list[Path]:
    """Splits one behind the other, in `naca`."""
    fields, marks = published.join(splits, ORDER)
    folder = folder / "naca"
    mesh, state = fields["mesh"], fields["state"]
    arrays = {
        X: mesh[:, 0],
        Y: mesh[:, 1],
        Q: torch.cat((state, mach(state).unsqueeze(1)), dim=1),
    }
    written = [
        readers.write_npy(folder / file, np.ascontiguousarray(array.numpy()))
        for file, array in arrays.items()
    ]
    rows = np.concatenate([marks[f"rows_{split}"] for split in ORDER])
    return [*written, readers.write_npy(folder / ROWS, rows)]


def _folder(given: Path) -> Path:
    """The folder itself, or the one in it that holds the files."""
    inside = given / "naca"
    return inside if any((inside / file).is_file() for file in FILES) else given


def _rows_of(path: Path, shape: tuple[int | None, ...]) -> np.ndarray:
    return readers.expect(path, "the array", readers.read_npy(path), shape, finite=False)


def _finite(path: Path, rows: np.ndarray) -> np.ndarray:
    readers.expect_finite(path, "the array", rows)
    return rows


def _split(folder: Path, split: str, total: int, sizes: Mapping[str, int]) -> range:
    """The rows of a split as the files say, or else by the paper's habit."""
    path, train, test = folder / ROWS, sizes["train"], sizes["train"] + sizes["test"]
    if not path.is_file():
        habit = {"train": (0, train), "test": (train, test), "validation": (test, total)}
        start, stop = habit[split]
        return range(min(start, total), min(stop, total))
    start, stop = _rows_of(path, (len(ORDER), 2))[ORDER.index(split)].tolist()
    if not 0 <= start <= stop <= total or start % 1 or stop % 1:
        raise DataError(
            f"{path} must give rows of 0 to {total} to the {split} split, got {start} to {stop}. "
            "It belongs to other files: remove it, or write all of them again."
        )
    return range(int(start), int(stop))


def _check_flow(path: Path, states: Tensor, mach: Mach) -> None:
    """Refuse channels in another order or in other units: they would be learned from."""
    gas = states[:, 0::3][:, :2]
    if not bool((gas > 0).all()):
        row = int((gas <= 0).flatten(1).any(1).nonzero()[0])
        raise DataError(
            f"{path} must hold positive densities (channel 0) and pressures (channel 3); in "
            f"sample {row} of those read they reach down to {float(gas[row].min()):g}. "
            "It is not the published file of that name."
        )
    expected, found = mach(states[:, : CHANNELS - 1]), states[:, CHANNELS - 1]
    error = (found - expected).abs().flatten(1).amax(1) / expected.flatten(1).amax(1)
    if not bool((error <= _AGREE).all()):
        row = int(error.argmax())
        raise DataError(
            f"channel 4 of {path} must be the Mach number of channels 0 to 3; in sample {row} of "
            f"those read it is off by {float(error[row]):.1%}. It is not the published file of "
            "that name."
        )
