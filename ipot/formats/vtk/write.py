"""Meshes to VTK's XML files, for ParaView and all that reads them.

One encoding: values appended as they are in memory, little-endian, with headers of 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from ipot.errors import DataError, shown
from ipot.files import atomic
from ipot.formats.fields import Case, Mesh
from ipot.formats.limits import unwritable
from ipot.formats.vtk.cells import (
    CONVEX_POINT_SET,
    DATA_ORDER,
    GROUPS,
    POLYHEDRON,
    check_cells,
    ranks,
    take_cells,
)
from ipot.formats.vtk.encoding import TYPES, packed

_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]")
"""Letters that XML has no place for."""

_NAMES = {dtype: name for name, dtype in TYPES.items() if name != "Bit"}


def write_xml(path: Path, case: Case, kind: str, *, compress: bool = False) -> None:
    """Write a case as `kind`, UnstructuredGrid or PolyData."""
    where = str(path)
    points = _points(case, where)
    mesh, cell_fields = _with_cells(case, len(points))
    check_cells(mesh, len(points), f"{where}: the mesh of the case")
    writer = _Writer(where, case.units, compress=compress)
    if kind == "PolyData":
        piece = writer.surface(mesh, cell_fields)
    else:
        piece = writer.grid(mesh, cell_fields)
    piece += writer.section("PointData", case.fields)
    piece += [" <Points>", writer.array("Points", points), " </Points>"]
    head = [
        '<?xml version="1.0"?>',
        f'<VTKFile type="{kind}" version="1.0" byte_order="LittleEndian" header_type="UInt64"'
        + (' compressor="vtkZLibDataCompressor">' if compress else ">"),
        f"<{kind}>",
        *writer.parameters(case.parameters),
        f'<Piece NumberOfPoints="{len(points)}" {piece[0]}>',
        *piece[1:],
        "</Piece>",
        f"</{kind}>",
        '<AppendedData encoding="raw">\n_',
    ]
    try:
        with atomic(path) as temporary, temporary.open("wb") as file:
            file.write("\n".join(head).encode())
            for block in writer.blocks:
                file.write(block)
            file.write(b"\n</AppendedData>\n</VTKFile>\n")
    except OSError as error:
        raise unwritable(path, error) from error


class _Writer:
    """Describes arrays one after another and keeps their bytes for the end of the file."""

    def __init__(self, where: str, units: Mapping[str, str], *, compress: bool) -> None:
        self.where, self.units, self.compress = where, units, compress
        self.blocks: list[bytes | memoryview] = []
        self.offset = 0

    def array(self, name: str, array: np.ndarray, *, extra: str = "") -> str:
        """The element of an array; its values are appended."""
        array = _plain(array, f"{self.where}: {name}")
        unit = self.units.get(name, "")
        if not name or _UNFIT.search(name + unit):
            raise DataError(
                f"{self.where}: a VTK file cannot hold an array named {shown(name)} in "
                f"{shown(unit)}; rename it"
            )
        offset = self.offset
        blocks = packed(array, compress=self.compress)
        self.blocks += blocks
        self.offset += sum(len(block) for block in blocks)
        width = f' NumberOfComponents="{array.shape[1]}"' if array.ndim == 2 else ""
        opening = (
            f'  <DataArray type="{_NAMES[array.dtype]}" Name={quoteattr(name)}{width}{extra} '
            f'format="appended" offset="{offset}"'
        )
        if not unit:
            return f"{opening}/>"
        return (
            f'{opening}><InformationKey name="UNITS_LABEL" location="vtkDataArray">{escape(unit)}'
            "</InformationKey></DataArray>"
        )

    def section(self, tag: str, named: Mapping[str, np.ndarray]) -> list[str]:
        """Point data or cell data."""
        arrays = [self.array(name, array) for name, array in named.items()]
        return [f" <{tag}>", *arrays, f" </{tag}>"]

    def parameters(self, named: Mapping[str, np.ndarray]) -> list[str]:
        """Field data, which alone must say how long they are."""
        arrays = []
        for name, array in named.items():
            rows = np.atleast_1d(array)
            rows = rows if rows.ndim == 1 else rows.reshape(len(rows), -1)
            arrays.append(self.array(name, rows, extra=f' NumberOfTuples="{len(rows)}"'))
        return ["<FieldData>", *arrays, "</FieldData>"] if arrays else []

    def grid(self, mesh: Mesh, cell_fields: Mapping[str, np.ndarray]) -> list[str]:
        """Any cells. The first line is for the head of the piece."""
        types = mesh.types.astype(np.uint8)
        types[types == POLYHEDRON] = CONVEX_POINT_SET
        return [
            f'NumberOfCells="{len(mesh)}"',
            *self.section("CellData", cell_fields),
            *self._cells("Cells", mesh)[:-1],
            self.array("types", types),
            " </Cells>",
        ]

    def surface(self, mesh: Mesh, cell_fields: Mapping[str, np.ndarray]) -> list[str]:
        """Vertices, lines, strips and polygons. The first line is for the head of the piece."""
        group = ranks(mesh.types, GROUPS)
        if np.any(group < 0):
            others = ", ".join(str(number) for number in np.unique(mesh.types[group < 0]))
            raise DataError(
                f"{self.where}: cells of VTK's types {others} are no part of a surface; write "
                "the case as .vtu"
            )
        numbers = " ".join(
            f'NumberOf{name}="{np.sum(group == k)}"' for k, name in enumerate(GROUPS)
        )
        order = np.argsort(ranks(mesh.types, DATA_ORDER), kind="stable")
        ordered = {name: array[order] for name, array in cell_fields.items()}
        lines = [numbers, *self.section("CellData", ordered)]
        for k, name in enumerate(GROUPS):
            lines += self._cells(name, take_cells(mesh, np.flatnonzero(group == k)))
        return lines

    def _cells(self, tag: str, mesh: Mesh) -> list[str]:
        return [
            f" <{tag}>",
            self.array("connectivity", mesh.connectivity.astype(np.int64)),
            self.array("offsets", mesh.offsets.astype(np.int64)),
            f" </{tag}>",
        ]


def _points(case: Case, where: str) -> np.ndarray:
    points = case.points
    if len(points) == 0:
        raise DataError(f"{where}: a case without points cannot be written as a mesh")
    if points.shape[1] not in (1, 2, 3):
        raise DataError(f"{where}: points must have 1 to 3 coordinates, got {points.shape[1]}")
    points = _plain(points, f"{where}: points")
    if points.dtype.kind != "f":
        points = points.astype(np.float64)
    if not np.isfinite(points).all():
        raise DataError(f"{where}: points must be finite: remove those that are NaN or infinite")
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))


def _with_cells(case: Case, points: int) -> tuple[Mesh, Mapping[str, np.ndarray]]:
    """The cells of the case, or each point as one, since a program shows cells."""
    if case.mesh is not None and len(case.mesh):
        return case.mesh, case.cell_fields
    each = np.arange(points, dtype=np.int64)
    types = np.ones(points, np.uint8)
    return Mesh(kind="PolyData", connectivity=each, offsets=each + 1, types=types), {}


def _plain(array: np.ndarray, label: str) -> np.ndarray:
    """The array in a type that VTK has, in this machine's byte order."""
    if array.ndim == 2 and array.shape[1] == 0:
        raise DataError(f"{label} must have at least one component, got shape {array.shape}")
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    dtype = array.dtype.newbyteorder("=")
    if dtype not in _NAMES:
        raise DataError(
            f"{label} must be integers or floats of at most 64 bits for a VTK file, got "
            f"{array.dtype}; leave it out or convert it"
        )
    return array.astype(dtype, copy=False)
