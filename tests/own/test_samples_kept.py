"""A few samples that a fit has not learned from, saved beside it: what `ipot serve` opens with."""

import io

import numpy as np
import pytest
import torch

import ipot
from ipot.recipes.own_data import split
from ipot.saved import samples as kept
from ipot.serve.facts import samples_of
from ipot.serve.models import Served
from own import tiny

GIVEN = ("points", "values", "queries", "parameters")
COUNT = 31
"""Samples of which ten are held out."""


def served(folder):
    return samples_of(Served("model", folder, samples=folder / "samples.npz"))


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_predict_takes_them_and_answers_like_their_targets(tmp_path, kind):
    model = tiny.fitted(kind, COUNT)
    found = served(model.save(tmp_path / "m"))
    held = split(tiny.data(kind, COUNT), seed=0).held_out
    assert len(found) == (1 if kind == "uneven" else 8)
    for k, sample in enumerate(found):
        given = {name: sample[name] for name in GIVEN if name in sample}
        answer = model.predict(**given)
        inside = model.answers([held.data[k]])[0].reshape(-1)
        scaling = model.layout.scaling("targets")
        assert scaling is None
        np.testing.assert_allclose(np.ravel(answer), inside, rtol=1e-4, atol=1e-5)
        assert sample["targets"].shape == answer.shape
        np.testing.assert_array_equal(np.ravel(sample["targets"]), held.data[k].truth.reshape(-1))
        assert ("times" in sample) == (kind == "times")


def test_they_are_in_the_units_of_the_user(tmp_path):
    own = tiny.arrays("mesh", COUNT)
    own |= {"values": 1e9 + own["values"], "targets": 1e-40 * own["targets"]}
    own["points"] = 5e6 + own["points"]
    model = tiny.quick(ipot.Dataset.from_arrays(**own), epochs=1)
    sample = served(model.save(tmp_path / "m"))[0]
    row = int(np.argmin(np.abs(own["values"] - sample["values"]).max(1)))
    np.testing.assert_allclose(sample["values"], own["values"][row], rtol=0, atol=1e-6)
    np.testing.assert_allclose(sample["targets"], own["targets"][row], rtol=1e-6)
    np.testing.assert_allclose(sample["points"], own["points"], rtol=0, atol=1e-6)


def test_few_samples_are_those_of_validation_and_very_few_those_of_training(tmp_path):
    for count in (20, 6):
        assert served(tiny.fitted("mesh", count).save(tmp_path / str(count)))


def test_large_samples_are_fewer_or_none():
    def data(places):
        random = np.random.default_rng(0)
        x = random.random((places, 2))
        a = random.random((9, places))
        return ipot.Dataset.from_arrays(points=x, values=a, targets=a)

    sizes = {}
    for places in (1000, 8000, 20_000, 200_000):
        found = data(places)
        content = kept.archive_if_small(found.data, found.layout)
        if content is None:
            sizes[places] = 0
            continue
        assert len(content) <= kept.MOST
        with np.load(io.BytesIO(content)) as arrays:
            sizes[places] = len(arrays["values"])
            assert len(arrays["points"]) == 1
            assert ("whole" in arrays) == (places > 10_000)
        if places > 10_000:  # for a system that is bound to all of its points
            assert kept.archive_if_small(found.data, found.layout, thin=False) is None
    assert sizes[1000] == 8
    assert 1 <= sizes[8000] < 8
    assert sizes[20_000] == sizes[200_000] == 1


def test_of_a_very_large_sample_some_places_are_kept():
    """They are the user's numbers, at places all over the domain, and say of how many."""
    random = np.random.default_rng(0)
    x, y = random.random((1_000_000, 2)), random.random((300_000, 3))
    a = np.stack([x[:, 0] + 2 * x[:, 1] + k for k in range(2)])
    u = np.stack([y.sum(1) + k for k in range(2)])
    data = ipot.Dataset.from_arrays(points=x, queries=y, values=a, targets=u)
    content = kept.archive_if_small(data.data, data.layout)
    assert kept.MOST / 2 < len(content) <= kept.MOST
    with np.load(io.BytesIO(content)) as found:
        some = dict(found)
    assert some["whole"].tolist() == [[1_000_000, 300_000]]
    points, queries = some["points"][0], some["queries"][0]
    assert 2000 < len(points) < 30_000
    np.testing.assert_allclose(some["values"][0], points[:, 0] + 2 * points[:, 1], atol=1e-5)
    np.testing.assert_allclose(some["targets"][0], queries.sum(1), atol=1e-5)
    counts, _, _ = np.histogram2d(*points.T, bins=5, range=[[0, 1], [0, 1]])
    assert counts.min() > 0.7 * len(points) / 25


def test_of_points_that_are_the_queries_the_same_are_kept():
    x = np.random.default_rng(0).random((300_000, 2))
    a = np.stack([x[:, 0], x[:, 1]])
    data = ipot.Dataset.from_arrays(points=x, values=a, targets=a)
    with np.load(io.BytesIO(kept.archive_if_small(data.data, data.layout))) as found:
        np.testing.assert_array_equal(found["points"], found["queries"])
        np.testing.assert_array_equal(found["values"], found["targets"])


def test_a_model_keeps_them_or_does_without(tmp_path):
    first = tiny.fitted("mesh", COUNT).save(tmp_path / "1")
    again = ipot.load(first, device="cpu")
    second = again.save(tmp_path / "2")
    before = (first / "samples.npz").read_bytes()
    assert (second / "samples.npz").read_bytes() == before
    again.samples = None
    third = again.save(tmp_path / "3")
    assert not (third / "samples.npz").exists()
    (second / "samples.npz").write_bytes(b"no archive")
    (first / "samples.npz").unlink()
    (third / "samples.npz").mkdir()  # cannot be read
    for folder in (first, second, third):
        x, state = tiny.X, ipot.load(folder, device="cpu")
        a = tiny.waves(1, x)[0][0]
        assert torch.isfinite(torch.as_tensor(state.predict(points=x, values=a))).all()
