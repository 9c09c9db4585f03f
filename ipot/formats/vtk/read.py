"""Meshes from VTK's XML files: .vtu (UnstructuredGrid) and .vtp (PolyData)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element

import numpy as np

from ipot.errors import DataError, shown
from ipot.formats.fields import Case, Mesh
from ipot.formats.vtk.cells import (
    DATA_ORDER,
    GROUPS,
    check_cells,
    join_meshes,
    ranks,
    surface_types,
    take_cells,
)
from ipot.formats.vtk.encoding import NeedsVtk, Source, whole
from ipot.formats.vtk.xml import parse

KINDS = {"UnstructuredGrid": "VTK unstructured grid", "PolyData": "VTK surface"}

OTHER_KINDS = {
    "ImageData": ".vti",
    "RectilinearGrid": ".vtr",
    "StructuredGrid": ".vts",
    "vtkMultiBlockDataSet": ".vtm",
    "PUnstructuredGrid": ".pvtu",
    "PPolyData": ".pvtp",
    "PImageData": ".pvti",
    "PRectilinearGrid": ".pvtr",
    "PStructuredGrid": ".pvts",
}
"""What other files in XML hold, and what they are called."""

Arrays = dict[str, np.ndarray]


@dataclass(kw_only=True, eq=False)
class Found:
    """A case, and what is worth saying about the file it came from."""

    case: Case
    kind: str
    components: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the components of an array, where they have names."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class _Piece:
    points: np.ndarray
    fields: Arrays
    mesh: Mesh
    cell_fields: Arrays


def read_xml(content: bytes, where: str) -> Found:
    """The case in the bytes of a file; `where` is the file's name, for messages."""
    document = parse(content, where)
    kind = document.root.get("type", "")
    if kind in OTHER_KINDS:
        raise NeedsVtk(f"it holds {kind}", OTHER_KINDS[kind])
    if kind not in KINDS:
        raise DataError(f"{where} says that it holds {shown(kind)}, which VTK does not know")
    grid = document.root.find(kind)
    if grid is None:
        raise DataError(f"{where} must have an element <{kind}>: it is damaged")
    source = Source(where, document.root.attrib, document.appended, document.encoding, len(content))
    reader = _Reader(source, where, kind)
    if grid.get("TimeValues"):
        raise NeedsVtk("it holds several times")
    pieces = [reader.piece(element) for element in grid.findall("Piece")]
    parameters = reader.field_data(grid.find("FieldData"))
    full = [piece for piece in pieces if len(piece.points) or len(piece.mesh)] or pieces[:1]
    if not full:
        raise DataError(f"{where} has no <Piece>: there is no mesh in it")
    case = reader.join(full, parameters)
    notes = [f"{len(pieces)} pieces are read as one mesh"] if len(pieces) > 1 else []
    return Found(
        case=case, kind=KINDS[kind], components=reader.components, notes=notes + reader.notes
    )


