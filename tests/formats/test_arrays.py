"""Arrays by name: in archives, in folders of .npy, at the root of HDF5 files."""

import io
import pickle
import zipfile

import h5py
import numpy as np
import pytest

from ipot.errors import DataError
from ipot.formats import Arrays, inspect, kind_of, read_cases
from ipot.formats import case_tree as layout
from ipot.formats.numpy_files import read_arrays, write_arrays, write_mapped

random = np.random.default_rng(0)
S, N = 6, 10
POINTS = random.random((N, 2))


def npz(folder, arrays):
    np.savez(folder / "some.npz", **arrays)
    return folder / "some.npz"


def npy(folder, arrays):
    (folder / "some").mkdir()
    for name, array in arrays.items():
        np.save(folder / "some" / f"{name}.npy", array)
    return folder / "some"


def hdf5(folder, arrays):
    with h5py.File(folder / "some.h5", "w") as file:
        for name, array in arrays.items():
            text = np.asarray(array).dtype.kind == "U"
            file.create_dataset(name, data=np.asarray(array, object) if text else array)
    return folder / "some.h5"


@pytest.fixture(params=[npz, npy, hdf5])
def save(request, tmp_path):
    return lambda **arrays: request.param(tmp_path, arrays)


def test_our_own_layout(save):
    given = {
        "points": POINTS,
        "values": random.random((S, N, 2)),
        "targets": random.random((S, 3, N)).astype(np.float32),
        "times": np.array([1.0, 2.0, 3.0]),
        "parameters": random.random((S, 4)),
    }
    found = read_cases(save(**given, outputs=np.array(["u"]), extra=np.ones(3)))
    assert isinstance(found, Arrays)
    for name, array in given.items():
        np.testing.assert_array_equal(getattr(found, name), array)
        assert getattr(found, name).dtype == array.dtype
    assert found.outputs == ("u",)
    assert len(found) == S
    assert "extra" in found.notes[0]


def test_fields_of_many_cases_on_shared_points(save):
    a, v = random.random((S, N)), random.random((S, N, 3)).astype(np.float32)
    normal, re = random.random((N, 2)), np.arange(S)
    found = read_cases(
        save(coords=POINTS, a=a, v=v, normal=normal, re=re, odd=np.ones((2, 3, 4, 5)))
    )
    assert len(found) == S
    for i, case in enumerate(found):
        np.testing.assert_array_equal(case.points, POINTS)
        np.testing.assert_array_equal(case.fields["a"], a[i])
        np.testing.assert_array_equal(case.fields["v"], v[i])
        np.testing.assert_array_equal(case.fields["normal"], normal)
        np.testing.assert_array_equal(case.parameters["re"], [i])
    assert case.fields["v"].dtype == np.float32
    assert any("odd: left alone" in note for note in found.notes)
    assert found[-1].source.endswith(f"case {S - 1}")
    with pytest.raises(IndexError):
        found[S]


def test_points_of_every_case(save):
    points, a = random.random((S, N, 3)), random.random((S, N))
    found = read_cases(save(pos=points, a=a))
    np.testing.assert_array_equal(found[4].points, points[4])
    np.testing.assert_array_equal(found[4].fields["a"], a[4])


def test_one_case(save):
    (case,) = read_cases(save(X=POINTS[:, 0], y=POINTS[:, 1], a=np.arange(N), re=np.array(7.0)))
    np.testing.assert_array_equal(case.points, POINTS)
    np.testing.assert_array_equal(case.fields["a"], np.arange(N))
    np.testing.assert_array_equal(case.parameters["re"], [7.0])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [(4, 7), (5, 5)])
def test_a_grid_by_its_axes(save, size, turned):
    """Values stand where the coordinates say, in the order of the field's axes."""
    x, y = np.linspace(0, 1, size[0]), np.linspace(5, 9, size[1])
    if turned and size[0] != size[1]:
        field = np.stack([i + x[None, :] + 10 * y[:, None] for i in range(S)])
    else:
        field = np.stack([i + x[:, None] + 10 * y[None, :] for i in range(S)])
    vector = np.stack([field, -field], axis=-1)
    found = read_cases(save(x=x, y=y, u=field, v=vector))
    assert len(found) == S
    for i, case in enumerate(found):
        np.testing.assert_allclose(case.fields["u"], i + case.points @ [1, 10])
        np.testing.assert_allclose(case.fields["v"][:, 1], -case.fields["u"])
        assert len(np.unique(case.points, axis=0)) == x.size * y.size


@pytest.mark.parametrize("order", ["ij", "xy"])
def test_a_grid_by_all_its_nodes(save, order):
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(2, 3, 6), indexing=order)
    found = read_cases(save(x=x, y=y, u=np.stack([x + 10 * y + i for i in range(S)])))
    assert len(found) == S
    np.testing.assert_allclose(found[2].fields["u"], 2 + found[2].points @ [1, 10])


