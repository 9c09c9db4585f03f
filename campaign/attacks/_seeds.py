"""Small files of every format of data that the package reads, to be changed."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ipot.formats import Case, Mesh, Trajectories, write_case, write_cases
from ipot.formats.fields import TrajectoryField
from ipot.formats.the_well import write_well

SECRET = 987654.125
"""A number that stands in files outside of a case's folder and nowhere else."""
CASES = ("read", "inspect", "dataset")
# A bomb takes a thousand times as long as other changes, and is drawn seldom.
ZIP = (*("zip headers", "zip members") * 8, *("npy header in zip",) * 14, "zip bomb")
HDF5 = (
    *("hdf5 link", "hdf5 storage elsewhere", "hdf5 type", "hdf5 shape", "hdf5 values"),
    *("hdf5 chunks and filters", "hdf5 names", "hdf5 attributes", "hdf5 attributes"),
)
XML = (
    *("xml attribute", "xml attribute", "xml attribute", "xml element"),
    *("xml entities", "xml encoding", "xml piece elsewhere"),
)
FOLDER = ("folder entries", "folder links")


@dataclass(frozen=True)
class Seed:
    """A file or folder that is right, how it is read, and what may be changed in it."""

    name: str
    group: str
    make: Callable[[Path], Path]
    """Writes it into an empty folder and says where it is."""
    doors: tuple[str, ...] = CASES
    changes: tuple[str, ...] = ()
    """Changes that know the format, beside those of bytes."""
    neutral: tuple[str, ...] = ("same",)
    needs: tuple[str, ...] = ()
    """Libraries without which it is left out."""
    options: dict[str, Any] = field(default_factory=dict)
    """How the doors are told what to take."""
    library: bool = False
    """Whether another library reads the bytes: such seeds are slow."""


def by(write: Callable[..., Path], *given: Any, **named: Any) -> Callable[[Path], Path]:
    """A function that writes into a folder, with the rest of its arguments given."""
    return lambda folder: write(folder, *given, **named)


def case(i: int, side: int = 3) -> Case:
    """A square in triangles, with fields at points and on cells, and a number."""
    line = np.linspace(0, 1, side)
    x, y = (a.ravel() for a in np.meshgrid(line, line, indexing="ij"))
    corner = np.arange(side * side).reshape(side, side)[:-1, :-1].ravel()
    cells = [[corner, corner + side, corner + 1], [corner + 1, corner + side, corner + side + 1]]
    joined = np.concatenate([np.stack(c, 1) for c in cells]).ravel()
    count = len(joined) // 3
    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=joined,
        offsets=3 * np.arange(1, count + 1),
        types=np.full(count, 5, np.uint8),
    )
    return Case(
        points=np.stack([x, y, 0.5 + 0 * x], 1),
        fields={"a": np.cos(3 * x + i), "u": np.sin(3 * y + i), "w": np.stack([x, y, x * y], 1)},
        mesh=mesh,
        cell_fields={"p": np.arange(count) + 0.25 * i},
        parameters={"re": np.array([1.0 + i])},
        units={"u": "Pa", "p": "K"},
    )


def plain_case(i: int) -> Case:
    """A case without cells, in two dimensions."""
    whole = case(i)
    fields = {n: f for n, f in whole.fields.items() if f.ndim == 1}
    return Case(points=whole.points[:, :2], fields=fields, parameters=whole.parameters)


def given_arrays(count: int = 8) -> dict[str, np.ndarray]:
    """Arguments of `Dataset.from_arrays`."""
    random = np.random.default_rng(1)
    points, phases = random.random((9, 2)), random.random((count, 1))
    values = np.cos(points.sum(1) + 3 * phases)
    return {"points": points, "values": values, "targets": values**2, "parameters": phases}


def _npz(folder: Path, *, packed: bool) -> Path:
    given: dict[str, Any] = {**given_arrays()}
    (np.savez_compressed if packed else np.savez)(folder / "a.npz", **given)
    return folder / "a.npz"


