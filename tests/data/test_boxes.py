"""Few boxes that waste little."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipot.data import packed as module
from ipot.data.packed import Box, boxes, fitting


def draw(*shape, low=500, high=1501):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0))


def waste(points, queries, times=1, least=1):
    """Padded rows for each real row, every sample in its cheapest box."""
    points, queries = points.tolist(), queries.tolist()
    found = boxes(points, queries, times=times, least=least)
    used = [found[fitting(found, n, m)] for n, m in zip(points, queries, strict=True)]
    padded = sum(box.points + times * box.queries for box in used)
    return padded / (sum(points) + times * sum(queries)), found


sizes = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=40)


@given(sizes, st.integers(1, 3), st.integers(1, 10))
def test_every_sample_fits_and_the_last_box_holds_all(sizes, times, least):
    points, queries = zip(*sizes, strict=True)
    found = boxes(points, queries, times=times, least=least)
    assert len(found) <= module.MOST + 1
    assert found == sorted(found, key=lambda box: box.points + times * box.queries)
    assert found[-1].holds(max(points), max(queries))
    for n, m in sizes:
        box = found[fitting(found, n, m)]
        assert box.holds(n, m)
        assert all(not other.holds(n, m) for other in found[: found.index(box)])


def test_sizes_in_a_range_need_few_boxes():
    n = draw(1000)
    wasted, found = waste(n, n, least=10)
    assert wasted < 1 + module.WASTE + 0.01
    assert 4 <= len(found) <= 8


def test_points_and_queries_that_know_nothing_of_each_other():
    n, m = draw(2, 1000)
    wasted, found = waste(n, m, least=10)
    assert wasted < 1.2
    assert len({box.points for box in found}) > 2
    assert len({box.queries for box in found}) > 2


def test_a_few_large_samples_get_a_box_of_their_own():
    n = torch.cat([draw(950, low=100, high=104), draw(50, low=1000, high=1008)])
    wasted, found = waste(n, n, least=10)
    assert [box.points for box in found] == [104, 1008]
    assert wasted < 1.05


def test_rows_of_queries_count_at_every_time():
    """With many times the queries decide, whatever the points are."""
    n, m = draw(200, low=1, high=1000), draw(200, low=112, high=120)
    wasted, found = waste(n, m, times=500)
    assert len(found) == 1
    assert wasted < 1 + module.WASTE + 0.01
    assert len(waste(n, m)[1]) > 1


def test_sizes_are_rounded_unless_all_agree():
    assert boxes([5, 9], [12, 12], times=1, least=9) == [Box(16, 12)]
    assert boxes([3, 3], [3, 3], times=1, least=1) == [Box(3, 3)]
    for box in waste(draw(100), draw(100))[1]:
        assert box.points % module.MULTIPLE == box.queries % module.MULTIPLE == 0


@pytest.mark.parametrize("least", [1, 10])
def test_points_that_are_queries_stay_as_many(least):
    n = draw(300)
    assert all(box.points == box.queries for box in waste(n, n, least=least)[1])
