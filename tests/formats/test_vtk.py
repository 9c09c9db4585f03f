"""Meshes in and out by our own reader and writer alone."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipot.errors import DataError
from ipot.formats import inspect
from ipot.formats.fields import Case, Mesh
from ipot.formats.vtk import read_vtk, write_vtk
from ipot.formats.vtk.cells import take_cells

from .vtk_files import (
    COMPRESSORS,
    MARK,
    MODES,
    POINTS,
    PRESSURE,
    VELOCITY,
    File,
    pyramid,
)

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def put(folder, content, name="a.vtu"):
    path = folder / name
    path.write_bytes(content)
    return path


def assert_exact(ours, expected):
    assert ours.dtype == expected.dtype
    assert ours.shape == expected.shape
    assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("mode", MODES)
def test_encodings_are_read(tmp_path, mode, compressor):
    for header in ("u4", "u8"):
        for order in "<>":
            # In blocks of 16 bytes the last is shorter, in blocks of 8 it is as long as all.
            block = 16 if order == "<" else 8
            content = pyramid(mode, compressor, header=header, order=order, block=block)
            case = read_vtk(put(tmp_path, content))
            assert_exact(case.points, POINTS)
            assert_exact(case.fields["p"], PRESSURE)
            assert_exact(case.fields["U"], VELOCITY)
            assert_exact(case.cell_fields["mark"], MARK)
            assert case.mesh is not None
            assert case.mesh.connectivity.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
            assert case.mesh.offsets.tolist() == [4, 9]
            assert case.mesh.types.tolist() == [9, 14]
            assert_exact(case.parameters["Mach"], np.array([0.3]))
            assert_exact(case.parameters["TimeValue"], np.array([2.5]))
            assert all(array.flags.writeable for array in (case.points, *case.fields.values()))


def test_base64_may_be_wrapped_and_its_header_stand_alone(tmp_path):
    for header in ("u4", "u8"):
        file = File("binary", header=header)
        data = base64.b64encode(POINTS.tobytes()).decode()
        size = base64.b64encode(file.numbers(POINTS.nbytes)).decode()
        lines = "\n".join(data[k : k + 20] for k in range(0, len(data), 20))
        content = pyramid("binary", header=header, replaced={"Points": f"{size}\n{lines}".encode()})
        assert_exact(read_vtk(put(tmp_path, content)).points, POINTS)


def test_one_byte_behind_a_short_header_is_no_header_alone(tmp_path):
    file = File("binary", header="u4")
    inner = (
        '<Piece NumberOfPoints="1" NumberOfCells="0"><PointData>'
        + file.array("a", np.array([7], np.uint8))
        + "</PointData><Points>"
        + file.array("Points", np.ones((1, 3)))
        + "</Points></Piece>"
    )
    case = read_vtk(put(tmp_path, file.wrap(inner)))
    assert case.fields["a"].tolist() == [7]
    assert case.mesh is None


def piece(file, points, u=None, cells=True):
    n = len(points)
    data = "" if u is None else file.array("u", u)
    corners = list(range(n)) if cells else []
    return (
        f'<Piece NumberOfPoints="{n}" NumberOfCells="{int(cells)}"><PointData>{data}</PointData>'
        f"<Points>{file.array('Points', points)}</Points>"
        + (file.cells(corners, [n], [7]) if cells else "")
        + "</Piece>"
    )


@pytest.mark.parametrize("mode", MODES)
def test_pieces_are_joined(tmp_path, mode):
    file = File(mode)
    one, two = POINTS[:3], POINTS[1:] + 5
    inner = (
        piece(file, one, one[:, 0])
        + '<Piece NumberOfPoints="0" NumberOfCells="0"/>'
        + piece(file, two, two[:, 0])
    )
    case = read_vtk(put(tmp_path, file.wrap(inner)))
    assert_exact(case.points, np.concatenate([one, two]))
    assert_exact(case.fields["u"], case.points[:, 0].copy())
    assert case.mesh is not None
    assert case.mesh.connectivity.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert case.mesh.offsets.tolist() == [3, 7]
    assert inspect(tmp_path / "a.vtu").notes[0] == "3 pieces are read as one mesh"


def test_an_array_that_a_piece_lacks_is_left_out_and_said(tmp_path):
    file = File()
    inner = piece(file, POINTS, POINTS[:, 0]) + piece(file, POINTS)
    path = put(tmp_path, file.wrap(inner))
    assert read_vtk(path).fields == {}
    assert any("u is left out" in note for note in inspect(path).notes)


def test_cell_data_of_a_surface_follow_their_cells(tmp_path):
    """In a file, data of polygons come before those of strips, though strips are listed first."""
    file = File()

    def cells(tag, lists):
        ends = np.cumsum([len(cell) for cell in lists])
        joined = file.array("connectivity", np.concatenate(lists))
        return f"<{tag}>{joined}{file.array('offsets', ends)}</{tag}>"

    def surface(data):
        return (
            '<Piece NumberOfPoints="5" NumberOfVerts="1" NumberOfStrips="1" NumberOfPolys="2">'
            f"<CellData>{file.array('corners', data)}</CellData>"
            f"<Points>{file.array('Points', POINTS)}</Points>"
            + cells("Verts", [[4]])
            + cells("Strips", [[0, 1, 2, 3, 4]])
            + cells("Polys", [[0, 1, 2], [0, 1, 2, 3]])
            + "</Piece>"
        )

    inner = surface(np.array([1, 3, 4, 5])) + surface(np.array([1, 3, 4, 5]))
    case = read_vtk(put(tmp_path, file.wrap(inner, "PolyData"), "a.vtp"))
    assert case.mesh is not None
    assert case.mesh.types.tolist() == [1, 1, 6, 6, 5, 9, 5, 9]
    assert case.mesh.counts == (2, 0, 2, 4)
    np.testing.assert_array_equal(
        case.cell_fields["corners"], np.diff(case.mesh.offsets, prepend=0)
    )
    write_vtk(tmp_path / "b.vtp", case)
    back = read_vtk(tmp_path / "b.vtp")
    assert back.mesh is not None
    assert back.mesh.counts == case.mesh.counts
    for name in ("connectivity", "offsets", "types"):
        assert_exact(getattr(back.mesh, name), getattr(case.mesh, name))
    assert_exact(back.cell_fields["corners"], case.cell_fields["corners"])


@st.composite
def cases(draw):
    points = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 5), max_size=6))
    seed = np.random.default_rng(draw(st.integers(0, 99)))

    def data(rows):
        found = {}
        letters = st.characters(
            min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"
        )
        for name in draw(
            st.lists(st.text(letters, min_size=1, max_size=8), max_size=3, unique=True)
        ):
            dtype = np.dtype(draw(st.sampled_from(DTYPES)))
            shape = draw(st.sampled_from([(rows,), (rows, 2), (rows, 9)]))
            raw = seed.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
            found[name] = raw.view(dtype)[..., 0]
        return found

    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=seed.integers(0, points, sum(lengths)),
        offsets=np.cumsum(lengths, dtype=np.int64),
        types=seed.choice([7, 9, 10, 24], len(lengths)).astype(np.uint8),
    )
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Case(
        points=seed.standard_normal((points, 3)).astype(dtype),
        fields=data(points),
        mesh=mesh if lengths else None,
        cell_fields=data(len(lengths)) if lengths else {},
        parameters={name: array.ravel() for name, array in data(2).items()},
    )


@given(case=cases(), compress=st.booleans())
def test_what_is_written_comes_back(tmp_path_factory, case, compress):
    path = tmp_path_factory.mktemp("vtk") / "a.vtu"
    write_vtk(path, case, compress=compress)
    back = read_vtk(path)
    assert_exact(back.points, case.points)
    for name in ("fields", "cell_fields", "parameters"):
        ours, theirs = getattr(back, name), getattr(case, name)
        assert list(ours) == list(theirs)
        for key, array in ours.items():
            assert_exact(array, theirs[key])
    assert back.mesh is not None
    if case.mesh is None:
        assert back.mesh.types.tolist() == [1] * len(case.points)
        assert back.mesh.connectivity.tolist() == list(range(len(case.points)))
    else:
        for key in ("connectivity", "offsets", "types"):
            assert_exact(getattr(back.mesh, key), getattr(case.mesh, key))


def test_a_plane_is_written_with_zeros_and_read_as_flat(tmp_path):
    case = Case(points=POINTS[:4, :2].astype(np.float32), fields={"u": np.array([1, 2, 3, 4.5])})
    write_vtk(tmp_path / "deep" / "a.vtu", case)
    back = read_vtk(tmp_path / "deep" / "a.vtu")
    assert back.points.shape == (4, 3)
    assert_exact(np.ascontiguousarray(back.flat), case.points)


def test_types_that_vtk_lacks_become_the_next_wider(tmp_path):
    fields = {
        "half": np.array([0.5, 1.5], np.float16),
        "flag": np.array([True, False]),
        "swapped": np.array([1.0, 2.0], ">f4"),
        "strided": np.arange(8.0).reshape(2, 4)[:, ::2],
    }
    write_vtk(tmp_path / "a.vtu", Case(points=np.eye(2, 3), fields=fields))
    back = read_vtk(tmp_path / "a.vtu").fields
    assert {name: str(array.dtype) for name, array in back.items()} == {
        "half": "float32",
        "flag": "uint8",
        "swapped": "float32",
        "strided": "float64",
    }
    for name, array in back.items():
        np.testing.assert_array_equal(array, fields[name])


def test_inspection_says_what_is_there(tmp_path):
    found = inspect(put(tmp_path, pyramid()))
    assert found.kind == "VTK unstructured grid"
    assert found.cases == 1
    assert found.points == (5, 5)
    by_name = {variable.name: variable for variable in found.variables}
    assert {name: v.role for name, v in by_name.items()} == {
        "points": "places",
        "p": "input or target",
        "U": "input or target",
        "mark": "input or target, on cells",
        "Mach": "parameter",
        "TimeValue": "parameter",
    }
    p = by_name["p"]
    assert (p.shape, p.dtype, p.missing) == ("1 case x 5 points", "float64", 1)
    assert (p.low, p.high) == (-2.5, 4e9)
    assert p.mean == pytest.approx(np.nanmean(PRESSURE))
    assert by_name["U"].shape == "1 case x 5 points x 3"
    assert by_name["mark"].shape == "1 case x 2 cells"


def test_inspection_speaks_of_what_reading_refuses(tmp_path):
    file = File()
    points = POINTS.copy()
    points[1, 2] = np.nan
    path = put(tmp_path, file.wrap(piece(file, points, np.ones(5))))
    notes = inspect(path).notes
    assert any("points: 1 values are NaN or infinite" in note for note in notes)
    assert any("u is 1 everywhere" in note for note in notes)
    with pytest.raises(DataError, match="1 coordinates of points are NaN"):
        read_vtk(path)
    path = put(tmp_path, file.wrap('<Piece NumberOfPoints="0" NumberOfCells="0"/>'))
    assert inspect(path).notes == ("there are cases without points: remove them",)
    with pytest.raises(DataError, match="no points"):
        read_vtk(path)


def test_texts_are_passed_over(tmp_path):
    file = File()
    texts = '<FieldData><Array type="String" Name="who" format="ascii">65 0</Array></FieldData>'
    path = put(tmp_path, file.wrap(texts + piece(file, POINTS)))
    assert read_vtk(path).parameters == {}
    assert "who is left alone: it is String" in inspect(path).notes


def test_what_cannot_be_written_is_refused_and_the_old_file_stays(tmp_path):
    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=np.arange(4),
        offsets=np.array([4]),
        types=np.array([10], np.uint8),
    )
    points = POINTS[:4]
    outside = Mesh(
        kind="PolyData", connectivity=np.arange(1, 5), offsets=mesh.offsets, types=mesh.types
    )
    refused = {
        "finite": Case(points=points * np.nan),
        "1 to 3 coordinates": Case(points=np.ones((2, 4))),
        "without points": Case(points=np.ones((0, 3))),
        "u must be integers or floats": Case(points=points, fields={"u": np.ones(4, complex)}),
        "named 'a": Case(points=points, fields={"a\n\x00": np.ones(4)}),
        "named ''": Case(points=points, fields={"": np.ones(4)}),
        "at least one component": Case(points=points, fields={"u": np.ones((4, 0))}),
        "types 10 are no part of a surface; write the case as .vtu": Case(points=points, mesh=mesh),
        "join points 1 to 4; there are 4": Case(points=points, mesh=outside),
    }
    for words, case in refused.items():
        path = put(tmp_path, b"old", "a.vtp")
        with pytest.raises(DataError, match=words):
            write_vtk(path, case)
        assert path.read_bytes() == b"old"
    with pytest.raises(DataError, match=r"\.vtu or \.vtp, got '\.vtk'"):
        write_vtk(tmp_path / "a.vtk", Case(points=points))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_vtk(tmp_path / "file" / "a.vtu", Case(points=points))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vtp", "file"]


def test_cells_in_another_order():
    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=np.array([0, 1, 2, 3, 4, 5]),
        offsets=np.array([1, 1, 4, 6]),
        types=np.array([1, 0, 5, 3]),
    )
    taken = take_cells(mesh, np.array([3, 2, 1]))
    assert taken.connectivity.tolist() == [4, 5, 1, 2, 3]
    assert taken.offsets.tolist() == [2, 5, 5]
    assert taken.types.tolist() == [3, 5, 0]
    assert len(take_cells(mesh, np.array([], int))) == 0
