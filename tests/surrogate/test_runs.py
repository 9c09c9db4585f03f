"""A run of a built-in problem is a surrogate like any other: asked, encoded, scored and saved."""

import json
from dataclasses import replace

import numpy as np
import pytest
from own import tiny
from saved.old import HERE

import ipot
from ipot.data.own import Dataset
from ipot.data.store import Store
from ipot.errors import DataError, IpotError, RunError, Unsupported
from ipot.recipes.experiment import build

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.random((40, 2)), RANDOM.random((7, 2))
A = RANDOM.choice([3.0, 12.0], (5, 40, 1))


@pytest.fixture(scope="module")
def darcy():
    return ipot.load(HERE / "run", device="cpu")


@pytest.fixture(scope="module")
def rolling():
    """A problem in time, with weights as they are drawn."""
    settings = ipot.experiment("navier_stokes", "ipot")
    sizes = {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1}
    settings = replace(settings, model=replace(settings.model, **sizes))
    return ipot.Surrogate.of_experiment(build(settings), settings)


@pytest.fixture(scope="module")
def test_data(darcy, tmp_path_factory):
    """Samples of the problem that the run has not seen."""
    return darcy.problem.load("test", 12, store=Store(tmp_path_factory.mktemp("data")), seed=3)


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_one_class_for_all(darcy):
    assert type(darcy) is type(tiny.fitted("mesh")) is ipot.Surrogate is ipot.Fitted


def test_answers_have_a_time_and_channels_and_lead_with_samples_if_asked_so(darcy, rolling):
    one = darcy.predict(X, A[0], Y)
    assert one.shape == (1, 7, 1)
    many = darcy.predict(X, A, Y)
    assert many.shape == (5, 1, 7, 1)
    close(many[0], one)
    assert darcy.predict(X, A[0]).shape == (1, 40, 1)
    assert darcy.predict(X, A[0], np.zeros((2, 3, 2))).shape == (1, 2, 3, 1)
    assert [f.shape for f in darcy.predict([X, X[:9]], [A[0], A[1, :9]], Y)] == [(1, 7, 1)] * 2
    past = RANDOM.random((40, 10))
    assert rolling.predict(X, past, Y, steps=2).shape == (2, 7, 1)
    close(rolling.predict(X, past, Y, times=[2.0]), rolling.predict(X, past, Y, steps=2)[1:])


@pytest.mark.plain
def test_one_case_is_a_sample(darcy):
    sample = darcy.sample(X, A[0], Y)
    np.testing.assert_array_equal(sample.queries, Y.astype(np.float32))
    close(darcy.answers([sample])[0], darcy.predict(X, A[0], Y))
    with pytest.raises(DataError, match="sample takes one case, and these are 5"):
        darcy.sample(X, A, Y)


@pytest.mark.plain
def test_a_steady_problem_takes_no_steps(darcy):
    assert darcy.predict(X, A[0], Y, steps=1).shape == (1, 7, 1)
    for asked in ({"steps": 2}, {"times": [2.0]}, {"times": [1.0, 2.0]}):
        with pytest.raises(Unsupported, match=r"darcy is steady, it has no steps to take"):
            darcy.predict(X, A[0], Y, **asked)


def test_encoded_once_it_answers_the_same(darcy, rolling):
    np.testing.assert_array_equal(darcy.encode(X, A[0]).at(Y), darcy.predict(X, A[0], Y))
    past = RANDOM.random((2, 40, 10))
    state = rolling.encode(X, past)
    close(state.at(Y, steps=3), rolling.predict(X, past, Y, steps=3))


def test_it_is_scored_on_what_its_problem_loads_and_on_arrays(darcy, test_data):
    found = darcy.evaluate(test_data)
    values = np.stack([s.values.numpy() for s in (test_data[i] for i in range(12))])
    targets = np.stack([s.truth[0].numpy() for s in (test_data[i] for i in range(12))])
    arrays = {"points": darcy.places(), "values": values, "targets": targets}
    assert darcy.evaluate(Dataset.from_arrays(**arrays)).relative_l2 == pytest.approx(
        found.relative_l2, rel=1e-5
    )
    answers = darcy.predict(darcy.places(), values)[:, 0]
    error = np.linalg.norm((answers - targets).reshape(12, -1), axis=1)
    norm = np.linalg.norm(targets.reshape(12, -1), axis=1)
    assert found.relative_l2 == pytest.approx((error / norm).mean(), rel=1e-5)


@pytest.mark.plain
def test_data_of_another_kind_are_refused(darcy, test_data):
    with pytest.raises(DataError, match="the model has 1 inputs"):
        darcy.evaluate(tiny.data("channels"))
    for times, message in (([2.0], "darcy is steady"), ([1.0, 2.0], "darcy is steady")):
        timed = tiny.data("times", targets=np.zeros((10, len(times), 12)), times=times)
        with pytest.raises(DataError, match=message):
            darcy.evaluate(timed)
    with pytest.raises(DataError, match=r"must be an ipot\.Dataset, got Stacked"):
        tiny.fitted("mesh").evaluate(test_data)


