"""The page makes a bent airfoil's mesh and the model's inputs as Python does."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems import airfoil
from ipot.solvers import airfoil_mesh

MODULE = "problems/airfoil.js"


def drawn(count=3):
    return airfoil.displacements("airfoil/test", range(count), 5)


def test_the_mesh_is_that_of_the_solver():
    moved = drawn()
    found = call(MODULE, "moved.map((d) => m.mesh(d))", moved=moved.tolist())
    for mine, wanted in zip(found, airfoil_mesh.c_mesh(moved), strict=True):
        assert (mine["around"], mine["across"]) == wanted.shape[:2]
        x, y = wanted.flatten(0, 1).unbind(-1)
        np.testing.assert_allclose(mine["x"], x, atol=1e-9)
        np.testing.assert_allclose(mine["y"], y, atol=1e-9)


@pytest.mark.parametrize(("seen", "size"), [("departure", 221), ("departure", 45), ("mesh", 23)])
def test_inputs_are_those_of_a_sample(seen, size):
    problem = airfoil.Airfoil(size=size, resolution=size, inputs=seen)
    moved = drawn()
    step = 220 // (size - 1)
    mesh = airfoil_mesh.c_mesh(moved)[:, ::step, ::step].movedim(-1, 1).float()
    fields = {"mesh": mesh, "state": torch.ones(len(moved), 4, *mesh.shape[2:])}
    data = problem.dataset(fields, None, None)
    found = call(
        MODULE,
        "moved.map((d) => m.inputs(d, size, coordinates))",
        moved=moved.tolist(),
        size=size,
        coordinates=seen == "mesh",
    )
    for index, mine in enumerate(found):
        sample = data[index]
        np.testing.assert_allclose(mine["points"], sample.points.flatten(), atol=1e-6)
        np.testing.assert_allclose(mine["values"], sample.values.flatten(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("step", [1, 5, 10])
def test_control_points_are_found_again_in_a_sample(step):
    moved = drawn(1)[0].tolist()
    found = call(
        MODULE,
        """(() => {
            const given = m.inputs(moved, 220 / step + 1);
            return m.displacementsOf((i) => given.values[i * given.mesh.across], step);
        })()""",
        moved=moved,
        step=step,
    )
    np.testing.assert_allclose(found, moved, atol=1e-5)


def test_draws_are_those_of_training_and_what_is_beyond_is_marked():
    many = np.array(call(MODULE, "Array.from({length: 2000}, () => m.draw())"))
    assert not many[:, 0].any()
    assert np.abs(many).max() <= airfoil.REACH
    np.testing.assert_allclose(many[:, 1:].std(0), airfoil.REACH / np.sqrt(3), rtol=0.08)
    assert call(MODULE, "m.beyond([0, 0.05, -0.0501, 0.06])") == [False, False, True, True]
