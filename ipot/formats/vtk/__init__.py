"""Meshes in and out: VTK's .vtu and .vtp, and what VTK's own library reads besides.

    read_vtk(path) -> Case         points, point data, cells, cell data, field data as parameters
    inspect_vtk(path) -> Inventory what is in it
    write_vtk(path, case)          opens in ParaView

Files in XML are read and written here in all their encodings: as text, base64 or raw, inline or
appended, compressed by zlib or LZMA (LZ4 where its package is installed), of either byte order, in
one piece or several. Others go through pyvista, where that is installed.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ipot.errors import DataError, shown
from ipot.formats.detect import VTK, VTK_WRITTEN
from ipot.formats.fields import Case
from ipot.formats.inventory import Inventory, Variable
from ipot.formats.limits import require_file
from ipot.formats.vtk.encoding import NeedsVtk
from ipot.formats.vtk.library import read_other
from ipot.formats.vtk.read import Found, read_xml
from ipot.formats.vtk.write import write_xml
from ipot.formats.vtk.xml import looks_like_vtk

TIME = ("TimeValue", "TIME", "Time", "time")


def read_vtk(path: str | os.PathLike[str]) -> Case:
    """The mesh in a file with all data on it.

    Texts in it are passed over. Arrays that not all pieces of a mesh have are left out;
    `inspect_vtk` says so.
    """
    case = _find(Path(path)).case
    if len(case.points) == 0:
        raise DataError(f"{path} has no points: there is nothing to learn from or to answer at")
    wrong = _missing(case.points)
    if wrong:
        raise DataError(
            f"{path}: {wrong} coordinates of points are NaN or infinite; remove these points"
        )
    return case


def inspect_vtk(path: str | os.PathLike[str]) -> Inventory:
    """What is in a file, with ranges and what looks odd."""
    found = _find(Path(path))
    case = found.case
    rows, cells = len(case.points), 0 if case.mesh is None else len(case.mesh)
    variables = [_variable("points", "places", case.points, f"{rows} points", found)]
    for name, array in case.fields.items():
        variables.append(_variable(name, "input or target", array, f"{rows} points", found))
    for name, array in case.cell_fields.items():
        variables.append(_variable(name, "input or target", array, f"{cells} cells", found))
    for name, array in case.parameters.items():
        role = "time" if name in TIME else "parameter"
        variables.append(_variable(name, role, array, f"{len(array)} numbers", found))
    return Inventory(
        path=str(path),
        kind=found.kind,
        cases=1,
        points=(rows, rows),
        variables=tuple(variables),
        notes=(*found.notes, *_oddities(case)),
    )


def write_vtk(path: str | os.PathLike[str], case: Case, *, compress: bool = False) -> None:
    """Write a case with all data on it as .vtu or, of vertices, lines and polygons, as .vtp.

    Points of fewer than three coordinates get zeros for the others. A case without cells is
    written with a vertex at every point. Polyhedra, whose faces a `Mesh` does not keep, are
    written as the convex hulls of their corners.
    """
    path = Path(path)
    kind = VTK_WRITTEN.get(path.suffix.lower())
    if kind is None:
        raise DataError(f"{path}: a mesh is written as .vtu or .vtp, got {shown(path.suffix)}")
    write_xml(path, case, kind, compress=compress)


def _find(path: Path) -> Found:
    suffix = path.suffix.lower()
    if suffix == ".foam":  # only marks the folder that it lies in, and may be empty
        return read_other(path, suffix, "it is a case of OpenFOAM")
    if require_file(path).is_dir():
        raise DataError(f"{path} is a folder; name one file in it")
    with path.open("rb") as file:
        beginning = file.read(1 << 16)
    if beginning.startswith(b"# vtk DataFile"):
        return read_other(path, ".vtk", "it is of VTK's older format")
    in_xml = suffix.startswith((".vt", ".pvt")) and suffix != ".vtk"
    if in_xml or looks_like_vtk(beginning):
        # Also what VTK must read in the end goes this way first: entities are refused here.
        try:
            return read_xml(path.read_bytes(), str(path))
        except NeedsVtk as need:
            reason, suffix = str(need), need.suffix or suffix
    else:
        reason = f"{suffix or 'a file without suffix'} is a format of its own"
    if suffix not in VTK:
        known = ", ".join(VTK)
        raise DataError(f"{path} is no mesh that can be read: expected one of {known}")
    return read_other(path, suffix, reason)


def _variable(name: str, role: str, array: np.ndarray, rows: str, found: Found) -> Variable:
    width = array.shape[1] if array.ndim == 2 else 1
    shape = rows if width == 1 else f"{rows} x {width}"
    if named := found.components.get(name):
        shape += f" ({', '.join(named)})"
    values = array[np.isfinite(array)] if array.dtype.kind == "f" else array.ravel()
    some = values.size > 0
    return Variable(
        name=name,
        role=role,
        shape=shape,
        dtype=str(array.dtype),
        low=float(values.min()) if some else None,
        high=float(values.max()) if some else None,
        mean=float(values.mean(dtype=np.float64)) if some else None,
        missing=_missing(array),
        units=found.case.units.get(name, ""),
    )


def _missing(array: np.ndarray) -> int:
    return int(array.size - np.isfinite(array).sum())


def _oddities(case: Case) -> list[str]:
    """What a user would want to know before training on it."""
    notes = []
    if len(case.points) == 0:
        return ["there are no points in it"]
    wrong = _missing(case.points)
    if wrong:
        notes.append(f"{wrong} coordinates of points are NaN or infinite: remove these points")
    if case.flat.shape[1] < case.points.shape[1]:
        dimension = case.flat.shape[1]
        notes.append(f"all points lie in one plane or line: they are taken as {dimension}-D")
    for name, array in {**case.fields, **case.cell_fields}.items():
        if len(array) > 1 and np.all(array == array[0]):
            notes.append(f"{name} is the same everywhere")
    if case.mesh is None:
        notes.append("there are no cells in it, only points")
    return notes
