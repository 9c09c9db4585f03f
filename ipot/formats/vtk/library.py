"""Everything else that VTK's own library can read, through pyvista where it is installed.

On a damaged file VTK may read behind its memory, which ends the process one time and does not the
next. So it reads in a child process, and only arrays come back.

A mesh file may name others, each of which must stay in its folder and pass the checks of its own
kind. VTK opens them by itself, so that they are found here first: pieces of .pvtu and the like,
blocks of .vtm, what an EnSight case lists, the folder of an OpenFOAM case, links inside CGNS.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np

from ipot.data.guard import trial
from ipot.data.guard.paths import (
    file_or_folder,
    follows_outside,
    piece_inside,
    refuse_leaving,
    regular_file,
    shown,
)
from ipot.errors import DataError, Unsupported
from ipot.formats.fields import Case, Mesh
from ipot.formats.vtk.cells import DATA_ORDER, GROUPS, check_cells, join_meshes, surface_types
from ipot.formats.vtk.read import Found, in_order
from ipot.formats.vtk.xml import parse

PRELOAD = ("pyvista",)

TRIED = 2**28
"""Bytes up to which files are read in a child process."""

ARRAYS = ("fields", "cell_fields", "parameters")
"""Arrays by names, of a case."""

PARTS = ("connectivity", "offsets", "types")
"""Arrays of a mesh."""


def read_other(path: Path, suffix: str, reason: str) -> Found:
    """The case in a file, read as `suffix` says; `reason` is why our own reader cannot."""
    vista = _pyvista(path, reason)
    size = refuse_outside(path, suffix)
    if size <= TRIED and file_or_folder(path) is not None:
        with tempfile.TemporaryDirectory(prefix="ipot-") as folder:
            out = Path(folder, "found.npz")
            where = f"{__name__}:hand_over"
            trial.tried(where, path, suffix, str(path), str(out), size=size, anew=True)
            if out.exists():  # else there are no child processes here, or this is one
                return _taken(out)
    return _handed_on(vista, path, suffix, str(path))


def hand_over(path: str, suffix: str, source: str, out: str) -> None:
    """Read a file that the caller calls `source`, and put into `out` what is in it; for a child
    process."""
    import pyvista

    found = _handed_on(pyvista, Path(path), suffix, source)
    case, mesh = found.case, found.case.mesh
    groups = {name: getattr(case, name) for name in ARRAYS}
    arrays = {f"{g}/{i}": a for g, names in groups.items() for i, a in enumerate(names.values())}
    told = {
        "names": {group: list(names) for group, names in groups.items()},
        "kind": found.kind,
        "notes": found.notes,
        "source": case.source,
        "mesh": None if mesh is None else {"kind": mesh.kind, "counts": [*map(int, mesh.counts)]},
    }
    parts = {} if mesh is None else {f"mesh/{name}": getattr(mesh, name) for name in PARTS}
    np.savez(
        out,
        allow_pickle=False,
        told=np.frombuffer(json.dumps(told).encode(), np.uint8),
        points=case.points,
        **arrays,
        **parts,
    )


def _taken(out: Path) -> Found:
    """What `hand_over` has put there."""
    with np.load(out, allow_pickle=False) as given:
        told = json.loads(given["told"].tobytes())
        groups: dict[str, Any] = {
            group: {name: given[f"{group}/{i}"] for i, name in enumerate(names)}
            for group, names in told["names"].items()
        }
        mesh = None
        if (facts := told["mesh"]) is not None:
            verts, lines, strips, polys = facts["counts"]
            parts = {name: given[f"mesh/{name}"] for name in PARTS}
            mesh = Mesh(kind=facts["kind"], counts=(verts, lines, strips, polys), **parts)
        case = Case(points=given["points"], mesh=mesh, source=told["source"], **groups)
    return Found(case=case, kind=told["kind"], notes=told["notes"])


def _handed_on(vista: ModuleType, path: Path, suffix: str, source: str) -> Found:
    notes: list[str] = []
    try:
        # VTK reports on the side what is wrong, and hands over what it has all the same.
        with (
            vista.vtk_verbosity("off"),
            vista.VtkErrorCatcher(send_to_logging=False) as catcher,
        ):
            data = _as_mesh(vista, _read(vista, path, suffix, notes), notes)
        # Some errors it only warns of. It stumbles over remarks of its own where values are
        # infinite, which does not matter.
        said = [str(event) for event in catcher.events]
        errors = [e for e in said if "error" in e.lower() and "InformationKey" not in e]
        case = None if errors or data is None else _case(vista, data, source, notes)
    except DataError:
        raise
    except Exception as error:  # whatever VTK and pyvista raise on damaged files
        raise _damaged(path, str(error) or type(error).__name__) from error
    if case is None:
        raise _damaged(path, errors[0] if errors else "it holds no mesh")
    return Found(case=case, kind=f"{suffix} through VTK", notes=notes)


def _as_mesh(vista: ModuleType, data: Any, notes: list[str]) -> Any:
    """A surface or an unstructured grid, whatever was read; None if that is no mesh."""
    if isinstance(data, vista.MultiBlock):
        notes.append("its blocks are read as one mesh with the arrays that all have")
        data = data.combine()
    if not isinstance(data, vista.DataSet):
        return None
    if isinstance(data, vista.PolyData | vista.UnstructuredGrid):
        return data
    return data.cast_to_unstructured_grid()


def _damaged(path: Path, said: str) -> DataError:
    return DataError(
        f"{path} cannot be read by VTK: {' '.join(said.split())[:300]}. It is damaged, or of "
        "another kind than its name says; write it again, best as .vtu"
    )


def _read(vista: ModuleType, path: Path, suffix: str, notes: list[str]) -> Any:
    reader = vista.get_reader(str(path), suffix)
    times = getattr(reader, "time_values", None)
    if times is not None and len(times):
        reader.set_active_time_value(times[-1])
        if len(times) > 1:
            notes.append(f"of its {len(times)} times the last is read, {times[-1]:g}")
    return reader.read()


def _case(vista: ModuleType, data: Any, where: str, notes: list[str]) -> Case:
    if isinstance(data, vista.PolyData):
        lists = {"Verts": data.GetVerts(), "Lines": data.GetLines()}
        lists |= {"Polys": data.GetPolys(), "Strips": data.GetStrips()}
        parts = [_surface_part(vista, lists[group], group) for group in DATA_ORDER]
        mesh = join_meshes(parts, [0] * 4)
    else:
        mesh = _listed(vista, data.GetCells(), "UnstructuredGrid", np.array(data.celltypes))
    check_cells(mesh, data.n_points, where)
    cell_fields = _numbers(data.cell_data, notes)
    mesh, cell_fields = in_order(mesh, cell_fields)
    return Case(
        points=np.array(data.points).reshape(-1, 3),
        fields=_numbers(data.point_data, notes),
        mesh=mesh if len(mesh) else None,
        cell_fields=cell_fields if len(mesh) else {},
        parameters={
            name: array.ravel() for name, array in _numbers(data.field_data, notes).items()
        },
        source=where,
    )


def _surface_part(vista: ModuleType, cells: Any, group: str) -> Mesh:
    none = np.empty(0, np.uint8)
    mesh = _listed(vista, cells, "PolyData", none)
    counts = [len(mesh) if group == other else 0 for other in GROUPS]
    return Mesh(
        kind="PolyData",
        connectivity=mesh.connectivity,
        offsets=mesh.offsets,
        types=surface_types(group, np.diff(mesh.offsets, prepend=0)),
        counts=(counts[0], counts[1], counts[2], counts[3]),
    )


def _listed(vista: ModuleType, cells: Any, kind: str, types: np.ndarray) -> Mesh:
    ends = vista.convert_array(cells.GetOffsetsArray())
    joined = vista.convert_array(cells.GetConnectivityArray())
    return Mesh(
        kind=kind,
        connectivity=np.array(joined, np.int64).reshape(-1),
        # VTK's list in memory begins with the 0 at which the first cell starts.
        offsets=np.array(ends, np.int64).reshape(-1)[1:],
        types=types,
    )


def _numbers(arrays: Any, notes: list[str]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name in arrays.keys():  # noqa: SIM118 (it is no dict: iterating gives positions)
        array = np.array(arrays[name])
        if array.dtype.kind == "b":
            array = array.astype(np.uint8)
        if array.dtype.kind not in "iuf" or array.ndim > 2:
            notes.append(f"{name} is left alone: it is {array.dtype} of shape {array.shape}")
        else:
            found[name] = array
    return found


def _pyvista(path: Path, reason: str) -> ModuleType:
    try:
        import pyvista
    except ImportError:
        raise Unsupported(
            f"{path} cannot be read by ipot alone: {reason}. Install VTK's own library, "
            "pip install 'ipot[mesh]', or write the file again as .vtu without that"
        ) from None
    return pyvista


DEEP = 8
"""Files that name files that name files."""

MOST = 1_000_000
"""Pieces of one mesh."""

LISTED = 2**24
"""Bytes of a file that lists others."""

LISTS = (".pvtu", ".pvtp", ".pvts", ".pvti", ".pvtr", ".vtm")

NAMES = ("Source", "file")
"""Attributes that name a file."""

_NODE, _KIND = b"NoDe", 4 + 32 + 32 + 8 + 8 + 12
"""A node of an ADF file, and how far behind its beginning its type stands; that of a link is LK."""

_INCLUDE = re.compile(rb'#\s*s?include(?:IfPresent|Etc)?\s*"([^"\n]*)"')


def refuse_outside(path: Path, suffix: str) -> int:
    """Refuse pieces outside of the file's folder; returns the bytes of all files together."""
    if suffix == ".foam":
        return _foam(path)
    size = regular_file(path).st_size
    if suffix in LISTS:
        return size + _files_listed(path, DEEP, [0])
    if suffix in (".case", ".encas"):
        return size + _ensight(path)
    if suffix in (".cgns", ".exo", ".e"):
        _container(path)
    return size


