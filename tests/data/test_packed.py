"""Packed samples make the batches that collated ones make, in boxes that may be larger."""

from dataclasses import replace

import pytest
import torch

from ipot.data.dataset import Dataset, Ragged, Stacked
from ipot.data.packed import Packed, packed_bytes, share, unpackable
from ipot.errors import DataError
from ipot.samples import collate


@pytest.fixture
def several(make_sample):
    """Samples of all sizes; keywords as for `make_sample`, sizes in steps of the number."""

    def make(count=7, **fields):
        sizes = [(3 + (5 * i) % 9, 2 + (3 * i) % 8) for i in range(count)]
        return [make_sample(n, m, seed=i, **fields) for i, (n, m) in enumerate(sizes)]

    return make


def moving(samples, make_sample):
    """The same with queries that move in time."""
    made = []
    for i, s in enumerate(samples):
        shape = (len(s.times), *s.queries.shape)
        made.append(replace(s, queries=torch.rand(shape, generator=_random(i))))
    return made


def _random(seed):
    return torch.Generator().manual_seed(seed)


def fitted(tensor, like, axis):
    """A collated tensor with zeros behind it, as wide as another."""
    if tensor is None or like is None or tensor.shape == like.shape:
        return tensor
    shape = list(tensor.shape)
    shape[axis] = like.shape[axis]
    out = tensor.new_zeros(shape)
    out.narrow(axis, 0, tensor.shape[axis]).copy_(tensor)
    return out


def assert_collated(batch, samples):
    """The batch is that of `collate`, but for the width of its padding."""
    expected = collate(samples)
    n, m = batch.values.shape[1], batch.queries.shape[-2]
    assert n >= expected.values.shape[1]
    assert m >= expected.queries.shape[-2]
    axes = {"points": 1, "values": 1, "queries": -2, "targets": 2, "weights": 1, "parameters": 1}
    for name, axis in axes.items():
        mine, theirs = getattr(batch, name), getattr(expected, name)
        theirs = fitted(theirs, mine, axis)
        assert (mine is None) == (theirs is None), name
        assert mine is None or torch.equal(mine, theirs), name
        assert mine is None or mine.is_contiguous(), name
    for name, width, lengths in (
        ("point_mask", n, [len(s.points) for s in samples]),
        ("query_mask", m, [s.queries.shape[-2] for s in samples]),
    ):
        mask = getattr(batch, name)
        if mask is None:
            assert set(lengths) == {width}
        else:
            assert torch.equal(mask, torch.arange(width) < torch.tensor(lengths)[:, None])
    assert batch.times == expected.times
    assert (batch.grid, batch.query_grid) == (expected.grid, expected.query_grid)
    assert batch.index.tolist() == [s.index for s in samples]


