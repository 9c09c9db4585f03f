"""Neighbours against brute force, and the two forms of a graph against each other."""

import itertools

import numpy as np
import pytest
import torch

from ipot.nn import graph
from ipot.nn.graph import (
    Graph,
    Space,
    from_edges,
    from_neighbours,
    grid_neighbours,
    nearest,
    without_padding,
)

CPU = torch.device("cpu")
UNIT = ((0.0, 1.0), (0.0, 1.0))


def listed(index, real) -> list[list[int]]:
    """The real neighbours of every node of the first sample, in order."""
    keep = torch.ones_like(index, dtype=torch.bool) if real is None else real
    return [sorted(i[k].tolist()) for i, k in zip(index[0], keep[0], strict=True)]


def adjacent(shape, wraps, diagonal) -> list[list[int]]:
    """The same by comparing all pairs of nodes."""
    places = list(itertools.product(*map(range, shape)))

    def apart(a, b):
        gaps = [abs(x - y) for x, y in zip(a, b, strict=True)]
        return [min(g, n - g) if w else g for g, n, w in zip(gaps, shape, wraps, strict=True)]

    def near(a, b):
        gaps = apart(a, b)
        return max(gaps) == 1 and (diagonal or sum(gaps) == 1)

    return [[j for j, b in enumerate(places) if near(a, b)] for a in places]


@pytest.mark.parametrize(
    ("shape", "wraps"),
    [
        ((5,), (False,)),
        ((5,), (True,)),
        ((2,), (True,)),
        ((3, 4), (False, False)),
        ((3, 4), (True, False)),
        ((4, 5), (True, True)),
        ((2, 5), (True, True)),
        ((1, 5), (True, False)),
        ((3, 4, 5), (False, True, False)),
    ],
)
def test_neighbours_on_a_grid_are_the_adjacent_nodes(shape, wraps):
    got = grid_neighbours(shape, wraps, CPU)
    assert listed(*got) == adjacent(shape, wraps, diagonal=len(shape) < 3)


def test_a_grid_wraps_where_it_is_periodic_and_nowhere_else():
    rows = listed(*grid_neighbours((4, 6), (False, True), CPU))
    assert rows[0] == [1, 5, 6, 7, 11]
    assert listed(*grid_neighbours((4, 6), (True, True), CPU))[0] == [1, 5, 6, 7, 11, 18, 19, 23]


def test_a_grid_has_as_many_axes_as_may_wrap():
    with pytest.raises(ValueError, match="a grid"):
        grid_neighbours((3, 3), (True,), CPU)


def test_what_was_cached_while_predicting_serves_training():
    grid_neighbours.cache_clear()
    with torch.inference_mode():
        first = grid_neighbours((3, 3), (False, False), CPU)
    again = grid_neighbours((3, 3), (False, False), CPU)
    assert again[0] is first[0]
    x = torch.rand(1, 9, 2, requires_grad=True)
    made = from_neighbours(*again)
    made.incoming(made.only_real(made.at_senders(x)), 9).sum().backward()
    assert x.grad is not None


def brute(points, periods, count) -> list[list[int]]:
    """The nearest others by numpy, with every image of a periodic axis tried."""
    shifts = [(0.0,) if p is None else (-p, 0.0, p) for p in periods]
    images = [np.array(s) for s in itertools.product(*shifts)]
    far = np.min([((points[:, None] - points[None] + s) ** 2).sum(-1) for s in images], axis=0)
    np.fill_diagonal(far, np.inf)
    return [sorted(row[:count]) for row in np.argsort(far, axis=1).tolist()]


@pytest.mark.parametrize("piece", [1, 700, 1 << 24])
@pytest.mark.parametrize("periods", [(None, None), (1.0, None), (1.0, 1.0)])
def test_the_nearest_are_those_of_brute_force(monkeypatch, piece, periods):
    monkeypatch.setattr(graph, "AT_ONCE", piece)
    points = np.random.default_rng(3).random((2, 60, 2))
    index, real = nearest(torch.tensor(points), Space(UNIT, periods).double(), 5)
    assert real is None
    for row in range(2):
        assert listed(index[row : row + 1], None) == brute(points[row], periods, 5)


def test_of_two_at_the_same_distance_the_numbering_does_not_choose():
    line = torch.arange(6).double() / 6
    mesh = torch.cartesian_prod(line, line)
    order = torch.randperm(36, generator=torch.Generator().manual_seed(0))
    for kind in (torch.float64, torch.float32):
        space = Space(UNIT, (1.0, 1.0)).to(kind)
        here = listed(*nearest(mesh.to(kind).unsqueeze(0), space, 6))
        there = listed(*nearest(mesh.to(kind)[order].unsqueeze(0), space, 6))
        for new, old in enumerate(order.tolist()):
            assert sorted(order[there[new]].tolist()) == here[old]


