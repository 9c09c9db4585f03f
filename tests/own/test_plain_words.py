"""Ordinary mistakes are named in the words of those who made them: files, rows, arguments."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from surrogate.test_encoded import built, surrogate_of

import ipot
from ipot.cli import main
from ipot.errors import DataError, UnknownName
from ipot.formats import Case, inspect, read_cases, write_cases
from ipot.formats.open_data import open_data
from ipot.surrogate.cases import predict_case
from ipot.surrogate.files import answer_files

from . import files, tiny

# ---- a value that is missing, by its file


def with_gap(i, *, gap, name):
    found = files.case(i)
    if i != gap:
        return found
    arrays = {"fields": dict(found.fields), "parameters": dict(found.parameters)}
    kind = "parameters" if name == "re" else "fields"
    array = arrays[kind][name].copy()
    array[(0,) if name == "re" else (2, ...)] = np.nan
    arrays[kind][name] = array
    return replace(found, **{kind: arrays[kind]})


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("a", "a holds nan in row 2 of the points"),
        ("wind", "wind_x holds nan in row 2 of the points"),
        ("re", "re holds nan"),
    ],
)
@pytest.mark.parametrize("suffix", [".vtu", ".npz"])
def test_a_gap_is_named_by_its_file(name, where, suffix, tmp_path):
    files.folder(tmp_path / "cases", suffix, make=lambda i: with_gap(i, gap=5, name=name))
    asked = {"inputs": ["a", "wind"], "targets": "u", "parameters": "re"}
    with pytest.raises(DataError, match=f"case5{suffix}: {re.escape(where)}"):
        open_data(tmp_path / "cases", **asked)
    assert len(open_data(tmp_path / "cases", inputs="q", targets="p", where="cells").data) == 8


def test_a_gap_is_named_by_its_file_in_a_folder_of_arrays(tmp_path):
    for i in range(3):
        given = {n: a[0] for n, a in tiny.arrays("own meshes", 3).items()}
        given["targets"] = given["targets"].copy()
        given["targets"][4] = np.nan if i == 1 else 0.0
        np.savez(tmp_path / f"{i}.npz", **given)
    with pytest.raises(DataError, match=r"1\.npz: targets holds nan in row 4 of the targets"):
        open_data(tmp_path)


def test_a_gap_is_named_by_its_file_in_a_prediction(tmp_path):
    model = built("uneven")
    model.about["columns"] = {"kind": "cases"}
    points = np.random.default_rng(0).random((4, 2))
    name = model.spec.inputs[0]
    bad = Case(points=points, fields={name: np.array([1.0, np.inf, 2, 3])}, source="new.vtu")
    with pytest.raises(DataError, match=f"new.vtu: {name} holds inf in row 1 of the points"):
        predict_case(model, bad)


# ---- the order of a table


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_answers_are_in_the_order_of_the_rows(suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    model = built("uneven")
    name = model.spec.inputs[0]
    draw = np.random.default_rng(1)
    cases = np.array(list("abcbaacb"))
    table = draw.random((8, 3))
    lines = [f"{c},{x},{y},{v}" for c, (x, y, v) in zip(cases, table, strict=True)]
    (tmp_path / "in.csv").write_text("\n".join([f"case,x,y,{name}", *lines]) + "\n")
    answer_files(model, tmp_path / "in.csv", tmp_path / f"out{suffix}")
    if suffix == ".csv":
        _, *rows = (tmp_path / "out.csv").read_text().splitlines()
        found = [row.split(",") for row in rows]
        assert [row[0] for row in found] == list(cases)
        np.testing.assert_allclose(np.array([row[1:3] for row in found], float), table[:, :2])
        answer = np.array([row[-1] for row in found], float)
    else:
        import pyarrow.parquet as pq

        found = pq.read_table(tmp_path / "out.parquet").to_pydict()
        assert found["case"] == list(cases)
        answer = np.array(list(found.values())[-1])
    for letter in "abc":
        rows = cases == letter
        expected = model.predict(table[rows, :2], table[rows, 2], table[rows, :2])
        np.testing.assert_allclose(answer[rows], expected, rtol=1e-4, atol=1e-5)


def test_some_cases_of_a_table_are_in_order_too(tmp_path):
    (tmp_path / "in.csv").write_text(
        "case,x,y,a\n" + "".join(f"{c},{i},0,{i}\n" for i, c in enumerate("abcab"))
    )
    chosen = read_cases(tmp_path / "in.csv")[0:2]
    write_cases(tmp_path / "out.csv", list(chosen), chosen.names, chosen.rows)
    kept = [row.split(",")[0] for row in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert kept == list("abab")


# ---- arrays the wrong way round, and without names

A, U = tiny.waves(5, tiny.X)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"values": A.T, "targets": U.T},
            r"targets have 5 rows and points 12.*\(12, 5\).*targets=targets.T",
        ),
        (
            {"values": A.T, "targets": U},
            r"\(samples, points\) is expected: if so, give values=values.T",
        ),
        ({"values": A, "targets": U.T}, "give targets=targets.T"),
        (
            {"values": A.T[..., None], "targets": U},
            r"\(points, samples, channels\).*numpy.moveaxis\(values, 0, 1\)",
        ),
        ({"values": A, "targets": U, "points": tiny.X.T}, "coordinates: points=points.T"),
    ],
)
def test_transposed_arrays_are_recognised(given, said):
    with pytest.raises(DataError, match=said):
        ipot.Dataset.from_arrays(**{"points": tiny.X, **given})


def test_transposed_values_are_recognised_in_a_prediction():
    with pytest.raises(DataError, match=r"values have 5 rows and points 12.*give values=values.T"):
        built("mesh").predict(tiny.X, A.T)


@pytest.mark.parametrize("wrong", ["fit", "fit names", "fit one", "nothing", "arrays", "data set"])
def test_arrays_without_names_are_told_theirs(wrong):
    call = {
        "fit": lambda: ipot.fit(tiny.X, A, U),
        "fit names": lambda: ipot.fit(points=tiny.X, values=A, targets=U),
        "fit one": lambda: ipot.fit(tiny.X, values=A, targets=U),
        "nothing": lambda: ipot.fit(),
        "arrays": lambda: ipot.Dataset.from_arrays(tiny.X, A, U),
        "data set": lambda: ipot.Dataset(tiny.X, A, U),
    }[wrong]
    with pytest.raises(DataError, match=r"from_arrays\(points=x, values=a, targets=u\)"):
        call()


# ---- a plane in space


def at(level, i):
    found = files.case(i)
    return replace(found, points=found.points * [1, 1, 0] + [0, 0, level])


def test_a_height_that_differs_between_cases_is_kept_and_said(tmp_path):
    files.folder(tmp_path / "one", ".vtu", make=lambda i: at(0.5, i))
    files.folder(tmp_path / "many", ".vtu", make=lambda i: at(0.5 + i, i))
    asked = {"inputs": "a", "targets": "u"}
    assert open_data(tmp_path / "one", **asked).data.spec.dimension == 2
    assert open_data(tmp_path / "many", **asked).data.spec.dimension == 3
    said = "the last coordinate is the same for all points of a case"
    assert f"{said}: it is left out" in inspect(tmp_path / "one").notes
    assert f"{said} and differs between cases: it is kept" in inspect(tmp_path / "many").notes


def test_another_height_than_in_training_is_said(tmp_path):
    files.folder(tmp_path / "cases", ".vtu", make=lambda i: at(0.5, i))
    opened = open_data(tmp_path / "cases", inputs="a", targets="u")
    model = surrogate_of(opened.data, about={"columns": opened.columns})
    with pytest.warns(UserWarning, match="coordinate 2 is 3 at all points, and was 0.5 in all of"):
        predict_case(model, at(3.0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict_case(model, at(0.5, 1))


def test_a_remark_is_one_line_of_the_command(tmp_path, monkeypatch):
    """And no place in our code; Python's own warnings stay as they are."""

    def remark(arguments):
        monkeypatch.setattr("ipot.seen", warnings.formatwarning, raising=False)
        return 0

    monkeypatch.setattr("ipot.commands.data.main", remark)
    before = warnings.formatwarning
    assert main(["data"]) == 0
    line = ipot.seen
    assert (
        line(UserWarning("T is converted"), UserWarning, "a.py", 3) == "ipot data: T is converted\n"
    )
    assert "a.py:3" in line(RuntimeWarning("overflow"), RuntimeWarning, "a.py", 3)
    assert warnings.formatwarning is before


