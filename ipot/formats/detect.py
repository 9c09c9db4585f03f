"""What a path holds, by its content; the suffix decides only where content cannot."""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py

from ipot.errors import DataError
from ipot.formats.limits import is_pattern, is_there, require_file
from ipot.formats.the_well import is_well

TABLES = (".csv", ".tsv", ".txt", ".dat")

HDF5 = (".h5", ".hdf5", ".hdf", ".he5")

NETCDF = (".nc", ".nc4", ".netcdf", ".cdf")

LABELLED = ("netCDF", "GRIB", "Zarr")
"""Kinds with named dimensions, which xarray reads: no files of cases."""

VTK_WRITTEN = {".vtu": "UnstructuredGrid", ".vtp": "PolyData"}
VTK_OTHERS = (
    *(".vtk", ".vtm", ".vts", ".vti", ".vtr", ".pvtu", ".pvtp", ".pvts", ".pvti", ".pvtr"),
    *(".foam", ".cgns", ".case", ".encas", ".exo", ".e", ".stl", ".ply", ".obj"),
)
"""Meshes for VTK's own library: a closed list, since pyvista unpickles some others."""
EXODUS = (".exo", ".e")
"""Meshes that are netCDF inside."""
VTK = (*VTK_WRITTEN, *VTK_OTHERS)
EXPECTED = {
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    **dict.fromkeys(HDF5, "hdf5"),
    **dict.fromkeys(NETCDF, "netCDF"),
    **dict.fromkeys((".grib", ".grib2", ".grb", ".grb2"), "GRIB"),
    ".zarr": "Zarr",
    **dict.fromkeys(TABLES, "table"),
}

KNOWN = ".npz, .npy, .csv, .tsv, .parquet, .h5, .hdf5, .vtu, .vtp, or a folder of such files"


def kind_of(path: Path) -> str:
    """One of folder, npz, npy, table, parquet, hdf5, well, vtk, netCDF, GRIB, Zarr."""
    suffix = path.suffix.lower()
    if suffix == ".foam":  # only marks a folder, and may be empty
        return "vtk"
    if require_file(path).is_dir():
        return "Zarr" if _is_zarr(path) else "folder"
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(b"PK"):
        return _archive(path)
    for magic, kind in ((b"\x93NUMPY", "npy"), (b"PAR1", "parquet"), (b"GRIB", "GRIB")):
        if start.startswith(magic):
            return kind
    if start.startswith((b"CDF\x01", b"CDF\x02", b"CDF\x05")) and suffix not in EXODUS:
        return "netCDF"
    if start.startswith(b"MATLAB"):
        raise DataError(
            f"{path} is a file of MATLAB, with its axes the other way round: open it with "
            "scipy.io.loadmat or h5py, and save its arrays with numpy.savez"
        )
    if suffix in VTK or start.lstrip().startswith((b"<?xml", b"<VTKFile", b"# vtk ")):
        return "vtk"
    if start.startswith(b"\x89HDF\r\n\x1a\n") or (suffix in (*HDF5, *NETCDF) and _is_hdf5(path)):
        return _hdf5(path, suffix)
    if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd")):
        raise DataError(f"{path} is compressed as a whole: unpack it first")
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        raise DataError(
            f"{path} is a pickle, which can run any code and is never opened: save plain arrays "
            "with numpy.savez"
        )
    if suffix in TABLES:
        return "table"
    if suffix in EXPECTED:
        raise DataError(
            f"{path} should be {EXPECTED[suffix]} by its name, and begins with {start[:8]!r}. It "
            "is damaged or of another kind: write or fetch it again."
        )
    raise DataError(f"{path} is of no kind that is known here. Known are {KNOWN}.")


def is_labelled(path: Path) -> bool:
    """Whether a path holds fields with named dimensions, which xarray reads; a pattern like
    `data/*.nc` stands for such files, and a folder is known by its first file."""
    if not is_there(path) and is_pattern(path):
        return True
    kind = kind_of(path)
    if kind != "folder":
        return kind in LABELLED
    for file in sorted(path.iterdir()):
        if file.name.startswith(".") or (file.is_dir() and not _is_zarr(file)):
            continue
        try:
            return kind_of(file) in LABELLED
        except DataError:
            continue
    return False


def _is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def _archive(path: Path) -> str:
    """Arrays are the only archives that are opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(
            f"{path} is an archive that cannot be opened: {error}. It is damaged or cut short: "
            "write it again."
        ) from error
    if any(name.endswith("data.pkl") for name in names):
        raise DataError(
            f"{path} is a file of torch, which is a pickle inside and never opened: save plain "
            "arrays with numpy.savez"
        )
    if path.suffix.lower() == ".npz" or any(name.endswith(".npy") for name in names):
        return "npz"
    raise DataError(f"{path} is an archive of files that are no arrays: unpack it first")


def _is_hdf5(path: Path) -> bool:
    """Whether HDF5 begins behind a block of something else."""
    return bool(h5py.is_hdf5(path))


def _hdf5(path: Path, suffix: str) -> str:
    """HDF5 is what several others are made of."""
    from ipot.formats.hdf5 import opened

    if suffix in NETCDF:
        return "netCDF"
    with opened(path) as file:
        if "_NCProperties" in file.attrs:
            return "netCDF"
        return "well" if is_well(file) else "hdf5"