def _files_listed(path: Path, left: int, count: list[int]) -> int:
    """The pieces of a file in XML, and theirs."""
    if left == 0 or regular_file(path).st_size > LISTED:
        raise DataError(f"{shown(path)} lists files more than {DEEP} deep, or is too long a list")
    total = 0
    for element in parse(path.read_bytes(), str(path)).root.iter():
        for name in (element.attrib[key] for key in NAMES if key in element.attrib):
            count[0] += 1
            if count[0] > MOST:
                raise DataError(f"{shown(path)} names more than {MOST} pieces, which is not read")
            piece = piece_inside(path, name)
            total += _there(path, piece)
            suffix = piece.suffix.lower()
            if suffix in LISTS:
                total += _files_listed(piece, left - 1, count)
            elif suffix.startswith(".vt") and suffix != ".vtk":
                parse(piece.read_bytes(), str(piece))
            else:
                raise DataError(
                    f"{shown(path)} names the piece {shown(name)!r}, which is no VTK file in XML"
                )
    return total


def _there(owner: Path, piece: Path) -> int:
    if file_or_folder(piece) is None:
        raise DataError(f"{shown(owner)} names the piece {shown(piece)}, which is not there")
    return regular_file(piece).st_size


def _ensight(path: Path) -> int:
    """Lines like `model: 1 wing.geo` and `scalar per node: 1 p wing****.scl`."""
    if regular_file(path).st_size > LISTED:
        raise DataError(f"{shown(path)} is too long for a list of files")
    total = 0
    for line in path.read_text("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        words = value.split()
        kinds = ("model", "measured", "match", "boundary", "rigid_body", "filename", "constant")
        key = key.strip().lower()
        named = " per " in key or key in kinds or key.endswith(" file")
        if not colon or not words or not named:
            continue
        # Which of the words is the name depends on the key; a description is a name of no file.
        for word in (w.strip('"') for w in words):
            if word.replace(".", "").replace("-", "").isdigit():
                continue
            piece = piece_inside(path, word)
            pattern = piece.name.replace("[", "[[]").replace("*", "?")
            for found in piece.parent.glob(pattern) if "*" in word else [piece]:
                refuse_leaving(path.parent, found)
                total += regular_file(found).st_size if file_or_folder(found) else 0
    return total


def _foam(path: Path) -> int:
    """The folder around the mark of an OpenFOAM case, which may include other files by name."""
    file_or_folder(path)
    total = count = 0
    for folder, folders, names in os.walk(path.parent or "."):
        for name in (*folders, *names):
            count += 1
            entry = Path(folder, name)
            if count > MOST:
                raise DataError(f"{shown(path)}: its folder holds over {MOST} files; use a smaller")
            if entry.is_symlink():
                refuse_leaving(path.parent, entry)
        for name in names:
            entry = Path(folder, name)
            if file_or_folder(entry) is None:
                continue  # a link to nowhere
            total += regular_file(entry).st_size
            _refuse_includes(path, entry)
    return total


def _refuse_includes(path: Path, entry: Path) -> None:
    if follows_outside() or not regular_file(entry).st_size:
        return
    with entry.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for found in _INCLUDE.finditer(data):
            name = found[1].decode("utf-8", "replace")
            name = name.replace("$FOAM_CASE", os.path.abspath(path.parent))
            if "$" in name or name.startswith(("~", "<")):
                raise DataError(
                    f"{shown(path)}: {shown(entry)} has {shown(found[0].decode(errors='replace'))}"
                    ", which can read any file: it is not opened. Write out what it includes."
                )
            refuse_leaving(path.parent, entry.parent / name)


def _container(path: Path) -> None:
    """CGNS and Exodus files are HDF5, netCDF-3 or ADF."""
    with path.open("rb") as file:
        start = file.read(3)
    if start == b"CDF" or h5py.is_hdf5(path):  # which may begin behind 512 bytes or more of others
        trial.tried("ipot.data.guard.netcdf:look", path)
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = data.find(_NODE)
        while place >= 0:
            if data[place + _KIND : place + _KIND + 2] == b"LK":
                raise DataError(
                    f"{shown(path)} has links to other files or nodes, which are not followed: "
                    "store the mesh itself"
                )
            place = data.find(_NODE, place + 4)
