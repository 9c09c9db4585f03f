"""Both ways through VTK's own library: every encoding it can write, bit for bit."""

import itertools
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from ipot.errors import DataError, Unsupported
from ipot.formats import inspect
from ipot.formats.fields import Case
from ipot.formats.vtk import library, read_vtk, write_vtk

pv = pytest.importorskip("pyvista")
vtk = pytest.importorskip("vtk")

COUNTS = {1: 1, 3: 2, 5: 3, 9: 4, 10: 4, 12: 8, 13: 6, 14: 5, 22: 6, 24: 10, 25: 20}
ENCODINGS = [
    ("Ascii", 0, "None"),
    *itertools.product(("Binary",), (0,), ("None", "ZLib", "LZ4", "LZMA")),
    *itertools.product(("Appended",), (0, 1), ("None", "ZLib", "LZ4", "LZMA")),
]


def with_data(mesh, seed=0):
    """The mesh with arrays of every type on points, cells and the whole."""
    random = np.random.default_rng(seed)
    for kind, rows in (("point", mesh.n_points), ("cell", mesh.n_cells)):
        data = getattr(mesh, f"{kind}_data")
        for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
            raw = random.integers(0, 256, (rows, 3, np.dtype(dtype).itemsize), dtype=np.uint8)
            values = raw.view(dtype)[..., 0]
            if dtype[0] == "f":
                values = (random.standard_normal((rows, 3)) * 1e-3).astype(dtype)
                values[0] = (np.inf, -np.inf, -0.0)
            data[f"{kind} {dtype}"] = values[:, 0]
            data[f"{kind} {dtype} vector"] = values
        bits = vtk.vtkBitArray()
        bits.SetName(f"{kind} bits")
        for row in range(rows):
            bits.InsertNextValue(row % 3 == 0)
        (mesh.GetPointData() if kind == "point" else mesh.GetCellData()).AddArray(bits)
    mesh.field_data["Re"] = np.array([1e5])
    mesh.field_data["name"] = ["steel", "a & b"]
    return mesh


def mixed(points_type=np.float64):
    """Cells of many kinds, linear and quadratic, that share points in no sensible way."""
    random = np.random.default_rng(1)
    points = random.standard_normal((60, 3)).astype(points_type)
    kinds = random.permutation(np.repeat(list(COUNTS), 3))
    cells = [[COUNTS[k], *random.choice(60, COUNTS[k], replace=False)] for k in kinds]
    return with_data(pv.UnstructuredGrid(np.concatenate(cells), kinds.astype(np.uint8), points))


def surface():
    """All four kinds of cells that a surface has."""
    mesh = pv.PolyData(
        np.random.default_rng(2).standard_normal((30, 3)).astype(np.float32),
        verts=[1, 0, 2, 3, 4, 1, 7],
        lines=[2, 0, 1, 3, 2, 3, 4],
        faces=[3, 0, 1, 2, 4, 5, 6, 7, 8, 5, 9, 10, 11, 12, 13, 3, 20, 21, 22],
        strips=[5, 10, 11, 12, 13, 14, 4, 20, 21, 22, 23],
    )
    return with_data(mesh)


MESHES = {".vtu": mixed, ".vtp": surface}


def write_by_vtk(mesh, path, mode, encode, compressor, header=64, order="Little", block=None):
    poly = isinstance(mesh, pv.PolyData)
    writer = vtk.vtkXMLPolyDataWriter() if poly else vtk.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(mesh)
    writer.SetFileName(str(path))
    getattr(writer, f"SetDataModeTo{mode}")()
    getattr(writer, f"SetCompressorTypeTo{compressor}")()
    getattr(writer, f"SetHeaderTypeToUInt{header}")()
    getattr(writer, f"SetByteOrderTo{order}Endian")()
    writer.SetEncodeAppendedData(encode)
    if block:
        writer.SetBlockSize(block)
    assert writer.Write()
    return path


def centre_of(mesh, cell):
    return np.asarray(mesh.get_cell(cell).points, np.float64).mean(axis=0)


