"""Remarks on inputs that are unlike those of training: of a fit, of a run, of a saved model."""

import json
import warnings

import numpy as np
import pytest
from browser.javascript import call
from own import tiny

import ipot
from ipot.cli import main
from ipot.errors import RunError
from ipot.serve.facts import seen_by

RANDOM = np.random.default_rng(1)
X = RANDOM.random((60, 2))
SMALL = "--problem.size 32 --problem.resolution 16 --count.train 8 --count.validation 2"


def remarks(model, values):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(X, values)
    return [str(w.message) for w in caught if "far outside" in str(w.message)]


@pytest.fixture(scope="module")
def model():
    """Of values between 0 and 1, but for one number in three thousand."""
    values = RANDOM.random((60, 60, 1))
    values[0, 0] = 4.0
    data = ipot.Dataset.from_arrays(points=X, values=values, targets=values)
    return tiny.quick(data, epochs=1)


CASES = {
    "alike": (lambda u: u, 0),
    "a little higher": (lambda u: 1.5 * u, 0),
    "one wild number": (lambda u: np.where(np.arange(60)[:, None] == 3, 8.0, u), 0),
    "one far too wild": (lambda u: np.where(np.arange(60)[:, None] == 3, 80.0, u), 1),
    # Within the range of training, whose end is a single wild number.
    "all of them high": (lambda u: u + 2.5, 1),
    "all of them low": (lambda u: u - 2.5, 1),
    "a sixth of them high": (lambda u: np.where(np.arange(60)[:, None] < 10, 3.0, u), 0),
    "a third of them high": (lambda u: np.where(np.arange(60)[:, None] < 20, 3.0, u), 1),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_is_remarked_on(model, kind):
    change, count = CASES[kind]
    found = remarks(model, change(RANDOM.random((60, 1))))
    assert len(found) == count, found
    if kind == "all of them high":
        assert "nearly all of it from 0.00" in found[0]


@pytest.mark.parametrize("kind", CASES)
def test_a_page_that_answers_by_itself_remarks_on_the_same(model, kind):
    change, count = CASES[kind]
    values = change(RANDOM.random((60, 1)))
    facts = {"spec": {"inputs": ["value"], "input_units": []}, "seen": seen_by(model)}
    given = {"values": {"data": values.ravel().tolist()}}
    found = call("problems/unlike.js", "m.remarksOn(facts, given)", facts=facts, given=given)
    assert len(found) == count
    assert not count or found[0].partition(":")[0] == remarks(model, values)[0].partition(":")[0]


def test_a_remark_names_a_few_channels():
    values = RANDOM.random((40, 60, 5))
    data = ipot.Dataset.from_arrays(points=X, values=values, targets=values[..., 0])
    model = tiny.quick(data, epochs=1)
    (said,) = remarks(model, values[0] + 100)
    assert said.count("goes from") == 3
    assert "; and 2 more. The answer" in said
    facts = {"spec": {"inputs": list("abcde"), "input_units": []}, "seen": seen_by(model)}
    given = {"values": {"data": (values[0] + 100).ravel().tolist()}}
    (again,) = call("problems/unlike.js", "m.remarksOn(facts, given)", facts=facts, given=given)
    assert again.count("goes from") == 3
    assert "; and 2 more. The answer" in again


def test_a_run_writes_down_what_it_sees(tmp_path):
    run, data = tmp_path / "run", tmp_path / "data"
    words = ["train", "burgers", "ipot", *SMALL.split(), "--epochs", "1", "--quiet", "--small"]
    assert main([*words, "--out", str(run), "--data", str(data), "--device", "cpu"]) == 0
    model = ipot.load(run, device="cpu")
    (low,), (high,) = model.layout.span("values")
    values = [sample.values for sample in _train(model, data)]
    assert low == pytest.approx(min(float(v.min()) for v in values))
    assert high == pytest.approx(max(float(v.max()) for v in values))
    (usual_low,), (usual_high,) = model.layout.usual("values")
    assert low <= usual_low < usual_high <= high
    # A saved model has them too, and its card.
    model.save(tmp_path / "saved")
    saved = ipot.load(tmp_path / "saved", device="cpu")
    assert saved.layout == model.layout
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "smallest to largest" in card
    assert f"{low:.4g} to {high:.4g}" in card
    # 20 deviations are more than a sound wave of ten times the size.
    x = model.places()
    with pytest.warns(UserWarning, match="inputs far outside"):
        saved.predict(x, 10 * high * np.sin(2 * np.pi * x))
    # Ranges that somebody edited are refused by name.
    config = json.loads((run / "config.json").read_text())
    for odd in ({"value_low": [0.0, 1.0]}, {"value_low": "x"}, {"timed": True}, 3):
        (run / "config.json").write_text(json.dumps(config | {"ranges": odd}))
        with pytest.raises(RunError, match="ranges"):
            ipot.load(run, device="cpu")


def _train(model, data):
    from ipot.data.store import Store
    from ipot.recipes.experiment import load_data

    found = load_data(model.settings, "train", store=Store(data), device="cpu")
    return [found[i] for i in range(len(found))]
