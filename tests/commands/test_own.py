"""`ipot data inspect`, `ipot fit` and `ipot predict` on files of every format."""

import json
import signal

import numpy as np
import pytest
from own import files, tiny
from training.toys import Kill

from ipot import load
from ipot.cli import main
from ipot.errors import DataError
from ipot.formats import read_cases
from ipot.own import sizing
from ipot.recipes import running
from ipot.surrogate.cases import predict_case


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Models of a fraction of a second."""
    budget = sizing.Budget(16, 8, 1, 2, 2, 1024, 512, 4, 3e-3)
    monkeypatch.setattr(sizing, "BUDGETS", {"cpu": budget, "cuda": budget})
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


@pytest.fixture
def learn(ask, tmp_path):
    """Fit for an epoch; the folder of the model."""

    def call(path, *flags, out="model"):
        where = ("--out", str(tmp_path / out), "--device", "cpu", "--epochs", "1")
        said = ask("fit", str(path), *map(str, flags), *where)
        assert np.isfinite(said["validation"])
        assert said["out"] == str(tmp_path / out)
        return tmp_path / out

    return call


@pytest.fixture
def answer(ask, tmp_path):
    """Predict into a file, and say what was said."""

    def call(model, source, output, *flags):
        said = ask(
            *("predict", str(model), str(source), "--out", str(tmp_path / output)),
            *map(str, flags),
            *("--device", "cpu"),
        )
        assert said["output"] == str(tmp_path / output)
        return said

    return call


# ---- one by one, from end to end


def test_arrays(tmp_path, ask, learn, answer):
    path = files.npz(tmp_path / "a.npz")
    found = ask("data", "inspect", str(path))
    assert found["cases"] == 10
    assert {"points", "values", "targets"} <= {v["name"] for v in found["variables"]}
    model = learn(path)
    assert answer(model, path, "out.npz")["shape"] == [10, 12]
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(out["queries"], tiny.X)
    # One new sample, asked elsewhere, and in formats of other people.
    np.savez(tmp_path / "new.npz", points=tiny.X, values=tiny.random().random(12))
    np.save(tmp_path / "q.npy", tiny.random().random((5, 2)))
    asked = ("--queries", tmp_path / "q.npy")
    assert answer(model, tmp_path / "new.npz", "new_out.npz", *asked)["shape"] == [5]
    wanted = np.load(tmp_path / "new_out.npz")["prediction"]
    for name in ("out.csv", "out.h5", "out.vtu", "out.parquet"):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow")
        assert answer(model, tmp_path / "new.npz", name, *asked)["cases"] == 1
        (case,) = read_cases(tmp_path / name)
        np.testing.assert_allclose(case.fields["target"], wanted, rtol=1e-6)
    assert answer(model, path, "many.h5")["cases"] == 10
    assert len(read_cases(tmp_path / "many.h5")) == 10


def test_a_folder_of_npy_with_parameters(tmp_path, learn, answer):
    path = files.npy(tmp_path / "a", "all")
    model = learn(path)
    assert answer(model, path, "out.npz")["shape"] == [10, 5]


def test_arrays_in_hdf5(tmp_path, learn, answer):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in tiny.arrays("mesh").items():
            file[name] = array
    model = learn(tmp_path / "a.h5")
    with h5py.File(tmp_path / "new.h5", "w") as file:
        file["points"], file["values"] = tiny.X, tiny.arrays("mesh")["values"][:3]
    assert answer(model, tmp_path / "new.h5", "out.h5")["cases"] == 3
    assert read_cases(tmp_path / "out.h5")[1].fields["target"].shape == (12,)


def test_a_table_with_a_column_of_cases(tmp_path, ask, learn, answer):
    path = files.table(tmp_path / "a.csv")
    found = ask("data", "inspect", str(path))
    assert (found["cases"], found["points"]) == (8, [9, 9])
    model = learn(path, "--inputs", "a", "--targets", "u", "--parameters", "re")
    assert answer(model, path, "out.h5")["cases"] == 8
    one = tmp_path / "one.csv"
    one.write_text("x,y,re,a\n0.1,0.2,3,1.5\n0.7,0.3,3,0.5\n")
    assert answer(model, one, "out.csv")["cases"] == 1
    (case,) = read_cases(tmp_path / "out.csv")
    assert case.fields["u"].shape == (2,)
    # A table in, a table out: cases keep their names, and a header is all that is written besides.
    assert answer(model, path, "all.csv")["cases"] == 8
    assert read_cases(tmp_path / "all.csv").names == tuple("01234567")
    header = (tmp_path / "all.csv").read_text().splitlines()[0]
    assert header == "case,x,y,re,a,u,u_predicted"
    one.write_text("case,x,y,re,a\nwing,0.1,0.2,3,1.5\nwing,0.7,0.3,3,0.5\n")
    answer(model, one, "wing.csv")
    assert read_cases(tmp_path / "wing.csv").names == ("wing",)


def test_parquet(tmp_path, learn, answer):
    pytest.importorskip("pyarrow")
    folder = files.folder(tmp_path / "cases", ".parquet", make=files.on_one_mesh)
    model = learn(folder, "--inputs", "a", "--targets", "u")
    answer(model, folder / "case0.parquet", "out.parquet")
    (case,) = read_cases(tmp_path / "out.parquet")
    assert np.isfinite(case.fields["u"]).all()


def test_numbers_alone(tmp_path, learn, answer):
    folder = files.folder(tmp_path / "cases", ".npz", make=files.on_one_mesh)
    model = learn(folder, "--parameters", "re", "--targets", "u")
    answer(model, folder / "case3.npz", "out.npz")
    (case,) = read_cases(tmp_path / "out.npz")
    assert case.fields["u"].shape == (9,)


def test_cases_in_hdf5(tmp_path, learn, answer):
    path = files.hdf5(tmp_path / "a.h5", count=31)
    model = learn(path, "--inputs", "a", "wind", "--targets", "u")
    assert answer(model, path, "out.h5", "--interval", "0.8")["cases"] == 31
    case = read_cases(tmp_path / "out.h5")[4]
    low, high = case.fields["u_predicted_low"], case.fields["u_predicted_high"]
    assert (low < high).all()
    assert not {"u_low", "u_high"} & set(case.fields)
    assert case.units["u_predicted_low"] == "Pa"


def test_a_folder_of_meshes_that_differ_and_a_new_mesh(tmp_path, ask, learn, answer):
    folder = files.folder(tmp_path / "cases", ".vtu")
    found = ask("data", "inspect", str(folder))
    assert (found["cases"], found["points"]) == (8, [9, 25])
    model = learn(folder, "--inputs", "a", "--targets", "u")
    new = files.folder(tmp_path / "new", ".vtu", count=1, make=lambda i: files.case(5, side=6))
    answer(model, new / "case0.vtu", "out.vtu")
    (case,) = read_cases(tmp_path / "out.vtu")
    assert case.fields["u"].shape == (36,)
    assert case.mesh is not None
    assert case.cell_fields["p"].shape == (50,)
    # The values of one mesh, asked on another.
    answer(model, folder / "case0.vtu", "there.vtu", "--queries", new / "case0.vtu")
    assert read_cases(tmp_path / "there.vtu")[0].fields["u"].shape == (36,)
    # And a folder of them.
    assert answer(model, folder, "answers")["cases"] == 8
    assert len(read_cases(tmp_path / "answers")) == 8
    assert (tmp_path / "answers" / "case7.vtu").exists()


def test_fields_on_cells(tmp_path, learn, answer):
    folder = files.folder(tmp_path / "cases", ".vtu", count=4)
    model = learn(folder, "--inputs", "q", "--targets", "p")
    answer(model, folder / "case0.vtu", "out.vtu")
    (case,) = read_cases(tmp_path / "out.vtu")
    assert case.cell_fields["p"].shape == (8,)
    assert "p" not in case.fields


def test_the_well(tmp_path, ask, learn, answer):
    path = files.well(tmp_path / "w.h5", count=12)
    assert ask("data", "inspect", str(path))["cases"] == 12
    model = learn(path, "--targets", "h", "--history", "2", "--lead", "2")
    assert answer(model, path, "out.npz")["shape"] == [12, 2, 12, 1]
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(out["times"], [4.5, 5.0])
    assert answer(model, path, "out.h5", "--steps", "3")["cases"] == 12
    back = read_cases(tmp_path / "out.h5")
    np.testing.assert_allclose(back.fields["h"].read(3)[:2], out["prediction"][3], rtol=1e-5)
    assert back.times.tolist() == [4.5, 5.0, 5.5]
    np.save(tmp_path / "q.npy", tiny.random().random((5, 2)) * (1, 0.66))
    elsewhere = answer(model, path, "q.npz", "--queries", tmp_path / "q.npy")
    assert elsewhere["shape"] == [12, 2, 5, 1]


def test_a_forecast_from_netcdf(tmp_path, ask, learn, answer):
    labelled = pytest.importorskip("labelled.labelled_data")
    xr = labelled.xr
    grid = labelled.grid(120)
    grid.to_netcdf(tmp_path / "g.nc")
    assert ask("data", "inspect", str(tmp_path / "g.nc"))["cases"] == 120
    flags = ("--inputs", "t2m", "--targets", "t2m", "--history", "2", "--lead", "3", "--season")
    model = learn(tmp_path / "g.nc", *flags)
    config = json.loads((model / "config.json").read_text())
    assert config["spec"]["parameters"] == ["cos(season)", "sin(season)"]
    answer(model, tmp_path / "g.nc", "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert dict(out.t2m.sizes) == {"time": 3, "latitude": 3, "longitude": 4}
        assert out.t2m.attrs["units"] == "K"
        assert (out.time.values == labelled.days(3, "2020-04-30")).all()
    finer = labelled.grid(1, latitudes=(45.0, 50.0), longitudes=(5.0, 10.0, 15.0))
    finer.to_netcdf(tmp_path / "finer.nc")
    answer(model, tmp_path / "g.nc", "on.nc", "--queries", tmp_path / "finer.nc")
    with xr.open_dataset(tmp_path / "on.nc") as out:
        assert out.t2m.shape == (3, 2, 3)
    answer(model, tmp_path / "g.nc", "both.nc", "--interval", "0.8")
    with xr.open_dataset(tmp_path / "both.nc") as out:
        assert set(out.data_vars) == {"t2m", "t2m_low", "t2m_high"}
        assert (out.t2m_low < out.t2m_high).all()


def test_stations_in_and_a_grid_out(tmp_path, learn, answer):
    labelled = pytest.importorskip("labelled.labelled_data")
    labelled.stations(60).to_netcdf(tmp_path / "s.nc")
    labelled.grid(60).to_netcdf(tmp_path / "g.nc")
    flags = ("--inputs", "t2m", "--targets", "t2m", "--targets-from", tmp_path / "g.nc")
    model = learn(tmp_path / "s.nc", *flags)
    answer(model, tmp_path / "s.nc", "out.nc")
    with labelled.xr.open_dataset(tmp_path / "out.nc") as out:
        assert dict(out.t2m.sizes) == {"time": 1, "latitude": 3, "longitude": 4}


# ---- scored and drawn


def test_a_model_of_cases_is_scored_and_drawn_on_files_of_its_kind(there, ask, fails, monkeypatch):
    monkeypatch.chdir(there)
    found = ask("evaluate", "meshes", "cases", "--device", "cpu")
    assert (found["samples"], len(found["per_sample"])) == (3, 3)
    assert ask("evaluate", "meshes", "--device", "cpu", "cases/case0.vtu")["samples"] == 1
    assert ask("evaluate", "arrays", "a.npz", "--device", "cpu")["samples"] == 10
    assert ask("evaluate", "arrays/training", "a.npz", "--device", "cpu")["samples"] == 10
    assert main(["evaluate", "arrays", "a.npz", "--device", "cpu"]) == 0
    assert main(["plot", "meshes", "cases", "--sample", "1", "--device", "cpu"]) == 0
    there_now = {p.name for p in (there / "meshes-pictures").iterdir()}
    assert there_now == {"fields.png", "loss.png"}
    assert main(["plot", "arrays", "--device", "cpu"]) == 0  # its data are not kept: the loss
    assert {p.name for p in (there / "arrays-pictures").iterdir()} == {"loss.png"}
    assert "new_cases" in fails("evaluate", "meshes")
    said = fails("evaluate", "meshes", "cases", "--keep", "0.5")
    assert "--keep: for the test data of a built-in problem" in said
    said = fails("plot", "meshes", "--out", "pictures", "--kind", "sensors")
    assert "needs the test data of a built-in problem" in said
    said = fails("plot", "meshes", "cases", "--sample", "3", "--kind", "fields")
    assert "sample 3: the data have 3" in said
    assert "what is to be answered?" in fails("predict", "meshes", "--out", "o.vtu")
    assert "targets: the model" in fails("evaluate", "meshes", "cases", "--targets-from", "cases")


def test_the_old_spelling_of_the_data_works_and_says_the_new_one(there, monkeypatch, capsys):
    monkeypatch.chdir(there)
    for verb, more in (("evaluate", []), ("plot", []), ("predict", ["--out", "old"])):
        for spelling in (["--input", "cases"], ["--input=cases"]):
            flags = [*more, *(["--overwrite"] if verb == "predict" else [])]
            assert main([verb, "meshes", *spelling, *flags, "--device", "cpu"]) == 0
            assert f"ipot {verb} MODEL cases" in capsys.readouterr().err
    assert main(["evaluate", "meshes", "cases", "--input", "a.npz"]) == 1
    assert "given twice" in capsys.readouterr().err


def test_in_python_too_a_path_stands_for_what_is_in_it(there, tmp_path):
    meshes, arrays = load(there / "meshes", device="cpu"), load(there / "arrays", device="cpu")
    assert len(meshes.evaluate(there / "cases").per_sample) == 3
    assert len(arrays.evaluate(str(there / "a.npz")).per_sample) == 10
    meshes.plot(there / "cases", tmp_path / "one.png", index=2)
    assert (tmp_path / "one.png").stat().st_size > 1000
    one = read_cases(there / "cases" / "case1.vtu")[0]
    several = meshes.predict(there / "cases")
    assert len(several) == 3
    assert np.array_equal(several[1], meshes.predict(there / "cases" / "case1.vtu"))
    assert np.array_equal(several[1][:, 0], predict_case(meshes, one).fields["u_predicted"])
    given = {n: np.load(there / "a.npz")[n] for n in ("points", "values")}
    assert np.array_equal(arrays.predict(there / "a.npz"), arrays.predict(**given))
    with pytest.raises(DataError, match="what is in it goes in alone"):
        arrays.predict(there / "a.npz", given["values"])
    with pytest.raises(DataError, match="sample 9: the data have 3"):
        meshes.plot(there / "cases", index=9)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_grid_for_any_model_in_the_precision_asked_for(
    there, ask, monkeypatch, tmp_path, precision
):
    monkeypatch.chdir(there)
    out, flags = str(tmp_path / "o.npz"), ["--grid", "4", "--precision", precision]
    assert ask("predict", "arrays", "a.npz", "--out", out, *flags)["shape"] == [
        10,
        16,
    ]
    exact = load("arrays", device="cpu").predict(
        **{n: np.load("a.npz")[n] for n in ("points", "values")}, queries=np.load(out)["queries"]
    )
    assert np.array_equal(np.load(out)["prediction"], exact) == (precision == "float32")
    out = str(tmp_path / "o.csv")
    ask("predict", "meshes", "cases/case0.vtu", "--out", out, *flags)
    assert read_cases(tmp_path / "o.csv")[0].fields["u"].shape == (16,)


def test_a_series_and_trajectories_are_scored(tmp_path, ask, learn):
    path = files.well(tmp_path / "w.h5", count=12)
    model = learn(path, "--targets", "h", "--history", "2", "--lead", "2", out="w")
    assert np.isfinite(ask("evaluate", str(model), str(path))["relative_l2"])
    labelled = pytest.importorskip("labelled.labelled_data")
    labelled.grid(60).to_netcdf(tmp_path / "g.nc")
    flags = ("--inputs", "t2m", "--targets", "t2m", "--history", "2", "--lead", "3", "--season")
    model = learn(tmp_path / "g.nc", *flags, out="g")
    found = ask("evaluate", str(model), str(tmp_path / "g.nc"))
    assert len(found["per_time"]) == 3


# ---- what is said


def test_a_table_for_people_and_a_line_to_go_on_with(tmp_path, capsys):
    folder = files.folder(tmp_path / "cases", ".vtu", count=2)
    assert main(["data", "inspect", str(folder)]) == 0
    said = capsys.readouterr().out
    for word in (
        "2 cases",
        "9 to 16 points",
        "wind",
        "Pa",
        "--inputs a --parameters re --targets wind",
    ):
        assert word in said
    assert main(["data", "inspect", str(files.npz(tmp_path / "a.npz"))]) == 0
    said = capsys.readouterr().out
    assert f"names or others:  ipot fit {tmp_path / 'a.npz'} --out surrogate" in said
    np.savez(tmp_path / "b.npz", x=np.arange(3.0), u=np.zeros((1, 3)))
    assert main(["data", "inspect", str(tmp_path / "b.npz")]) == 0
    assert "ipot fit /" not in capsys.readouterr().out
    assert main(["data", "--help"]) == 0
    assert "usage: ipot data inspect" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["data"])
    with pytest.raises(SystemExit, match="2"):
        main(["data", "eat"])
    assert "unknown 'eat'" in capsys.readouterr().err


def test_fit_says_what_it_chose_and_how_good_it_is(tmp_path, capsys):
    path = files.npz(tmp_path / "a.npz", count=31)
    arguments = ["fit", str(path), "--out", str(tmp_path / "m"), "--epochs", "1"]
    assert main([*arguments, "--device", "cpu", "--periodic", "0=1.0"]) == 0
    said = capsys.readouterr().err
    for word in ("31 samples", "8 inducing points", "nearest neighbour", "linear (PCA)", "saved: "):
        assert word in said
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["spec"]["periods"] == [1.0, None]


def test_stopped_it_says_how_to_go_on_and_does(tmp_path, capsys, monkeypatch):
    path, out = files.npz(tmp_path / "a.npz"), str(tmp_path / "m")
    arguments = ["fit", str(path), "--epochs", "3", "--device", "cpu"]
    with monkeypatch.context() as during:
        during.setattr(running, "objective_for", lambda settings, data: Kill(1, signal.SIGINT))
        assert main([*arguments, "--out", out]) == 130
    said = capsys.readouterr().err
    assert f"ipot fit: stopped; the same command with --resume {out} goes on" in said
    assert "Traceback" not in said
    assert main([*arguments, "--resume", out]) == 0
    assert json.loads((tmp_path / "m" / "config.json").read_text())["about"]["epochs"] == 3


# ---- what is refused


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A model of meshes, one of arrays, and their files."""
    folder = tmp_path_factory.mktemp("there")
    files.folder(folder / "cases", ".vtu", count=3)
    files.npz(folder / "a.npz")
    for source, out, names in (
        ("cases", "meshes", ["--inputs", "a", "--targets", "u"]),
        ("a.npz", "arrays", []),
    ):
        arguments = ["fit", str(folder / source), "--out", str(folder / out), *names]
        assert main([*arguments, "--epochs", "1", "--device", "cpu"]) == 0
    (folder / "broken.vtu").write_text("<VTKFile")
    (folder / "broken.npz").write_bytes(b"PK\x03\x04")
    np.savez(folder / "bare.npz", something=np.zeros(3))
    return folder


