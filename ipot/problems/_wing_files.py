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
BELOW = ("naca", "")
"""Where the files may lie in the folder that is given."""
CHANNELS = 5
# The Mach number is in the files, and follows from the state: both must tell the same.
_AGREE = 1e-3

Shape = Callable[[int], tuple[int, ...]]
Mach = Callable[[Tensor], Tensor]


def nodes(files: Path) -> int:
    """Nodes around the airfoil in the files of a folder."""
    path = published.folder(files, "airfoil", FILES, BELOW) / X
    return _rows_of(path, (None, None, None)).shape[1]


def read(
    split: str, count: int, files: Path | None, sizes: Mapping[str, int], shape: Shape, mach: Mach
) -> Fields:
    """The first samples of a split, checked; `shape` gives all nodes from those around."""
    folder = published.folder(files, "airfoil", FILES, BELOW)
    around = nodes(folder)
    grid = shape(around)
    x = _rows_of(folder / X, (None, *grid))
    total = len(x)
    y = _rows_of(folder / Y, (total, *grid))
    flow = _rows_of(folder / Q, (total, CHANNELS, *grid))
    own = published.rows_beside(folder / ROWS, split, ORDER, total, _habit(total, sizes))
    rows = published.take(folder / X, split, count, own)
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
    """Splits one after the other, in `naca`."""
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


def _rows_of(path: Path, shape: tuple[int | None, ...]) -> np.ndarray:
    return readers.expect(path, "the array", readers.read_npy(path), shape, finite=False)


def _finite(path: Path, rows: np.ndarray) -> np.ndarray:
    readers.expect_finite(path, "the array", rows)
    return rows


def _habit(total: int, sizes: Mapping[str, int]) -> dict[str, range]:
    """The rows of the splits where the files do not say: the paper's."""
    train, test = sizes["train"], sizes["train"] + sizes["test"]
    ends = {"train": (0, train), "test": (train, test), "validation": (test, total)}
    return {name: range(min(a, total), min(b, total)) for name, (a, b) in ends.items()}


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
