"""The page counts weeks of the ocean as the problem does: inputs, forecasts, regions."""

import numpy as np
import pytest
from javascript import call

from ipot.problems.sst import Sst
from ipot.serve.extras import ocean

MODULE = "problems/sst.js"
WEEKS, STEPS, HISTORY = 14, 3, 8
MAKE = """
const weeks = new m.Weeks({
  ...facts,
  temperature: Int16Array.from(facts.temperature),
  damping: Float32Array.from(facts.damping),
});
const kept = given.kept ?? Array(weeks.points).fill(true);
"""


@pytest.fixture(scope="module")
def facts():
    found = ocean(Sst(steps=STEPS))
    found["temperature"] = found["temperature"][:WEEKS]
    return {name: np.asarray(array).ravel().tolist() for name, array in found.items()} | {
        "start": float(found["start"])
    }


def windows(target):
    problem = Sst(steps=STEPS, target=target)
    data = problem.dataset(problem.read("test", 2, None), None, None)
    return data, problem.references(data, "test")


def run(facts, body, **given):
    return call(MODULE, f"(() => {{ {MAKE} {body} }})()", facts=facts, given=given)


@pytest.mark.parametrize("target", ["departure", "anomaly", "temperature"])
def test_inputs_and_forecasts_are_those_of_the_problem(facts, target):
    data, references = windows(target)
    sample = data[1]
    found = run(
        facts,
        """
        const first = 9;
        const past = given.target === "temperature" ? "temperature" : "anomaly";
        const inputs = m.forecastInputs(weeks, first, 8, kept, past);
        const last = m.spreadAnomaly(weeks, weeks.anomaly(first - 1), kept);
        const told = given.told.map((frame) => Float32Array.from(frame));
        return {
          ...inputs,
          ahead: m.forecastTemperatures(weeks, first, given.target, told, last),
          simple: m.simpleForecasts(weeks, first, told.length, last),
          measured: told.map((_, k) => weeks.temperatures(first + k)),
          errors: told.map((_, k) => m.kelvin(weeks, told[k], told[0])),
        };
        """,
        target=target,
        told=sample.targets[..., 0].tolist(),
    )
    np.testing.assert_allclose(found["points"], sample.points.flatten(), atol=1e-6)
    np.testing.assert_allclose(found["values"], sample.values.flatten(), atol=2e-3)
    np.testing.assert_allclose(found["parameters"], sample.parameters, atol=1e-6)
    # What the problem would have told of the weeks ahead makes the temperatures that came.
    np.testing.assert_allclose(found["ahead"], found["measured"], atol=2e-2)
    weights = sample.weights.numpy()
    names = {"persistence": "persistence", "damped": "damped persistence", "season": "climatology"}
    for ours, theirs in names.items():
        gap = references[theirs][1, ..., 0].numpy() - sample.targets[..., 0].numpy()
        wrong = np.array(found["simple"][ours]) - np.array(found["measured"])
        np.testing.assert_allclose(wrong, gap, atol=2e-2)
    gap = (sample.targets[..., 0] - sample.targets[0, :, 0]).numpy()
    wanted = np.sqrt((weights * gap**2).mean(-1) / weights.mean())
    np.testing.assert_allclose(found["errors"], wanted, rtol=1e-5)


def test_what_no_sensor_tells_is_spread_from_those_that_do(facts):
    kept = np.abs(np.array(facts["latitude"])) > 20
    found = run(
        facts,
        """
        const anomaly = weeks.anomaly(8);
        return { anomaly, spread: m.spreadAnomaly(weeks, anomaly, kept),
                 none: m.spreadAnomaly(weeks, anomaly, kept.map((_, k) => k === 0)) };
        """,
        kept=kept.tolist(),
    )
    anomaly, spread, none = (np.array(found[name]) for name in ("anomaly", "spread", "none"))
    np.testing.assert_array_equal(spread[kept], anomaly[kept])
    north, east = (np.radians(facts[name]) for name in ("latitude", "longitude"))
    ring = np.cos(north)
    places = np.stack([ring * np.cos(east), ring * np.sin(east), np.sin(north)], -1)
    square = ((places[~kept, None] - places[kept]) ** 2).sum(-1)
    near = np.exp(-square / (2 * 0.15**2))
    wanted = near @ anomaly[kept] / (1 / 150 + near.sum(1))
    np.testing.assert_allclose(spread[~kept], wanted, atol=1e-5)
    assert np.abs(none[north < 0]).max() < 1e-6  # far from the one that is left: nothing is known


def test_regions_are_where_they_are_said_to_be(facts):
    found = run(
        facts,
        "return Object.fromEntries(Object.keys(m.REGIONS).map((n) => [n, m.inRegion(weeks, n)]));",
    )
    inside = {name: np.array(rows) for name, rows in found.items()}
    basins = sum(inside[name].astype(int) for name in ("Atlantic", "Pacific", "Indian Ocean"))
    assert (basins == 1).all()
    north, east = np.array(facts["latitude"]), np.array(facts["longitude"])
    places = {"Atlantic": (30, 320), "Pacific": (0, 200), "Indian Ocean": (-20, 80)}
    for name, (y, x) in places.items():
        nearest = np.hypot(north - y, east - x).argmin()
        assert [other for other in places if inside[other][nearest]] == [name]
    assert (inside["Tropics"] == (np.abs(north) < 20)).all()


def test_a_brush_reaches_as_far_as_it_is_wide(facts):
    found = run(facts, "return m.withinReach(weeks, [1, 0, 0], 0.2);")
    radians = np.radians(np.stack([np.array(facts[n]) for n in ("latitude", "longitude")]))
    angle = np.arccos(np.cos(radians[0]) * np.cos(radians[1]))
    np.testing.assert_array_equal(found, angle <= 0.2)
    assert 5 < sum(found) < 60
