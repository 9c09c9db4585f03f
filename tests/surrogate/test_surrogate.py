"""A fitted model: bounds, scores, pictures, large questions, and back from its folder."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from own import tiny
from own.tiny import X, fitted, quick

import ipot
from ipot.data.own import Dataset
from ipot.device import peak_memory, reset_peak_memory
from ipot.errors import DataError, IpotError, RunError, Unsupported
from ipot.evaluation.evaluate import evaluate
from ipot.samples import Sample
from ipot.surrogate import answers as batches
from ipot.surrogate.surrogate import Interval, Surrogate

A = tiny.random(11).random((3, 12))


@pytest.fixture(scope="module")
def bounded():
    """A model with bounds from ten samples."""
    return fitted("mesh", 31)


# ---- bounds


def test_bounds_lie_around_the_answer(bounded):
    found = bounded.predict(points=X, values=A, interval=0.9)
    assert isinstance(found, Interval)
    prediction, low, high = found
    np.testing.assert_array_equal(prediction, bounded.predict(points=X, values=A))
    assert prediction.shape == low.shape == high.shape == (3, 12)
    assert (low < prediction).all()
    assert (prediction < high).all()
    narrow = bounded.predict(points=X, values=A, interval=0.5)
    assert ((narrow.high - narrow.low) < (high - low)).all()


def test_bounds_are_wide_where_errors_were_large(bounded):
    """At the queries of training every one has its own; elsewhere they are carried there."""
    one = bounded.predict(points=X, values=A[0], interval=0.9)
    widths = one.high - one.low
    assert widths.max() > 1.05 * widths.min()
    shuffled = bounded.predict(points=X, values=A[0], queries=X[::-1].copy(), interval=0.9)
    np.testing.assert_allclose((shuffled.high - shuffled.low)[::-1], widths, rtol=1e-4)


def test_bounds_of_lists_and_of_times():
    model = quick(tiny.data("times", 31))
    found = model.predict(points=X, values=[A[0], A[1]], interval=0.8)
    assert [f.shape for f in found.low] == [(3, 12)] * 2
    short = model.predict(points=X, values=A[0], interval=0.8, steps=2)
    np.testing.assert_allclose(short.high, found.high[0][:2], rtol=1e-4, atol=1e-5)
    with pytest.raises(Unsupported, match="bounds are known at the times of training"):
        model.predict(points=X, values=A[0], interval=0.8, steps=3)


def test_bounds_hold_as_often_as_they_say(bounded):
    """On average over samples: thirty of them can tell 90 from 60 %."""
    a, u = tiny.waves(60, X, seed=3)
    _, low, high = bounded.predict(points=X, values=a, interval=0.9)
    assert 0.8 < ((low <= u) & (u <= high)).mean() <= 1


@pytest.mark.plain
def test_bounds_that_cannot_be(bounded):
    for level in (0, 1, 1.5, -0.1, float("nan"), 90, True, "0.9"):
        with pytest.raises(DataError, match="interval must lie between 0 and 1"):
            bounded.predict(points=X, values=A, interval=level)
    with pytest.raises(Unsupported, match=r"interval=0\.99: 10 samples were held out"):
        bounded.predict(points=X, values=A, interval=0.99)


def test_a_model_without_bounds_says_what_to_do_and_then_has_them():
    model = quick(tiny.data("mesh"))
    with pytest.raises(Unsupported, match=r"`model\.calibrate\(data\)` makes them"):
        model.predict(points=X, values=A, interval=0.9)
    model.calibrate(tiny.data("mesh", 20))
    low, high = model.predict(points=X, values=A, interval=0.9)[1:]
    assert (low < high).all()


def test_nothing_is_computed_for_bounds_that_are_refused(monkeypatch):
    model = fitted("mesh")
    monkeypatch.setattr(Surrogate, "answers", lambda self, samples, **_: pytest.fail("computed"))
    with pytest.raises(Unsupported):
        model.predict(points=X, values=A, interval=0.9)


# ---- scores and pictures


def test_scores_are_those_of_the_model(bounded):
    test = tiny.data("mesh", 6)
    found = bounded.evaluate(test)
    assert found.relative_l2 == evaluate(bounded.model, test.data).relative_l2
    given = tiny.arrays("mesh", 6)
    answer = bounded.predict(points=X, values=given["values"])
    error = np.linalg.norm(answer - given["targets"], axis=1)
    norm = np.linalg.norm(given["targets"], axis=1)
    assert found.relative_l2 == pytest.approx((error / norm).mean(), rel=1e-5, abs=1e-6)


def test_places_far_from_zero_are_scored_wherever_their_own_origin_lies():
    """A data set counts from amid its own points, and a model from amid those of the training."""
    model, given = fitted("far away"), tiny.arrays("far away")
    few = np.argsort(given["points"].sum(1))[:5]  # those in a corner
    points, values, targets = given["points"][few], given["values"][:, few], given["targets"]
    test = Dataset.from_arrays(points=points, values=values, targets=targets[:, few])
    assert test.layout.origin != model.layout.origin
    answers = model.predict(points=points, values=values)
    error = np.linalg.norm(answers - targets[:, few], axis=1)
    wanted = (error / np.linalg.norm(targets[:, few], axis=1)).mean()
    assert model.evaluate(test).relative_l2 == pytest.approx(wanted, rel=1e-4)
    moved = test.like(dataclasses.replace(test.layout, origin=model.layout.origin))
    back = moved.like(test.layout)
    torch.testing.assert_close(back[0].points, test[0].points, rtol=0, atol=1e-6)


@pytest.mark.plain
def test_other_data_are_refused_by_what_they_lack(bounded):
    for kind, message in (
        ("channels", "the model has 1 inputs (value), the data 2 (value_0, value_1)"),
        ("all", "the model has 0 parameters (none), the data 3"),
        ("space", "the model has 2 coordinates of a point, the data 3"),
        ("globe", "longitude and latitude"),
    ):
        for use in (bounded.evaluate, bounded.calibrate):
            with pytest.raises(DataError) as caught:
                use(tiny.data(kind))
            assert message in str(caught.value)
    with pytest.raises(DataError, match=r"must be an ipot\.Dataset, got ndarray"):
        bounded.evaluate(A)


def test_a_picture(tmp_path):
    model = fitted("channels")
    sample = tiny.data("channels")[0]
    model.plot(sample, tmp_path / "a.png", channel="target_2")
    assert (tmp_path / "a.png").stat().st_size > 5000
    with pytest.raises(DataError, match="channel='p' is no output"):
        model.plot(sample, channel="p")


def test_what_it_says_of_itself(bounded):
    assert bounded.summary()[:2] == ["in: value", "out: target"]
    lines = bounded.summary()[2:]
    assert lines[0] == "relative L2 error on 10 samples held out:"
    assert [line.split("  ")[1].strip() for line in lines[1:7]] == [
        *("ipot, by its linear model alone", "the network alone", "linear model alone"),
        *("mean field", "nearest neighbour", "linear (PCA)"),  # the best last
    ]
    assert "held out" in repr(bounded)
    assert "too few to hold" in fitted("mesh").summary()[2]


# ---- large questions


def test_samples_are_answered_in_pieces_that_fit(monkeypatch):
    """Small samples together, large ones alone, and the answers the same."""
    model, given = fitted("uneven"), tiny.uneven(20)
    del given["targets"]
    whole = model.predict(**given)
    monkeypatch.setattr(batches, "ROWS_AT_ONCE", 40)
    seen = []
    real = batches.collate

    def watched(samples):
        seen.append(len(samples))
        return real(samples)

    monkeypatch.setattr("ipot.surrogate.answers.collate", watched)
    for one, other in zip(model.predict(**given), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert sum(seen) == 20
    assert max(seen) < 5


def test_many_points_and_many_queries_in_bounded_memory():
    """All at once, a row of a few hundred features for each would take gigabytes."""
    rows, draw, model = 400_000, tiny.random(), fitted("mesh")
    points, values, many = draw.random((rows, 2)), draw.random(rows), draw.random((rows, 2))
    model.predict(points=points[:10], values=values[:10])
    reset_peak_memory(torch.device("cpu"))
    before = peak_memory(torch.device("cpu"))
    found = model.predict(points=points, values=values, queries=many)
    assert found.shape == (rows,)
    assert np.isfinite(found).all()
    # What comes in and goes out takes 20 MB of it, in float64 and in float32.
    assert peak_memory(torch.device("cpu")) - before < 0.15


def test_the_same_question_has_the_same_answer():
    model = fitted("grid")
    a = tiny.arrays("grid")["values"]
    first = model.predict(points=tiny.GRID, values=a)
    np.testing.assert_array_equal(model.predict(points=tiny.GRID, values=a), first)
    assert not model.model.training


def test_far_outside_is_said():
    with pytest.warns(UserWarning, match="1 of 2 queries lie outside"):
        fitted("mesh").predict(points=X, values=A[0], queries=[[0.5, 0.5], [3.0, 0.5]])


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_turn_around_the_globe_is_not_outside():
    model = fitted("globe")
    places = np.array([[-10.0, 0.0], [350.0, 0.0], [710.0, 0.0]])
    a = tiny.arrays("globe")["values"][0]
    found = model.predict(points=tiny.GLOBE, values=a, queries=places)
    assert found == pytest.approx(found[0], rel=1e-4)
    part = quick(tiny.data("globe", points=tiny.GLOBE * (0.3, 0.5)))
    part.predict(points=tiny.GLOBE * (0.3, 0.5) - (360, 0), values=a)
    part.predict(points=tiny.GLOBE * (0.3, 0.5), values=a, queries=[[358.0, 0.0]])
    with pytest.warns(UserWarning, match="lie outside"):
        part.predict(points=tiny.GLOBE * (0.3, 0.5), values=a, queries=[[-70.0, 0.0]])


# ---- xarray


@pytest.mark.plain
def test_labelled_arguments_are_for_labelled_models():
    xr = pytest.importorskip("xarray")
    with pytest.raises(Unsupported, match="the model was trained on arrays"):
        fitted("mesh").predict(xr.Dataset())
    with pytest.raises(Unsupported, match="on is for xarray objects"):
        fitted("mesh").predict(points=X, values=A, on=X)


# ---- to disk and back


@pytest.mark.parametrize("kind", ["channels", "times", "globe", "far away", "parameters", "uneven"])
def test_saved_and_loaded_it_is_the_same(tmp_path, kind):
    model = fitted(kind, 31 if kind == "times" else 10)
    model.save(tmp_path / "model")
    again = ipot.load(tmp_path / "model", device="cpu")
    assert isinstance(again, Surrogate)
    assert (again.spec, again.layout, again.config) == (model.spec, model.layout, model.config)
    assert again.scores == model.scores
    given = tiny.arrays(kind)
    given = {n: given[n] for n in ("points", "values", "queries", "parameters") if n in given}
    for one, other in zip(again.predict(**given), model.predict(**given), strict=True):
        np.testing.assert_array_equal(one, other)
    if model.bounds is not None:
        ours, theirs = (m.predict(**given, interval=0.9) for m in (model, again))
        np.testing.assert_array_equal(ours.low, theirs.low)
    assert again.summary() == model.summary()


def test_a_layout_that_was_edited_is_refused(tmp_path):
    folder = fitted("mesh").save(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"timed": false', '"timed": 3'))
    with pytest.raises(RunError, match=r"config.json: .*timed must be true or false, got 3"):
        ipot.load(folder, device="cpu")


# ---- labelled arrays


@pytest.fixture(scope="module")
def labelled():
    return pytest.importorskip("labelled.labelled_data")


@pytest.fixture(scope="module")
def series(labelled):
    """A forecast of two variables, with the time of the year, and bounds."""
    frames = labelled.grid(140, variables=("t2m", "msl"))
    return quick(frames, inputs=["t2m", "msl"], targets=["t2m", "msl"], lead=2, season=True)


def test_a_series_comes_back_with_the_model(tmp_path, labelled, series):
    series.save(tmp_path / "model")
    again = ipot.load(tmp_path / "model", device="cpu")
    assert again.series == series.series
    frames = labelled.grid(9, variables=("t2m", "msl"))
    for options in ({}, {"on": labelled.grid(1, (45.0, 46.0), (3.0,))}, {"steps": 1}):
        ours, theirs = (m.predict(frames, **options) for m in (series, again))
        assert ours.identical(theirs)
    low = again.predict(frames, interval=0.8).low
    assert low.identical(series.predict(frames, interval=0.8).low)


def test_a_folder_without_a_series_has_none_and_one_that_was_edited_is_refused(tmp_path, series):
    plain, edited = fitted("mesh").save(tmp_path / "plain"), series.save(tmp_path / "edited")
    assert ipot.load(plain, device="cpu").series is None
    config = json.loads((edited / "config.json").read_text())
    for value, message in (
        (3, "series must be an object with names"),
        (config["series"] | {"colour": "red"}, "unknown entries colour"),
    ):
        (edited / "config.json").write_text(json.dumps(config | {"series": value}))
        with pytest.raises(IpotError, match=message):
            ipot.load(edited, device="cpu", edited=True)
    with pytest.raises(IpotError, match="series changed after the model was saved"):
        ipot.load(edited, device="cpu")


def test_coordinates_with_gaps_come_back(tmp_path, labelled):
    frames = labelled.stations(60).assign_coords(height=("station", [1.0, np.nan, 3.0, 4.0, 5.0]))
    model = quick(frames, inputs="t2m", targets="t2m", out=tmp_path / "model")
    again = ipot.load(tmp_path / "model", device="cpu")
    assert again.predict(frames).identical(model.predict(frames))


@pytest.mark.plain
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_a_number_that_became_a_field_is_refused_by_name(labelled, offset):
    frames = offset + labelled.grid(40).astype(float)
    frames["index"] = "time", offset + np.sin(np.arange(40.0))
    model = quick(frames, inputs=["t2m", "index"], targets="t2m", history=3)
    masked = frames.where((frames.latitude != 50) | (frames.longitude != 10))
    with pytest.raises(DataError, match="index has places and time, unlike in training"):
        model.predict(masked)
    t2m = frames.assign(t2m=masked.t2m)
    assert model.predict(t2m).shape == model.predict(frames).shape


@pytest.mark.plain
def test_what_a_series_is_not_asked_with(labelled, series):
    frames = labelled.grid(9, variables=("t2m", "msl"))
    for name in ("values", "queries", "parameters"):
        with pytest.raises(DataError, match=f"{name}: an xarray object has its own"):
            series.predict(frames, **{name: A})


def test_frames_on_a_map_far_from_zero(labelled):
    """Northings of millions of metres: the model counts from an origin, and so must a forecast."""
    xr = labelled.xr
    x, y = 500_000.0 + np.arange(4), 5_600_000.0 + np.arange(3)
    values = labelled.truth(np.arange(40), *np.meshgrid(y - y[0], x - x[0], indexing="ij"))
    frames = xr.Dataset(
        {"h": (("time", "y", "x"), values)}, {"time": np.arange(40), "y": y, "x": x}
    )
    model = quick(frames, inputs="h", targets="h")
    assert model.layout.origin
    (wanted,) = model.answers([model_sample(model, frames)])
    np.testing.assert_allclose(model.predict(frames).values.ravel(), wanted.ravel(), rtol=1e-5)


def model_sample(model, frames):
    """The last frame as a sample, by hand."""
    y, x = np.meshgrid(frames.y, frames.x, indexing="ij")
    columns = {"x": x.ravel(), "y": y.ravel()}
    places = np.stack([columns[c] for c in model.series.columns], 1) - model.layout.origin
    places = torch.from_numpy(places).float()
    values = torch.from_numpy(frames.h.values[-1].reshape(-1, 1))
    return Sample(points=places, values=values, queries=places, times=(1.0,))
