"""Small files with named dimensions and of published layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from campaign.attacks._seeds import FOLDER, HDF5, ZIP, Seed, by

DOORS = ("labelled", "inspect", "dataset")
OPTIONS = {"inputs": "t2m", "targets": "t2m", "history": 2, "lead": 1}
TIMES, ROWS, COLUMNS = 8, 3, 4
_AXES = ("time", "latitude", "longitude")


def _grid() -> Any:
    """A temperature on a grid, one field a day."""
    import xarray

    lines = (np.linspace(60, 40, ROWS), np.linspace(0, 30, COLUMNS))
    lat, lon = np.meshgrid(*lines, indexing="ij")
    steps = np.arange(TIMES, dtype=float).reshape(-1, 1, 1)
    wave = 280 + np.sin(np.radians(lat)) + np.cos(np.radians(lon) - 0.1 * steps)
    days = np.datetime64("2020-01-01", "ns") + np.arange(TIMES) * np.timedelta64(86400, "s")
    coords = dict(zip(_AXES, (days, *lines), strict=True))
    return xarray.Dataset({"t2m": (_AXES, wave.astype(np.float32), {"units": "K"})}, coords=coords)


def _netcdf(folder: Path, form: str, engine: str = "netcdf4", **encoding: Any) -> Path:
    options = {"t2m": encoding} if encoding else {}
    _grid().to_netcdf(folder / "a.nc", format=form, engine=engine, encoding=options)
    return folder / "a.nc"


def _netcdf_folder(folder: Path) -> Path:
    whole = _grid()
    (folder / "months").mkdir()
    for i, half in enumerate((slice(0, 4), slice(4, None))):
        part = whole.isel(time=half)
        part.to_netcdf(folder / "months" / f"m{i}.nc", format="NETCDF3_CLASSIC", engine="netcdf4")
    return folder / "months"


def _zarr(folder: Path, version: int, *, packed: bool) -> Path:
    plain: dict[str, Any] = {"compressors": None}
    encoding = {} if packed else dict.fromkeys(("t2m", *_AXES), plain)
    _grid().to_zarr(
        folder / "a.zarr",
        zarr_format=version,
        encoding=encoding | {"t2m": {"chunks": (4, ROWS, COLUMNS)} | ({} if packed else plain)},
        consolidated=version == 2 and packed,
    )
    return folder / "a.zarr"


def _grib(folder: Path, edition: int) -> Path:
    import eccodes

    data = _grid()["t2m"]
    with (folder / "a.grib").open("wb") as file:
        for i in range(TIMES):
            handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{edition}")
            for key, value in {
                "Ni": COLUMNS,
                "Nj": ROWS,
                "latitudeOfFirstGridPointInDegrees": 60.0,
                "latitudeOfLastGridPointInDegrees": 40.0,
                "longitudeOfFirstGridPointInDegrees": 0.0,
                "longitudeOfLastGridPointInDegrees": 30.0,
                "iDirectionIncrementInDegrees": 10.0,
                "jDirectionIncrementInDegrees": 10.0,
                "dataDate": 20200101 + i,
                "shortName": "2t",
            }.items():
                eccodes.codes_set(handle, key, value)
            values = data[i].values.ravel().astype(float)
            eccodes.codes_set_values(handle, values)
            eccodes.codes_write(handle, file)
            eccodes.codes_release(handle)
    return folder / "a.grib"


def _burgers(folder: Path, version: str) -> Path:
    from ipot.data.readers import write_mat

    random = np.random.default_rng(0)
    (folder / "files").mkdir()
    rows = {"train": (0, 3), "validation": (3, 4), "test": (4, 6)}
    arrays = {name: random.random((6, 16)) for name in "au"}
    marks = {f"rows_{n}": np.array([r], np.int64) for n, r in rows.items()}
    write_mat(folder / "files" / "burgers_data_R10.mat", arrays | marks, version)  # pyrefly: ignore
    return folder / "files"


def _elasticity(folder: Path) -> Path:
    from ipot.problems import _unit_cells as cells

    random, count = np.random.default_rng(0), 3
    (folder / "files").mkdir()
    arrays = {
        cells.XY: random.random((cells.POINTS, 2, count)).astype(np.float32),
        cells.RADII: 0.5 * random.random((cells.ANGLES, count)),
        cells.STRESS: random.random((cells.POINTS, count)).astype(np.float32),
        cells.THETA: random.random((count, cells.NUMBERS)),
        cells.ROWS: np.array([[0, 1], [1, 2], [2, 3]]),
    }
    for name, array in arrays.items():
        np.save(folder / "files" / name, array)
    return folder / "files"


def _sst(folder: Path) -> Path:
    """The weekly record of the surface of the sea, at five points."""
    from ipot.data.sst import ORIGINAL

    days = np.datetime64("1990-01-07") + 7 * np.arange(12)
    lat, lon = np.linspace(-60, 60, 5), np.linspace(10, 300, 5)
    record = 15 + np.cos(np.radians(lat)) + 0.1 * np.arange(12)[:, None]
    np.savez_compressed(folder / ORIGINAL, sst=record, date=days.astype("U10"), lat=lat, lon=lon)
    return folder / ORIGINAL


def _dedalus(folder: Path) -> Path:
    from ipot.data import dedalus

    random = np.random.default_rng(0)
    found = dedalus.Snapshots(
        fields={n: random.random((3, 4, 8)) for n in ("height", "vorticity")},
        times=np.arange(3.0),
        latitudes=np.linspace(1.2, -1.2, 4),
        longitudes=np.linspace(0, 2 * np.pi, 8, endpoint=False),
    )
    return dedalus.write(folder / "traj_0000.h5", found)


_WORDS = ("aligned header words",) * 3
_NC3, _NC4 = ("xarray", "netCDF4"), ("xarray", "netCDF4")
_ZARR = ("zarr metadata", "zarr metadata", "zarr metadata", "zarr chunk", "json", *FOLDER)
_META = ("same", "json written otherwise")

SEEDS = (
    *(
        Seed(f"netcdf {n}", "labelled", by(_netcdf, f), DOORS, _WORDS, needs=_NC3, options=OPTIONS)
        for n, f in (
            ("classic", "NETCDF3_CLASSIC"),
            ("64 bit", "NETCDF3_64BIT"),
            ("cdf5", "NETCDF3_64BIT_DATA"),
        )
    ),
    Seed("netcdf 4", "labelled", by(_netcdf, "NETCDF4", zlib=True), DOORS, HDF5, needs=_NC4,
         options=OPTIONS),
    Seed("netcdf scaled", "labelled",
         by(_netcdf, "NETCDF4", dtype="int16", scale_factor=0.01, add_offset=280.0,
            _FillValue=-9999),
         DOORS, HDF5, needs=_NC4, options=OPTIONS),
    Seed("netcdf folder", "labelled", _netcdf_folder, DOORS, (*_WORDS, *FOLDER), needs=_NC3,
         options=OPTIONS),
    *(
        Seed(f"zarr {v}{' packed' if p else ''}", "labelled", by(_zarr, v, packed=p), DOORS, _ZARR,
             _META, needs=("xarray", "zarr"), options=OPTIONS)
        for v, p in ((2, False), (2, True), (3, False), (3, True))
    ),
    *(
        Seed(f"grib {e}", "labelled", by(_grib, e), DOORS, ("grib section",) * 2,
             needs=("xarray", "cfgrib", "eccodes"), options=OPTIONS)
        for e in (1, 2)
    ),
    Seed("matlab 5", "published", by(_burgers, "5"), ("burgers",), _WORDS, needs=("scipy",)),
    Seed("matlab 7.3", "published", by(_burgers, "7.3"), ("burgers",), HDF5, needs=("scipy",)),
    Seed("unit cells", "published", _elasticity, ("elasticity",), ("npy header", *FOLDER)),
    Seed("sst", "published", _sst, ("sst",), ZIP, ("same", "zip packed otherwise")),
    Seed("dedalus", "published", _dedalus, ("dedalus",), HDF5),
)  # fmt: skip
