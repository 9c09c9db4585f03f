"""A file that came from elsewhere reads nothing but itself, through whichever door it is opened."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest

from ipot.data import dedalus, readers
from ipot.errors import DataError
from ipot.formats import Case, inspect, read_cases, write_case
from ipot.formats.numpy_files import read_arrays
from ipot.formats.vtk import read_vtk

xr = pytest.importorskip("xarray")
pv = pytest.importorskip("pyvista")


def external(file, secret):
    file.create_dataset("a", (4, 3, 5), "f8", external=[(str(secret), 0, 480)])


def linked(file, secret):
    file["a"] = h5py.ExternalLink(str(secret), "/a")


def virtual(file, secret):
    layout = h5py.VirtualLayout((4, 3, 5), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "a", (4, 3, 5))
    file.create_virtual_dataset("a", layout)


def plugin(file, secret):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((4, 3, 5))
    plan.set_filter(40000, h5py.h5z.FLAG_OPTIONAL, (1,))
    space = h5py.h5s.create_simple((4, 3, 5))
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_DOUBLE, space, plan)


def referring(file, secret):
    """By a reference of HDF5's newer kind, which h5py has no name for: the older one with another
    number in its description."""
    kind = bytearray(h5py.h5t.STD_REF_OBJ.encode())
    kind[2:4] = 4 << 4 | 7, 1 << 4 | 2
    h5py.h5d.create(file.id, b"a", h5py.h5t.decode(bytes(kind)), h5py.h5s.create_simple((2,)))


WAYS = [external, linked, virtual, plugin, referring]


ELSEWHERE = r"other files|filter 40000|link to"


def hdf5(path, way, before=0):
    """A file whose array `a` is somewhere else, deep enough to be found by a walk alone."""
    secret = path.parent / "secret"
    secret.write_bytes(bytes(range(240)) * 2)
    with h5py.File(path, "w", userblock_size=before) as file:
        file["b"] = np.random.default_rng(0).random((4, 3, 5))
        inner = file.create_group("inner")
        inner["again"] = file["/"]  # hard links may go in circles
        way(file, secret)
        way(inner, secret)
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["x.nc", "x.h5", "*.h5", "x.cgns"])
def test_hdf5_that_leads_elsewhere_is_refused(tmp_path, name, way):
    hdf5(tmp_path / name.replace("*", "x"), way)
    with pytest.raises(DataError, match=ELSEWHERE):
        inspect(tmp_path / name)


@pytest.mark.parametrize("name", ["x.cgns", "x.exo", "x.h5"])
def test_so_it_is_behind_other_bytes(tmp_path, name):
    with pytest.raises(DataError, match="keeps its numbers in other files"):
        inspect(hdf5(tmp_path / name, external, before=1024))


@pytest.mark.parametrize("way", WAYS)
def test_so_it_is_in_published_files(tmp_path, way):
    path = hdf5(tmp_path / "x.mat", way)
    with pytest.raises(DataError, match=ELSEWHERE):
        readers.read_mat(path, ["b"])
    with pytest.raises(DataError, match=ELSEWHERE):
        dedalus.read(path, ["a"], 1)


def test_hard_links_may_go_in_circles(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["points"], file["a"] = np.random.default_rng(0).random((4, 2)), np.arange(4.0)
        file.create_group("inner")["outer"] = file["/"]
    assert read_cases(tmp_path / "x.h5")[0].fields["a"].tolist() == [0, 1, 2, 3]


def mesh(path):
    grid = pv.ImageData(dimensions=(3, 3, 2)).cast_to_unstructured_grid()
    grid["a"] = np.arange(float(grid.n_points))
    path.parent.mkdir(exist_ok=True)
    grid.save(path)
    return path


def pvtu(path, piece):
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        '<VTKFile type="PUnstructuredGrid" version="1.0"><PUnstructuredGrid GhostLevel="0">'
        '<PPoints><PDataArray type="Float32" Name="Points" NumberOfComponents="3"/></PPoints>'
        '<PPointData><PDataArray type="Float64" Name="a"/></PPointData>'
        f'<Piece Source="{piece}"/></PUnstructuredGrid></VTKFile>'
    )
    return path


def vtm(path, piece):
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        '<VTKFile type="vtkMultiBlockDataSet" version="1.0"><vtkMultiBlockDataSet>'
        f'<DataSet index="0" file="{piece}"/></vtkMultiBlockDataSet></VTKFile>'
    )
    return path


@pytest.mark.parametrize(("write", "suffix"), [(pvtu, ".pvtu"), (vtm, ".vtm")])
def test_pieces_stay_in_their_folder(tmp_path, monkeypatch, write, suffix):
    outside = mesh(tmp_path / "outside.vtu")
    folder = tmp_path / "folder"
    mesh(folder / "inside.vtu")
    (folder / "link.vtu").symlink_to(outside)
    path = folder / f"all{suffix}"
    assert len(read_vtk(write(path, "inside.vtu")).points) == 18
    for piece in ("../outside.vtu", str(outside), "link.vtu", "sub/../../outside.vtu"):
        write(path, piece)
        with pytest.raises(DataError, match=r"outside\.vtu"):
            read_vtk(path)
        if "sub" not in piece:
            monkeypatch.setenv("IPOT_FOLLOW_OUTSIDE", "1")
            assert len(read_vtk(path).points) == 18
            monkeypatch.delenv("IPOT_FOLLOW_OUTSIDE")
    (folder / "inside.vtu").write_text('<!DOCTYPE a [<!ENTITY b "c">]><VTKFile type="a"/>')
    with pytest.raises(DataError, match="DOCTYPE"):
        read_vtk(write(path, "inside.vtu"))


def test_a_list_of_itself_ends(tmp_path):
    with pytest.raises(DataError, match="deep"):
        inspect(vtm(tmp_path / "a.vtm", "a.vtm"))


@pytest.mark.parametrize("piece", ["../secret.geo", "/etc/passwd", "link.geo"])
def test_an_ensight_case_stays_in_its_folder(tmp_path, piece):
    (tmp_path / "secret.geo").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.geo").symlink_to(tmp_path / "secret.geo")
    (folder / "a.case").write_text(f"FORMAT\ntype: ensight gold\nGEOMETRY\nmodel: 1 {piece}\n")
    with pytest.raises(DataError, match=r"names the piece|leads out of its folder"):
        inspect(folder / "a.case")


@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret", "$HOME/a", "$FOAM_CASE/../a"])
def test_an_openfoam_case_stays_in_its_folder(tmp_path, name):
    folder = tmp_path / "case"
    (folder / "system").mkdir(parents=True)
    (folder / "system" / "controlDict").write_text(f'#include "{name}"\nstartTime 0;\n')
    (folder / "a.foam").touch()
    with pytest.raises(DataError, match=r"can read any file|leads out of its folder"):
        inspect(folder / "a.foam")


def test_links_in_a_folder_do_not_leave_it(tmp_path, monkeypatch):
    case = Case(points=np.random.default_rng(0).random((5, 2)), fields={"a": np.arange(5.0)})
    write_case(tmp_path / "outside.npz", case)
    np.save(tmp_path / "outside.npy", np.ones((4, 5, 2)))
    folder = tmp_path / "folder"
    write_case(folder / "0.npz", case)
    (folder / "1.npz").symlink_to("0.npz")
    assert len(read_cases(folder)) == 2
    (folder / "2.npz").symlink_to(tmp_path / "outside.npz")
    with pytest.raises(DataError, match=r"2\.npz leads out of its folder.*IPOT_FOLLOW_OUTSIDE"):
        read_cases(folder)
    monkeypatch.setenv("IPOT_FOLLOW_OUTSIDE", "1")
    assert len(read_cases(folder)) == 3
    monkeypatch.delenv("IPOT_FOLLOW_OUTSIDE")
    (tmp_path / "arrays").mkdir()
    (tmp_path / "arrays" / "points.npy").symlink_to(tmp_path / "outside.npy")
    for read in (read_cases, read_arrays):
        with pytest.raises(DataError, match="leads out of its folder"):
            read(tmp_path / "arrays")
    # A link that the user names himself is his word.
    assert len(read_cases(folder / "2.npz")) == 1


def series(path, version):
    data = xr.Dataset(
        {"a": (("time", "y", "x"), np.random.default_rng(0).random((6, 3, 4)))},
        {"time": np.arange(6.0), "y": np.arange(3.0), "x": np.arange(4.0)},
    )
    data.to_zarr(path, zarr_format=version, consolidated=True)
    return path


def changed(path, change):
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_stays_in_its_folder(tmp_path, version):
    path = series(tmp_path / "a.zarr", version)
    # A name with two colons is a chain of file systems to zarr, and a folder here.
    other = tmp_path / "memory::a.zarr"
    shutil.copytree(path, other)
    assert inspect(path).cases == inspect(other).cases == 6
    chunk = next(p for p in (path / "a").rglob("*") if p.is_file() and p.name[0] in "0123")
    chunk.rename(tmp_path / "chunk")
    chunk.symlink_to(tmp_path / "chunk")
    with pytest.raises(DataError, match="leads out of its folder"):
        inspect(path)


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_unpickles_nothing(tmp_path, version):
    path = series(tmp_path / "a.zarr", version)
    if version == 2:
        pickled = {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}], "fill_value": None}
        changed(path / "a" / ".zarray", lambda t: t.update(pickled))
    else:
        pickled = {"name": "numcodecs.pickle", "configuration": {}}
        changed(path / "a" / "zarr.json", lambda t: t["codecs"].append(pickled))
    with pytest.raises(DataError, match="codec 'pickle', which is not opened"):
        inspect(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("shape", [[10**12, 3, 4], [10**7, 3, 4]])
def test_a_zarr_store_of_absurd_shape_is_refused_at_once(tmp_path, version, shape):
    path = series(tmp_path / "a.zarr", version)
    name = ".zarray" if version == 2 else "zarr.json"
    changed(path / "a" / name, lambda told: told.update(shape=shape))
    with pytest.raises(DataError, match=r"claims \d+ bytes|chunks of a are missing"):
        inspect(path)


@pytest.mark.parametrize("version", [2, 3])
def test_missing_chunks_of_a_line_are_constants_as_ever(tmp_path, version):
    path = series(tmp_path / "a.zarr", version)
    next(p for p in (path / "y").rglob("*") if p.is_file() and p.name == "0").unlink()
    assert inspect(path).cases == 6


@pytest.mark.parametrize(
    "name", ["http://nowhere/a.nc", "file:///etc/hosts#mode=zarr", "s3://a/b.zarr", "a.nc#mode=s3"]
)
def test_addresses_are_no_paths(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is not there"):
        inspect(name)


def test_a_reference_store_is_not_opened(tmp_path):
    (tmp_path / "a.json").write_text('{"version": 1, "refs": {"a/0": ["/etc/passwd", 0, 10]}}')
    with pytest.raises(DataError, match="of no kind that is known"):
        inspect(tmp_path / "a.json")


@pytest.mark.parametrize("version", [2, 3])
def test_a_coordinate_that_cannot_be_read_is_named(tmp_path, version):
    data = xr.open_zarr(series(tmp_path / "a.zarr", version)).load()
    places = ("y", "x"), np.arange(12.0).reshape(3, 4)
    data.assign_coords(depth=places).to_zarr(tmp_path / "b.zarr", zarr_format=version)
    chunk = {2: "0.0", 3: "c/0/0"}[version]
    (tmp_path / "b.zarr" / "depth" / chunk).write_bytes(b"short")
    for _ in range(2):
        with pytest.raises(DataError, match="the coordinate 'depth' cannot be read"):
            inspect(tmp_path / "b.zarr")
