"""Spec: sizes, defaults, and what a model may ask for."""

from dataclasses import replace

import pytest

from ipot.errors import Unsupported
from ipot.spec import Need, Spec


def spec(**fields) -> Spec:
    made = {"name": "toy", "inputs": ("a", "b"), "outputs": ("u",), "domain": ((0.0, 1.0),)}
    return Spec(**made | fields)


def test_queries_share_the_space_unless_told_otherwise():
    same = spec(periods=(1.0,))
    assert same.query_domain == same.domain
    assert same.query_periods == (1.0,)
    other = spec(periods=(1.0,), query_domain=((0.0, 2.0),) * 3)
    assert other.query_periods == (None,) * 3
    assert (other.dimension, other.query_dimension, other.channels) == (1, 3, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"periods": (1.0, None)},
        {"query_domain": ((0.0, 1.0),) * 2, "query_periods": (1.0,)},
    ],
)
def test_a_period_is_needed_for_every_coordinate(wrong):
    with pytest.raises(ValueError, match="period"):
        spec(**wrong)


def test_what_is_missing_is_named():
    toy = spec(provides=frozenset({Need.GRID}))
    toy.require("Fine", frozenset({Need.GRID}))
    with pytest.raises(Unsupported, match=r"Coarse needs mesh edges.*toy has none") as error:
        toy.require("Coarse", frozenset({Need.GRID, Need.EDGES}))
    assert Need.GRID.value not in str(error.value)


def test_points_and_history_are_provided_where_the_other_fields_say_so():
    given = frozenset({Need.GRID})
    assert spec(provides=given).provides == {Need.GRID, Need.POINTS}
    assert spec(history=1).provides == {Need.POINTS, Need.HISTORY}
    assert spec(inputs=()).provides == {Need.POINTS}  # where the points lie is the input
    assert spec(inputs=(), parameters=("p",)).provides == frozenset()
    assert spec(parameters=("p",)).provides == {Need.POINTS}


def test_what_follows_from_other_fields_cannot_be_given_or_kept():
    assert spec(provides=frozenset({Need.HISTORY})).provides == {Need.POINTS}
    before = spec(history=3, provides=frozenset({Need.GRID}))
    assert replace(before, history=0).provides == {Need.GRID, Need.POINTS}
    assert replace(before, provides=frozenset()).provides == {Need.HISTORY, Need.POINTS}
    numbers = replace(before, inputs=(), parameters=("p",), history=0)
    assert numbers.provides == {Need.GRID}


def test_the_axes_of_a_grid_that_wrap():
    assert spec().wraps == (False,)
    assert spec(domain=((0.0, 1.0),) * 2, periods=(None, 2.0)).wraps == (False, True)
    ball = spec(domain=((-1.0, 1.0),) * 3, sphere=True)
    assert ball.dimension == 3
    assert ball.wraps == (False, True)
