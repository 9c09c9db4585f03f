"""Whatever data come in becomes a data set, with its parts and the names of its columns."""

import numpy as np
import pytest

from ipot.errors import DataError, IpotError, UnknownName
from ipot.formats import inspect
from ipot.formats.open_data import open_data
from own import files, tiny


def test_a_data_set_is_taken_as_it_is():
    data = tiny.data("mesh")
    assert open_data(data).data is data
    assert open_data(data, inputs=[], targets=None).parts is None


@pytest.mark.parametrize("argument", ["inputs", "targets", "parameters", "history", "periods"])
def test_a_data_set_knows_its_columns(argument):
    with pytest.raises(DataError, match=f"{argument}: an ipot.Dataset knows its columns"):
        open_data(tiny.data("mesh"), **{argument: {0: 1.0} if argument == "periods" else "a"})


def test_an_argument_that_is_not_there_is_named_with_those_that_are(tmp_path):
    path = files.npz(tmp_path / "a.npz")
    for source in (tiny.data("mesh"), path, str(path)):
        with pytest.raises(UnknownName, match=r"no argument 'epoch'.*every, geographic, history"):
            open_data(source, epoch=3)


@pytest.mark.parametrize("source", [np.zeros((3, 4)), 3, None, [1, 2]])
def test_other_things_are_refused(source):
    with pytest.raises(DataError, match=r"data must be an ipot\.Dataset, an xarray object or a pa"):
        open_data(source)


def test_arrays_by_the_names_of_the_arguments(tmp_path):
    for path in (files.npz(tmp_path / "a.npz"), files.npy(tmp_path / "b")):
        source = open_data(path)
        assert len(source.data) == 10
        assert source.data.spec.name == path.stem
        assert source.columns == {"kind": "arrays"}
        assert source.data.layout.flat_values
    named = open_data(tmp_path / "a.npz", name="mine", periods={0: 1.0})
    assert named.data.spec.periods == (1.0, None)
    assert named.data.spec.name == "mine"


def test_cases_by_the_names_of_their_fields(tmp_path):
    source = open_data(files.folder(tmp_path / "m", ".vtu"), inputs="a", targets=["u", "wind"])
    spec = source.data.spec
    assert spec.inputs == ("a",)
    assert spec.outputs == ("u", "wind_x", "wind_y", "wind_z")
    assert spec.units[0] == "Pa"
    assert spec.dimension == 2  # a plane in space
    assert source.columns["kind"] == "cases"
    assert source.columns["where"] == "points"
    assert [len(s.points) for s in source.data][:3] == [9, 16, 25]


def test_where_targets_are_is_found_out(tmp_path):
    path = files.folder(tmp_path / "m", ".vtu", count=3)
    for inputs, targets, where in (("q", "p", "cells"), ("a", "p", "cells"), ("q", "u", "points")):
        source = open_data(path, inputs=inputs, targets=targets)
        assert source.columns["where"] == where
    cells = open_data(path, inputs="q", targets="p")
    assert len(cells.data[0].points) == len(cells.data[0].queries) == 8
    mixed = open_data(path, inputs="a", targets="p")
    assert (len(mixed.data[0].points), len(mixed.data[0].queries)) == (9, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "targets is empty: say which fields are learned; there are a, u, wind"),
        ({"targets": "t"}, "has no target field 't'"),
        ({"targets": "u", "inputs": "b"}, "has no input field 'b'"),
        ({"targets": "u", "parameters": "nu"}, "has no parameter 'nu'"),
        ({"targets": "u", "parameters": "a"}, "a differs from point to point"),
        ({"targets": "u", "history": 3}, "history: .* holds cases without time"),
        ({"targets": "u", "season": True}, "season: not for .*which holds cases"),
    ],
)
def test_refused_by_name(tmp_path, options, message):
    path = files.folder(tmp_path / "m", ".vtu", count=2)
    with pytest.raises(IpotError, match=message):
        open_data(path, **options)


def test_trajectories(tmp_path):
    source = open_data(files.well(tmp_path / "w.h5"), targets="h", history=2)
    assert source.columns["kind"] == "trajectories"
    assert source.columns["history"] == 2
    assert source.columns["inputs"] == ["h"]
    assert len(source.parts[0]) + len(source.parts[1]) == len(source.data)
    with pytest.raises(DataError, match=r"geographic: not for .*which holds trajectories"):
        open_data(tmp_path / "w.h5", geographic=True)


@pytest.mark.parametrize("name", ["nothing.vtu", "nothing", "no*.nc", "a/b/c.npz"])
def test_paths_that_are_not_there(tmp_path, name):
    for look in (open_data, inspect):
        with pytest.raises(IpotError, match=name.replace("*", r"\*").split("/")[-1]):
            look(tmp_path / name)


def test_names_near_one_that_is_not_there(tmp_path):
    (tmp_path / "alloy.npz").write_bytes(b"")
    for path in (tmp_path / "aloy.npz", tmp_path / "Alloy.np"):
        with pytest.raises(DataError, match=r"is not there\. Near it are .*alloy\.npz\."):
            open_data(path)
    with pytest.raises(DataError, match=r"is not there\. In .* are alloy\.npz\."):
        open_data(tmp_path / "something else")
    with pytest.raises(DataError, match="data is empty"):
        open_data("")


def test_files_that_are_no_data(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(b"\x1f\x8b" + bytes(20))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")
    for name in ("a.txt.gz", "empty", "broken.npz", "broken.nc"):
        for look in (open_data, inspect):
            with pytest.raises(IpotError) as caught:
                look(tmp_path / name)
            assert name in str(caught.value)


def test_labelled_arrays_and_what_is_not_for_them(tmp_path):
    labelled = pytest.importorskip("labelled.labelled_data")
    grid = labelled.grid(60)
    source = open_data(grid, inputs="t2m", targets="t2m", history=2)
    assert source.series.history == 2
    assert source.data.spec.geographic
    assert sum(len(p) for p in source.parts if p is not None) < len(source.data)
    with pytest.raises(DataError, match="inputs without places are parameters"):
        open_data(grid, inputs="t2m", targets="t2m", parameters="t2m")
    with pytest.raises(DataError, match="geographic: not for labelled arrays"):
        open_data(grid, inputs="t2m", targets="t2m", geographic=True)
    path = files.npz(tmp_path / "a.npz")
    with pytest.raises(DataError, match="targets of their own are for labelled arrays"):
        open_data(path, targets=grid)
    grid.to_netcdf(tmp_path / "grid.nc")
    again = open_data(tmp_path / "grid.nc", inputs="t2m", targets="t2m", history=2)
    assert len(again.data) == len(source.data)
    (tmp_path / "years").mkdir()
    grid.isel(time=slice(30)).to_netcdf(tmp_path / "years" / "a.nc")
    grid.isel(time=slice(30, None)).to_netcdf(tmp_path / "years" / "b.nc")
    for where in (tmp_path / "years", tmp_path / "years" / "*.nc"):
        assert len(open_data(where, inputs="t2m", targets="t2m", history=2).data) == len(
            source.data
        )
        assert inspect(where).cases == 60


def test_inspected_whatever_the_format(tmp_path):
    for path, cases in (
        (files.npz(tmp_path / "a.npz"), 10),
        (files.folder(tmp_path / "m", ".vtu", count=3), 3),
        (files.table(tmp_path / "t.csv", count=4), 4),
        (files.hdf5(tmp_path / "h.h5", count=5), 5),
    ):
        assert inspect(path).cases == cases