def test_bounds_pictures_and_words(darcy, test_data, tmp_path):
    model = ipot.load(HERE / "run", device="cpu")
    with pytest.raises(Unsupported, match=r"no bounds\. `model\.calibrate\(data\)` makes them"):
        model.predict(X, A[0], Y, interval=0.8)
    model.calibrate(test_data)
    prediction, low, high = model.predict(X, A[0], Y, interval=0.8)
    assert prediction.shape == low.shape == high.shape == (1, 7, 1)
    assert (low < high).all()
    model.plot(test_data[0], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert "validation samples: " in model.summary()[2]
    assert repr(model).startswith("<ipot.Surrogate darcy: ")


def test_saved_as_a_model_folder_it_is_the_same(darcy, test_data, tmp_path):
    model = ipot.load(HERE / "run", device="cpu")
    model.calibrate(test_data)
    again = ipot.load(model.save(tmp_path / "model"), device="cpu")
    assert (again.spec, again.layout, again.config) == (model.spec, model.layout, model.config)
    assert again.settings == model.settings
    assert again.scores == model.scores
    np.testing.assert_array_equal(again.predict(X, A, Y), model.predict(X, A, Y))
    ours, theirs = (m.predict(X, A[0], Y, interval=0.8) for m in (model, again))
    np.testing.assert_array_equal(ours.low, theirs.low)
    np.testing.assert_array_equal(again.places(), model.places())
    close(again.predict(X, A[0], fill="linear"), model.predict(X, A[0], fill="linear"))
    assert again.summary() == model.summary()
    # Once more, from the saved one.
    assert ipot.load(again.save(tmp_path / "again"), device="cpu").settings == model.settings


@pytest.mark.plain
def test_an_edited_problem_is_noticed_and_foreign_code_is_not_imported(darcy, tmp_path):
    folder = darcy.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    told = config["experiment"]
    for problem, message in (
        (told["problem"] | {"resolution": 5}, "experiment changed after the model was saved"),
        (told["problem"] | {"name": "somewhere.else"}, "somewhere.else"),
        (told["problem"] | {"colour": 3}, "unknown settings colour"),
        (3, "experiment: problem must be an object with names"),
    ):
        edited = config | {"experiment": told | {"problem": problem}}
        (folder / "config.json").write_text(json.dumps(edited))
        with pytest.raises(RunError, match=message):
            ipot.load(folder, device="cpu", edited="changed" not in message)


@pytest.mark.plain
def test_the_grid_is_for_problems_that_have_one(darcy):
    assert darcy.predict(X, A[0], fill="nearest").shape == (1, len(darcy.places()), 1)
    for wrong in ("spline", 3, b"linear"):
        with pytest.raises(IpotError, match="fill"):
            darcy.predict(X, A[0], fill=wrong)
    own = tiny.fitted("mesh")
    for ask in (own.places, lambda: own.predict(tiny.X, A[0, :12, 0], fill="linear")):
        with pytest.raises(Unsupported, match="own data has no grid of its own"):
            ask()


def test_any_model_writes_to_memory_that_is_given():
    """Piece by piece, or at the end where units were changed or memory lies otherwise."""
    for kind in ("mesh", "times", "channels", "far away"):
        model, given = tiny.fitted(kind), tiny.arrays(kind)
        asked = {"points": given["points"], "values": given["values"]}
        wanted = model.predict(**asked)
        for out in (np.empty_like(wanted), np.empty(wanted.shape).T.copy().T):
            assert model.predict(**asked, rows=5, out=out) is out
            close(out, wanted)
    one = {"points": tiny.X, "values": tiny.arrays("mesh")["values"][0]}
    mesh = tiny.fitted("mesh")
    out = np.empty(12, np.float32)
    mesh.predict(**one, out=out)
    close(out, mesh.predict(**one))


@pytest.mark.plain
def test_memory_that_will_not_do_is_refused():
    model, one = tiny.fitted("mesh"), {"points": tiny.X, "values": tiny.arrays("mesh")["values"][0]}
    for out in (np.empty(11, np.float32), np.empty(12, int), [0.0] * 12, np.empty((12, 1))):
        with pytest.raises(DataError, match=r"out must be \(12,\) and of floating-point numbers"):
            model.predict(**one, out=out)
    bounded = tiny.fitted("mesh", 31)
    with pytest.raises(DataError, match="out takes the prediction alone"):
        bounded.predict(**one, interval=0.8, out=np.empty(12))


def test_rows_and_precision_are_for_all():
    model, given = tiny.fitted("mesh"), tiny.arrays("mesh")
    asked = {"points": tiny.X, "values": given["values"]}
    close(model.predict(**asked, rows=3), model.predict(**asked))
    rounded = model.predict(**asked, precision="bf16")
    assert not np.array_equal(rounded, model.predict(**asked))


def test_encoded_inputs_do_not_change_with_the_arrays_they_come_from():
    model, a = tiny.fitted("mesh"), tiny.arrays("mesh")["values"][0].astype(np.float32)
    x = tiny.X.astype(np.float32)
    state = model.encode(x, a)
    wanted = state.at()
    x[:], a[:] = 0.5, 7.0
    np.testing.assert_array_equal(state.at(), wanted)