def _npy_folder(folder: Path) -> Path:
    (folder / "arrays").mkdir()
    for name, array in given_arrays().items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    return folder / "arrays"


def _npy(folder: Path) -> Path:
    np.save(folder / "a.npy", given_arrays()["values"])
    return folder / "a.npy"


def _one(folder: Path, name: str, make: Callable[[int], Case] = case) -> Path:
    write_case(folder / name, make(0))
    return folder / name


def _many(folder: Path, name: str, make: Callable[[int], Case] = case) -> Path:
    write_cases(folder / name, [make(i) for i in range(3)])
    return folder / name


def _folder_of(folder: Path, suffix: str, make: Callable[[int], Case] = case) -> Path:
    for i in range(3):
        write_case(folder / "cases" / f"c{i}{suffix}", make(i))
    return folder / "cases"


def _plain_h5(folder: Path) -> Path:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in given_arrays().items():
            file.create_dataset(name, data=array, compression="gzip" if name == "values" else None)
    return folder / "a.h5"


def _well(folder: Path) -> Path:
    line = np.linspace(0, 1, 3, endpoint=False)
    nodes = np.stack([n.ravel() for n in np.meshgrid(line, line, indexing="ij")], 1)
    times, speed = 0.5 * np.arange(6), 0.1 + 0.05 * np.arange(3)
    height = np.cos(6 * (nodes[:, 0] - speed[:, None, None] * times[:, None]))[..., None]
    stored = TrajectoryField(
        shape=height.shape,
        dtype=height.dtype,
        components=("h",),
        steady=False,
        pieces=lambda trajectory, times: height[trajectory, times],
    )
    found = Trajectories(
        points=nodes,
        grid=(3, 3),
        times=times,
        fields={"h": stored},
        parameters={"speed": speed},
        axes=("x", "y"),
        periods=(1.0, None),
        name="waves",
    )
    write_well(folder / "well.h5", found)
    return folder / "well.h5"


VTK_TYPES = {"f": "Float", "i": "Int", "u": "UInt"}


def vtu(mode: str, packed: bool = False) -> bytes:
    """The case as a file of VTK, with its arrays as text, in base64, or raw behind the rest."""
    found, appended = case(0), [b""]
    mesh = found.mesh
    assert mesh is not None

    def stored(array: np.ndarray) -> bytes:
        raw = np.ascontiguousarray(array).tobytes()
        if not packed:
            return struct.pack("<I", len(raw)) + raw
        block = zlib.compress(raw)
        return struct.pack("<4I", 1, len(raw), 0, len(block)) + block

    def text(name: str, array: np.ndarray) -> str:
        kind = f"{VTK_TYPES[array.dtype.kind]}{8 * array.dtype.itemsize}"
        width = array.shape[1] if array.ndim == 2 else 1
        head = f'<DataArray type="{kind}" Name="{name}" NumberOfComponents="{width}"'
        if mode == "ascii":
            numbers = " ".join(map(repr, array.ravel().tolist()))
            return f'{head} format="ascii">\n{numbers}\n</DataArray>'
        data = stored(array)
        if mode == "base64":
            cut = 16 if packed else 0
            coded = base64.b64encode(data[:cut]) + base64.b64encode(data[cut:])
            return f'{head} format="binary">{coded.decode()}</DataArray>'
        place = len(appended[0])
        appended[0] += data
        return f'{head} format="appended" offset="{place}"/>'

    squeezer = ' compressor="vtkZLibDataCompressor"' if packed else ""
    body = "\n".join(
        [
            f'<?xml version="1.0"?>\n<VTKFile type="UnstructuredGrid" version="1.0" '
            f'byte_order="LittleEndian" header_type="UInt32"{squeezer}>\n<UnstructuredGrid>',
            f"<FieldData>{text('re', found.parameters['re'])}</FieldData>",
            f'<Piece NumberOfPoints="{len(found.points)}" NumberOfCells="{len(mesh)}"><PointData>',
            *(text(n, a) for n, a in found.fields.items()),
            "</PointData><CellData>",
            *(text(n, a) for n, a in found.cell_fields.items()),
            "</CellData><Points>",
            text("Points", found.points),
            "</Points><Cells>",
            text("connectivity", mesh.connectivity),
            text("offsets", mesh.offsets),
            text("types", mesh.types),
            "</Cells></Piece></UnstructuredGrid>\n",
        ]
    ).encode()
    if mode == "raw":
        body += b'<AppendedData encoding="raw">\n_' + appended[0] + b"\n</AppendedData>\n"
    return body + b"</VTKFile>\n"


