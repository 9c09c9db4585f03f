"""Files that a mesh file names: each must stay in its folder and pass the checks of its own kind.

VTK opens them by itself, so that they are found here first: pieces of .pvtu and the like, blocks of
.vtm, what an EnSight case lists, the folder of an OpenFOAM case, links inside CGNS.
"""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

import h5py

from ipot.data.guard import trial
from ipot.data.guard.paths import (
    file_or_folder,
    follows_outside,
    piece_inside,
    refuse_leaving,
    regular_file,
    shown,
)
from ipot.errors import DataError
from ipot.formats.vtk.xml import parse

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
        return size + _listed(path, DEEP, [0])
    if suffix in (".case", ".encas"):
        return size + _ensight(path)
    if suffix in (".cgns", ".exo", ".e"):
        _container(path)
    return size


def _listed(path: Path, left: int, count: list[int]) -> int:
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
                total += _listed(piece, left - 1, count)
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
