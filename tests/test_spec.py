"""Spec: sizes, defaults, and what a model may ask for."""

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
