"""The page makes the globe's grid and what is painted on it as Python does."""

import math

import numpy as np
import pytest
from javascript import call

from ipot.problems.shallow_water import SCALES, ShallowWater
from ipot.solvers.shallow_water import GRAVITY, OMEGA, RADIUS

MODULE = "problems/shallow_water.js"
PAINT = """(() => {
    const points = m.gridPoints(rows, solved);
    const fields = { height: new Float64Array(2 * rows * rows).fill(0.5),
                     vorticity: new Float64Array(2 * rows * rows).fill(-0.5) };
    m[brush](fields, points, place, strength, radius);
    return fields;
})()"""


@pytest.mark.parametrize(("rows", "solved"), [(32, 32), (64, 128)])
def test_points_are_those_of_a_sample(rows, solved):
    points = ShallowWater(size=solved).coordinates(rows).float()
    found = call(MODULE, "m.gridPoints(rows, solved)", rows=rows, solved=solved)
    np.testing.assert_allclose(found, points.flatten(), atol=1e-7)


def paint(brush, place, strength, radius, rows=32):
    found = call(
        MODULE,
        PAINT,
        brush=brush,
        place=place,
        strength=strength,
        radius=radius,
        rows=rows,
        solved=rows,
    )
    points = ShallowWater(size=rows).coordinates(rows).float().double().numpy()
    latitude, longitude = place
    centre = np.array(
        [
            math.cos(latitude) * math.cos(longitude),
            math.cos(latitude) * math.sin(longitude),
            math.sin(latitude),
        ]
    )
    square = ((points - centre) ** 2).sum(-1) / radius**2
    return np.array(found["height"]) - 0.5, np.array(found["vorticity"]) + 0.5, square


def test_a_hill_is_height_alone():
    height, vorticity, square = paint("addHill", [0.7, 6.1], 1.5, 0.2)
    np.testing.assert_allclose(height, 1.5 * np.exp(-square / 2), atol=1e-6)
    assert not vorticity.any()


def test_a_vortex_is_balanced_and_has_no_mean():
    place, strength, radius = [-0.8, 2.0], 1.2, 0.25
    height, vorticity, square = paint("addVortex", place, strength, radius, rows=64)
    bell = np.exp(-square / 2)
    np.testing.assert_allclose(vorticity, strength * (1 - square / 2) * bell, atol=1e-6)
    # ψ whose Laplacian that is, and h = f ψ / g, in metres and seconds.
    stream = -strength / SCALES["vorticity"] * (radius * RADIUS) ** 2 / 2 * bell
    balanced = 2 * OMEGA * math.sin(place[0]) * stream / GRAVITY
    np.testing.assert_allclose(height, SCALES["height"] * balanced, rtol=1e-5, atol=1e-6)
    weights = ShallowWater(size=64).weights(64).numpy()
    mean = (vorticity * weights).mean()
    assert abs(mean) < 0.01 * (np.abs(vorticity) * weights).mean()
    # Against the earth's turn in the south it is a high: an anticyclone.
    assert height.max() == pytest.approx(np.abs(height).max())
    assert height.max() > 0.1
