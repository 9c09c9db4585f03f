"""Numbers that float32 cannot hold: what is taken off and divided by, and what is left alone."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.data.scaling import Scaling, Span, minus, scaling_of, spans
from ipot.errors import DataError

RANDOM = np.random.default_rng(0)
X, A, U = RANDOM.random((7, 2)), RANDOM.random((5, 7)), RANDOM.random((5, 7))
EYE = Scaling((0.0,), (1.0,))


def data(**changes):
    return Dataset.from_arrays(**{"points": X, "values": A, "targets": U} | changes)


def kept(found, name):
    """What a data set holds of an argument, in the units that it was given in."""
    scaling = found.layout.scaling(name) or EYE
    return np.stack([scaling.undo(getattr(s, name)) for s in found]).squeeze()


@pytest.mark.parametrize(
    ("offset", "scale"),
    [(1e9, 1.0), (-1e6, 1.0), (0.0, 1e-300), (0.0, 1e300), (1e-290, 1e-300), (1e12, 1.0)],
)
@pytest.mark.parametrize("name", ["values", "targets"])
def test_offsets_and_scales_do_not_cost_digits(name, offset, scale):
    whole = offset + scale * U
    found = data(**{name: whole})
    spread = np.ptp(whole)
    np.testing.assert_allclose(kept(found, name), whole, rtol=0, atol=1e-6 * spread)
    assert torch.isfinite(found[0].values).all()
    assert found.layout.scaling(name) is not None


def test_parameters_too():
    numbers = 1e9 + RANDOM.random((5, 2))
    found = data(parameters=numbers)
    np.testing.assert_allclose(kept(found, "parameters"), numbers, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "numbers",
    [U, 273 + 10 * U, 1e25 * U, 1e-25 * U, 0 * U, 0 * U + 0.3, (U > 0.5), (9 * U).astype(int)],
    ids=str,
)
def test_what_float32_holds_well_is_left_as_it_is(numbers):
    found = data(values=numbers, targets=numbers)
    assert found.layout.scalings() == {}
    wanted = np.asarray(numbers, dtype=np.float32)
    np.testing.assert_array_equal(np.stack([s.truth[0, :, 0] for s in found]), wanted)
    np.testing.assert_array_equal(np.stack([s.values[:, 0] for s in found]), wanted)
    assert set(Layout().as_dict()) == {
        *("flat_values", "flat_targets", "flat_parameters", "timed", "origin", "curved"),
        *("own_points", "own_queries", "alone", "times"),
    }


def test_only_the_channel_that_needs_it_changes():
    both = np.stack([U, 1e9 + U], -1)
    layout = data(targets=both).layout
    assert layout.target_offset[0] == 0
    assert abs(layout.target_offset[1] - 1e9) < 2
    assert layout.target_scale == (1.0, 1.0)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@pytest.mark.parametrize("start", [2**53, 2**60, 2**62 + 12345])
def test_whole_numbers_beyond_float64_are_subtracted_exactly(kind, start):
    numbers = (start + np.arange(35).reshape(5, 7)).astype(kind)
    found = data(values=numbers)
    (offset,) = found.layout.value_offset
    exact = [[int(n) - int(offset) for n in row] for row in numbers]
    assert [s.values[:, 0].tolist() for s in found] == exact
    with pytest.raises(
        DataError, match=r"targets varies by 34 at .* cannot tell such numbers apart"
    ):
        data(targets=numbers + kind(start // 2**7 * 2**7) if start == 2**53 else numbers)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=50, deadline=None)
def test_differences_of_whole_numbers_are_rounded_once(number, offset):
    offset = float(offset)
    found = minus(np.array([number]), np.array([offset]))
    assert found[0] == float(number - int(offset))


def test_numbers_that_differ_by_rounding_alone_are_one_number():
    """A constant that was computed is no field, however its last digit falls."""
    noisy = np.where(U > 0.5, 0.1 + 0.2, 0.3)
    assert data(values=noisy, targets=noisy).layout.scalings() == {}
    with pytest.warns(UserWarning, match="values varies by .* taken for constant"):
        assert data(values=1e15 + 2 * U).layout.scalings() == {}


def test_long_numbers_and_those_that_even_float64_lacks():
    whole = np.longdouble(1e9) + U.astype(np.longdouble)
    np.testing.assert_allclose(kept(data(values=whole), "values"), whole.astype(float), atol=1e-6)
    if np.finfo(np.longdouble).max > np.finfo(float).max:
        with pytest.raises(DataError, match="values reaches from"):
            data(values=U.astype(np.longdouble) * np.longdouble("1e400"))


@pytest.mark.parametrize(
    ("offset", "scale"), [(0.0, 1e-300), (0.0, 1e200), (1e9, 1.0), (0.5, 1e-6), (3.0, 1e-9)]
)
def test_places_anywhere_and_of_any_size(offset, scale):
    places = offset + scale * X
    found = data(points=places, periods={0: 2 * scale})
    back = found.layout.scaling("points").undo(found[0].points)
    np.testing.assert_allclose(back, places, rtol=0, atol=1e-6 * scale)
    (low, high), _ = found.spec.domain
    assert 1e-30 < high - low < 1e30
    period = found.spec.periods[0] * found.layout.scaling("points").scale[0]
    assert period == pytest.approx(2 * scale)


def test_places_of_samples_keep_their_digits():
    far = torch.from_numpy(1e9 + X)
    found = Dataset.from_samples([replace(s, points=far, queries=far) for s in data()])
    back = found.layout.scaling("points").undo(found[0].points)
    np.testing.assert_allclose(back, 1e9 + X, rtol=0, atol=1e-6)


def test_queries_of_other_coordinates_have_an_origin_of_their_own():
    found = data(points=X[:, 0], queries=1e9 + X)
    assert found.layout.scaling("points") is None
    back = found.layout.scaling("queries").undo(found[0].queries)
    np.testing.assert_allclose(back, 1e9 + X, rtol=0, atol=1e-6)
    other = data(points=1e9 + X[:, 0], queries=X)
    np.testing.assert_array_equal(other[0].queries, X.astype(np.float32))


def test_weights_count_by_their_ratios_alone():
    found = data(weights=1e-300 * (1 + np.arange(7)))
    ratio = found[0].weights / found[0].weights[0]
    np.testing.assert_allclose(ratio, 1 + np.arange(7), rtol=1e-6)


def test_samples_are_taken_in_the_same_way_and_frames_of_a_field_share_their_units():
    frames = [replace(s, values=s.values.double() + 1e9, targets=s.truth.double()) for s in data()]
    found = Dataset.from_samples(frames)
    np.testing.assert_allclose(kept(found, "values"), A.astype(np.float32) + 1e9, atol=1e-6)
    late = [replace(s, targets=s.truth.double() + 1e9 + 3) for s in frames]
    layout = Dataset.from_samples(late, history=1).layout
    assert layout.value_offset == layout.target_offset != ()


def test_a_layout_comes_back_from_json():
    layout = data(values=1e9 + A, targets=1e-300 * U).layout
    assert Layout.from_dict(layout.as_dict()) == layout


def test_spans_join_over_samples_of_any_size():
    found = spans([np.array([[1, 5]]), np.array([[-2.5, 7.0], [0, 9]])], 2)
    assert [(s.low, s.high) for s in found] == [(-2.5, 1), (5, 9)]
    assert scaling_of("values", [Span(1e9, 1e9 + 1, 2e-16)]).scale == (1.0,)
    assert scaling_of("values", None) is None


def test_answers_beyond_float64_are_refused():
    with pytest.raises(DataError, match=r"more than float64 can hold at index \(1,\)"):
        Scaling((0.0,), (2.0**1023,)).undo(np.array([1.0, 4.0]))


def test_constants_keep_their_digits_where_they_may_be_asked_for():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = data(parameters=np.full((5, 1), 1e9 + 0.7))
    assert kept(found, "parameters")[0] == 1e9 + 0.7