def test_padding_is_nobodys_neighbour_and_a_radius_ends_where_it_says():
    places = torch.tensor([[[0.0, 0.0], [0.1, 0.0], [0.4, 0.0], [0.05, 0.0]]]).expand(3, -1, -1)
    mask = torch.tensor([[True] * 4, [True, True, True, False], [False] * 4])
    space = Space(UNIT, (None, None))
    index, real = nearest(places, space, 3, mask=mask)
    assert listed(index[:1], real[:1]) == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert listed(index[1:2], real[1:2]) == [[1, 2], [0, 2], [0, 1], []]
    assert not real[2].any()
    # What is not real is the node itself: nothing of the padding is ever read.
    assert torch.equal(index[2], torch.arange(4).unsqueeze(-1).expand(-1, 3))
    index, real = nearest(places, space, 3, mask=mask, radius=0.11)
    assert listed(index[:1], real[:1]) == [[1, 3], [0, 3], [], [0, 1]]


def test_more_neighbours_than_there_are_points_are_all_of_them():
    index, _ = nearest(torch.rand(1, 3, 2), Space(UNIT, (None, None)), 6)
    assert index.shape == (1, 3, 2)
    index, _ = nearest(torch.rand(1, 1, 2), Space(UNIT, (None, None)), 6)
    made = from_neighbours(index)
    assert made.incoming(torch.ones(1, 0, 2), 1).tolist() == [[[0.0, 0.0]]]


def test_the_way_is_the_shorter_one_and_counts_in_boxes():
    space = Space(((0.0, 2.0), (0.0, 1.0), (-1.0, 1.0)), (2.0, None, 4.0))
    start, end = space(torch.tensor([[0.2, 0.1, -0.9], [1.8, 0.9, 0.9]]))
    torch.testing.assert_close(space.displacement(start, end), torch.tensor([-0.2, 0.8, 0.9]))
    torch.testing.assert_close(space.displacement(end, start), torch.tensor([0.2, -0.8, -0.9]))


def test_edges_go_both_ways_once_and_never_to_themselves():
    made = from_edges(torch.tensor([[0, 1, 3, 2, 2], [1, 0, 1, 2, 3]]), 5)
    pairs = zip(made.senders.tolist(), made.receivers.tolist(), made.real.tolist(), strict=True)
    got = [(s, r) for s, r, real in pairs if real]
    assert sorted(got) == [(0, 1), (1, 0), (1, 3), (2, 3), (3, 1), (3, 2)]
    assert made.incoming(made.only_real(torch.ones(1, 10, 1)), 5).flatten().tolist() == [
        *(1.0, 2.0, 1.0, 2.0, 0.0)
    ]


def test_both_forms_of_a_graph_are_one():
    """The same edges, receiver by receiver or as a list."""
    torch.manual_seed(0)
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    found = without_padding(*grid_neighbours((3, 3), (False, True), CPU), mask)
    regular = from_neighbours(*found)
    listed = Graph(regular.senders, regular.receivers, regular.real)
    nodes = torch.rand(2, 9, 4)
    rows = regular.rows(nodes)
    assert rows.shape == (1, 18, 4)
    assert torch.equal(regular.at_receivers(rows), listed.at_receivers(rows))
    edges = regular.only_real(regular.at_senders(rows))
    torch.testing.assert_close(regular.incoming(edges, 18), listed.incoming(edges, 18))
    # Nothing of the three rows of padding was summed, and nothing was summed there.
    total = regular.incoming(edges, 18).view(2, 9, 4)
    assert not total[1, 6:].any()
    poisoned = nodes.masked_fill(~mask.unsqueeze(-1), 1e9)
    edges = regular.only_real(regular.at_senders(regular.rows(poisoned)))
    assert torch.equal(regular.incoming(edges, 18).view(2, 9, 4)[1, :6], total[1, :6])
    assert torch.equal(regular.incoming(edges, 18).view(2, 9, 4)[0], total[0])


def test_a_shared_graph_serves_every_sample():
    shared = from_neighbours(*grid_neighbours((4,), (True,), CPU))
    nodes = torch.rand(3, 4, 2)
    got = shared.incoming(shared.at_senders(shared.rows(nodes)), 4)
    torch.testing.assert_close(got, nodes.roll(1, 1) + nodes.roll(-1, 1))
