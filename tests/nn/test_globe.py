"""Degrees as unit vectors: one vector for one place, however its longitude is counted."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipot.nn.globe import around, is_global, on_globe, vector_bounds

WORLD = ((-180.0, 180.0), (-90.0, 90.0))


@pytest.mark.parametrize(
    ("place", "vector"),
    [
        ((0, 0), (1, 0, 0)),
        ((90, 0), (0, 1, 0)),
        ((180, 0), (-1, 0, 0)),
        ((-90, 0), (0, -1, 0)),
        ((123, 90), (0, 0, 1)),
        ((45, -90), (0, 0, -1)),
        ((0, 60), (0.5, 0, math.sqrt(0.75))),
    ],
)
def test_places_that_are_known(place, vector):
    found = on_globe(torch.tensor(place, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor(vector, dtype=torch.float64), atol=1e-15, rtol=0)


@given(st.floats(-180, 180, width=32), st.floats(-90, 90, width=32), st.integers(-2, 2))
def test_a_turn_around_is_the_same_place(longitude, latitude, turns):
    """Exactly, wherever the longitude all around is a number of float32 itself."""
    there = torch.tensor([longitude + 360.0 * turns, latitude])
    if (there[0].double() - 360.0 * turns).item() != longitude:
        return
    here = torch.tensor([longitude, latitude])
    assert torch.equal(on_globe(there) + 0.0, on_globe(here) + 0.0)


def test_the_two_names_of_the_seam_are_one_place():
    for one, other in ((-180.0, 180.0), (0.0, 360.0), (0.0, -360.0), (90.0, -270.0), (540, -180)):
        places = torch.tensor([[one, 12.5], [other, 12.5]])
        ours, theirs = on_globe(places)
        assert torch.equal(ours + 0.0, theirs + 0.0)


@given(st.floats(-720, 720, width=32))
def test_turning_rounds_nothing(longitude):
    found = around(torch.tensor(longitude, dtype=torch.float32)).item()
    assert -180 < found <= 180
    assert math.remainder(longitude - found, 360) == 0


@given(st.floats(-180, 180), st.floats(-90, 90))
def test_vectors_have_length_one(longitude, latitude):
    found = on_globe(torch.tensor([longitude, latitude], dtype=torch.float64))
    assert found.norm().item() == pytest.approx(1, abs=1e-14)


def test_what_lies_behind_is_kept():
    found = on_globe(torch.tensor([[[10.0, 20.0, 850.0, 3.0]]]))
    assert found.shape == (1, 1, 5)
    assert found[0, 0, 3:].tolist() == [850.0, 3.0]


@pytest.mark.parametrize(
    ("region", "whole"),
    [
        (WORLD, True),
        (((0.0, 357.5), (-88.0, 88.0)), True),
        (((0.0, 357.5), (20.0, 60.0)), False),
        (((-20.0, 60.0), (-88.0, 88.0)), False),
        (((*WORLD[0],), WORLD[1], (0.0, 1.0)), True),
    ],
)
def test_what_is_the_globe(region, whole):
    assert is_global(region) is whole


@pytest.mark.parametrize(
    "region",
    [
        ((-12.0, 4.0), (49.0, 61.0)),
        ((170.0, 190.0), (-10.0, 10.0)),
        ((0.0, 360.0), (60.0, 90.0)),
        ((5.0, 5.5), (5.0, 5.5)),
    ],
)
def test_the_box_of_a_region_holds_its_vectors(region):
    box = torch.tensor(vector_bounds((*region, (1.0, 2.0))), dtype=torch.float64)
    assert box[3].tolist() == [1.0, 2.0]
    low, high = box[:3].unbind(-1)
    places = torch.rand(500, 2, dtype=torch.float64)
    sides = torch.tensor(region, dtype=torch.float64)
    vectors = on_globe(sides[:, 0] + places * (sides[:, 1] - sides[:, 0]))
    slack = 0.01 * (high - low).max()
    assert ((vectors >= low - slack) & (vectors <= high + slack)).all()
    assert (high > low).all()
    # As tight as it may be: its longest side is that of the vectors.
    assert (high - low).max() <= 1.2 * (vectors.amax(0) - vectors.amin(0)).max()
    assert vector_bounds(WORLD) == ((-1.0, 1.0),) * 3
