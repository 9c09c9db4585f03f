"""Questions to a run: inputs hidden, and filled again for a system that takes them all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.interpolate import griddata

from ipot.cli import main
from ipot.commands.plot import Plot, Studio
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import UnknownName, Unsupported
from ipot.evaluation.evaluate import evaluate
from ipot.recipes.experiment import experiment, load_data
from ipot.recipes.running import restore, run
from ipot.recipes.studies import Question, ask, seen_test_data
from ipot.training import checkpoint, journal

QUICK = {"epochs": 1, "batch": 4, "step": "eager"}


@pytest.fixture(scope="module")
def globe(tmp_path_factory):
    """A stencil on the stand-in of ERA5 at its small sizes, which says that nothing will change."""
    folder = tmp_path_factory.mktemp("globe")
    settings = experiment("era5_synthetic", "models.toys")
    settings = replace(
        settings,
        problem=settings.problem.small(),
        data=replace(settings.data, train=4, validation=2, test=2),
        training=replace(settings.training, **QUICK),
    )
    store = Store(folder / "store")
    with pytest.MonkeyPatch.context() as patch:  # the fixture of every test comes too late
        patch.setattr(journal, "_tensorboard", lambda folder: None)
        run(settings, folder / "run", store=store, device="cpu", quiet=True)
    best = folder / "run" / "best.safetensors"
    weights, state = checkpoint.load(best)
    last = weights["inner.input_mean"][-1:], weights["inner.input_scale"][-1:]
    mean, scale = weights["inner.output_mean"], weights["inner.output_scale"]
    weights["inner.inner.map.weight"].zero_()[0, 6] = (last[1] / scale)[0]
    weights["inner.inner.map.bias"].copy_((last[0] - mean) / scale)
    checkpoint.save(best, weights, state)
    return folder / "run", settings, store


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question(mask="land"), "mask land"),
        (Question(keep=0.5), "50 % of the inputs"),
    ],
)
def test_a_system_on_a_grid_refuses_hidden_inputs_and_says_the_way_out(globe, question, words):
    folder, _, store = globe
    with pytest.raises(Unsupported) as error:
        ask(folder, question, store=store, device="cpu")
    said = str(error.value)
    assert "points that form a regular grid" in said
    assert words in said
    assert "--fill linear" in said


@pytest.mark.parametrize("mask", ["land", "sea"])
@pytest.mark.parametrize("method", ["linear", "cubic", "nearest"])
def test_it_is_asked_with_the_land_or_the_sea_alone(globe, mask, method):
    folder, settings, store = globe
    question = Question(mask=mask, fill=method)
    answer = ask(folder, question, store=store, device="cpu")
    whole = ask(folder, Question(), store=store, device="cpu")
    assert answer.points == whole.points == 18 * 36
    assert answer.scores.relative_l2 > 1.05 * whole.scores.relative_l2
    same = answer.references["persistence"].relative_l2
    assert answer.scores.relative_l2 == pytest.approx(same, rel=1e-4)
    assert f"filled: {method}" in question.describe()
    model, _ = restore(folder)
    keys = {"store": store, "device": choose("cpu")}
    data = seen_test_data(settings, question, **keys)
    assert evaluate(model, data).relative_l2 == pytest.approx(answer.scores.relative_l2)


@pytest.mark.parametrize("mask", ["land", "sea"])
def test_the_values_are_those_of_griddata_around_the_globe(globe, mask):
    """Three globes side by side, sample by sample and day by day."""
    _, settings, store = globe
    keys = {"store": store, "device": choose("cpu")}
    truth = load_data(settings, "test", **keys)
    data = seen_test_data(settings, Question(mask=mask, fill="linear"), **keys)
    points = truth.data.points[0].double()
    degrees = 180 * points
    land = settings.problem.land_and_sea.land(degrees[:, 0], degrees[:, 1])
    seen = land if mask == "land" else ~land
    places = np.concatenate([points[seen].numpy() + np.array([0, shift]) for shift in (-2, 0, 2)])
    assert 0 < seen.sum() < len(seen)
    assert data.data.grid == truth.data.grid == (18, 36)
    assert torch.equal(data.data.values[:, seen], truth.data.values[:, seen])
    compared = 0
    for sample in range(2):
        for day in (0, 6):
            values = truth.data.values[sample, seen, day].double().numpy()
            expected = griddata(places, np.tile(values, 3), points[~seen].numpy())
            inside = ~np.isnan(expected)
            found = data.data.values[sample, ~seen, day].numpy()
            # Squares of a grid may be cut along either diagonal.
            np.testing.assert_allclose(found[inside], expected[inside], atol=1e-3)
            assert set(found[~inside]) <= set(values.astype(np.float32))
            compared += inside.sum()
    assert compared > 100


def test_sensors_are_filled_for_each_sample(globe):
    folder, settings, store = globe
    keys = {"store": store, "device": choose("cpu")}
    truth = load_data(settings, "test", **keys)
    data = seen_test_data(settings, Question(keep=0.5, fill="linear"), **keys)
    same = (data.data.values == truth.data.values).all(-1)
    # Half of them, and the pole, where all points of a row have one temperature.
    assert all(324 <= count < 324 + 40 for count in same.sum(1).tolist())
    assert not torch.equal(same[0], same[1])
    errors = [
        ask(folder, Question(keep=k, fill="linear"), store=store, device="cpu").scores.relative_l2
        for k in (1.0, 0.5, 0.05)
    ]
    assert errors[0] < errors[1] < errors[2]


def test_nothing_hidden_is_nothing_filled(globe):
    folder, _, store = globe
    keys = {"store": store, "device": "cpu"}
    plain, filled = (ask(folder, Question(fill=f), **keys) for f in (None, "cubic"))
    assert plain.scores == filled.scores
    assert Question(fill="cubic").describe() == Question().describe()


def test_a_way_that_there_is_not():
    with pytest.raises(UnknownName, match=r"'spline'\. Known: linear, cubic, nearest"):
        Question(fill="spline")


def test_any_system_may_be_asked_either_way(tmp_path, small, store):
    run(small(), tmp_path / "run", store=store, device="cpu", quiet=True)
    keys = {"store": store, "device": "cpu"}
    some, filled = (
        ask(tmp_path / "run", Question(keep=0.5, fill=f), **keys) for f in (None, "linear")
    )
    assert (some.points, filled.points) == (6, 12)


def test_the_commands_fill(globe, tmp_path, capsys):
    folder, _, store = globe
    data = ["--data", str(store.root), "--device", "cpu"]
    assert main(["evaluate", str(folder), "--mask", "land", *data]) == 1
    assert "--fill linear" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", str(folder), "--mask", "land", "--fill", "spline", *data])
    assert "'linear'" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "--mask", "land", "--fill", "nearest", *data]) == 0
    told = " ".join(capsys.readouterr().out.split())  # a title breaks where its folder's name ends
    assert "mask land, filled: nearest" in told
    flags = ["--out", str(tmp_path), "--samples", "1", *data]
    assert main(["plot", str(folder), "--kind", "fields", "--mask", "sea", *flags]) == 1
    assert "--fill linear" in capsys.readouterr().err
    assert (
        main(["plot", str(folder), "--kind", "fields", "--mask", "sea", *flags, "--fill", "linear"])
        == 0
    )
    assert (tmp_path / "fields.png").stat().st_size > 5000


def test_the_pictures_that_a_system_on_a_grid_has(globe):
    """Without a way to fill there is no curve over sensors, and never one over other queries."""
    folder, *_ = globe
    own = ["fields", "rollout", "loss", "time"]
    assert Studio(Plot(run=folder)).sensible() == own
    filled = Studio(Plot(run=folder, fill="nearest")).sensible()
    assert filled == ["fields", "rollout", "loss", "sensors", "time"]