FIT = {
    "no out": (["cases"], 1, "--out is needed"),
    "no such file": (["nothing.csv", "--out", "m"], 1, "nothing.csv"),
    "no such folder": (["nothing", "--out", "m"], 1, "nothing"),
    "broken": (["broken.vtu", "--out", "m", "--targets", "u"], 1, "broken.vtu"),
    "no target": (["cases", "--out", "m"], 1, "targets is empty"),
    "bad target": (["cases", "--out", "m", "--targets", "t"], 2, "'t'"),
    "bad input": (["cases", "--out", "m", "--targets", "u", "--inputs", "b"], 2, "'b'"),
    "bad period": (["a.npz", "--out", "m", "--periodic", "x"], 1, "expected AXIS=PERIOD"),
    "bad axis": (["a.npz", "--out", "m", "--periodic", "7=1"], 1, "periods names axis 7"),
    "taken": (["a.npz", "--out", "cases"], 1, "is not empty"),
    "no time": (["cases", "--out", "m", "--targets", "u", "--lead", "2"], 1, "without time"),
    "nothing to resume": (["a.npz", "--resume", "m"], 1, "there is no run to go on with"),
    "epochs": (["a.npz", "--out", "m", "--epochs", "0"], 1, "epochs must be a whole number"),
    "minutes": (["a.npz", "--out", "m", "--minutes", "-1"], 1, "minutes must be a positive"),
    "device": (["a.npz", "--out", "m", "--device", "tpu!"], 1, "unknown device"),
    "where": (["a.npz", "--out", "m", "--where", "edges"], 2, "edges"),
    "nowhere to write": (["a.npz", "--out", "a.npz/m"], 1, "cannot be written to"),
    "not geographic": (["a.npz", "--out", "m", "--season"], 1, "season: not for"),
}