KINDS = {
    "plain": {},
    "times": {"times": (1.0, 2.0, 3.0), "k": 2},
    "parameters": {"p": 3, "c": 4, "d": 3, "e": 1},
    "double": {"dtype": torch.float64},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_that_of_collate(several, kind):
    data = Ragged(several(**KINDS[kind]))
    packed = Packed(data, device="cpu", batch=2)
    assert len(packed.boxes) > 1
    for index in ([0], [2, 0], [6, 1, 4]):
        box = packed.box_for(index)
        size = packed.boxes[box]
        batch = packed.gather(torch.tensor(index), box)
        assert (batch.values.shape[1], batch.queries.shape[-2]) == tuple(size)
        assert_collated(batch, [data[i] for i in index])
        assert_collated(packed.batch(torch.tensor(index)), [data[i] for i in index])


def test_weights_and_moving_queries_and_targets(several, make_sample):
    samples = moving(several(times=(1.0, 2.0)), make_sample)
    samples = [replace(s, weights=torch.rand(s.queries.shape[-2])) for s in samples]
    data = Ragged(samples)
    packed = Packed(data, device="cpu", batch=2)
    assert_collated(packed.batch(torch.tensor([5, 0, 2])), [data[i] for i in (5, 0, 2)])


@pytest.mark.parametrize("side", ["points", "queries"])
def test_a_shared_mesh_is_kept_once(make_sample, side):
    mesh = torch.rand(6, 2)
    sizes = [(6, 3 + i) if side == "points" else (3 + i, 6) for i in range(5)]
    shape = {"points": "grid", "queries": "query_grid"}[side]
    data = Ragged(
        [make_sample(n, m, seed=i, **{side: mesh, shape: (2, 3)}) for i, (n, m) in enumerate(sizes)]
    )
    packed = Packed(data, device="cpu", batch=2)
    batch = packed.batch(torch.tensor([4, 1]))
    assert getattr(batch, side).shape == (1, 6, 2)
    assert_collated(batch, [data[4], data[1]])
    one = getattr(data[0], side)
    assert packed_bytes(data) < sum(packed_bytes(Ragged([s])) for s in data.samples)
    # Some of its rows: the same for all samples, and still shared.
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    batch = packed.gather(torch.tensor([4, 1]), len(packed.boxes) - 1, **{side: (0.5, order)})
    assert torch.equal(getattr(batch, side), one[order[:3]].unsqueeze(0))
    assert getattr(batch, shape) is None
    if side == "points":
        assert torch.equal(batch.values[0], data[4].values[order[:3]])


def test_samples_without_points(make_sample):
    """Numbers alone in some samples, or in all."""
    for sizes in ([0, 6, 2], [0, 0, 0]):
        data = Ragged([make_sample(n, 3 + i, p=2, seed=i) for i, n in enumerate(sizes)])
        packed = Packed(data, device="cpu", batch=1)
        assert_collated(packed.batch(torch.tensor([2, 0])), [data[2], data[0]])
        order = torch.arange(packed.boxes[-1].points)
        some = packed.gather(torch.tensor([0, 1]), len(packed.boxes) - 1, points=(0.5, order))
        if some.point_mask is not None:
            assert some.point_mask.sum(1).tolist() == [0, 3]


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.77])
def test_each_sample_takes_its_own_fraction_in_the_order_given(several, fraction):
    data = Ragged(several(times=(1.0, 2.0)))
    packed = Packed(data, device="cpu", batch=2)
    index, last = [5, 0, 3], len(packed.boxes) - 1
    size = packed.boxes[last]
    orders = [torch.randperm(n, generator=_random(n)) for n in size]
    batch = packed.gather(
        torch.tensor(index), last, points=(fraction, orders[0]), queries=(fraction, orders[1])
    )
    whole = [data[i] for i in index]
    expected = []
    for sample in whole:
        n, m = len(sample.points), len(sample.queries)
        points = [r for r in orders[0].tolist() if r < n][: max(1, round(fraction * n))]
        queries = [r for r in orders[1].tolist() if r < m][: max(1, round(fraction * m))]
        sample = sample.take_points(torch.tensor(points))
        expected.append(sample.take_queries(torch.tensor(queries)))
    assert_collated(batch, expected)
    assert batch.values.shape[1] == share(fraction, size.points)
    assert batch.queries.shape[1] == share(fraction, size.queries)


def test_shares_are_those_of_python():
    assert [share(0.5, n) for n in range(8)] == [0, 1, 1, 2, 2, 2, 3, 4]
    assert share(0.01, 3) == 1
    assert share(1.0, 3) == 3


def test_a_data_set_like_the_others(several):
    data = Ragged(several())
    packed = Packed(data, device="cpu", batch=2)
    assert isinstance(packed, Dataset)
    assert len(packed) == 7
    assert packed[3] is data[3]
    assert packed.to("cpu") is packed
    assert isinstance(packed.astype(torch.float64), Ragged)
    assert packed.select([2])[0].values is data[2].values
    pairs = zip(packed.columns(), data.columns(), strict=True)
    assert all(mine[0] is theirs[0] for mine, theirs in pairs)
    assert [kind.resident for kind in (Packed, Ragged, Stacked)] == [True, False, True]


def test_what_cannot_be_packed_says_why(several, make_sample):
    samples = several()
    assert unpackable(Ragged(samples)) is None
    edges = torch.tensor([[0], [1]])
    weighted = torch.ones(len(samples[2].queries))
    for changed, words in (
        (replace(samples[2], edges=edges), "edges"),
        (replace(samples[2], times=(2.0,)), "times"),
        (replace(samples[2], grid=(len(samples[2].points),)), "points lie on grids"),
        (replace(samples[2], query_grid=(len(samples[2].queries),)), "queries lie on grids"),
        (replace(samples[2], weights=weighted), "weights"),
    ):
        data = Ragged([*samples[:2], changed, *samples[3:]])
        assert words in unpackable(data)
        with pytest.raises(DataError, match=words):
            Packed(data, device="cpu", batch=2)
