"""The page makes dies and the places in block and time as Python does."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems import plasticity
from ipot.solvers import forging_block

MODULE = "problems/plasticity.js"


def drawn(count=4):
    generator = torch.Generator().manual_seed(2)
    draws = torch.rand(count, plasticity.KNOTS - 2, generator=generator, dtype=torch.float64)
    return plasticity.SPREAD * draws


@pytest.mark.parametrize("size", [101, 21])
def test_dies_and_queries_are_those_of_a_sample(size):
    heights = drawn()
    problem = plasticity.Plasticity(size=size)
    fields = {
        "die": plasticity.profiles(heights, size).float(),
        "displacement": torch.zeros(len(heights), *problem.grid, 2),
    }
    data = problem.dataset(fields, None, None)
    found = call(
        MODULE,
        "({inputs: heights.map((h) => m.inputs(h, size)), queries: m.queries(size).queries})",
        heights=heights.tolist(),
        size=size,
    )
    np.testing.assert_allclose(found["queries"], data[0].queries.flatten(), atol=1e-6)
    for index, mine in enumerate(found["inputs"]):
        np.testing.assert_allclose(mine["points"], data[index].points.flatten(), atol=1e-6)
        np.testing.assert_allclose(mine["values"], data[index].values.flatten(), rtol=1e-6)


def test_thinned_queries_are_some_of_all_and_keep_the_ends():
    every = np.array(call(MODULE, "m.queries(101).queries")).reshape(101, 31, 20, 3)
    some = call(MODULE, "m.queries(101, 5, 4)")
    i, j, t = some["lines"]
    assert (i[-1], j[-1], t[-1]) == (100, 30, 19)
    np.testing.assert_array_equal(
        np.array(some["queries"]).reshape(len(i), len(j), len(t), 3), every[np.ix_(i, j, t)]
    )


def test_the_block_is_where_the_solver_has_it():
    wanted = forging_block.reference(21)
    found = [call(MODULE, f"m.reference(21, {i}, {j})") for i, j in ((0, 0), (20, 6), (3, 1))]
    np.testing.assert_allclose(found, torch.stack((wanted[0, 0], wanted[20, 6], wanted[3, 1])))


def test_heights_are_found_again_in_a_die():
    heights = drawn(1)[0].tolist()
    die = plasticity.profiles(torch.tensor([heights], dtype=torch.float64), 101)[0].tolist()
    found = call(MODULE, "m.profile(m.heightsOf(die), 101)", die=die)
    np.testing.assert_allclose(found, die, atol=0.02)  # knots lie between the nodes


def test_draws_are_those_of_training_and_what_is_beyond_is_marked():
    many = np.array(call(MODULE, "Array.from({length: 2000}, () => m.draw())"))
    assert many.shape == (2000, 7)
    assert 0 <= many.min() < 0.01 < 7.69 < many.max() <= plasticity.SPREAD
    heights = [1, 2, 3, 4, 5, 8.6, 8.8]
    marks = [False] * 5 + [False, True]
    assert call(MODULE, "m.beyond(heights)", heights=heights) == marks