@pytest.mark.parametrize("case", FIT)
def test_fit_refuses(there, fails, monkeypatch, case):
    monkeypatch.chdir(there)
    arguments, code, message = FIT[case]
    assert message in fails("fit", *arguments, code=code)
    assert not (there / "m").exists()


PREDICT = {
    "no model": (["nothing", "a.npz", "--out", "o.npz"], "nothing"),
    "no input": (["arrays", "nothing.npz", "--out", "o.npz"], "nothing.npz"),
    "broken": (["arrays", "broken.npz", "--out", "o.npz"], "broken.npz"),
    "bare": (["arrays", "bare.npz", "--out", "o.npz"], "bare.npz"),
    "a mesh for arrays": (
        ["arrays", "cases/case0.vtu", "--out", "o.vtu"],
        "no input field 'value'",
    ),
    "arrays for a mesh": (["meshes", "bare.npz", "--out", "o.vtu"], "bare.npz"),
    "no such format": (["meshes", "cases/case0.vtu", "--out", "o.doc"], ".doc"),
    "many in one": (["meshes", "cases", "--out", "o.vtu"], "3 cases are written to"),
    "over the input": (
        ["meshes", "cases/case0.vtu", "--out", "cases/case0.vtu"],
        "is among the inputs",
    ),
    "into the input": (
        ["meshes", "cases", "--out", "cases/case0.vtu"],
        "is among the inputs",
    ),
    "no bounds": (
        ["meshes", "cases/case0.vtu", "--out", "o.vtu", "--interval", "0.9"],
        "has no bounds",
    ),
    "a level that is none": (
        ["meshes", "cases/case0.vtu", "--out", "o.vtu", "--interval", "90"],
        "interval must lie between 0 and 1",
    ),
    "steps of none": (
        ["meshes", "cases/case0.vtu", "--out", "o.vtu", "--steps", "3"],
        "trained on targets without times",
    ),
    "a grid of one": (
        ["meshes", "cases/case0.vtu", "--out", "o.vtu", "--grid", "1"],
        "--grid needs at least 2 points a side, got 1",
    ),
    "a grid and queries": (
        [
            *("meshes", "cases/case0.vtu", "--out", "o.vtu"),
            *("--grid", "9", "--queries", "cases/case1.vtu"),
        ],
        "--grid and --queries both say where to answer",
    ),
    "a grid to fill": (
        ["arrays", "a.npz", "--out", "o.npz", "--fill", "linear"],
        "a has no grid of its own",
    ),
    "queries without": (
        ["arrays", "a.npz", "--queries", "bare.npz", "--out", "o.npz"],
        "bare.npz has no array `queries`",
    ),
    "another number of meshes": (
        ["meshes", "cases", "--queries", "two", "--out", "o"],
        "give one mesh for all of them, or one for each",
    ),
    "nowhere to write": (
        ["meshes", "cases/case0.vtu", "--out", "a.npz/o.vtu"],
        "a.npz/o.vtu",
    ),
}


