"""HDF5 files: ours, The Well's, and those that are refused."""

import contextlib

import h5py
import numpy as np
import pytest

from formats.making import assert_same, square
from ipot.errors import DataError
from ipot.formats import Trajectories, inspect, kind_of, read_cases, write_case, write_cases
from ipot.formats.the_well import write_well

random = np.random.default_rng(0)
S, T, GRID = 3, 4, (5, 6)
ROLES = {"sample_varying": True, "time_varying": True, "dim_varying": [True, True]}


def well(path, change=None):
    """A file as The Well's documents describe it, written with h5py alone."""
    arrays = {
        "t0_fields/buoyancy": random.random((S, T, *GRID)).astype(np.float32),
        "t0_fields/depth": random.random((S, *GRID)).astype(np.float32),
        "t0_fields/profile": random.random((S, T, GRID[0])).astype(np.float32),
        "t0_fields/mask": random.random(GRID).astype(np.float32),
        "t1_fields/velocity": random.random((S, T, *GRID, 2)).astype(np.float32),
        "t2_fields/stress": random.random((S, T, *GRID, 2, 2)).astype(np.float32),
    }
    flags = {
        "t0_fields/depth": {"time_varying": False},
        "t0_fields/profile": {"dim_varying": [True, False]},
        "t0_fields/mask": {"time_varying": False, "sample_varying": False},
    }
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "example"
        file.attrs["grid_type"] = "cartesian"
        file.attrs["n_spatial_dims"] = 2
        file.attrs["n_trajectories"] = S
        file.attrs["simulation_parameters"] = ["Rayleigh", "label"]
        file.attrs["Rayleigh"] = 1e6
        file.attrs["label"] = "hot"
        file["dimensions/time"] = np.arange(T, dtype=np.float32) / 2
        file["dimensions/x"] = np.linspace(0, 1, GRID[0], endpoint=False, dtype=np.float32)
        file["dimensions/y"] = np.linspace(0, 3, GRID[1], dtype=np.float32)
        file["dimensions"].attrs["spatial_dims"] = ["x", "y"]
        for name, kind in (("x_periodic", "PERIODIC"), ("y_wall", "WALL")):
            group = file.create_group(f"boundary_conditions/{name}")
            group.attrs["bc_type"] = kind
            group.attrs["associated_dims"] = [name[0]]
            group["mask"] = np.ones(3, bool)
        file["scalars/Prandtl"] = np.arange(S, dtype=np.float32)
        file["scalars/Prandtl"].attrs.update(sample_varying=True, time_varying=False)
        file["scalars/g"] = np.array([9.81])
        file["scalars/g"].attrs.update(sample_varying=False, time_varying=False)
        file["scalars/heat"] = np.arange(T)
        file["scalars/heat"].attrs.update(sample_varying=False, time_varying=True)
        for name, array in arrays.items():
            file[name] = array
            file[name].attrs.update(ROLES | flags.get(name, {}))
        file["t0_fields/buoyancy"].attrs["units"] = "K"
        if change is not None:
            change(file)
    return {name.partition("/")[2]: array for name, array in arrays.items()}


def test_a_file_of_the_well(tmp_path):
    path = tmp_path / "some.hdf5"
    arrays = well(path)
    assert kind_of(path) == "well"
    found = read_cases(path)
    assert isinstance(found, Trajectories)
    assert (len(found), found.grid, found.axes) == (S, GRID, ("x", "y"))
    x, y = np.meshgrid(np.arange(5) / 5, np.linspace(0, 3, 6), indexing="ij")
    np.testing.assert_allclose(found.points, np.stack([x.ravel(), y.ravel()], 1), rtol=1e-6)
    np.testing.assert_array_equal(found.times, np.arange(T) / 2)
    assert found.periods[0] == pytest.approx(1.0)
    assert found.periods[1] is None
    assert {n: v.tolist() for n, v in found.parameters.items()} == {
        "Rayleigh": [1e6] * S,
        "Prandtl": [0, 1, 2],
        "g": [9.81] * S,
    }
    assert found.units == {"buoyancy": "K"}
    assert found.name == "example"
    assert any("heat" in note for note in found.notes)
    assert any("label" in note for note in found.notes)
    n = GRID[0] * GRID[1]
    for name, field in found.fields.items():
        array = arrays[name]
        for s in range(S):
            whole = field.read(s)
            assert whole.shape == (T, n, field.shape[3]) == (T, n, len(field.components))
            assert whole.dtype == np.float32
            if name == "depth":
                expected = np.stack([array[s]] * T)[..., None]
            elif name == "mask":
                expected = np.stack([array] * T)[..., None]
            elif name == "profile":
                expected = np.repeat(array[s][..., None], GRID[1], axis=2)[..., None]
            else:
                expected = array[s].reshape(T, *GRID, -1)
            np.testing.assert_array_equal(whole, expected.reshape(whole.shape))
            np.testing.assert_array_equal(field.read(s, slice(1, 3)), whole[1:3])
            np.testing.assert_array_equal(field.read(s, slice(-1, None)), whole[-1:])
            np.testing.assert_array_equal(field.read(s, slice(0, T, 2)), whole[::2])
            assert field.read(s, slice(2, 2)).shape == (0, n, field.shape[3])
    assert found.fields["velocity"].components == ("velocity_x", "velocity_y")
    assert found.fields["stress"].components[1] == "stress_xy"
    assert found.fields["depth"].steady
    assert not found.fields["buoyancy"].steady
    with pytest.raises(IndexError):
        found.fields["mask"].read(S)


