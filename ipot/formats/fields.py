"""What a file of somebody's results holds, under one face: places with named fields on them.

Readers make a `Case` of what they find and writers take one back, so that what is learned from and
what is answered in are the same kind of thing. Which fields are inputs and which are targets is
not said here; see `ipot.formats.cases`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from ipot.errors import DataError


@dataclass(frozen=True, kw_only=True, eq=False)
class Mesh:
    """How points are joined to cells: the points of all cells in a row, and where each cell ends.

    `types` are VTK's numbers of cell types. A surface (`kind` "PolyData") has its cells in the
    order vertices, lines, strips, polygons, with as many of each as `counts` says.
    """

    kind: str
    connectivity: np.ndarray
    offsets: np.ndarray
    types: np.ndarray
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __len__(self) -> int:
        return len(self.offsets)

    def centres(self, points: np.ndarray) -> np.ndarray:
        """The mean of the corners of every cell (cells, D)."""
        if not len(self):
            return np.empty((0, points.shape[1]))
        ends = self.offsets.astype(np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        if np.any(ends <= starts):
            raise DataError("a cell without points has no centre: remove empty cells from the mesh")
        sums = np.add.reduceat(points[self.connectivity].astype(np.float64), starts, axis=0)
        return sums / (ends - starts)[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One case: fields at its points, fields on its cells, numbers that hold for all of it."""

    points: np.ndarray
    """(N, D), as the file has them: three columns in a mesh file, even where it is flat."""
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name, (N) or (N, components)."""
    mesh: Mesh | None = None
    cell_fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name, (cells) or (cells, components)."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name, (count): numbers of the case as a whole."""
    units: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    """Where it came from, for messages."""
    name: str = ""
    """What tells it from the other cases of its table, where it came from one."""

    def __post_init__(self) -> None:
        where = f"{self.source}: " if self.source else ""
        if self.points.ndim != 2:
            raise DataError(f"{where}points must be (N, D), got shape {self.points.shape}")
        cells = 0 if self.mesh is None else len(self.mesh)
        for kind, named, rows in (
            ("points", self.fields, len(self.points)),
            ("cells", self.cell_fields, cells),
        ):
            for name, array in named.items():
                if array.ndim not in (1, 2) or len(array) != rows:
                    raise DataError(
                        f"{where}{name} must have a row for each of the {rows} {kind}, got shape "
                        f"{array.shape}"
                    )

    @property
    def flat(self) -> np.ndarray:
        """The points without coordinates that are the same for all of them, from the last on.

        A plane mesh in a file that always has three coordinates is two-dimensional.
        """
        points = self.points
        while points.shape[1] > 1 and len(points) and np.all(points[:, -1] == points[0, -1]):
            points = points[:, :-1]
        return points

    def centres(self) -> np.ndarray:
        """Where its cells are (cells, D)."""
        if self.mesh is None:
            raise DataError(f"{self.source or 'this case'} has no cells, only points")
        return self.mesh.centres(self.points)


class CaseReader(Sequence):
    """Cases of a file or a folder, each read when it is asked for: a `Sequence` of `Case`."""

    # Not Sequence[Case]: a checker of types at run time would read a file to look at an item.

    def __init__(
        self,
        read: Callable[[int], Case],
        names: Sequence[str],
        *,
        kind: str,
        notes: Sequence[str] = (),
        components: Mapping[str, tuple[str, ...]] | None = None,
        rows: Sequence[np.ndarray] = (),
    ) -> None:
        self._read, self.names, self.kind, self.notes = read, tuple(names), kind, tuple(notes)
        self.rows = tuple(rows)
        """Of a table in which cases take turns, the numbers of the rows of each."""
        self.components = components or {}
        """The names of the components of an array, where the file has them."""

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Case: ...

    @overload
    def __getitem__(self, index: slice) -> CaseReader: ...

    def __getitem__(self, index: int | slice) -> Case | CaseReader:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            return CaseReader(
                lambda i: self._read(chosen[i]),
                [self.names[i] for i in chosen],
                kind=self.kind,
                notes=self.notes,
                components=self.components,
                rows=[self.rows[i] for i in chosen] if self.rows else (),
            )
        if not -len(self) <= index < len(self):
            raise IndexError(f"case {index} of {len(self)}")
        return self._read(index % len(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """Arrays by the names that `ipot.Dataset.from_arrays` knows, in its shapes.

    A folder with one file for each case has lists of arrays.
    """

    targets: np.ndarray | list[np.ndarray]
    points: np.ndarray | list[np.ndarray] | None = None
    values: np.ndarray | list[np.ndarray] | None = None
    queries: np.ndarray | list[np.ndarray] | None = None
    parameters: np.ndarray | list[np.ndarray] | None = None
    times: np.ndarray | None = None
    weights: np.ndarray | list[np.ndarray] | None = None
    inputs: tuple[str, ...] = ()
    """The names of the channels of `values`, where they are told."""
    outputs: tuple[str, ...] = ()
    parameter_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    kind: str = "arrays"
    source: str = ""
    files: tuple[str, ...] = ()
    """Of a folder, the file of each case."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrajectoryField:
    """One field of many trajectories, (S, T, N, components), of which pieces are read."""

    shape: tuple[int, int, int, int]
    dtype: np.dtype
    components: tuple[str, ...]
    """A name for each component; the field's own where it has one alone."""
    steady: bool
    """Whether it is the same at all times."""
    pieces: Callable[[int, slice], np.ndarray]

    def read(self, trajectory: int, times: slice = slice(None)) -> np.ndarray:
        """(times, N, components) of one trajectory."""
        if not 0 <= trajectory < self.shape[0]:
            raise IndexError(f"trajectory {trajectory} of {self.shape[0]}")
        return self.pieces(trajectory, times)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectories:
    """Fields on one grid that change in time, for many trajectories."""

    points: np.ndarray
    """(N, D), the nodes of the grid in row-major order."""
    grid: tuple[int, ...]
    times: np.ndarray
    """(T)"""
    fields: Mapping[str, TrajectoryField]
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name, (S)."""
    axes: tuple[str, ...] = ()
    """The names of the coordinates."""
    periods: tuple[float | None, ...] = ()
    """For each coordinate, after what length it repeats."""
    units: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    grid_type: str = "cartesian"
    source: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return next((f.shape[0] for f in self.fields.values()), 0)
