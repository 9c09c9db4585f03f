"""`ipot.compare`: systems on data of one's own, on one split and beside simple predictors."""

import json
from dataclasses import replace

import numpy as np
import pytest

import ipot
from ipot import registry
from ipot.cli import main
from ipot.errors import DataError, IpotError, RunError, UnknownName, Unsupported
from ipot.evaluation.baselines import score_baselines
from ipot.evaluation.evaluate import evaluate
from ipot.own import sizing
from ipot.recipes.experiment import build_model
from ipot.recipes.own_data import OwnData, split
from ipot.recipes.running import restore
from ipot.spec import Need
from own import tiny


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Models of a fraction of a second, on a machine where nobody else works."""
    budget = sizing.Budget(16, 8, 1, 2, 2, 1024, 512, 4, 3e-3)
    monkeypatch.setattr(sizing, "BUDGETS", {"cpu": budget, "cuda": budget})
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)
    monkeypatch.setattr("ipot.recipes.compare.busy_cores", lambda: (0.0, 2))


def side_by_side(data, *models, **options):
    options = {"minutes": 0.0005, "device": "cpu", "quiet": True, **options}
    return ipot.compare(data, models, **options)


def by_name(found):
    return {row.model: row for row in found.rows}


def test_systems_are_scored_on_the_same_samples_beside_simple_predictors(tmp_path):
    data = tiny.data("mesh", 40)
    found = side_by_side(data, "ipot", "deeponet", "fno", out=tmp_path, seed=3)
    rows = by_name(found)
    parts = split(data, 3)
    own = OwnData.of(data, parts)
    for name in ("ipot", "deeponet"):
        model, settings = restore(tmp_path / name, data=own)
        assert settings.data.test == len(parts.held_out) == 10
        wanted = evaluate(model, parts.held_out.data).relative_l2
        assert rows[name].error == pytest.approx(wanted, rel=1e-5)
    assert rows["fno"].error is None
    assert rows["fno"].reason.startswith("FNO needs points that form a regular grid")
    simple = score_baselines(parts.train.data, parts.held_out.data, data.spec)
    assert found.mean_field == simple["mean field"].relative_l2
    assert found.references == {
        name: simple[name].relative_l2 for name in simple if name != "mean field"
    }
    assert {"nearest neighbour", "linear (PCA)"} <= set(found.references)
    assert found.remarks == ()


def test_an_output_that_is_one_number_is_not_scored_as_in_a_fit(tmp_path):
    a, u = tiny.waves(40, tiny.X)
    targets = np.stack([u, np.full_like(u, 1000.0)], -1)
    data = ipot.Dataset.from_arrays(points=tiny.X, values=a, targets=targets, outputs=["u", "p"])
    found = side_by_side(data, "deeponet", out=tmp_path)
    parts = split(data, 0)
    simple = score_baselines(parts.train.data, parts.held_out.data, data.spec, [0])
    assert found.mean_field == simple["mean field"].relative_l2 > 0.5
    assert found.references["linear (PCA)"] == simple["linear (PCA)"].relative_l2
    model, _ = restore(tmp_path / "deeponet", data=OwnData.of(data, parts))
    wanted = evaluate(model, parts.held_out.data, channels=[0]).relative_l2
    assert by_name(found)["deeponet"].error == pytest.approx(wanted, rel=1e-5)
    # Scores of before, in which it counted, are not left beside others.
    test = tmp_path / "deeponet" / "test.json"
    content = json.loads(test.read_text())
    del content["channels"]
    test.write_text(json.dumps(content | {"relative_l2": 1e-3}))
    again = side_by_side(data, "deeponet", out=tmp_path)
    assert by_name(again)["deeponet"].error == by_name(found)["deeponet"].error


def test_a_table_a_page_and_a_picture_and_it_goes_on(tmp_path, capsys):
    data = tiny.data("mesh", 40)
    first = side_by_side(data, "deeponet", out=tmp_path, quiet=False)
    said = capsys.readouterr().err
    for part in ("40 samples", "| deeponet", "| linear (PCA)", "| the mean field"):
        assert part in said
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "ipot.compare(data, ['deeponet'], minutes=0.0005)" in (tmp_path / "compare.md").read_text()
    )
    again = side_by_side(data, "oformer", out=tmp_path)
    assert by_name(again)["deeponet"] == by_name(first)["deeponet"]
    content = json.loads((tmp_path / "compare.json").read_text())
    assert {row["model"] for row in content["rows"]} == {"deeponet", "oformer"}
    with pytest.raises(RunError, match=r"other settings \(problem\.fingerprint"):
        side_by_side(tiny.data("mesh", 41), "deeponet", out=tmp_path)


def test_every_system_has_the_whole_time(tmp_path):
    """A fit may stop early; systems that are compared may not."""
    side_by_side(tiny.data("mesh", 40), "deeponet", out=tmp_path)
    how = json.loads((tmp_path / "deeponet" / "config.json").read_text())["training"]
    assert how["patience"] is None
    assert how["minutes"] == 0.0005


def test_errors_are_weighted_where_samples_are(tmp_path):
    weights = [1e-6] * 6 + [1.0] * 6
    data = tiny.data("mesh", 40, weights=weights)
    row = side_by_side(data, "deeponet", out=tmp_path).rows[0]
    test = json.loads((tmp_path / "deeponet" / "test.json").read_text())
    assert row.error == test["weighted_relative_l2"] != test["relative_l2"]


def test_few_samples_are_scored_on_those_that_chose_the_weights():
    found = side_by_side(tiny.data("mesh", 20), "deeponet")
    assert "samples that chose the weights" in found.remarks[0]
    assert found.data["test"] == found.data["validation"] == 2
    with pytest.raises(DataError, match="9 samples are too few for a comparison"):
        side_by_side(tiny.data("mesh", 9), "deeponet")


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"minutes": 0}, IpotError, "minutes must be a positive number"),
        ({"seed": -1}, IpotError, "seed must be a whole number"),
        ({"models": ["ipott"]}, UnknownName, "Did you mean 'ipot'"),
        ({"models": [{"name": "fno"}]}, UnknownName, "systems are given by their names"),
        ({"inputs": "a"}, DataError, "knows its columns"),
        ({"device": "abacus"}, IpotError, "unknown device"),
    ],
)
def test_what_cannot_work_is_refused(options, kind, said, tmp_path):
    options = {"models": "ipot", "minutes": 1, "quiet": True, "device": "cpu", **options}
    with pytest.raises(kind, match=said):
        ipot.compare(tiny.data("mesh"), out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_system_that_looks_at_points_takes_a_globe():
    model = tiny.quick(tiny.data("globe"), model="meshgraphnet", epochs=1)
    length = model.model.inner.inner.edge_length
    assert 0 < float(length) < 2, "in unit vectors and not in degrees"
    model.evaluate(tiny.data("globe"))


def test_settings_of_a_comparison_are_those_of_a_fit(tmp_path):
    data = tiny.data("mesh", 40)
    side_by_side(data, "relay", out=tmp_path)
    model = tiny.quick(data, model="relay", epochs=1)
    _, settings = restore(tmp_path / "relay", data=OwnData.of(data, split(data, 0)))
    assert settings.model == replace(model.config)


@pytest.mark.parametrize("name", ["fno", "transolver"])
def test_a_part_of_the_globe_is_a_grid_of_two_axes(name):
    lines = np.arange(-20.0, 21, 10), np.arange(30.0, 61, 10)
    places = np.stack(np.meshgrid(*lines, indexing="ij"), -1)
    values, targets = tiny.waves(10, places / 60)
    how = {"points": places, "values": values, "targets": targets, "geographic": True}
    data = ipot.Dataset.from_arrays(**how)
    model = tiny.quick(data, model=name, epochs=1)
    whole = model.predict(points=places, values=values)
    assert whole.shape == (10, 5, 4)
    # Rows of a grid are one too.
    rows = model.predict(points=places.reshape(-1, 2), values=values[0].ravel())
    np.testing.assert_allclose(rows, whole[0].ravel(), rtol=1e-4, atol=1e-5)
    if name == "fno":
        with pytest.raises(Unsupported, match=r"and these 7 are none\. Give places with the axes"):
            model.predict(points=places.reshape(-1, 2)[:7], values=values[0].ravel()[:7])


def test_a_system_that_needs_a_grid_answers_for_files(tmp_path):
    """Those that it is scored on, and those of others."""
    values, targets = tiny.waves(10, tiny.GRID)
    arrays = {"points": tiny.GRID, "values": values}
    np.savez(tmp_path / "a.npz", targets=targets, **arrays)
    np.savez(tmp_path / "new.npz", **arrays)
    model = tiny.quick(str(tmp_path / "a.npz"), model="fno", epochs=1, out=tmp_path / "m")
    words = ["predict", str(tmp_path / "m"), str(tmp_path / "new.npz"), "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "b.npz")]) == 0
    found = np.load(tmp_path / "b.npz")["prediction"]
    np.testing.assert_allclose(found.reshape(10, 4, 5), model.predict(**arrays), rtol=1e-5)


def test_a_system_with_a_training_of_its_own_is_refused_on_a_globe():
    spec = replace(
        tiny.data("globe").spec, inputs=("u(0)",), outputs=("u",), history=1, provides=set(Need)
    )
    with pytest.raises(Unsupported, match=r"dino .* knows nothing of longitude and latitude"):
        build_model("dino", registry.config_of("dino")(), spec)