def test_the_well_there_and_back(tmp_path):
    well(tmp_path / "a.hdf5")
    one = read_cases(tmp_path / "a.hdf5")
    write_well(tmp_path / "b.hdf5", one)
    other = read_cases(tmp_path / "b.hdf5")
    for name in ("points", "times"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    for name in ("grid", "axes", "periods", "units", "name", "grid_type"):
        assert getattr(one, name) == getattr(other, name)
    assert set(one.fields) == set(other.fields)
    for name, field in one.fields.items():
        again = other.fields[name]
        assert (field.shape, field.components, field.steady, field.dtype) == (
            *(again.shape, again.components, again.steady),
            again.dtype,
        )
        for s in range(S):
            np.testing.assert_array_equal(field.read(s), again.read(s))
    for name, values in one.parameters.items():
        np.testing.assert_array_equal(values, other.parameters[name])


def test_nothing_but_pieces_of_the_well_is_read(tmp_path, monkeypatch):
    path = tmp_path / "some.hdf5"
    well(path)
    read = []
    before = h5py.Dataset.__getitem__

    def spy(array, key, **terms):
        found = before(array, key, **terms)
        read.append((array.name, np.size(found)))
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", spy)
    found = read_cases(path)
    assert not [name for name, _ in read if "fields" in name]
    found.fields["velocity"].read(1, slice(2, 3))
    assert read[-1] == ("/t1_fields/velocity", 60)
    read.clear()
    monkeypatch.setattr("ipot.formats.inspection.AT_MOST", 6 * 4 * 30 * 4)
    looked = inspect(path)
    assert sum(size for name, size in read if name.endswith("buoyancy")) < 12 * 30
    assert any("ranges of buoyancy are those of" in note for note in looked.notes)


def test_a_look_at_the_well(tmp_path):
    arrays = well(tmp_path / "some.hdf5")
    found = inspect(tmp_path / "some.hdf5")
    assert (found.cases, found.points, found.kind) == (S, (30, 30), "HDF5 in The Well's layout")
    by_name = {v.name: v for v in found.variables}
    velocity = by_name["velocity"]
    assert velocity.shape == "3 trajectories x 4 times x 5 x 6 x 2"
    assert velocity.low == arrays["velocity"].min()
    assert velocity.high == arrays["velocity"].max()
    assert velocity.mean == pytest.approx(arrays["velocity"].mean(dtype=float))
    assert by_name["buoyancy"].units == "K"
    assert by_name["Prandtl"].role == "parameter"
    assert "steady" in by_name["depth"].shape


def remove(name):
    def change(file):
        del file[name]

    return change


def replaced(name, value):
    def change(file):
        flags = dict(file[name].attrs)
        del file[name]
        file[name] = value
        file[name].attrs.update(flags)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (remove("dimensions/time"), "dimensions has no time"),
        (remove("dimensions/y"), "dimensions has no y"),
        (replaced("t0_fields/depth", np.ones((S, T, *GRID))), r"depth must have the shape \(3, 5"),
        (replaced("t1_fields/velocity", np.ones((S, T, *GRID))), "velocity must have the shape"),
        (replaced("dimensions/x", random.random((S, 5))), "x differs between trajectories"),
        (replaced("dimensions/x", np.array([0, np.nan, 1, 2, 3])), "finite numbers"),
        (replaced("t0_fields/depth", np.array(["a"], object)), "depth of .* real numbers"),
        (lambda f: f.attrs.pop("n_trajectories"), "n_trajectories must be a positive number"),
        (lambda f: f.attrs.__setitem__("n_trajectories", 10**9), "must have the shape"),
        (lambda f: f["t0_fields/mask"].attrs.__setitem__("dim_varying", [True]), "1 entries"),
        (
            lambda f: f.__setitem__("t0_fields/far", h5py.ExternalLink("/etc/other.h5", "/a")),
            "far is a link to /etc/other.h5",
        ),
    ],
)
def test_a_broken_file_of_the_well(tmp_path, change, said):
    well(tmp_path / "some.hdf5", change)
    with pytest.raises(DataError, match=said):
        read_cases(tmp_path / "some.hdf5")