class _Reader:
    """Reads the elements of one file and gathers what it met on the way."""

    def __init__(self, source: Source, where: str, kind: str) -> None:
        self.source, self.where, self.kind = source, where, kind
        self.units: dict[str, str] = {}
        self.components: dict[str, tuple[str, ...]] = {}
        self.notes: list[str] = []

    def piece(self, element: Element) -> _Piece:
        rows = whole(element.get("NumberOfPoints"), f"{self.where}: NumberOfPoints")
        if self.kind == "PolyData":
            mesh = self._surface(element)
        else:
            cells = whole(element.get("NumberOfCells"), f"{self.where}: NumberOfCells")
            mesh = self._cells(element.find("Cells"), cells, "")
        check_cells(mesh, rows, self.where)
        mesh = replace(mesh, types=mesh.types.astype(np.uint8))
        return _Piece(
            points=self._points(element.find("Points"), rows),
            fields=self._named(element.find("PointData"), rows),
            mesh=mesh,
            cell_fields=self._named(element.find("CellData"), len(mesh)),
        )

    def field_data(self, element: Element | None) -> Arrays:
        found: Arrays = {}
        for name, array in self._arrays(element):
            tuples = array.get("NumberOfTuples")
            count = None
            if tuples is not None:
                count = whole(tuples, f"{self.where}: NumberOfTuples of {name}") * self._width(
                    array
                )
            found[name] = self.source.values(array, count)
        return found

    def join(self, pieces: list[_Piece], parameters: Arrays) -> Case:
        meshes = [piece.mesh for piece in pieces]
        mesh = join_meshes(meshes, [len(piece.points) for piece in pieces])
        cell_fields = self._common([piece.cell_fields for piece in pieces])
        mesh, cell_fields = in_order(mesh, cell_fields)
        return Case(
            points=np.concatenate([piece.points for piece in pieces]),
            fields=self._common([piece.fields for piece in pieces]),
            mesh=mesh if len(mesh) else None,
            cell_fields=cell_fields if len(mesh) else {},
            parameters=parameters,
            units=self.units,
            source=self.where,
        )

    def _common(self, parts: list[Arrays]) -> Arrays:
        """Arrays that all pieces have; one that some lack is no field of the whole."""
        found: Arrays = {}
        for name in dict.fromkeys(name for part in parts for name in part):
            arrays = [part[name] for part in parts if name in part]
            shapes = {array.shape[1:] for array in arrays}
            if len(arrays) == len(parts) and len(shapes) == 1:
                found[name] = np.concatenate(arrays)
            else:
                self.notes.append(
                    f"{name} is left out: it is not in every piece, or not with as many components"
                )
        return found

    def _points(self, element: Element | None, rows: int) -> np.ndarray:
        arrays = [] if element is None else element.findall("DataArray")
        if not arrays:
            if rows == 0:
                return np.empty((0, 3), np.float32)
            raise DataError(f"{self.where}: <Points> must hold the coordinates, but is empty")
        if self._width(arrays[0]) != 3:
            raise DataError(
                f"{self.where}: points must have 3 components in a VTK file, got "
                f"{self._width(arrays[0])}"
            )
        found = self.source.values(arrays[0], 3 * rows).reshape(rows, 3)
        return found if found.dtype.kind == "f" else found.astype(np.float64)

    def _surface(self, element: Element) -> Mesh:
        """The cells of a surface in the order of its cell data."""
        parts: dict[str, Mesh] = {}
        for group in DATA_ORDER:
            label = f"NumberOf{group}"
            cells = whole(element.get(label, "0"), f"{self.where}: {label}")
            parts[group] = self._cells(element.find(group), cells, group)
        verts, lines, strips, polys = (len(parts[group]) for group in GROUPS)
        joined = join_meshes(list(parts.values()), [0] * len(parts))
        return replace(joined, counts=(verts, lines, strips, polys))

    def _cells(self, element: Element | None, cells: int, group: str) -> Mesh:
        named = {} if element is None else {array.get("Name"): array for array in element}
        needed = ("offsets", "connectivity") if group else ("offsets", "connectivity", "types")
        if cells and any(name not in named for name in needed):
            raise DataError(f"{self.where}: its cells must come with {', '.join(needed)}")
        if cells == 0:
            none = np.empty(0, np.int64)
            return Mesh(kind=self.kind, connectivity=none, offsets=none, types=none.astype("u1"))
        ends = self._integers(named["offsets"], cells)
        joined = self._integers(named["connectivity"], max(int(ends[-1]), 0))
        types = (
            surface_types(group, np.diff(ends, prepend=0))
            if group
            else self._integers(named["types"], cells)
        )
        if types.min() < 0 or types.max() > 255:
            raise DataError(f"{self.where}: types of cells must be from 0 to 255: it is damaged")
        return Mesh(kind=self.kind, connectivity=joined, offsets=ends, types=types.astype(np.uint8))

    def _integers(self, array: Element, count: int) -> np.ndarray:
        found = self.source.values(array, count)
        if found.dtype.kind not in "iu":
            raise DataError(
                f"{self.where}: {array.get('Name')} of cells must be integers, got {found.dtype}"
            )
        return found.astype(np.int64)

    def _named(self, element: Element | None, rows: int) -> Arrays:
        found: Arrays = {}
        for name, array in self._arrays(element):
            width = self._width(array)
            values = self.source.values(array, rows * width)
            found[name] = values if width == 1 else values.reshape(rows, width)
        return found

    def _arrays(self, element: Element | None) -> Iterable[tuple[str, Element]]:
        """The numeric arrays of a section by name; remarks on them are kept as they are met."""
        seen: set[str] = set()
        for array in () if element is None else element:
            name = array.get("Name") or "unnamed"
            if array.tag != "DataArray":
                self.notes.append(f"{name} is left alone: it is {array.get('type') or array.tag}")
                continue
            if "TimeStep" in array.attrib:
                raise NeedsVtk("it holds several times")
            if name in seen:
                raise DataError(f"{self.where} has two arrays named {name}: rename one of them")
            seen.add(name)
            self._remark(name, array)
            yield name, array

    def _width(self, array: Element) -> int:
        """How many components an array has; some writers say 0 for one."""
        label = f"{self.where}: NumberOfComponents of {array.get('Name')}"
        return max(1, whole(array.get("NumberOfComponents", "1"), label))

    def _remark(self, name: str, array: Element) -> None:
        names = tuple(
            array.get(f"ComponentName{k}", "") for k in range(min(self._width(array), 32))
        )
        if any(names):
            self.components[name] = names
        for key in array.findall("InformationKey"):
            if key.get("name") == "UNITS_LABEL" and (key.text or "").strip():
                self.units[name] = (key.text or "").strip()


def in_order(mesh: Mesh, cell_fields: Arrays) -> tuple[Mesh, Arrays]:
    """The cells of a surface in the order that `Mesh` promises, and their data with them."""
    rank = ranks(mesh.types, GROUPS)
    if mesh.kind != "PolyData" or np.all(rank[1:] >= rank[:-1]):
        return mesh, cell_fields
    order = np.argsort(rank, kind="stable")
    return take_cells(mesh, order), {name: array[order] for name, array in cell_fields.items()}