@pytest.mark.parametrize("case", PREDICT)
def test_predict_refuses(there, fails, monkeypatch, case):
    monkeypatch.chdir(there)
    if not (there / "two").exists():
        files.folder(there / "two", ".vtu", count=2)
    before = (there / "cases" / "case0.vtu").read_bytes()
    arguments, message = PREDICT[case]
    code = 2 if "no input field" in message else 1
    assert message in fails("predict", *arguments, "--device", "cpu", code=code)
    assert not list(there.glob("o.*"))
    assert (there / "cases" / "case0.vtu").read_bytes() == before


@pytest.mark.parametrize("output", ["answer.vtu", "answers"])
def test_an_answer_that_is_there_stays_unless_said(there, fails, monkeypatch, output):
    monkeypatch.chdir(there)
    source = "cases/case0.vtu" if output.endswith("vtu") else "cases"
    written = there / (output if source != "cases" else f"{output}/case0.vtu")
    arguments = ["meshes", source, "--out", output, "--device", "cpu"]
    if source == "cases":
        (there / output).mkdir()  # an empty folder may be there
    assert main(["predict", *arguments]) == 0
    written.write_text("mine")
    assert f"--out {output} is there already" in fails("predict", *arguments)
    assert written.read_text() == "mine"
    assert main(["predict", *arguments, "--overwrite"]) == 0
    assert read_cases(written)[0].fields["u_predicted"].shape == (9,)


def test_of_a_path_that_is_not_there_what_is_near_is_said(there, fails, monkeypatch):
    monkeypatch.chdir(there)
    said = fails("data", "inspect", "brokn.npz")
    assert "brokn.npz is not there. Near it are broken.npz" in said
    assert "npz, npy, CSV, Parquet, HDF5, VTU" in said
    assert "Near it are cases" in fails("data", "inspect", "case/case0.vtu")
    assert "In the current folder are " in fails("data", "inspect", "zzzzzzzz")
    assert "Give the folder cases, with one case" in fails("data", "inspect", "cases/*.vtu")


@pytest.mark.parametrize("name", ["nothing.npz", "broken.npz", "broken.vtu", "no*.nc"])
def test_inspect_refuses(there, fails, monkeypatch, name):
    monkeypatch.chdir(there)
    assert name in fails("data", "inspect", name)
