"""Meshes in and out: VTK's .vtu and .vtp, and what VTK's own library reads besides.

    read_vtk(path) -> Case         points, point data, cells, cell data, field data as parameters
    open_vtk(path) -> CaseReader   the mesh as it stands, for `ipot.formats.inspect`
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
from ipot.formats.fields import Case, CaseReader
from ipot.formats.limits import require_file
from ipot.formats.vtk.encoding import NeedsVtk
from ipot.formats.vtk.library import read_other
from ipot.formats.vtk.read import Found, read_xml
from ipot.formats.vtk.write import write_xml
from ipot.formats.vtk.xml import looks_like_vtk


def read_vtk(path: str | os.PathLike[str]) -> Case:
    """The mesh in a file with all data on it.

    Texts in it are passed over. Arrays that not all pieces of a mesh have are left out;
    `ipot.formats.inspect` says so.
    """
    case = _find(Path(path)).case
    if len(case.points) == 0:
        raise DataError(f"{path} has no points: there is nothing to learn from or to answer at")
    wrong = int(case.points.size - np.isfinite(case.points).sum())
    if wrong:
        raise DataError(
            f"{path}: {wrong} coordinates of points are NaN or infinite; remove these points"
        )
    return case


def open_vtk(path: str | os.PathLike[str]) -> CaseReader:
    """The mesh in a file with what there is to say about it, whatever `read_vtk` would refuse."""
    found = _find(Path(path))
    bare = found.case.mesh is None and len(found.case.points)
    notes = ["there are no cells in it, only points"] if bare else []
    return CaseReader(
        lambda i: found.case,
        [Path(path).stem],
        kind=found.kind,
        notes=[*found.notes, *notes],
        components=found.components,
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
