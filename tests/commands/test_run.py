"""`train`, `evaluate`, `predict`, `plot` on a small run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import ipot
from ipot.cli import main
from ipot.commands.plot import Plot, Studio
from ipot.formats import read_cases
from tests.commands.conftest import TINY


def test_train_leaves_a_whole_folder(run):
    names = {p.name for p in Path(run).iterdir()}
    wanted = {"config.json", "metrics.jsonl", "best.safetensors", "last.safetensors", "loss.png"}
    assert wanted | {"result.json"} <= names
    rows = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]


def test_evaluate_in_every_way(ask, run, store):
    plain = ask("evaluate", run, "--data", store)
    assert plain["relative_l2"] == pytest.approx(np.mean(plain["per_sample"]))
    assert plain["samples"] == 4
    assert plain["mean_field"] > 0
    seen = ask(
        *("evaluate", run, "--data", store, "--keep", "0.5", "--resolution", "8"),
        *("--query-resolution", "29", "--samples", "2"),
    )
    assert (seen["points"], seen["queries"], seen["samples"]) == (32, 29 * 29, 2)
    hole = ask("evaluate", run, "--data", store, "--mask", "disk")
    assert hole["points"] < plain["points"]
    assert hole["relative_l2"] != plain["relative_l2"]


def test_evaluate_refuses_what_makes_no_sense(fails, run, store, tmp_path):
    data = ["--data", store]
    assert "disk" in fails("evaluate", run, "--mask", "moon", *data, code=2)
    assert "Possible for darcy: 3, 5, 8, 15, 29" in fails(
        "evaluate", run, "--resolution", "10", *data
    )
    assert "steady" in fails("evaluate", run, "--steps", "4", *data)
    assert "(0, 1]" in fails("evaluate", run, "--keep", "0", *data)
    assert "holds no config.json" in fails("evaluate", str(tmp_path), *data)
    said = fails("evaluate", run, "--weights", "first", *data, code=2)
    assert all(word in said for word in ("--weights", "'best'", "'last'"))
    assert "batch of 0" in fails("evaluate", run, "--batch", "0", *data)
    assert "no GPU" in fails("evaluate", run, "--device", "cuda", *data)


def test_predict_equals_python(run, tmp_path, ask):
    random = np.random.default_rng(0)
    points, queries = random.random((40, 2)), random.random((7, 2))
    values = random.choice([3.0, 12.0], (40, 1))
    np.savez(tmp_path / "case.npz", points=points, values=values, queries=queries)
    answer = ask(
        *("predict", run, str(tmp_path / "case.npz")),
        *("--out", str(tmp_path / "answer.npz")),
    )
    assert answer["shape"] == [1, 7, 1]
    written = np.load(tmp_path / "answer.npz")
    np.testing.assert_allclose(written["queries"], queries)
    expected = ipot.load(run).predict(points, values, queries)
    np.testing.assert_allclose(written["prediction"], expected, rtol=1e-6)


def test_predict_on_a_grid(run, tmp_path, ask, fails):
    np.savez(tmp_path / "case.npz", points=np.full((1, 2), 0.5), values=np.ones((1, 1)))
    flags = [str(tmp_path / "case.npz"), "--out", str(tmp_path / "a.npz")]
    assert ask("predict", run, *flags, "--grid", "6")["shape"] == [1, 36, 1]
    assert "a.npz is there already" in fails("predict", run, *flags, "--grid", "6")
    assert ask("predict", run, *flags, "--grid", "5", "--overwrite")["shape"] == [1, 25, 1]


@pytest.mark.plain
def test_predict_refuses_bad_input(run, tmp_path, fails):
    def says(code=1, name="case.npz", **arrays):
        if arrays:
            np.savez(tmp_path / "case.npz", **arrays)
        out = ["--out", str(tmp_path / "answer.npz")]
        return fails("predict", run, str(tmp_path / name), *out, code=code)

    good = {"points": np.zeros((3, 2)), "values": np.ones((3, 1)), "queries": np.zeros((2, 2))}
    broken = good["values"].copy()
    broken[1, 0] = np.nan
    assert "(1, 0)" in says(**good | {"values": broken})
    assert "2 coordinates in its last axis, got shape (3, 3)" in says(
        **good | {"points": np.zeros((3, 3))}
    )
    assert "values must have shape (3, 1), got (4, 1)" in says(**good | {"values": np.ones((4, 1))})
    assert "queries holds no row" in says(**good | {"queries": np.zeros((0, 2))})
    empty = {"points": np.zeros((0, 2)), "values": np.zeros((0, 1))}
    assert "points holds no row" in says(**good | empty)
    assert "lacks values" in says(points=good["points"])
    assert "not there" in says(name="none.npz")
    words = np.full((3, 1), "a")
    assert "real numbers" in says(**good | {"values": words})
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not really")
    assert "bad.npz is an archive that cannot be opened" in says(name="bad.npz")
    assert not (tmp_path / "answer.npz").exists()


def test_queries_far_outside_warn(run):
    surrogate = ipot.load(run)
    with pytest.warns(UserWarning, match=r"outside the domain .* extrapolation"):
        surrogate.predict(np.zeros((1, 2)), np.ones((1, 1)), np.array([[3.0, 0.5]]))


def test_plots_are_written(run, store, tmp_path, capsys):
    flags = ["--data", store, "--out", str(tmp_path), "--samples", "2"]
    assert main(["plot", run, *flags]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.split()}
    assert written == {"fields.png", "loss.png", "sensors.png", "resolution.png"}
    assert all((tmp_path / name).stat().st_size > 5000 for name in written)


@pytest.mark.parametrize("kind", ["sensors", "resolution"])
def test_curves_have_bars_and_the_mean_field(run, store, kind, ask):
    (axes,) = getattr(Studio(Plot(run=Path(run), data=Path(store), samples=3)), kind)().figure.axes
    scores = ask("evaluate", run, "--data", store, "--samples", "3")
    places, errors = axes.lines[0].get_data()
    at = list(places).index(1.0 if kind == "sensors" else 15)
    assert errors[at] == pytest.approx(scores["relative_l2"], rel=1e-5)
    bar = axes.collections[0].get_segments()[at]
    wanted = np.quantile(scores["per_sample"], (0.1, 0.9))
    np.testing.assert_allclose(bar[:, 1], wanted, rtol=1e-5)
    (said,) = [text for text in axes.texts if text.get_text() == "the mean field"]
    assert said.xy[1] == pytest.approx(scores["mean_field"], rel=1e-5)
    assert "mean of 3 test samples" in axes.get_title(loc="left")


def test_a_saved_run_is_evaluated_plotted_and_asked_like_the_run(run, store, tmp_path, ask, capsys):
    saved, data = str(ipot.load(run, device="cpu").save(tmp_path / "saved")), ["--data", store]
    seen = [*data, "--keep", "0.5", "--query-resolution", "29", "--samples", "2"]
    assert ask("evaluate", saved, *seen) == ask("evaluate", run, *seen)
    assert main(["plot", saved, *data, "--out", str(tmp_path), "--kind", "fields"]) == 0
    assert "loss" not in Studio(Plot(run=Path(saved))).sensible()  # its run is elsewhere
    assert "loss" in Studio(Plot(run=Path(run))).sensible()
    assert (tmp_path / "fields.png").stat().st_size > 5000
    np.savez(tmp_path / "case.npz", points=np.full((1, 2), 0.5), values=np.ones((1, 1)))
    answers = []
    for model, name in ((run, "a.npz"), (saved, "b.npz")):
        flags = [str(tmp_path / "case.npz"), "--out", str(tmp_path / name)]
        assert ask("predict", model, *flags, "--fill", "nearest")["shape"] == [1, 225, 1]
        answers.append(np.load(tmp_path / name)["prediction"])
    np.testing.assert_array_equal(*answers)


def test_a_run_takes_files_of_cases_and_arrays_of_samples(run, tmp_path, ask):
    random = np.random.default_rng(0)
    points, values = random.random((9, 2)), random.choice([3.0, 12.0], (4, 9, 1))
    np.savez(tmp_path / "many.npz", points=points, values=values)
    flags = [str(tmp_path / "many.npz"), "--out", str(tmp_path / "many.npy")]
    assert ask("predict", run, *flags)["shape"] == [4, 1, 9, 1]
    table = np.column_stack([points, values[0]])
    np.savetxt(tmp_path / "a.csv", table, delimiter=",", header="x,y,permeability", comments="")
    flags = [str(tmp_path / "a.csv"), "--out", str(tmp_path / "b.csv")]
    assert ask("predict", run, *flags)["cases"] == 1
    (case,) = read_cases(tmp_path / "b.csv")
    wanted = np.load(tmp_path / "many.npy")[0, 0, :, 0]
    (found,) = [f for n, f in case.fields.items() if n != "permeability"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    targets = random.random((4, 9, 1))
    np.savez(tmp_path / "test.npz", points=points, values=values, targets=targets)
    assert ask("evaluate", run, str(tmp_path / "test.npz"))["samples"] == 4


def test_plot_refuses_what_makes_no_sense(run, fails):
    assert "rollout" in fails("plot", run, "--kind", "film", code=2)
    assert "steady" in fails("plot", run, "--kind", "time")
    assert "counted from 0" in fails("plot", run, "--kind", "fields", "--sample", "-1")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model.heads", "0"], "heads must be positive"),
        (["--model.latents", "-1"], "latents must be positive"),
        (["--model.bins", "0"], "bins must be positive"),
        (["--model.max-frequency", "1"], "max_frequency"),
        (["--model.heads", "3"], "model.width must be a multiple of model.heads"),
        (["--problem.low", "-3"], "permeabilities must be positive"),
        (["--problem.high", "nan"], "permeabilities must be positive"),
        (["--problem.resolution", "13"], "Possible for darcy"),
        (["--training.batch", "0"], "batch must be positive"),
        (["--training.step", "graph"], "needs a GPU"),
        (["--count.train", "0"], "at least one sample"),
        (["--seeds", "1", "1"], "same seed twice"),
        (["--device", "tpu"], "tpu"),
        (["--peer-timeout", "0"], "--peer-timeout must be seconds, more than 0"),
        (["--peer-timeout", "nan"], "--peer-timeout must be seconds, more than 0"),
        (["--peer-timeout", "inf"], "--peer-timeout must be seconds, more than 0"),
        (["--resume", "x"], "leave out problem and model"),
    ],
)
def test_train_refuses_nonsense(flags, said, fails, store, tmp_path):
    out = tmp_path / "run"
    assert said in fails(
        "train", "darcy", "ipot", *TINY, "--out", str(out), "--data", store, *flags
    )
    assert not (out / "config.json").exists()


def test_a_model_that_does_not_fit_is_refused_before_data_are_made(fails, tmp_path):
    words = [
        "train",
        "darcy",
        "ipot",
        *TINY,
        "--out",
        str(tmp_path / "run"),
        "--data",
        str(tmp_path / "d"),
    ]
    assert "does not divide" in fails(*words, "--model.cross-heads", "5")
    assert not (tmp_path / "d").exists()


def test_resume_takes_no_other_settings(fails, run):
    said = fails("train", "--resume", run, "--out", "elsewhere", "--seeds", "1", "2")
    assert "leave out --out, --seeds" in said
    assert "at most" in fails("train", "--resume", run, "--peer-timeout", "inf")


def test_existing_run_is_not_overwritten(run, store, fails):
    before = load_file(Path(run) / "best.safetensors")
    said = fails("train", "darcy", "ipot", "--out", run, "--data", store, *TINY)
    assert f"--resume {run}" in said
    after = load_file(Path(run) / "best.safetensors")
    assert all((before[k] == after[k]).all() for k in before)


def test_damaged_runs_are_refused(run, store, fails, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    weights = copy / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "damaged or cut short" in fails("evaluate", str(copy), "--data", store)
    weights.unlink()
    assert "not been saved" in fails("evaluate", str(copy), "--data", store)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"format": 99}))
    assert "version 99" in fails("evaluate", str(copy), "--data", store)
    (copy / "config.json").write_text("{")
    assert "cannot read" in fails("evaluate", str(copy), "--data", store)


def test_unwritable_places_are_refused(store, fails, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert "--out" in fails(
        "train", "darcy", "ipot", "--out", str(file / "x"), "--data", store, *TINY
    )
    assert "--data" in fails(
        "train", "darcy", "ipot", "--out", str(tmp_path / "r"), "--data", str(file / "x"), *TINY
    )


def test_seeds_give_mean_and_spread(ask, store, tmp_path):
    flags = ["--out", str(tmp_path / "s"), "--data", store, "--quiet", "--seeds", "0", "1"]
    answer = ask("train", "darcy", "ipot", *flags, *TINY)
    errors = [row["best_validation"] for row in answer["runs"]]
    assert answer["mean"] == pytest.approx(np.mean(errors))
    assert answer["spread"] == pytest.approx(np.std(errors, ddof=1))
    assert (tmp_path / "s" / "seed-1" / "best.safetensors").exists()


def test_fine_tuning_starts_from_another_run(ask, run, store, tmp_path):
    flags = ["--out", str(tmp_path / "tuned"), "--data", store, "--quiet", "--start-from", run]
    tuned = ask("train", "darcy", "ipot", *flags, *TINY, "--training.learning-rate", "1e-9")
    before = ask("evaluate", run, "--data", store)["relative_l2"]
    after = ask("evaluate", tuned["out"], "--data", store)["relative_l2"]
    assert after == pytest.approx(before, rel=1e-4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_resume_goes_on(store, tmp_path, ask, number):
    out = tmp_path / "run"
    words = ["train", "darcy", "ipot", "--out", str(out), "--data", store, *TINY]
    words += ["--training.epochs", "100000", "--training.validate-every", "1"]
    words += ["--training.step", "eager"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ipot", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out / "best.safetensors").exists():
        time.sleep(0.1)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert f"--resume {out}" in said
    assert "Traceback" not in said
    config = json.loads((out / "config.json").read_text())
    config["training"]["epochs"] = len((out / "metrics.jsonl").read_text().splitlines()) + 2
    (out / "config.json").write_text(json.dumps(config))
    result = ask("train", "--resume", str(out), "--data", store, "--quiet")
    assert result["epochs"] == config["training"]["epochs"]


def test_training_by_pieces_of_rollouts(ask, fails, store, tmp_path):
    out = str(tmp_path / "film")
    words = ["train", "training.films", "models.toys", "--data", store, "--quiet", "--out"]
    words += [out, "--training.epochs", "2", "--training.batch", "4", "--training.unroll"]
    assert "unroll 6 of only 5 steps" in fails(*words, "6")
    result = ask(*words, "2")
    assert result["steps"] == 6
    config = json.loads((Path(out) / "config.json").read_text())
    assert config["training"]["unroll"] == 2
    again = ask("train", "--resume", out, "--data", store, "--quiet")
    assert again["best_validation"] == result["best_validation"]
    assert len(ask("evaluate", out, "--data", store)["per_time"]) == 5


@pytest.fixture(scope="session")
def stencil(tmp_path_factory, store):
    """A run of a system that cannot do without a grid."""
    out = str(tmp_path_factory.mktemp("runs") / "stencil")
    own = [word for word in zip(TINY[::2], TINY[1::2], strict=True) if "--model" not in word[0]]
    words = ["train", "darcy", "models.toys", "--out", out, "--data", store, "--quiet"]
    assert main([*words, *(w for pair in own for w in pair)]) == 0
    return out


def test_predict_takes_the_grid_for_a_grid(stencil, tmp_path, ask, fails):
    surrogate = ipot.load(stencil)
    mesh = surrogate.places()
    assert mesh.shape == (225, 2)
    values = np.random.default_rng(0).choice([3.0, 12.0], (225, 1))
    np.savez(tmp_path / "case.npz", points=mesh, values=values)
    flags = [str(tmp_path / "case.npz"), "--out", str(tmp_path / "a.npz")]
    flags += ["--overwrite"]
    assert ask("predict", stencil, *flags)["shape"] == [1, 225, 1]
    written = np.load(tmp_path / "a.npz")["prediction"]
    # By hand: the map of the values and of the mean of four neighbours.
    weights = load_file(Path(stencil) / "best.safetensors")
    field = (values - weights["input_mean"].numpy()) / weights["input_scale"].numpy()
    field = field.reshape(15, 15)
    around = sum(np.roll(field, s, a) for s in (1, -1) for a in (0, 1)) / 4
    both = np.stack([field, around], -1).reshape(225, 2)
    out = both @ weights["inner.map.weight"].numpy().T + weights["inner.map.bias"].numpy()
    expected = out * weights["output_scale"].numpy() + weights["output_mean"].numpy()
    np.testing.assert_allclose(written[0], expected, atol=1e-6)
    np.savez(tmp_path / "case.npz", points=mesh[::-1], values=values)
    said = fails("predict", stencil, *flags)
    assert "none that darcy has: that of training has nodes at 0." in said
    assert "--fill linear" in said


def test_predict_fills_the_grid_from_sensors(stencil, tmp_path, ask, fails):
    surrogate = ipot.load(stencil)
    mesh = surrogate.places()
    random = np.random.default_rng(0)
    points = np.concatenate([random.random((60, 2)), [[0, 0], [0, 1], [1, 0], [1, 1]]])
    slope = points @ [[1.0], [2.0]]
    np.savez(tmp_path / "case.npz", points=points, values=slope)
    flags = [str(tmp_path / "case.npz"), "--out", str(tmp_path / "a.npz")]
    flags += ["--overwrite"]
    assert "--fill linear" in fails("predict", stencil, *flags)
    assert ask("predict", stencil, *flags, "--fill", "linear")["shape"] == [1, 225, 1]
    written = np.load(tmp_path / "a.npz")
    np.testing.assert_allclose(written["queries"], mesh)
    expected = surrogate.predict(mesh, mesh @ [[1.0], [2.0]], mesh)
    np.testing.assert_allclose(written["prediction"], expected, rtol=1e-4, atol=1e-6)
    assert "225 points and 36 queries" in fails(
        "predict", stencil, *flags, "--fill", "linear", "--grid", "6"
    )
    assert "nearest" in fails("predict", stencil, *flags, "--fill", "spline", code=2)
