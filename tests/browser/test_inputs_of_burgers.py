"""The page makes the points of Burgers and drags its curve as Python would."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems.burgers import CONVENTIONS, Burgers
from ipot.solvers import random_fields

MODULE = "problems/burgers.js"


@pytest.mark.parametrize("count", [32, 1024])
def test_points_are_those_of_a_sample(count):
    points = Burgers().coordinates(count).float()
    found = call(MODULE, "m.circlePoints(count)", count=count)
    np.testing.assert_array_equal(np.float32(found), points.flatten())


@pytest.mark.parametrize("x", [0.0, 0.125, 0.99])
def test_a_curve_is_pulled_through_a_height_and_keeps_its_mean(x):
    n, height, width = 256, 0.8, 0.06
    start = np.sin(2 * np.pi * np.arange(n) / n) + 0.1
    pulled = call(
        MODULE,
        """(() => {
            const curve = Float64Array.from(start);
            m.pull(curve, x, height, width);
            return { curve, there: m.sampleCurve(curve, x) };
        })()""",
        start=start.tolist(),
        x=x,
        height=height,
        width=width,
    )
    curve = np.array(pulled["curve"])
    assert pulled["there"] == pytest.approx(height, abs=2e-3)
    assert curve.mean() == pytest.approx(start.mean(), abs=1e-12)
    at = np.arange(n) / n
    bump = np.exp(-(((at - x + np.arange(-2, 3)[:, None]) / width) ** 2) / 2).sum(0)
    bump -= bump.mean()
    by = (curve - start)[np.argmax(bump)] / bump.max()
    np.testing.assert_allclose(curve, start + by * bump, atol=1e-9)


def test_a_curve_is_thinned_as_the_problem_thins_it():
    curve = torch.randn(1, 1024)
    found = call(MODULE, "m.thinCurve(curve, 64)", curve=curve[0].tolist())
    np.testing.assert_array_equal(np.float32(found), Burgers().thin(curve, 64)[0])


@pytest.mark.parametrize("convention", ["file", "paper"])
def test_a_random_draw_is_one_of_the_training(convention):
    n, modes = 64, 31
    noise = torch.randn(1, 2, modes, dtype=torch.float64)
    sigma, gamma = CONVENTIONS[convention]
    wanted = random_fields.periodic_line(noise, n, sigma=sigma, tau=5.0, gamma=gamma)
    found = call(
        MODULE,
        "(() => { let k = 0; return m.randomCurve(n, () => draws[k++], convention); })()",
        n=n,
        draws=noise[0].T.flatten().tolist(),
        convention=convention,
    )
    np.testing.assert_allclose(found, wanted[0], atol=1e-6)


@pytest.mark.parametrize("convention", ["file", "paper"])
def test_what_is_beyond_all_training_waves_is_told(convention):
    """The page knows the largest of a thousand waves, which these are among."""
    sigma, gamma = CONVENTIONS[convention]
    noise = random_fields.normal((2, 512), seed=0, stream="burgers/train", indices=range(1000))
    waves = random_fields.periodic_line(noise, 1024, sigma=sigma, tau=5.0, gamma=gamma)[:, ::4]
    slope = 256 * (waves.roll(-1, 1) - waves)
    bend = 256 * (slope - slope.roll(1, 1))
    largest = [part.abs().amax(1) for part in (waves, slope, bend)]
    rows = torch.stack([part.argmax() for part in largest])
    said = call(
        MODULE,
        """waves.map((wave) => ({
            is: m.beyond(wave, convention),
            grown: m.beyond(wave.map((u) => 1.01 * u), convention),
            measured: m.measures(wave),
        }))""",
        waves=waves[rows].tolist(),
        convention=convention,
    )
    for k, found in enumerate(said):
        assert found["is"] is None
        assert found["grown"] is not None
        assert found["measured"][k] == pytest.approx(largest[k].max().item(), rel=1e-4)
    assert said[0]["grown"] == "Higher"


def test_each_way_of_being_beyond_the_training():
    at = np.arange(1024) / 1024
    waves = {
        "Higher": 0.9 * np.sin(2 * np.pi * at),
        "Steeper": 0.6 * np.sin(4 * np.pi * at),
        "Bent more sharply": 0.1 * np.sin(8 * np.pi * at),
    }
    for word, wave in waves.items():
        assert call(MODULE, "m.beyond(wave)", wave=wave.tolist()) == word