def _vtu(folder: Path, mode: str, packed: bool = False) -> Path:
    (folder / "a.vtu").write_bytes(vtu(mode, packed))
    return folder / "a.vtu"


def _vtp(folder: Path) -> Path:
    """The case as a surface."""
    found = case(0)
    assert found.mesh is not None
    counts = (0, 0, 0, len(found.mesh))
    surface = replace(found.mesh, kind="PolyData", counts=counts)
    write_case(folder / "a.vtp", replace(found, mesh=surface))
    return folder / "a.vtp"


FIELDS = {"inputs": ("a",), "targets": ("u",), "parameters": ("re",)}
_TABLE = {"inputs": ("a",), "targets": ("u",)}
_CSV = ("table cell", "table cell", "table whole")
_LINES = ("same", "table ends of lines")
_PACKED = ("same", "zip packed otherwise")

SEEDS = (
    Seed("npz", "arrays", by(_npz, packed=False), changes=ZIP, neutral=_PACKED),
    Seed("npz packed", "arrays", by(_npz, packed=True), changes=ZIP, neutral=_PACKED),
    Seed("npz case", "arrays", by(_one, "c.npz"), changes=ZIP, neutral=_PACKED, options=FIELDS),
    Seed("npz folder", "arrays", by(_folder_of, ".npz"), changes=(*ZIP, *FOLDER), options=FIELDS),
    Seed("npy folder", "arrays", _npy_folder, changes=("npy header", "npy header", *FOLDER)),
    Seed("npy", "arrays", _npy, ("npy",), ("npy header",)),
    Seed("csv", "tables", by(_many, "a.csv", plain_case), CASES, _CSV, _LINES, options=_TABLE),
    Seed("tsv", "tables", by(_many, "a.tsv", plain_case), CASES, _CSV, _LINES, options=_TABLE),
    Seed("csv folder", "tables", by(_folder_of, ".csv", plain_case), CASES, (*_CSV, *FOLDER),
         options=_TABLE),
    Seed("parquet", "tables", by(_many, "a.parquet", plain_case), CASES,
         ("parquet footer", "parquet footer", "parquet page header"), needs=("pyarrow",),
         options=_TABLE),
    Seed("hdf5", "hdf5", by(_many, "a.h5"), changes=HDF5, options=FIELDS),
    Seed("hdf5 plain", "hdf5", _plain_h5, changes=HDF5),
    Seed("hdf5 folder", "hdf5", by(_folder_of, ".h5"), changes=(*HDF5, *FOLDER), options=FIELDS),
    Seed("the well", "hdf5", _well, changes=HDF5,
         options={"targets": ("h",), "history": 2, "lead": 1}),
    Seed("vtu ascii", "meshes", by(_vtu, "ascii"), changes=(*XML, "xml number"), options=FIELDS),
    Seed("vtu base64", "meshes", by(_vtu, "base64"), changes=XML, options=FIELDS),
    Seed("vtu raw", "meshes", by(_vtu, "raw"), changes=XML, options=FIELDS),
    Seed("vtu packed", "meshes", by(_vtu, "base64", packed=True), changes=XML, options=FIELDS),
    Seed("vtu raw packed", "meshes", by(_vtu, "raw", packed=True), changes=XML, options=FIELDS),
    Seed("vtp", "meshes", _vtp, changes=XML, options=FIELDS),
    Seed("vtu folder", "meshes", by(_folder_of, ".vtu"), changes=(*XML, *FOLDER), options=FIELDS),
)  # fmt: skip