# ---- names, folders, grids


def test_names_like_those_that_are_there_are_proposed(tmp_path):
    files.folder(tmp_path / "cases", ".vtu", count=2)
    with pytest.raises(UnknownName, match=r"no input field 'Winds'.*Did you mean wind\?"):
        open_data(tmp_path / "cases", inputs="Winds", targets="u")
    with pytest.raises(DataError, match=r"no file of a known kind.*Did you mean .*cases\?"):
        open_data(tmp_path, inputs="a", targets="u")


def test_kinds_as_text_are_refused_with_a_way(tmp_path):
    (tmp_path / "a.csv").write_text("case,x,kind,u\n0,0,wall,1\n1,0,inlet,2\n")
    with pytest.raises(DataError, match=r"'wall' in column kind.*a column of 0 and 1 for each"):
        open_data(tmp_path / "a.csv", inputs="kind", targets="u")


def test_longitudes_that_are_counted_in_two_ways_are_named(tmp_path):
    labelled = pytest.importorskip("labelled.labelled_data")
    pytest.importorskip("netCDF4")
    west = labelled.grid(10, longitudes=(-20.0, -10.0, 0.0, 10.0))
    east = labelled.grid(10, longitudes=(340.0, 350.0, 0.0, 10.0))
    west.isel(time=slice(0, 5)).to_netcdf(tmp_path / "1.nc", engine="netcdf4")
    east.isel(time=slice(5, 10)).to_netcdf(tmp_path / "2.nc", engine="netcdf4")
    said = r"longitude is 4 from -20 to 10 in 1.nc and 4 from 0 to 350 in 2.nc, the same places"
    with pytest.raises(DataError, match=said + r".*ds.longitude % 360\).sortby.*longitude"):
        open_data(tmp_path, inputs="t2m", targets="t2m")
    with pytest.raises(DataError, match=r"names 'T2M'; there is t2m\. Did you mean t2m\?"):
        open_data(tmp_path / "1.nc", inputs="T2M", targets="t2m")