def test_coordinates_of_every_case(save):
    x, y = random.random((S, N)), random.random((S, N))
    found = read_cases(save(x=x, y=y, u=x + 2 * y))
    assert len(found) == S
    np.testing.assert_allclose(found[3].fields["u"], found[3].points @ [1, 2])


def test_scattered_points_as_many_as_cases_are_no_grid(save):
    """Coordinates that go back and forth are no axes."""
    x, y, u = random.random(N), random.random(N), random.random((N, N))
    found = read_cases(save(x=x, y=y, u=u))
    assert len(found) == N
    np.testing.assert_array_equal(found[1].fields["u"], u[1])
    assert found[1].points.shape == (N, 2)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.ones((S, N)), "b": np.ones(3)}, r"where its points are.*a \(6, 10\).*`points`"),
        ({"x": np.ones((S, 8, 8)), "y": np.ones((S, 8, 8))}, "where its points are"),
        (
            {"x": np.ones((S, 8, 8)), "y": np.ones((S, 8, 8)), "u": np.ones(3)},
            "neither those of single points nor the axes",
        ),
        ({"points": POINTS.T, "a": np.ones(N)}, r"must be \(N, D\).*got \(2, 10\).*transposed"),
        ({"points": POINTS, "a": np.ones((2, 3, 4))}, r"no field on them: a \(2, 3, 4\)"),
        ({"points": POINTS, "a": np.ones((4, N)), "b": np.ones((5, N))}, "a 4, b 5"),
        ({"x": np.arange(4.0), "y": np.arange(5.0), "u": np.ones((6, 7))}, "no array has these"),
        ({"points": POINTS, "u": np.ones((N, N)), "p": np.ones(N)}, "field or a parameter"),
        ({"points": POINTS.astype(complex), "a": np.ones(N)}, "where its points are"),
        ({"targets": np.ones((S, N)), "values": np.ones((S, N), complex)}, "values of .* complex"),
        ({"targets": np.array(1.0)}, "targets of .* single number"),
        ({"targets": np.ones((S, N)), "outputs": np.ones(3)}, "outputs of .* row of names"),
    ],
)
def test_what_cannot_be_sorted_out_is_refused(save, arrays, said):
    with pytest.raises(DataError, match=f"(?s){said}"):
        read_cases(save(**arrays))


def test_bytes_the_other_way_round(save):
    (case,) = read_cases(save(points=POINTS.astype(">f8"), a=np.arange(N, dtype=">i4")))
    np.testing.assert_array_equal(case.points, POINTS)
    assert case.points.dtype.isnative
    assert case.fields["a"].dtype == np.int32


def test_hdf5_is_read_piece_by_piece(tmp_path, monkeypatch):
    """A case of a file larger than memory."""
    with h5py.File(tmp_path / "big.h5", "w") as file:
        file["points"] = np.random.default_rng(0).random((1000, 2))
        file["a"] = np.random.default_rng(1).random((20_000, 1000)).astype(np.float32)
        file["a"].attrs["units"] = "Pa"
    monkeypatch.setattr("ipot.formats.limits.SMALL", 1000)
    monkeypatch.setattr("ipot.formats.limits.free_memory", lambda: 10**6)
    found = read_cases(tmp_path / "big.h5")
    assert len(found) == 20_000
    assert found[19_999].fields["a"].shape == (1000,)
    assert found[0].units == {"a": "Pa"}


def test_one_array_alone_is_no_case(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((S, N)))
    assert kind_of(tmp_path / "a.npy") == "npy"
    with pytest.raises(DataError, match=r"one array alone.*points\.npy"):
        read_cases(tmp_path / "a.npy")


def test_arrays_for_an_answer(tmp_path):
    write_arrays(tmp_path / "a.npz", queries=POINTS, prediction=np.ones(3, np.float32))
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == ["queries", "prediction"]
    np.testing.assert_array_equal(found["queries"], POINTS)
    mapped = write_mapped(tmp_path / "b.npy", (2, 3), lambda out: out.fill(7) or out)
    assert isinstance(mapped, np.memmap)
    assert (read_arrays(tmp_path / "b.npy")["queries"] == 7).all()
    assert set(read_arrays(tmp_path)) == {"b"}
    with pytest.raises(DataError, match="holds nothing"):
        write_mapped(tmp_path / "c.npy", (0, 3), lambda out: out)
    with pytest.raises(DataError, match="is not there"):
        read_arrays(tmp_path / "none.npz")
    with pytest.raises(DataError, match=r"ends in \.npz or \.npy"):
        read_arrays(tmp_path / "a.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.npy file"):
        read_arrays(tmp_path / "empty")


class Harm:
    """Unpickled, it would leave a mark."""

    def __reduce__(self):
        return (open, ("harm_was_done", "w"))


