"""Encode once, ask often: the same answers as `predict`, and one pass of the encoder."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from own import tiny
from own.tiny import KINDS, TINY, arrays

from ipot.data.layout import spans_held
from ipot.data.own import Dataset
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.evaluation.predict import predict
from ipot.models import deeponet, ipot, perceiver_io, transformer
from ipot.models.base import LatentOperator
from ipot.recipes.experiment import build_model
from ipot.surrogate.answers import calibrated
from ipot.surrogate.surrogate import Surrogate

Y = np.random.default_rng(3).random((5, 2))
CONFIGS = {
    "ipot": ipot.Config(**TINY),
    "transformer": transformer.Config(width=16, heads=2, cross_heads=2, blocks=1),
    "deeponet": deeponet.Config(width=8, layers=2),
    "perceiver_io": perceiver_io.Config(width=16, latents=4, blocks=1),
}


@cache
def built(kind, name="ipot", history=0):
    """A model of its first weights, which answers as well as a trained one."""
    data = tiny.data(kind) if not history else rollout()
    model = build_model(name, CONFIGS[name], data.spec, statistics=Statistics.of(data.data))
    bounds = calibrated(model, data.data) if not history else None
    return Surrogate(model, CONFIGS[name], data.spec, data.layout, bounds=bounds)


def surrogate_of(data, **facts):
    """The same of a data set."""
    statistics = Statistics.of(data.data)
    model = build_model("ipot", CONFIGS["ipot"], data.spec, statistics=statistics)
    layout = replace(data.layout, **spans_held(data.data))
    return Surrogate(model, CONFIGS["ipot"], data.spec, layout, **facts)


def rollout():
    """Frames behind a first one, which is the input."""
    a, u = tiny.waves(10, tiny.X)
    data = Dataset.from_arrays(
        points=tiny.X, values=a, targets=np.stack([u, 2 * u, 3 * u], 1), times=[1, 2, 3]
    )
    return Dataset.of(data.data, layout=data.layout, history=1)


def inputs(kind, sample=None):
    """What is encoded, and the queries; of one sample or all."""
    given = {k: v for k, v in arrays(kind).items() if k not in ("targets", "times", "geographic")}
    queries = given.pop("queries", None)
    if sample is None:
        return given, queries
    alone = ("points",) if kind not in ("uneven", "own meshes") and "geometry" not in kind else ()
    one = {k: v if k in alone else v[sample] for k, v in given.items()}
    return one, queries[sample] if kind == "uneven" else queries


def same(found, wanted):
    """To the last bit."""
    assert type(found) is type(wanted)
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_answered_as_by_predict(kind):
    model = built(kind)
    for sample in (None, 3):
        given, queries = inputs(kind, sample)
        state = model.encode(**given)
        for interval in (None, 0.5):
            wanted = model.predict(**given, queries=queries, interval=interval)
            same(state.at(queries, interval=interval), wanted)


@pytest.mark.parametrize(
    ("kind", "name", "history"),
    [
        ("uneven", "transformer", 0),
        ("mesh", "deeponet", 0),
        ("times", "perceiver_io", 1),
    ],
    ids=["padded states", "no encoder of its own", "a rollout in physical space"],
)
def test_models_of_other_kinds(kind, name, history):
    model = built(kind, name, history)
    assert isinstance(model.model, LatentOperator) == (name == "transformer")
    given, queries = inputs(kind)
    state = model.encode(**given)
    for asked in (queries, Y):
        same(state.at(asked), model.predict(**given, queries=asked))


def test_the_encoder_is_run_once_for_many_questions(monkeypatch):
    model, counts = built("times"), {"encode": 0, "roll_on": 0}

    def count(owner, name):
        before = getattr(owner, name)

        def counted(*given):
            counts[name] += 1
            return before(*given)

        monkeypatch.setattr(owner, name, counted)

    count(type(model.model.inner), "encode")
    given, _ = inputs("times", sample=0)
    state = model.encode(**given)
    assert counts == {"encode": 1, "roll_on": 0}
    count(state._whole[0].inner, "roll_on")
    answers = [state.at(Y[i : i + 1]) for i in range(5)]
    assert counts == {"encode": 1, "roll_on": 1}  # to the times 0.5, 1 and 2, for all questions
    whole = model.predict(**given, queries=Y)
    np.testing.assert_allclose(np.concatenate(answers, 1), whole, rtol=1e-5, atol=1e-6)


def test_one_sample_may_be_asked_at_several_lists_of_places():
    model, places = built("mesh"), [Y, Y[:2], Y[1:]]
    given, _ = inputs("mesh", sample=1)
    found = model.encode(**given).at(places)
    same(found, model.predict(**given, queries=places))
    assert [len(f) for f in found] == [5, 2, 4]


def test_times_are_those_asked_for():
    model = built("times")
    given, _ = inputs("times", sample=2)
    state = model.encode(**given)
    whole = model.predict(**given, steps=4)
    assert whole.shape == (4, 12)
    for ask in (model.predict, lambda times, **_: state.at(times=times)):
        np.testing.assert_allclose(ask(times=[1.0, 2.0], **given), whole[[1, 3]], rtol=1e-5)
    np.testing.assert_allclose(state.at(times=1.5), whole[2:3], rtol=1e-5)
    same(state.at(steps=4), whole)


def test_many_queries_go_in_chunks_of_bounded_memory(monkeypatch):
    """As they do without encoding before: what is asked by is the same `predict`."""
    model = built("mesh")
    given, _ = inputs("mesh")
    state, asked = model.encode(**given), np.random.default_rng(5).random((60, 2))
    wanted = state.at(asked)
    sizes = []

    def small(model, batch, **settings):
        sizes.append(batch.values.shape[1])
        return predict(model, batch, **settings | {"rows": 20})

    monkeypatch.setattr("ipot.surrogate.answers.predict", small)
    np.testing.assert_allclose(state.at(asked), wanted, rtol=1e-4, atol=1e-5)
    assert sizes == [1]  # the points stay behind: they are in the state


@pytest.mark.plain
def test_refused_as_predict_does():
    model = built("times")
    given, _ = inputs("times")
    state = model.encode(**given)
    for ask, message in (
        (lambda: model.encode(points=tiny.X), "values are needed"),
        (lambda: state.at(Y[:, :1]), "queries must have 2 coordinates"),
        (lambda: state.at([Y, Y]), "10 in values"),
        (lambda: state.at(times=["1", "2"]), "times must hold real numbers"),
        (lambda: state.at(times=[0.7]), "multiples of the model's step, 0.5"),
        (lambda: state.at(times=[1, 0.5]), "times must increase"),
        (lambda: state.at(times=[np.nan]), "times must increase"),
        (lambda: state.at(times=[1], steps=2), "steps and times are both given"),
        (lambda: state.at(interval=90), "90 % are interval=0.9"),
        (lambda: state.at(interval=True), "interval must lie between 0 and 1"),
    ):
        with pytest.raises(DataError, match=message):
            ask()
    for ask, message in (
        (lambda: state.at(times=[1.5], interval=0.5), "bounds are known at the times of training"),
        (lambda: built("mesh").predict(**inputs("mesh")[0], times=[1]), "targets without times"),
        (lambda: model.encode(type("Labelled", (), {"__module__": "xarray.core"})()), "arrays"),
    ):
        with pytest.raises(Unsupported, match=message):
            ask()
