"""Stacked and ragged data sets show the same samples."""

import math

import pytest
import torch

from ipot.data.dataset import Ragged, Stacked, from_samples
from ipot.errors import DataError
from ipot.samples import Sample, collate


def same(a: Sample, b: Sample) -> None:
    for name in ("points", "values", "queries", "targets", "parameters", "weights"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        assert left is None or torch.equal(left, right), name
    assert (a.times, a.grid, a.query_grid) == (b.times, b.grid, b.query_grid)


@pytest.fixture
def samples(make_sample):
    mesh, weights = torch.rand(6, 2), torch.rand(6)
    return [
        make_sample(6, 6, points=mesh, queries=mesh, weights=weights, p=2, grid=(2, 3), c=3, seed=i)
        for i in range(5)
    ]


@pytest.mark.parametrize("kind", [lambda s: Stacked(collate(s)), Ragged])
def test_samples_come_back_as_they_went_in(samples, kind):
    data = kind(samples)
    assert len(data) == 5
    for i, sample in enumerate(samples):
        same(data[i], sample)
        assert data[i].index == i
    same(data[-1], samples[-1])
    batch = data.batch(torch.tensor([4, 1]))
    assert torch.equal(batch.values, torch.stack([samples[4].values, samples[1].values]))
    assert batch.points.shape[0] == 1
    same(data.select([3])[0], samples[3])
    assert data.astype(torch.float64)[0].values.dtype == torch.float64
    with pytest.raises(IndexError):
        data[5]


@pytest.mark.parametrize("kind", [lambda s: Stacked(collate(s)), Ragged])
def test_batches_say_which_samples_they_hold(make_sample, kind):
    """By their place in this data set, whatever the samples were told of themselves."""
    data = kind([make_sample(seed=s, index=9) for s in range(5)])
    for index in ([4, 1, 4], [0]):
        assert data.batch(torch.tensor(index)).index.tolist() == index
    assert [data[i].index for i in range(5)] == [0, 1, 2, 3, 4]
    some = data.select([3, 2])
    assert torch.equal(some[1].values, data[2].values)
    assert some.batch(torch.tensor([1, 0])).index.tolist() == [1, 0]
    assert some[1].index == 1
    assert data.astype(torch.float64).batch(torch.tensor([2])).index.tolist() == [2]


def test_from_samples_stacks_where_it_can(make_sample, samples):
    assert isinstance(from_samples(samples), Stacked)
    assert isinstance(from_samples([make_sample(3), make_sample(4)]), Ragged)
    edges = torch.tensor([[0], [1]])
    assert isinstance(from_samples([make_sample(3, edges=edges)] * 2), Ragged)


def test_columns_cover_every_sample_once(make_sample):
    samples = [make_sample(seed=i) for i in range(205)]
    for data in (Stacked(collate(samples)), Ragged(samples)):
        rows = [values.reshape(-1, 1) for values, _, _ in data.columns()]
        assert torch.equal(torch.cat(rows), torch.cat([s.values for s in samples]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["points", "values", "queries", "targets", "parameters"])
def test_what_is_not_finite_is_refused_with_its_place(make_sample, bad, name):
    samples = [make_sample(p=2, seed=i) for i in range(3)]
    target = getattr(samples[2], name)
    target.view(-1)[1] = bad
    place = tuple((target != target.nan_to_num(0, 0, 0)).nonzero()[0].tolist())
    inside = ", ".join(map(str, place))
    with pytest.raises(DataError, match=rf"{name} .*1 values.*first at index \(2, {inside},?\)"):
        Stacked(collate(samples))
    with pytest.raises(DataError, match=rf"{name} of sample 2 .*at index \({inside},?\)"):
        Ragged(samples)


def test_data_sets_need_samples_with_targets(make_sample):
    with pytest.raises(DataError, match="at least one sample"):
        Ragged([])
    with pytest.raises(DataError, match="at least one sample"):
        from_samples([])
    with pytest.raises(DataError, match="needs targets"):
        Stacked(collate([make_sample(targets=None)]))
    with pytest.raises(DataError, match="sample 3 has no targets"):
        Ragged([make_sample(targets=None, seed=3)])


def test_padded_rows_are_never_taken_for_samples(make_sample):
    """A sample is unpadded: a stacked data set cannot hold a padded batch."""
    with pytest.raises(DataError, match="padded"):
        Stacked(collate([make_sample(3), make_sample(5)]))


def test_a_shared_mesh_stays_shared_through_its_samples(samples):
    data = Stacked(collate(samples))
    again = collate([data[i] for i in range(len(data))])
    assert again.points.shape[0] == again.queries.shape[0] == 1


def test_sizes_measure_points_and_queries(make_sample):
    data = Ragged([make_sample(3, 4, times=(1.0, 2.0)), make_sample(5, 1, times=(1.0, 2.0))])
    assert data.sizes() == [3 + 8, 5 + 2]