def header(shape, dtype="<f8"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def bomb(path, *members, level=9):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("read", [read_cases, inspect, read_arrays])
def test_sizes_are_checked_before_allocation(read, tmp_path, monkeypatch):
    path = bomb(tmp_path / "a.npz", ("points.npy", header((10**12, 3)) + bytes(100)))
    with pytest.raises(DataError, match=r"points of .* claims the shape .*100000.* bytes"):
        read(path)
    path = bomb(tmp_path / "b.npz", ("points.npy", header((10**6, 3)) + bytes(24 * 10**6)))
    monkeypatch.setattr("ipot.formats.limits.SMALL", 1000)
    monkeypatch.setattr("ipot.formats.limits.free_memory", lambda: 10**7)
    with pytest.raises(DataError, match=r"takes 22.9 MiB and 9.54 MiB of memory are free"):
        read(path)
    # More than deflate can stand for: the directory lies.
    raw = bytearray(path.read_bytes())
    place = raw.rindex(b"PK\x01\x02")
    raw[place + 24 : place + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "c.npz").write_bytes(raw)
    with pytest.raises(DataError, match="less than any compression explains"):
        read(tmp_path / "c.npz")


@pytest.mark.parametrize("read", [read_cases, inspect, read_arrays])
def test_nothing_is_unpickled(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", points=np.array([Harm()] * 3, object), targets=np.ones(3))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
    np.save("c.npy", np.array([Harm()], object))
    for name in ("a.npz", "b.npz", "c.npy"):
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)
    assert not (tmp_path / "harm_was_done").exists()


def test_damaged_archives_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", points=POINTS, a=random.random(N))
    whole = (tmp_path / "a.npz").read_bytes()
    path = tmp_path / "b.npz"
    for cut in (*range(0, len(whole), 37), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"b\.npz"):
            read_cases(path)
    seen = 0
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_cases(path)[0]
        except DataError:
            seen += 1
    assert seen > 10
    with pytest.warns(UserWarning, match="Duplicate"):
        bomb(path, ("a.npy", header((1,)) + bytes(8)), ("a.npy", header((1,)) + bytes(8)))
    with pytest.raises(DataError, match="two arrays with the name a"):
        read_cases(path)
    bomb(path, ("a.npy", header((-1,)) + bytes(8)))
    with pytest.raises(DataError, match="claims the shape"):
        read_cases(path)
    np.savez(path, points=POINTS, a=np.zeros(N), extra=np.array([Harm()]))
    assert "extra: left alone, it holds object" in read_cases(path).notes
    with pytest.warns(UserWarning, match="format 3"):
        np.savez(path, points=np.zeros(3, [("日", "f4")]))
    with pytest.raises(DataError, match="array of records"):
        read_cases(path)


def test_a_damaged_description_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    for told, said in (
        ("[", "cannot be read as a case"),
        ("{}", "of another format"),
        ('{"format": "ipot-cases", "version": 2, "texts": {}}', "version 2 .* reads version 1"),
        ('{"format": "ipot-cases", "version": 1, "texts": 3}', "description is damaged"),
        ('{"format": "ipot-cases", "version": 1, "texts": {}}', "mesh lacks offsets"),
    ):
        np.savez(path, ipot=np.array(told), points=POINTS, **{"mesh/connectivity": np.arange(3)})
        with pytest.raises(DataError, match=said):
            read_cases(path)
    told = np.array('{"format": "ipot-cases", "version": 1, "texts": {"mesh/kind": "a"}}')
    sound = {"connectivity": [0, 1, 2], "offsets": [3], "types": [5], "counts": [0] * 4}
    for wrong, said in (
        ({"connectivity": [0, 1, 99]}, "join points 0 to 99; there are 10"),
        ({"connectivity": [0, 1, -1]}, "join points -1"),
        ({"offsets": [2]}, "do not fit their 3 corners"),
        ({"offsets": [5, 3], "types": [5, 5]}, "do not fit"),
        ({"types": [5, 5]}, "1 cells, 2 types"),
        ({"types": [5.0]}, "row of whole numbers"),
    ):
        mesh = {f"mesh/{n}": np.array(v) for n, v in (sound | wrong).items()}
        np.savez(path, ipot=told, points=POINTS, **mesh)
        with pytest.raises(DataError, match=said):
            read_cases(path)
    np.savez(path, ipot=told, points=POINTS, other=POINTS)
    with pytest.raises(DataError, match="holds other, which no case has"):
        read_cases(path)
    np.savez(path, ipot=told)
    with pytest.raises(DataError, match="has no points"):
        read_cases(path)


def test_a_single_number_as_points_of_a_mesh_is_refused():
    arrays = {"points": np.array(1.0), "mesh/types": np.zeros(1, int)}
    with pytest.raises(DataError, match=r"c\.npz: points must be \(N, D\), got shape \(\)"):
        layout.unpack(arrays, {}, "c.npz")
