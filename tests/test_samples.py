"""The two types and the road from one to the other."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipot.errors import DataError
from ipot.samples import Batch, Sample, collate


@pytest.mark.plain
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"points": torch.zeros(5)}, r"points must be \(N, D\), got shape \(5,\)"),
        ({"values": torch.zeros(5)}, r"values must be \(N, C\), got shape \(5,\)"),
        ({"values": torch.zeros(7, 1)}, r"disagree on N: 5 points \(5, 2\), 7 rows .*\(7, 1\)"),
        ({"queries": torch.zeros(2)}, r"queries must be \(M, E\) or \(T, M, E\), got \(2,\)"),
        ({"queries": torch.zeros(0, 2), "targets": None}, "no queries"),
        ({"queries": torch.zeros(3, 4, 2)}, r"moving queries \(3, 4, 2\) need 1 times"),
        ({"targets": torch.zeros(1, 9, 1)}, r"targets must be \(1, 4, 'K'\).*got \(1, 9, 1\)"),
        ({"targets": torch.zeros(4, 1)}, r"targets must be \(1, 4, 'K'\).*got \(4, 1\)"),
        ({"times": ()}, "times is empty"),
        ({"weights": torch.zeros(3)}, r"one for each of 4 queries, got \(3,\)"),
        ({"weights": torch.zeros(2, 4)}, r"weights must be"),
        ({"grid": (2, 3)}, r"grid \(2, 3\) has 6 nodes, not 5"),
        ({"query_grid": (3, 3)}, r"query_grid \(3, 3\) has 9 nodes, not 4"),
        ({"parameters": torch.zeros(2, 3)}, "parameters must be"),
        ({"edges": torch.zeros(3, 2).long()}, "edges must be"),
        ({"edges": torch.tensor([[0], [5]])}, "edges .* 5 points"),
        ({"edges": torch.tensor([[0.0], [torch.inf]])}, "edges must be whole numbers"),
        ({"points": np.zeros((5, 2))}, r"points must be a torch.Tensor, got a ndarray: .*as_ten"),
        ({"values": [[1.0]] * 5}, "values must be a torch.Tensor, got a list"),
        ({"queries": None}, "queries must be a torch.Tensor, got None"),
        ({"weights": "ones"}, "weights must be a torch.Tensor, got a str"),
        ({"targets": torch.nested.nested_tensor([torch.zeros(2)])}, "targets is a nested tensor"),
        ({"times": {1.0: 2.0}}, "times must be a tuple of numbers .* got a dict"),
        ({"times": ("1",)}, "times must be numbers .* a str"),
        ({"index": 0.5}, "index must be a whole number, got a float"),
        ({"index": 10**30}, "index must be a whole number of 64 bits"),
        ({"grid": 5}, r"grid must be a tuple of whole numbers .* got a int"),
    ],
)
def test_a_sample_says_what_it_expected_and_what_came(make_sample, fields, message):
    with pytest.raises(DataError, match=message):
        make_sample(**fields)


@pytest.mark.plain
@pytest.mark.parametrize("times", [[1], np.array([1.0]), torch.tensor([1.0]), (np.float32(1),)])
def test_times_in_a_list_or_an_array_are_those_of_a_tuple(make_sample, times):
    sample = make_sample(times=times)
    assert sample.times == (1.0,)
    assert type(sample.times[0]) is float
    assert collate([sample, make_sample()]).times == (1.0,)


@pytest.mark.plain
def test_only_samples_are_collated(make_sample):
    with pytest.raises(DataError, match=r"samples\[1\] is a dict, not an ipot.Sample"):
        collate([make_sample(), {}])


def test_nothing_to_predict_from_is_an_error_but_parameters_suffice(make_sample):
    with pytest.raises(DataError, match="no input points and no parameters"):
        make_sample(n=0)
    with pytest.raises(DataError, match="no input points and no parameters"):
        make_sample(n=0, parameters=torch.zeros(0))
    assert make_sample(n=0, p=3).parameters.shape == (3,)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"points": torch.zeros(5, 2)}, r"points must be \(B, N, D\) or \(1, N, D\)"),
        ({"points": torch.zeros(2, 5, 2)}, r"points of a batch of 3 must lead with 3 or 1"),
        ({"queries": torch.zeros(2, 4, 2)}, r"queries of a batch of 3 must lead with 3 or 1"),
        ({"queries": torch.zeros(4, 2)}, r"queries must be \(B, M, E\) or \(B, T, M, E\)"),
        ({"weights": torch.zeros(2, 4)}, "weights of a batch of 3"),
        ({"targets": torch.zeros(2, 1, 4, 1)}, r"targets must be \(3, 1, 4, 'K'\)"),
        ({"parameters": torch.zeros(2, 1)}, "parameters .*batch of 3"),
        ({"point_mask": torch.ones(3, 4, dtype=torch.bool)}, r"point_mask must be \(3, 5\)"),
        ({"point_mask": torch.ones(1, 5, dtype=torch.bool)}, r"point_mask must be \(3, 5\)"),
        ({"query_mask": torch.ones(3, 5, dtype=torch.bool)}, r"query_mask must be \(3, 4\)"),
    ],
)
def test_a_batch_says_what_it_expected_and_what_came(make_sample, fields, message):
    batch = collate([make_sample(seed=i) for i in range(3)])
    with pytest.raises(DataError, match=message):
        dataclasses.replace(batch, **fields)


sizes = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)


@given(sizes)
def test_collate_pads_with_zeros_and_masks_exactly(make_sample, sizes):
    samples = [make_sample(n, m, seed=i, times=(1.0, 2.0)) for i, (n, m) in enumerate(sizes)]
    batch = collate(samples)
    assert (batch.point_mask is None) == (len({n for n, _ in sizes}) == 1)
    assert (batch.query_mask is None) == (len({m for _, m in sizes}) == 1)
    for row, sample in enumerate(samples):
        n, m = sizes[row]
        for whole, part in (
            (batch.points[row], sample.points),
            (batch.values[row], sample.values),
            (batch.queries[row], sample.queries),
        ):
            assert torch.equal(whole[: len(part)], part)
            assert not whole[len(part) :].any()
        assert torch.equal(batch.targets[row, :, :m], sample.targets)
        assert not batch.targets[row, :, m:].any()
        if batch.point_mask is not None:
            assert batch.point_mask[row].tolist() == [i < n for i in range(batch.points.shape[1])]
        if batch.query_mask is not None:
            assert batch.query_mask[row].tolist() == [i < m for i in range(batch.queries.shape[1])]


def test_collate_pads_moving_queries_and_weights(make_sample):
    times = (1.0, 2.0)
    samples = [
        make_sample(5, m, times=times, queries=torch.rand(2, m, 3), weights=torch.rand(m), seed=m)
        for m in (2, 4)
    ]
    batch = collate(samples)
    assert batch.queries.shape == (2, 2, 4, 3)
    assert torch.equal(batch.queries[0, :, :2], samples[0].queries)
    assert batch.weights.tolist()[0] == [*samples[0].weights.tolist(), 0.0, 0.0]
    assert batch.query_mask.tolist() == [[True, True, False, False], [True] * 4]


def test_a_shared_mesh_is_kept_once_by_identity(make_sample):
    mesh = torch.rand(5, 2)
    shared = [make_sample(5, 5, points=mesh, queries=mesh, seed=i) for i in range(3)]
    batch = collate(shared)
    assert batch.points.shape == batch.queries.shape == (1, 5, 2)
    assert batch.points.data_ptr() == mesh.data_ptr()
    copied = collate([dataclasses.replace(s, points=mesh.clone()) for s in shared])
    assert copied.points.shape == (3, 5, 2)


def test_a_batch_of_one_sample_has_no_masks(make_sample):
    batch = collate([make_sample(3, 2)])
    assert batch.size == 1
    assert batch.point_mask is None
    assert batch.query_mask is None


def test_edges_are_numbered_over_the_padded_batch(make_sample):
    edges = torch.tensor([[0, 1], [1, 2]])
    batch = collate([make_sample(n, edges=edges, seed=n) for n in (5, 3)])
    assert batch.edges.tolist() == [[0, 1, 5, 6], [1, 2, 6, 7]]
    flat = batch.points.flatten(0, 1)
    assert torch.equal(flat[batch.edges[0, 2:]], make_sample(3, seed=3).points[:2])


def test_a_grid_survives_only_where_all_agree(make_sample):
    alike = [make_sample(6, grid=(2, 3), seed=i) for i in range(2)]
    assert collate(alike).grid == (2, 3)
    assert collate([alike[0], make_sample(6, grid=(3, 2))]).grid is None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"times": (2.0,)}, r"sample 0 has \(1.0,\), sample 1 has \(2.0,\)"),
        ({"targets": None}, "1 of 2 samples have targets"),
        ({"p": 2}, "1 of 2 samples have parameters"),
        ({"c": 3}, r"samples of one batch disagree in shape: \[\(5, 1\), \(5, 3\)\]"),
        ({"n": 7, "c": 3}, r"samples of one batch disagree: \(5, 1\) beside|beside \(5, 1\)"),
    ],
)
def test_collate_refuses_samples_that_disagree(make_sample, other, message):
    with pytest.raises(DataError, match=message):
        collate([make_sample(), make_sample(seed=1, **other)])


@pytest.mark.parametrize(
    ("name", "shape"),
    [("parameters", (10**12,)), ("points", (10**11, 2)), ("queries", (10**11, 2))],
)
@pytest.mark.parametrize("first", [True, False])
def test_collate_refuses_more_than_the_memory_holds_before_it_is_taken(
    make_sample, name, shape, first
):
    """An expanded tensor is of any shape, and takes no memory itself."""
    rows = {"points": "values", "queries": "targets"}
    large = {name: torch.zeros(1).expand(shape)}
    if name in rows:
        size = (shape[0], 1) if name == "points" else (1, shape[0], 1)
        large[rows[name]] = torch.zeros(1).expand(size)
    samples = [make_sample(**{"parameters": torch.zeros(2)} | large)]
    samples.insert(int(first), make_sample(parameters=torch.zeros(2)))
    with pytest.raises(DataError, match=rf"{name} of 2 samples takes .* of memory are free"):
        collate(samples)


def test_collate_refuses_nothing():
    with pytest.raises(DataError, match="at least one sample"):
        collate([])


def test_take_is_collate_of_the_chosen(make_sample):
    mesh = torch.rand(5, 2)
    samples = [make_sample(5, m, points=mesh, p=2, seed=i) for i, m in enumerate((3, 4, 2, 4))]
    batch = collate(samples).take(torch.tensor([3, 0]))
    assert batch.points.shape[0] == 1
    assert torch.equal(batch.values, torch.stack([samples[3].values, samples[0].values]))
    assert torch.equal(batch.parameters[1], samples[0].parameters)
    assert torch.equal(batch.targets[1, :, :3], samples[0].targets)
    assert batch.query_mask.tolist() == [[True] * 4, [True] * 3 + [False]]


def test_a_batch_knows_which_samples_it_holds(make_sample):
    batch = collate([make_sample(n, seed=n) for n in (7, 3, 5)])
    assert batch.index.tolist() == [7, 3, 5]
    assert batch.take(torch.tensor([2, 0, 2])).index.tolist() == [5, 7, 5]
    assert batch.take_points(torch.tensor([0])).index.tolist() == [7, 3, 5]
    assert batch.take_queries(torch.tensor([0])).index.tolist() == [7, 3, 5]
    assert batch.astype(torch.float64).index.dtype == torch.int64
    unknown = dataclasses.replace(batch, index=None)
    assert unknown.take(torch.tensor([1])).index is None


def test_take_of_a_batch_of_one_repeats_its_mesh(make_sample):
    twice = collate([make_sample()]).take(torch.tensor([0, 0]))
    assert twice.size == 2
    assert twice.points.shape[0] in (1, 2)


def test_take_refuses_edges(make_sample):
    batch = collate([make_sample(edges=torch.tensor([[0], [1]]), seed=i) for i in range(2)])
    with pytest.raises(DataError, match="collate the samples instead"):
        batch.take(torch.tensor([0]))


def test_take_points_chooses_alike_or_for_each_sample(make_sample):
    mesh = torch.rand(6, 2)
    batch = collate([make_sample(6, points=mesh, grid=(2, 3), seed=i) for i in range(2)])
    alike = batch.take_points(torch.tensor([4, 1]))
    assert alike.grid is None
    assert torch.equal(alike.points, mesh[None, [4, 1]])
    assert torch.equal(alike.values, batch.values[:, [4, 1]])
    each = batch.take_points(torch.tensor([[0, 1], [5, 2]]))
    assert torch.equal(each.points[1], mesh[[5, 2]])
    assert torch.equal(each.values[1], batch.values[1, [5, 2]])


def test_take_points_carries_the_mask(make_sample):
    batch = collate([make_sample(n, seed=n) for n in (2, 4)])
    each = batch.take_points(torch.tensor([[1, 3], [3, 0]]))
    assert each.point_mask.tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("moving", [False, True])
def test_take_queries(make_sample, moving):
    times = (1.0, 2.0)
    queries = torch.rand(2, 6, 2) if moving else torch.rand(6, 2)
    sample = make_sample(
        3, 6, times=times, queries=queries, weights=torch.rand(6), query_grid=(2, 3)
    )
    index = torch.tensor([5, 0])
    few = sample.take_queries(index)
    assert few.query_grid is None
    assert torch.equal(few.queries, queries[..., index, :])
    assert torch.equal(few.targets, sample.targets[:, index])
    assert torch.equal(few.weights, sample.weights[index])
    batch = collate(
        [
            sample,
            make_sample(
                3, 6, times=times, queries=queries, weights=queries.sum((-1,)).flatten()[:6]
            ),
        ]
    )
    some = batch.take_queries(index)
    assert torch.equal(some.queries[0], few.queries)
    assert torch.equal(some.targets[0], few.targets)
    assert torch.equal(some.weights[0], few.weights)


def test_sample_take_points_drops_what_no_longer_holds(make_sample):
    sample = make_sample(6, grid=(2, 3), edges=torch.tensor([[0], [5]]))
    few = sample.take_points(torch.tensor([1, 0]))
    assert few.grid is None
    assert few.edges is None
    assert torch.equal(few.points, sample.points[[1, 0]])
    assert torch.equal(few.values, sample.values[[1, 0]])


def test_astype_leaves_masks_and_edges_alone(make_sample):
    edges = torch.tensor([[0], [1]])
    batch = collate([make_sample(n, edges=edges, seed=n) for n in (2, 3)]).astype(torch.float64)
    assert batch.values.dtype == batch.targets.dtype == torch.float64
    assert batch.point_mask.dtype == torch.bool
    assert batch.edges.dtype == torch.int64


def test_both_types_are_frozen(make_sample):
    for item in (make_sample(), collate([make_sample()])):
        assert isinstance(item, Sample | Batch)
        with pytest.raises(dataclasses.FrozenInstanceError):
            item.times = (2.0,)


def test_rows_may_be_taken_from_all_tensors_at_once(make_sample):
    """Those that are shared stay, whoever takes the others."""
    mesh = make_sample().points
    samples = [make_sample(points=mesh, p=2, seed=i) for i in range(4)]
    batch, index, seen = collate(samples), torch.tensor([2, 0, 2]), []

    def rows(where, tensors):
        seen.append(sorted(tensors))
        return {name: tensor.index_select(0, where) for name, tensor in tensors.items()}

    taken, expected = batch.take(index, rows), batch.take(index)
    assert seen == [["index", "parameters", "queries", "targets", "values"]]
    assert taken.points is batch.points
    for name in seen[0]:
        assert torch.equal(getattr(taken, name), getattr(expected, name))
        assert torch.equal(getattr(taken, name), getattr(batch, name)[index])
