"""Numbers far from zero, very small or very large: learned from, asked for, saved and scored."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot import load
from ipot.data.own import Dataset
from ipot.errors import DataError
from ipot.evaluation.predict import predict
from ipot.samples import collate
from own import tiny
from own.tiny import X, fitted, quick

A, U = (tiny.arrays("mesh", 30)[name] for name in ("values", "targets"))
CASES = {"far": (1e9, 1.0), "near": (1e6, 1.0), "minute": (0.0, 1e-300), "huge": (0.0, 1e300)}


def data(case, rows=slice(None)):
    offset, scale = CASES[case]
    return Dataset.from_arrays(
        points=X, values=offset + scale * A[rows], targets=offset + scale * U[rows]
    )


@pytest.fixture(scope="module")
def labelled():
    return pytest.importorskip("labelled.labelled_data")


@pytest.fixture(scope="module")
def plain():
    return quick(Dataset.from_arrays(points=X, values=A, targets=U), blend=False)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return request.param, quick(data(request.param), blend=False)


@pytest.mark.parametrize("name", ["far", "minute"])
def test_answers_blended_with_a_simple_predictor_do_not_either(name):
    model, (offset, scale) = quick(data(name)), CASES[name]
    assert model.spec.simple
    found = model.predict(points=X, values=offset + scale * A)
    np.testing.assert_allclose((found - offset) / scale, U, rtol=0, atol=1e-4)


def test_answers_do_not_depend_on_the_units(case, plain):
    name, model = case
    offset, scale = CASES[name]
    wanted = plain.predict(points=X, values=A)
    found = model.predict(points=X, values=offset + scale * A)
    assert found.dtype == np.float64
    assert wanted.dtype == np.float32
    np.testing.assert_allclose((found - offset) / scale, wanted, rtol=0, atol=1e-5)
    again = model.encode(points=X, values=offset + scale * A).at(X)
    np.testing.assert_allclose((again - offset) / scale, wanted, rtol=0, atol=1e-5)
    both = model.predict(points=X, values=offset + scale * A, interval=0.8)
    other = plain.predict(points=X, values=A, interval=0.8)
    np.testing.assert_allclose((both.high - offset) / scale, other.high, rtol=0, atol=1e-4)


def test_scores_are_relative_to_what_is_left(case, plain):
    name, model = case
    assert model.scores["held_out"] == pytest.approx(plain.scores["held_out"], rel=1e-4)
    some = slice(0, 4)
    found = model.evaluate(data(name, some)).relative_l2  # counted in units of its own
    wanted = plain.evaluate(Dataset.from_arrays(points=X, values=A[some], targets=U[some]))
    # What is left of a channel depends on the middle of the training data, which is near zero here.
    assert found == pytest.approx(wanted.relative_l2, rel=0.2)


def test_saved_models_keep_their_units(case, tmp_path):
    name, model = case
    offset, scale = CASES[name]
    given = {"points": X, "values": offset + scale * A[:3]}
    again = load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict(**given), model.predict(**given))
    assert again.layout == model.layout
    assert len(model.plot(data(name)[0]).axes) >= 3


@pytest.mark.plain
def test_data_that_were_rounded_too_much_for_a_model_are_refused():
    model = quick(data("far"))
    coarse = Dataset.from_arrays(points=X, values=A[:4] * 1e9, targets=U[:4])
    with pytest.raises(DataError, match="data: values of value are rounded by"):
        model.evaluate(coarse)


@pytest.mark.plain
@pytest.mark.parametrize("number", [1.7e9, 1.7e9 - 1])
def test_one_sample_is_scored_whether_or_not_float32_holds_its_parameter(number):
    numbers = 1.7e9 - np.arange(30.0)
    model = quick(Dataset.from_arrays(queries=X, parameters=numbers, targets=U))
    one = Dataset.from_arrays(queries=X, parameters=np.array([number]), targets=U[:1])
    answer = model.predict(parameters=number, queries=X)
    assert model.evaluate(one).relative_l2 == pytest.approx(
        np.linalg.norm(answer - U[0]) / np.linalg.norm(U[0]), rel=1e-4
    )


@pytest.mark.plain
def test_inputs_far_from_those_of_training_are_remarked_on_once():
    model, given = fitted("all"), tiny.arrays("all")
    asked = {n: given[n] for n in ("points", "values", "queries", "parameters")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(**asked)
    odd = asked | {"values": 1e3 * given["values"]}
    with pytest.warns(UserWarning, match="inputs far outside") as caught:
        model.predict(**odd)
    (said,) = [str(w.message) for w in caught]
    assert "value (values) goes from" in said
    assert "in training from" in said
    with pytest.warns(UserWarning, match="parameter_0 .parameters. goes from"):
        model.encode(X, given["values"][0], parameters=1e4 + given["parameters"][0])


@pytest.mark.plain
def test_samples_of_another_model_are_refused_by_their_channels():
    sample = tiny.data("channels")[0]
    other = replace(sample, values=torch.cat([sample.values, sample.values], 1))
    with pytest.raises(DataError, match="has 2 input channels, this batch has 4"):
        fitted("channels").answers([other])


@pytest.mark.plain
@pytest.mark.filterwarnings("ignore:inputs far outside")
def test_answers_that_are_not_finite_are_refused_by_their_place():
    model = fitted("channels")
    values = tiny.arrays("channels")["values"][:3].copy()
    values[1] *= 1e30
    with pytest.raises(DataError, match=r"target_0 is nan in sample 1, step 0, at query 0"):
        model.predict(points=X, values=values)
    state = model.encode(points=X, values=values)
    with pytest.raises(DataError, match="the answer is not finite: target_0"):
        state.at(X[:3])
    with pytest.raises(DataError, match="the answer is not finite"):
        model.evaluate(Dataset.from_arrays(points=X, values=values, targets=np.ones((3, 12, 3))))


@pytest.mark.plain
def test_places_and_parameters_of_any_size_are_learned_from():
    numbers = 1e9 + tiny.random().random((30, 2))
    model = quick(Dataset.from_arrays(queries=1e-300 * X, parameters=numbers, targets=U))
    answer = model.predict(parameters=numbers[0], queries=1e-300 * X)
    other = model.predict(parameters=numbers[1], queries=1e-300 * X)
    assert answer.shape == (12,)
    assert np.abs(answer - other).max() > 0
    assert torch.isfinite(torch.tensor(answer)).all()
    one = Dataset.from_arrays(queries=1e-300 * X, parameters=numbers[:1], targets=U[:1])
    assert model.evaluate(one).relative_l2 == pytest.approx(
        np.linalg.norm(answer - U[0]) / np.linalg.norm(U[0]), rel=1e-4
    )


@pytest.mark.parametrize(("offset", "scale"), [(1e9, 1.0), (0.0, 1e-300)])
def test_labelled_frames_far_from_zero_or_minute(labelled, offset, scale):
    frames = labelled.grid(40)[["t2m"]].astype(float)
    changed = offset + scale * frames
    model = quick(changed, inputs="t2m", targets="t2m", history=2)
    # Frames of one field are in the same units, in and out: a forecast goes on with its answers.
    (taken,), (divided,) = set(model.layout.value_offset), set(model.layout.value_scale)
    assert (model.layout.target_offset, model.layout.target_scale) == ((taken,), (divided,))
    held = (changed - taken) / divided
    plain = quick(held, inputs="t2m", targets="t2m", history=2)
    assert plain.layout.scalings() == {}
    wanted = plain.predict(held)
    found = model.predict(changed)
    assert (found.dtype, wanted.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose((found - taken) / divided, wanted, rtol=0, atol=1e-5)
    assert float(abs(found - offset).max()) < 100 * scale


@pytest.mark.plain
@pytest.mark.parametrize("bf16", [False, True])
def test_chunks_are_looked_at_too_and_out_is_told_of(bf16):
    model = fitted("mesh").model
    sample = tiny.data("mesh")[2]
    batch = collate([replace(sample, values=1e30 * sample.values, targets=None)])
    out = torch.zeros(1, 1, 12, 1)
    cast = torch.autocast("cpu", torch.bfloat16, enabled=bf16)
    with cast, pytest.raises(DataError, match="target is nan in sample 2, step 0, at query 0"):
        predict(model, batch, rows=5, out=out, finite=True)
    with cast:
        assert predict(model, batch, rows=5).isnan().any()  # unless asked, nothing is looked at


@pytest.mark.plain
def test_a_prediction_refuses_what_float32_cannot_hold(plain, tmp_path):
    one = A[0].astype(np.float32)
    np.save(tmp_path / "a.npy", 1e39 * A[0])
    np.save(tmp_path / "nan.npy", np.where(np.arange(12) == 7, np.nan, one))
    for given, message in (
        (1e39 * A[0], r"values holds -?\d.* at \(\d+,\), more than float32 can"),
        (np.load(tmp_path / "a.npy", mmap_mode="r"), "more than float32 can: choose other units"),
        (np.where(np.arange(12) == 7, np.nan, one), r"values holds nan at \(7,\), .* not finite"),
        (np.load(tmp_path / "nan.npy", mmap_mode="r"), r"values holds nan at \(7,\).* not finite"),
        (np.broadcast_to(1.0, (10**12,)), "values in float32 takes"),
        ([1j] * 12, "values must hold real numbers"),
    ):
        with pytest.raises(DataError, match=message):
            plain.predict(points=X, values=given)


@pytest.mark.plain
def test_a_sample_in_other_units_is_drawn_as_it_was_given(monkeypatch):
    from ipot.report import plots

    seen = []
    monkeypatch.setattr(plots, "fields", lambda sample, answer, **_: seen.append(sample))
    model = quick(data("far"))
    other = Dataset.from_arrays(points=X, values=1e9 + 3 + A[:4], targets=1e9 + 3 + U[:4])
    assert other.layout.scalings() != model.layout.scalings()
    model.plot(other[0])
    np.testing.assert_allclose(seen[0].values[:, 0].numpy(), 1e9 + 3 + A[0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(seen[0].targets[0, :, 0].numpy(), 1e9 + 3 + U[0], rtol=0, atol=1e-4)


@pytest.mark.plain
@pytest.mark.parametrize("scale", [1e-200, 1e-50, 1e-30])
def test_errors_are_relative_whatever_size_the_targets_have(plain, scale):
    """A model of numbers of size one is scored on others that float32 does not have."""
    other = Dataset.from_arrays(points=X, values=A[:3], targets=scale * U[:3])
    answers = plain.predict(points=X, values=A[:3]).astype(float)
    norms = scale * np.linalg.norm(U[:3], axis=1)
    error = np.linalg.norm(answers - scale * U[:3], axis=1) / norms
    scores = plain.evaluate(other)
    assert scores.per_sample == pytest.approx(error.tolist(), rel=1e-5)
    assert scores.per_channel == pytest.approx([error.mean()], rel=1e-5)