def test_a_grid_that_is_not_cartesian_is_noted(tmp_path):
    well(tmp_path / "some.hdf5", lambda f: f.attrs.__setitem__("grid_type", "polar"))
    assert any("its grid is polar" in n for n in read_cases(tmp_path / "some.hdf5").notes)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (h5py.ExternalLink("other.h5", "/points"), "link to other.h5"),
        (h5py.SoftLink("/elsewhere"), "link to /elsewhere"),
    ],
)
def test_links_are_not_followed(tmp_path, link, said):
    path = tmp_path / "some.h5"
    write_case(path, square())
    for place in ("cases/0/fields/more", "cases/0/more", "cases/more"):
        with h5py.File(path, "a") as file:
            file[place] = link
        with pytest.raises(DataError, match=said):
            list(read_cases(path))
        with h5py.File(path, "a") as file:
            del file[place]
    assert len(read_cases(path)) == 1
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["points"] = np.ones((3, 2))
        file["a"] = link
    with pytest.raises(DataError, match=said):
        read_cases(tmp_path / "plain.h5")


def test_numbers_in_other_files_are_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(80)))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["points"] = np.ones((10, 2))
        file.create_dataset("a", (10,), np.float64, external=[(str(secret), 0, 80)])
    with pytest.raises(DataError, match=r"/a of .* in other files"):
        list(read_cases(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["points"] = np.ones((10, 2))
        virtual = h5py.VirtualLayout((10,), np.float64)
        virtual[:] = h5py.VirtualSource(str(tmp_path / "c.h5"), "a", (10,))
        file.create_virtual_dataset("a", virtual)
    with pytest.raises(DataError, match=r"/a of .* in other files"):
        list(read_cases(tmp_path / "b.h5"))


def test_shapes_are_checked_before_allocation(tmp_path):
    path = tmp_path / "some.h5"
    write_case(path, square(fields={}))
    with h5py.File(path, "a") as file:
        file.create_dataset("cases/0/fields/a", (2**40,), np.float64, chunks=(1024,))
    with pytest.raises(DataError, match="claims 8 TiB and the file holds 0 bytes"):
        read_cases(path)[0]
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("points", (2**40, 2), np.float64, chunks=(1024, 2), compression="gzip")
        file["a"] = np.ones(3)
    with pytest.raises(DataError, match=r"points of .* claims 16 TiB"):
        list(read_cases(tmp_path / "plain.h5"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.attrs.__setitem__("version", 9), "version 9 .* reads version 1"),
        (lambda f: f.attrs.pop("version"), "version None"),
        (lambda f: f.pop("cases"), "holds no case"),
        (lambda f: f.pop("cases/0/points"), "has no points"),
        (lambda f: f.pop("cases/0/mesh/types"), "mesh lacks types"),
        (lambda f: f.__setitem__("cases/0/extra/a", [1]), "extra/a, which no case has"),
        (lambda f: f.__setitem__("cases/0/fields/t", "text"), "t of .* real numbers"),
        (lambda f: f.__setitem__("cases/0/fields/g/h", [1]), "must be an array, and is a group"),
        (lambda f: f.__setitem__("cases/0/loose", [1]), "must be a group, and is an array"),
        (lambda f: f.__setitem__("cases/0/fields/w", [1]), "row for each of the 4 points"),
        (lambda f: f.__setitem__("cases/0/parameters/m", [[1]]), "parameter m must be"),
    ],
)
def test_a_broken_file_of_ours(tmp_path, change, said):
    path = tmp_path / "some.h5"
    write_case(path, square())
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(DataError, match=said):
        list(read_cases(path))


def test_what_others_keep_in_hdf5_is_told_from_ours(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["deep/points"] = np.ones((3, 2))
    with pytest.raises(DataError, match="no arrays but the groups deep"):
        read_cases(path)
    with h5py.File(path, "a") as file:
        file["points"] = np.ones((3, 2))
        file["a"] = np.arange(3)
        file["text"] = "words"
    found = read_cases(path)
    assert list(found[0].fields) == ["a"]
    assert any("deep" in note for note in found.notes)
    assert any("text: left alone" in note for note in found.notes)
    with h5py.File(path, "a") as file:
        file.attrs["_NCProperties"] = "version=2"
    assert kind_of(path) == "netCDF"
    with pytest.raises(DataError, match=r"netCDF.*no files of cases.*xarray"):
        read_cases(path)


def test_damaged_files_are_refused_and_nothing_else(tmp_path):
    write_cases(tmp_path / "a.h5", [square(), square()])
    whole = (tmp_path / "a.h5").read_bytes()
    path = tmp_path / "b.h5"
    for cut in (1, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"b\.h5"):
            list(read_cases(path))
    for place in range(0, len(whole), 797):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(DataError):
            assert len(list(read_cases(path))) == 2


def test_changes_after_a_look_are_seen(tmp_path):
    """Files are opened for each piece and not held."""
    path = tmp_path / "a.h5"
    write_case(path, square())
    found = read_cases(path)
    write_case(path, square(parameters={"re": np.array([7])}))
    assert_same(found[0], square(parameters={"re": np.array([7])}))
