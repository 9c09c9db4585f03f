"""A series is saved as JSON, and split so that no frame is on both sides."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipot.errors import DataError
from ipot.formats.series.description import Series, split_series
from ipot.formats.series.samples import from_xarray

from .labelled_data import grid, stations, xr


def windows_of(part, whole):
    """Which windows of the whole a part has, by their values."""
    every, some = (d.data.data.values.numpy() for d in (whole, part))
    known = {values.tobytes(): i for i, values in enumerate(every)}
    return [known[values.tobytes()] for values in some]


@pytest.mark.parametrize("make", [grid, stations])
def test_json_and_back(make):
    data = make(12)
    data["t2m"][{data.t2m.dims[1]: 0}] = np.nan
    _, series = from_xarray(data, inputs="t2m", targets="t2m", history=3, lead=2, season=True)
    again = Series.from_dict(json.loads(json.dumps(series.as_dict())))
    assert again == series
    assert again.notes == series.notes
    np.testing.assert_array_equal(again.places.used, series.places.used)
    np.testing.assert_array_equal(
        again.places.queries(series.west), series.places.queries(series.west)
    )
    assert again.places.grid == series.places.grid


@pytest.mark.parametrize("change", [{"new": 1}, {"clock": {"kind": "dates"}}, {"places": {}}])
def test_json_of_another_version_or_damaged_is_refused(change):
    _, series = from_xarray(grid(5), inputs="t2m", targets="t2m")
    with pytest.raises(DataError, match="series"):
        Series.from_dict(series.as_dict() | change)


@settings(max_examples=12)
@given(
    history=st.integers(1, 4),
    lead=st.integers(0, 3),
    stride=st.integers(1, 3),
    train=st.floats(0.2, 0.9),
    blocks=st.integers(1, 3),
)
def test_no_frame_is_on_both_sides(history, lead, stride, train, blocks):
    data = grid(60, (50.0, 40.0), (0.0, 10.0))
    whole, series = from_xarray(
        data, inputs="t2m", targets="t2m", history=history, lead=lead, stride=stride
    )
    first, second = split_series(whole, series, train, blocks=blocks)
    frames = []
    for part in (first, second):
        starts = series.starts[windows_of(part, whole)]
        frames.append({int(s + i) for s in starts for i in range(history + lead)})
    assert not frames[0] & frames[1]
    assert len(first) + len(second) <= len(whole)
    if blocks == 1:
        assert max(frames[0]) < min(frames[1])


def test_the_last_fifth_is_held_back_and_the_gap_is_as_narrow_as_can_be():
    whole, series = from_xarray(grid(108), inputs="t2m", targets="t2m", history=5, lead=4)
    first, second = split_series(whole, series)
    assert windows_of(second, whole) == list(range(80, 100))
    assert windows_of(first, whole) == list(range(72))


def test_independent_samples_are_split_as_a_whole_and_members_in_time():
    parts = [grid(30) + i for i in range(5)]
    for dim, by_sample in (("run", True), ("member", False)):
        whole, series = from_xarray(
            xr.concat(parts, dim=dim), inputs="t2m", targets="t2m", history=2
        )
        first, second = split_series(whole, series)
        owners = [set(series.members[windows_of(p, whole)].tolist()) for p in (first, second)]
        if by_sample:
            assert owners == [{0, 1, 2, 3}, {4}]
            assert len(first) + len(second) == len(whole)
        else:
            assert owners == [set(range(5))] * 2


def test_a_series_too_short_to_split_is_refused():
    whole, series = from_xarray(grid(12), inputs="t2m", targets="t2m", history=5, lead=5)
    with pytest.raises(DataError, match="longer series"):
        split_series(whole, series)
    with pytest.raises(DataError, match="from_xarray returned"):
        split_series(whole.select([0, 1]), series)
    with pytest.raises(DataError, match="train"):
        split_series(whole, series, 1.0)