def assert_same_bits(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.tobytes() == theirs.tobytes()


def assert_same(case: Case, mesh) -> None:
    """Every array of the case has the bits of VTK's, and cell data lie where VTK has them."""
    assert_same_bits(case.points, mesh.points)
    assert set(case.fields) == set(mesh.point_data.keys())
    assert set(case.cell_fields) == set(mesh.cell_data.keys())
    for name, array in case.fields.items():
        assert_same_bits(array, mesh.point_data[name])
    order = np.arange(mesh.n_cells)
    if isinstance(mesh, pv.PolyData):
        group = {1: 0, 2: 0, 3: 1, 4: 1, 6: 2, 5: 3, 7: 3, 9: 3}
        order = np.array(sorted(order, key=lambda i: group[mesh.GetCellType(i)]))
    for name, array in case.cell_fields.items():
        assert_same_bits(array, np.asarray(mesh.cell_data[name])[order])
    assert case.mesh.types.tolist() == [mesh.GetCellType(i) for i in order]
    ends = case.mesh.offsets.tolist()
    for start, end, cell in zip([0, *ends], ends, order, strict=False):
        assert case.mesh.connectivity[start:end].tolist() == mesh.get_cell(cell).point_ids
    for name, array in case.parameters.items():
        assert_same_bits(array, np.asarray(mesh.field_data[name]).ravel())


@pytest.mark.parametrize("suffix", [".vtu", ".vtp"])
@pytest.mark.parametrize(("mode", "encode", "compressor"), ENCODINGS)
def test_every_encoding_is_read(tmp_path, suffix, mode, encode, compressor):
    mesh = MESHES[suffix]()
    # A small block, so that arrays are of several.
    path = write_by_vtk(mesh, tmp_path / f"a{suffix}", mode, encode, compressor, block=256)
    case = read_vtk(path)
    assert_same(case, mesh)
    assert set(case.parameters) == {"Re"}


@pytest.mark.parametrize("suffix", [".vtu", ".vtp"])
@pytest.mark.parametrize("compressor", ["None", "ZLib"])
@pytest.mark.parametrize(("mode", "encode"), [("Binary", 0), ("Appended", 0), ("Appended", 1)])
def test_headers_and_byte_orders(tmp_path, suffix, compressor, mode, encode):
    mesh = MESHES[suffix]()
    for header, order in itertools.product((32, 64), ("Little", "Big")):
        path = write_by_vtk(
            mesh, tmp_path / f"a{suffix}", mode, encode, compressor, header, order, 1000
        )
        assert_same(read_vtk(path), mesh)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("suffix", [".vtu", ".vtp"])
def test_what_is_written_is_read_by_vtk(tmp_path, suffix, compress, dtype):
    mesh = mixed(dtype) if suffix == ".vtu" else surface()
    case = read_vtk(write_by_vtk(mesh, tmp_path / f"a{suffix}", "Appended", 0, "None"))
    write_vtk(tmp_path / f"b{suffix}", case, compress=compress)
    back = pv.read(tmp_path / f"b{suffix}")
    assert isinstance(back, type(mesh))
    assert_same(case, back)
    assert_same(read_vtk(tmp_path / f"b{suffix}"), back)


def test_a_surface_is_written_as_a_grid_and_back(tmp_path):
    mesh = surface()
    write_by_vtk(mesh, tmp_path / "a.vtp", "Appended", 0, "None")
    case = read_vtk(tmp_path / "a.vtp")
    write_vtk(tmp_path / "b.vtu", case)
    grid = pv.read(tmp_path / "b.vtu")
    where = {tuple(mesh.get_cell(i).point_ids): i for i in range(mesh.n_cells)}
    for cell in range(grid.n_cells):
        twin = where[tuple(grid.get_cell(cell).point_ids)]
        assert grid.GetCellType(cell) == mesh.GetCellType(twin)
        assert grid.cell_data["cell i4"][cell] == mesh.cell_data["cell i4"][twin]
    write_vtk(tmp_path / "c.vtp", read_vtk(tmp_path / "b.vtu"))
    assert_same(case, pv.read(tmp_path / "c.vtp"))


@pytest.mark.parametrize("make", [mixed, surface])
def test_centres_are_those_of_vtk(tmp_path, make):
    mesh = make()
    suffix = ".vtp" if make is surface else ".vtu"
    case = read_vtk(write_by_vtk(mesh, tmp_path / f"a{suffix}", "Binary", 0, "None"))
    theirs = np.stack([centre_of(mesh, cell) for cell in range(mesh.n_cells)])
    # Cells are found by their data, whatever order they are in.
    by_data = {int(v): k for k, v in enumerate(mesh.cell_data["cell i8"])}
    order = [by_data[int(v)] for v in case.cell_fields["cell i8"]]
    np.testing.assert_allclose(case.centres(), theirs[order], rtol=1e-6, atol=1e-6)


def test_points_alone_are_shown_as_vertices(tmp_path):
    points = np.random.default_rng(0).random((7, 2))
    for suffix in (".vtu", ".vtp"):
        write_vtk(tmp_path / f"a{suffix}", Case(points=points, fields={"u": points[:, 0]}))
        mesh = pv.read(tmp_path / f"a{suffix}")
        assert [mesh.get_cell(i).point_ids for i in range(mesh.n_cells)] == [[i] for i in range(7)]
        assert_same_bits(points, mesh.points[:, :2])
        assert not mesh.points[:, 2].any()


def test_names_and_units_survive(tmp_path):
    name = 'Größe <U> & "p\'"'
    case = Case(points=np.zeros((2, 3)), fields={name: np.arange(2.0)}, units={name: "kg/m³ & s"})
    write_vtk(tmp_path / "a.vtu", case)
    array = pv.read(tmp_path / "a.vtu").GetPointData().GetArray(0)
    assert array.GetName() == name
    assert array.GetInformation().Get(vtk.vtkDataArray.UNITS_LABEL()) == "kg/m³ & s"
    assert read_vtk(tmp_path / "a.vtu").units == {name: "kg/m³ & s"}


def test_units_and_components_of_vtk_are_read(tmp_path):
    mesh = mixed()
    array = mesh.GetPointData().GetArray("point f8 vector")
    array.GetInformation().Set(vtk.vtkDataArray.UNITS_LABEL(), "m/s")
    array.SetComponentName(0, "along")
    write_by_vtk(mesh, tmp_path / "a.vtu", "Binary", 0, "None")
    assert read_vtk(tmp_path / "a.vtu").units == {"point f8 vector": "m/s"}
    found = {v.name: v for v in inspect(tmp_path / "a.vtu").variables}["point f8 vector"]
    assert found.units == "m/s"
    assert found.shape == "1 case x 60 points x 3 (along, , )"


def test_polyhedra_keep_corners_and_data(tmp_path):
    path = tmp_path / "a.vtu"
    mesh = pv.examples.cells.Polyhedron().cast_to_unstructured_grid()
    mesh.cell_data["c"] = np.arange(1.0)
    write_by_vtk(mesh, path, "Appended", 0, "None")
    case = read_vtk(path)
    assert case.mesh.types.tolist() == [42]
    np.testing.assert_allclose(case.centres(), mesh.points.mean(axis=0)[None])
    write_vtk(path, case)
    back = pv.read(path)
    assert back.GetCellType(0) == 41
    assert sorted(back.get_cell(0).point_ids) == [0, 1, 2, 3]


def test_other_formats_go_through_vtk(tmp_path):
    sources = {".vtk": mixed(), ".vtp": surface(), ".vti": pv.ImageData(dimensions=(3, 4, 5))}
    sources[".vti"].point_data["u"] = np.arange(60.0)
    for suffix, mesh in sources.items():
        path = tmp_path / f"a{suffix}"
        if suffix == ".vtp":
            path = tmp_path / "surface.vtk"
        mesh.save(path)
        case = read_vtk(path)
        if suffix == ".vti":
            assert_same(case, mesh.cast_to_unstructured_grid())
        else:
            assert_same(case, mesh)
        assert inspect(path).kind == f"{path.suffix} through VTK"
    # Content decides where a suffix misleads.
    (tmp_path / "b.vtu").write_bytes((tmp_path / "surface.vtk").read_bytes())
    assert_same(read_vtk(tmp_path / "b.vtu"), sources[".vtp"])
    (tmp_path / "b.vtu").write_bytes((tmp_path / "a.vti").read_bytes())
    assert len(read_vtk(tmp_path / "b.vtu").points) == 60


def test_blocks_are_joined(tmp_path):
    one, two = pv.Sphere(), pv.Sphere(center=(3, 0, 0))
    for block in (one, two):
        block.point_data["u"] = block.points[:, 0].copy()
    pv.MultiBlock([one, two]).save(tmp_path / "a.vtm")
    case = read_vtk(tmp_path / "a.vtm")
    assert len(case.points) == one.n_points + two.n_points
    np.testing.assert_array_equal(case.fields["u"], case.points[:, 0])
    assert case.mesh is not None
    assert len(case.mesh) == one.n_cells + two.n_cells


def test_damage_that_vtk_meets_is_an_error_of_ours(tmp_path, capfd):
    for name in ("a.vtk", "a.cgns", "a.stl", "a.case"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(DataError, match=name):
            read_vtk(tmp_path / name)
    path = write_by_vtk(mixed(), tmp_path / "b.vtu", "Appended", 0, "LZ4")
    content = path.read_bytes()
    at = content.index(b"_", content.index(b"<AppendedData"))
    path.write_bytes(content[: at + 200] + bytes(400) + content[at + 600 :])
    with pytest.raises(DataError, match=r"b\.vtu cannot be read by VTK"):
        read_vtk(path)
    assert "ERR" not in capfd.readouterr().err


@pytest.mark.parametrize("binary", [True, False])
def test_an_older_file_that_was_cut_short_is_refused(tmp_path, binary):
    """VTK hands over what it has, the rest of an array being whatever was in memory."""
    path = tmp_path / "a.vtk"
    mesh = mixed()
    mesh.save(path, binary=binary)
    content = path.read_bytes()
    for share in (0.1, 0.3, 0.5, 0.66, 0.9):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"a\.vtk"):
            read_vtk(path)


def test_vtk_reads_in_another_process_alone(tmp_path, monkeypatch):
    """What it does on a damaged file is not the same each time: surviving once means nothing."""
    mixed().save(tmp_path / "a.vtk")
    surface().save(tmp_path / "b.vtk")
    whole = [read_vtk(tmp_path / name) for name in ("a.vtk", "b.vtk")]
    assert_same(whole[0], mixed())
    monkeypatch.setattr(library, "_read", lambda *given: pytest.fail("VTK was called here"))
    for name, before in zip(("a.vtk", "b.vtk"), whole, strict=True):
        found = read_vtk(tmp_path / name)
        assert (found.source, found.mesh.counts) == (str(tmp_path / name), before.mesh.counts)
        assert found.mesh.types.tolist() == before.mesh.types.tolist()
        for ours, theirs in zip(found.fields.values(), before.fields.values(), strict=True):
            assert_same_bits(ours, theirs)


def test_pickles_are_not_handed_on(tmp_path):
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(DataError, match=r"expected one of .*\.vtu"):
        read_vtk(tmp_path / "a.pkl")


def test_without_pyvista_the_message_says_what_to_install(tmp_path, monkeypatch):
    path = write_by_vtk(mixed(), tmp_path / "a.vtu", "Appended", 0, "LZ4")
    monkeypatch.setitem(sys.modules, "pyvista", None)
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(Unsupported, match=r"LZ4.*pip install 'ipot\[mesh\]'"):
        read_vtk(path)
    with pytest.raises(Unsupported, match=r"pip install 'ipot\[mesh\]'"):
        read_vtk(Path(__file__).parent / "a.foam")


def test_lz4_by_its_package(tmp_path, monkeypatch):
    """With a small decoder in place of the package, VTK's own blocks come out."""

    class Broken(Exception):
        pass

    def decompress(data, uncompressed_size):
        data, out, at = bytes(data), bytearray(), 0

        def longer(length, at):
            while length >= 15:
                length, at, more = length + data[at], at + 1, data[at]
                if more < 255:
                    break
            return length, at

        while at < len(data):
            token = data[at]
            length, at = longer(token >> 4, at + 1)
            out += data[at : at + length]
            at += length
            if at >= len(data):
                break
            back = data[at] | data[at + 1] << 8
            length, at = longer(token & 15, at + 2)
            for _ in range(length + 4):
                out.append(out[-back])
        return bytes(out[:uncompressed_size])

    fake = types.SimpleNamespace(decompress=decompress, LZ4BlockError=Broken)
    monkeypatch.setitem(sys.modules, "lz4", types.ModuleType("lz4"))
    monkeypatch.setitem(sys.modules, "lz4.block", fake)
    mesh = mixed()
    path = write_by_vtk(mesh, tmp_path / "a.vtu", "Appended", 0, "LZ4", block=512)
    monkeypatch.setitem(sys.modules, "pyvista", None)
    assert_same(read_vtk(path), mesh)
