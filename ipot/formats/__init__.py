"""Files in and out: every format as named fields at places.

    kind_of(path)      what it is, by content                                       detect.py
    read_cases(path)   cases, arrays or trajectories, read when they are asked for
    inspect(path)      what is in it, and what looks odd: of every kind             inspection.py
    write_case(path, case), write_cases(path, cases)

One file knows each format: `numpy_files`, `hdf5`, `csv_table` and `parquet` (rows of points:
`tables`), `the_well`, `vtk/`, and `xarray_files` for netCDF, GRIB and Zarr. What they give is in
`fields`; which names mean places, times or cases is in `roles`. `cases` and `series/` make samples
of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ipot.errors import DataError, shown
from ipot.formats import csv_table, detect, hdf5, numpy_files, parquet, the_well
from ipot.formats.fields import Arrays, Case, CaseReader, Mesh, Trajectories
from ipot.formats.folder import not_cases, read_folder
from ipot.formats.inventory import Inventory, Variable
from ipot.formats.named_arrays import sorted_out

__all__ = [
    "Arrays",
    "Case",
    "CaseReader",
    "Inventory",
    "Mesh",
    "Trajectories",
    "Variable",
    "inspect",
    "kind_of",
    "read_cases",
    "write_case",
    "write_cases",
]

Found = CaseReader | Arrays | Trajectories
WRITTEN = ".npz, .csv, .tsv, .parquet, .h5, .hdf5, .vtu or .vtp"


def kind_of(path: str | os.PathLike[str]) -> str:
    """One of folder, npz, npy, table, parquet, hdf5, well, vtk, netCDF, GRIB, Zarr, by content."""
    return detect.kind_of(Path(path))


def read_cases(path: str | os.PathLike[str]) -> CaseReader | Arrays | Trajectories:
    """What a file or a folder holds.

    `Arrays` where they are called as the arguments of `ipot.Dataset.from_arrays`, `Trajectories`
    of a file of The Well, and otherwise a sequence of cases, each read when it is asked for.
    """
    return _read(Path(path), lenient=False)


def inspect(path: str | os.PathLike[str]) -> Inventory:
    """What a file, a folder or a pattern like `data/*.nc` holds: names, shapes, ranges, missing
    values, and what looks odd."""
    from ipot.formats import inspection

    path = Path(path)
    if detect.is_labelled(path):
        return inspection.inspect_series(path)
    return inspection.inventory_of(str(path), _read(path, lenient=True))


def write_case(path: str | os.PathLike[str], case: Case) -> None:
    """Write a case as the suffix of the path says, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        numpy_files.write_npz(path, case)
    elif suffix in (".csv", ".tsv"):
        csv_table.write_csv(path, [case])
    elif suffix in (".parquet", ".pq"):
        parquet.write_parquet(path, [case])
    elif suffix in detect.HDF5:
        hdf5.write_cases(path, [case])
    elif suffix in (".vtu", ".vtp"):
        from ipot.formats.vtk import write_vtk

        write_vtk(path, case)
    else:
        raise DataError(
            f"{path}: a case is written as {WRITTEN}, got {shown(suffix or 'no suffix')}"
        )


def write_cases(
    path: str | os.PathLike[str],
    cases: Sequence[Case],
    names: Sequence[str] | None = None,
    rows: Sequence[np.ndarray] = (),
) -> None:
    """Write many cases into one file, whole or not at all: HDF5, or a table with the column case.

    Those of a table are called as `names` says, or as they were in the table they came from; its
    rows go where `rows` says, the numbers that those of each case had (`CaseReader.rows`).
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in detect.HDF5:
        hdf5.write_cases(path, cases, names)
    elif suffix in (".csv", ".tsv"):
        csv_table.write_csv(path, cases, names, rows)
    elif suffix in (".parquet", ".pq"):
        parquet.write_parquet(path, cases, names, rows)
    else:
        raise DataError(
            f"{path}: many cases are written as .h5, .csv, .tsv or .parquet; of other kinds write "
            "one file each"
        )


def _read(path: Path, *, lenient: bool) -> Found:
    """`lenient` lets through what cannot be learned from, missing values for one, to look at it."""
    if detect.kind_of(path) != "folder":
        return _read_file(path, lenient=lenient, one=False)
    return read_folder(path, lambda file, one: _read_file(file, lenient=lenient, one=one))


def _read_file(path: Path, *, lenient: bool, one: bool) -> Found:
    """One file; `one` says that it is a case of a folder."""
    kind = detect.kind_of(path)
    if kind == "npz":
        content = numpy_files.read_archive(path)
        if numpy_files.is_case(content):
            case = numpy_files.read_case(path, content)
            return CaseReader(lambda i: case, [path.stem], kind="npz file of a case")
        return sorted_out(content, str(path), "npz archive of arrays", one=one)
    if kind == "table":
        return csv_table.read_csv(path, lenient=lenient)
    if kind == "parquet":
        return parquet.read_parquet(path, lenient=lenient)
    if kind == "hdf5":
        return hdf5.read_hdf5(path, one=one)
    if kind == "well":
        return the_well.read_well(path)
    if kind == "vtk":
        from ipot.formats.vtk import open_vtk, read_vtk

        if lenient:
            return open_vtk(path)
        return CaseReader(lambda i: read_vtk(path), [path.stem], kind="mesh")
    if kind == "npy":
        raise DataError(
            f"{path} is one array alone, which does not say where its points are: put points.npy, "
            "values.npy and targets.npy into a folder, or all of them into an .npz"
        )
    raise DataError(f"{path} is of the kind {kind}, {not_cases(kind)}")
