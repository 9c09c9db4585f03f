"""The page makes cavities, the points around them and the model's inputs as Python does."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems import elasticity
from ipot.solvers import random_fields, unit_cell

MODULE = "problems/elasticity.js"


def drawn(count=3):
    noise = random_fields.normal((10,), seed=3, stream="elasticity/test", indices=range(count))
    return noise * elasticity.deviations("file")


def fields_of(theta):
    """What `generate` keeps, without the stress."""
    mesh = unit_cell.ring(elasticity.cavity(theta, unit_cell.angles(72)), 3)
    return {
        "radii": elasticity.cavity(theta, elasticity.published_angles()).float(),
        "points": unit_cell.gauss_points(mesh).float(),
        "stress": torch.ones(len(theta), 972),
    }


@pytest.mark.parametrize(
    ("form", "polar"),
    [("points", "none"), ("points", "corner"), ("radii", "none"), ("mesh", "none")],
)
def test_inputs_are_those_of_a_sample(form, polar):
    theta = drawn()
    data = elasticity.Elasticity(inputs=form, polar=polar).dataset(fields_of(theta), None, None)
    found = call(
        MODULE,
        "theta.map((t) => m.inputs(t, form, polar))",
        theta=theta.tolist(),
        form=form,
        polar=polar == "corner",
    )
    for index, mine in enumerate(found):
        sample = data[index]
        for name in ("points", "values", "queries"):
            wanted = getattr(sample, name).flatten()
            np.testing.assert_allclose(mine[name], wanted, atol=1e-6, err_msg=name)


def test_a_pull_puts_the_edge_where_it_is_wanted_and_keeps_to_the_family():
    start = drawn(1)[0].tolist()
    moved = call(MODULE, "m.pulled(start, 1.1, 0.3)", start=start)
    there = elasticity.cavity(torch.tensor([moved]), torch.tensor([1.1], dtype=torch.float64))
    assert there.item() == pytest.approx(0.3, abs=1e-9)
    # It is the likeliest of all changes that put it there: along the gradient of the exponent.
    row = np.array(call(MODULE, "m.waves(1.1)"))
    change = np.array(moved) - start
    np.testing.assert_allclose(change / change[0], row / row[0], rtol=1e-9)


def test_a_cavity_is_dragged_as_far_as_is_allowed_and_no_farther():
    theta = call(
        MODULE,
        """quarters.reduce((t, k) => m.pulled(m.pulled(t, k, 0.4), k + 0.6, 0.2), round)""",
        quarters=[0, 1.57, 3.14, 4.71],
        round=[0.0] * 10,
    )
    rarity, farthest = call(MODULE, "[m.rarity(t), m.FARTHEST]", t=theta)
    assert rarity <= farthest * (1 + 1e-9)
    assert rarity > 0.9 * farthest


def test_the_cavity_of_a_sample_is_found_again():
    theta = drawn(1)[0].tolist()
    np.testing.assert_allclose(call(MODULE, "m.thetaOf(m.radii(t))", t=theta), theta, atol=1e-2)


def test_the_painted_mesh_is_closed_and_goes_through_the_points():
    theta = drawn(1)[0].tolist()
    mesh = call(MODULE, "m.paintedMesh(t)", t=theta)
    shape = mesh["around"], mesh["across"]
    x, y, source = (np.array(mesh[name]).reshape(shape) for name in ("x", "y", "from"))
    points = np.array(call(MODULE, "m.gaussPoints(t)", t=theta)).reshape(-1, 2)
    np.testing.assert_allclose(np.stack((x, y), -1)[:, 1:-1], points[source[:, 1:-1]], atol=1e-6)
    assert sorted(source[:-1, 1:-1].ravel()) == list(range(972))
    np.testing.assert_allclose(x[0], x[-1])
    # The last row is on the sides of the square, the first on the cavity's edge.
    assert np.abs(np.maximum(abs(x[:, -1] - 0.5), abs(y[:, -1] - 0.5)) - 0.5).max() < 1e-9
    along = np.hypot(x[:, 0] - 0.5, y[:, 0] - 0.5)
    assert 0.19 < along.min() <= along.max() < 0.41


def test_draws_are_those_of_training():
    many = np.array(call(MODULE, "Array.from({length: 2000}, () => m.draw())"))
    np.testing.assert_allclose(many.std(0), elasticity.deviations("file"), rtol=0.08)
    np.testing.assert_allclose(many.mean(0), 0, atol=1.5)
    rare = call(MODULE, "many.filter((t) => m.rarity(t) > m.RARE).length", many=many.tolist())
    assert 5 <= rare <= 45  # one in a hundred
