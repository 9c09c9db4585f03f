"""Arrays as people have them become samples, or are refused by name."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipot.data.dataset import Ragged, Stacked
from ipot.data.own import Dataset, Layout
from ipot.errors import DataError
from ipot.samples import Sample
from ipot.spec import Need

RANDOM = np.random.default_rng(0)
X = RANDOM.random((7, 2))
A = RANDOM.random((5, 7))
U = RANDOM.random((5, 7))
GRID = np.stack(np.meshgrid(np.arange(4.0), np.arange(6.0), indexing="ij"), -1)


def test_two_arrays_on_one_mesh():
    data = Dataset.from_arrays(points=X, values=A, targets=U)
    assert isinstance(data.data, Stacked)
    assert data.data.data.points.shape == (1, 7, 2)
    assert data.data.data.queries is data.data.data.points
    torch.testing.assert_close(data[3].values[:, 0], torch.tensor(A[3]).float())
    torch.testing.assert_close(data[3].truth[0, :, 0], torch.tensor(U[3]).float())
    assert data.spec.inputs == ("value",)
    assert data.spec.outputs == ("target",)
    assert data.layout == Layout(flat_values=True, flat_targets=True)
    assert {Need.FIXED_POINTS, Need.SAME_POINTS} <= data.spec.provides
    assert data.spec.domain == tuple(
        (pytest.approx(a), pytest.approx(b)) for a, b in zip(X.min(0), X.max(0), strict=True)
    )


def test_lists_where_meshes_differ():
    sizes = (3, 5, 4)
    data = Dataset.from_arrays(
        points=[RANDOM.random((n, 2)) for n in sizes],
        values=[RANDOM.random((n, 3)) for n in sizes],
        queries=[RANDOM.random((n + 1, 2)) for n in sizes],
        targets=[RANDOM.random((n + 1, 2)) for n in sizes],
        inputs=("a", "b", "c"),
        outputs=("u", "v"),
        units={"v": "Pa"},
    )
    assert isinstance(data.data, Ragged)
    assert [len(s.points) for s in data] == [3, 5, 4]
    assert [s.truth.shape for s in data] == [(1, n + 1, 2) for n in sizes]
    assert data.spec.units == ("", "Pa")
    assert "3 to 5 points" in data.describe()[0]


def test_lists_of_one_size_are_stacked_and_one_mesh_is_kept_once():
    data = Dataset.from_arrays(points=[X] * 5, values=list(A), targets=list(U))
    assert isinstance(data.data, Stacked)
    assert data.data.data.points.shape == (1, 7, 2)
    moved = Dataset.from_arrays(points=[X + i for i in range(5)], values=list(A), targets=U)
    assert moved.data.data.points.shape == (5, 7, 2)


def test_a_repeated_mesh_is_kept_once():
    data = Dataset.from_arrays(points=np.stack([X] * 5), values=A, targets=U)
    assert data.data.data.points.shape == (1, 7, 2)


@pytest.mark.parametrize("channels", [(), (3,)])
def test_arrays_with_the_axes_of_a_grid(channels):
    values = RANDOM.random((5, 4, 6, *channels))
    targets = RANDOM.random((5, 3, 4, 6))
    data = Dataset.from_arrays(points=GRID, values=values, targets=targets, times=[1, 2, 3])
    assert data[0].grid == data[0].query_grid == (4, 6)
    torch.testing.assert_close(
        data[1].values.reshape(4, 6, *(channels or (1,))).squeeze(-1)
        if not channels
        else data[1].values.reshape(4, 6, *channels),
        torch.tensor(values[1]).float(),
    )
    torch.testing.assert_close(data[2].truth.reshape(3, 4, 6), torch.tensor(targets[2]).float())
    assert Need.GRID in data.spec.provides


def test_as_many_samples_as_lines_is_still_a_grid():
    data = Dataset.from_arrays(
        points=GRID, values=RANDOM.random((4, 4, 6)), targets=RANDOM.random((4, 4, 6))
    )
    assert len(data) == 4
    assert data[0].grid == (4, 6)


def test_scattered_points_are_no_grid():
    assert Dataset.from_arrays(points=X, values=A, targets=U)[0].grid is None


def test_parameters_alone():
    data = Dataset.from_arrays(parameters=RANDOM.random((5, 3)), queries=X, targets=U)
    assert data[0].points.shape == (0, 2)
    assert data[0].parameters.shape == (3,)
    assert data.spec.parameters == ("parameter_0", "parameter_1", "parameter_2")
    one = Dataset.from_arrays(parameters=np.arange(5), queries=X, targets=U)
    assert one[4].parameters.tolist() == [4.0]
    assert one.layout.flat_parameters


def test_geometry_alone():
    data = Dataset.from_arrays(points=RANDOM.random((5, 7, 2)), targets=U)
    assert data[0].values.shape == (7, 0)
    assert data.spec.inputs == ()


def test_times_are_steps():
    data = Dataset.from_arrays(
        points=X, values=A, targets=RANDOM.random((5, 3, 7)), times=[0.2, 0.4, 0.8]
    )
    assert data.spec.dt == pytest.approx(0.2)
    assert data.spec.steps == 4
    assert data.layout.timed


def test_coordinates_far_from_zero_keep_what_tells_them_apart():
    far = 4_000_000 + X
    data = Dataset.from_arrays(points=far, values=A, targets=U)
    found = data[0].points.double().numpy() + np.asarray(data.layout.origin)
    np.testing.assert_allclose(found, far, atol=1e-6)


def test_periods_and_longitudes():
    wrapped = Dataset.from_arrays(points=X, values=A, targets=U, periods={1: 1.0})
    assert wrapped.spec.periods == (None, 1.0)
    globe = Dataset.from_arrays(points=X * (360, 90), values=A, targets=U, geographic=True)
    assert globe.spec.geographic
    assert globe[0].points[:, 0].max() > 100


def test_split_is_a_partition_and_repeats():
    data = Dataset.from_arrays(points=X, values=A, targets=U)
    train, rest = data.split(0.6, seed=1)
    assert (len(train), len(rest)) == (3, 2)
    found = {s.values.sum().item() for part in (train, rest) for s in part}
    assert found == {s.values.sum().item() for s in data}
    again, _ = data.split(0.6, seed=1)
    assert [s.values.sum().item() for s in again] == [s.values.sum().item() for s in train]
    assert train.spec == data.spec


def test_samples_as_they_are(make_sample):
    data = Dataset.from_samples([make_sample(seed=i) for i in range(3)], outputs=["p"])
    assert isinstance(data.data, Stacked)
    assert data.spec.outputs == ("p",)
    ragged = Dataset.from_samples([make_sample(n=3 + i, seed=i) for i in range(3)])
    assert isinstance(ragged.data, Ragged)
    assert [s.index for s in ragged] == [0, 1, 2]


REFUSED = {
    "samples disagree": ({"points": X, "values": A[:4], "targets": U}, "4 in values"),
    "rows disagree": (
        {"points": X[:5], "values": A, "targets": U},
        "targets have 7 rows and points 5",
    ),
    "values nowhere": ({"values": A, "targets": U}, "values are given without points"),
    "nowhere": ({"targets": U, "parameters": A}, "neither points nor queries"),
    "nothing known": ({"queries": X, "targets": U}, "neither points nor parameters"),
    "nan": (
        {"points": X, "values": np.where(A > 0.9, np.nan, A), "targets": U},
        "values holds nan",
    ),
    "infinite": (
        {"points": X, "values": A, "targets": np.where(U > 0.5, np.inf, U)},
        "targets holds inf",
    ),
    "text": ({"points": X, "values": A.astype(str), "targets": U}, "values must hold real numbers"),
    "complex": ({"points": X, "values": A + 1j, "targets": U}, "values must hold real numbers"),
    "objects": (
        {"points": X, "values": A.astype(object), "targets": U},
        "objects instead of numbers",
    ),
    "uneven lists": ({"points": X, "values": [[1.0], [1.0, 2.0]], "targets": U}, "not an array"),
    "empty": ({"points": X, "values": A, "targets": U[:0]}, "targets is empty"),
    "empty list": ({"points": X, "values": A, "targets": []}, "targets"),
    "no points": ({"points": X[:0], "values": A[:, :0], "targets": U[:, :0]}, "hold no row"),
    "scalar": ({"points": X, "values": A, "targets": 3.0}, "targets has 0 axes"),
    "a flat target": ({"points": X, "values": A, "targets": U[0]}, "targets has 1 axes"),
    "masked": (
        {"points": X, "values": np.ma.masked_greater(A, 0.5), "targets": U},
        "masked values",
    ),
    "times at zero": (
        {"points": X, "values": A, "targets": RANDOM.random((5, 2, 7)), "times": [0, 1]},
        "Time 0 is the input",
    ),
    "odd times": (
        {"points": X, "values": A, "targets": RANDOM.random((5, 3, 7)), "times": [1, 1.4142, 9]},
        "whole multiples",
    ),
    "other times": (
        {"points": X, "values": A, "targets": RANDOM.random((5, 3, 7)), "times": [1, 2]},
        "targets have 3 times, and `times` has 2",
    ),
    "names": (
        {"points": X, "values": A, "targets": U, "inputs": ["a", "b"]},
        "inputs names 2 channels",
    ),
    "twice": (
        {"points": X, "values": np.stack([A, A], -1), "targets": U, "inputs": ["a", "a"]},
        "inputs names a channel twice",
    ),
    "short period": (
        {"points": X, "values": A, "targets": U, "periods": {0: 0.1}},
        "its period 0.1",
    ),
    "no such axis": (
        {"points": X, "values": A, "targets": U, "periods": {5: 1.0}},
        "periods names axis 5",
    ),
    "not degrees": ({"points": X * 1e3, "values": A, "targets": U, "geographic": True}, "latitude"),
    "four axes": (
        {"points": X, "values": np.zeros((5, 7, 1, 1)), "targets": U},
        "values has 4 axes",
    ),
    "weights": (
        {"points": X, "values": A, "targets": U, "weights": np.ones(3)},
        "weights have 3 rows and points 7",
    ),
    "channels differ": (
        {
            "points": [X, X[:3]],
            "values": [A[0], A[0, :3]],
            "targets": [np.ones((7, 2)), np.ones((3, 1))],
        },
        "targets[1] has 1 channels",
    ),
    "coordinates differ": (
        {"points": [X, X[:3, :1]], "values": [A[0], A[0, :3]], "targets": [U[0], U[0, :3]]},
        "points[1] must be (n, 2)",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_name_of_the_argument(case):
    arguments, message = REFUSED[case]
    with pytest.raises(DataError) as caught:
        Dataset.from_arrays(**arguments)
    assert message in str(caught.value)


@pytest.mark.plain
def test_refused_samples(make_sample):
    with pytest.raises(DataError, match="samples is empty"):
        Dataset.from_samples([])
    with pytest.raises(DataError, match=r"samples\[1\] is a int"):
        Dataset.from_samples([make_sample(), 3])
    with pytest.raises(DataError, match=r"samples\[1\] has no targets"):
        Dataset.from_samples([make_sample(), make_sample(targets=None)])
    with pytest.raises(DataError, match="the last axis must be the same"):
        Dataset.from_samples([make_sample(c=1), make_sample(c=2)])


KINDS = ("f2", "f4", "f8", "i1", "i4", "i8", "u2", "?")


@st.composite
def arguments(draw):
    """Any sizes, kinds of numbers and forms that are allowed."""
    samples, points, queries = (draw(st.integers(1, 4)) for _ in range(3))
    d, c, k, p, t = (draw(st.integers(1, 3)) for _ in range(5))
    ragged = draw(st.booleans())

    def some(*shape):
        kind = draw(st.sampled_from(KINDS))
        numbers = np.random.default_rng(draw(st.integers(0, 99))).random(shape)
        return (numbers * draw(st.sampled_from([0.0, 1.0, 100.0]))).astype(kind)

    def rows(count, *shape):
        if ragged:
            return [some(count + i % 2, *shape) for i in range(samples)]
        return some(samples, count, *shape)

    found = {"points": rows(points, d), "targets": None}
    if draw(st.booleans()):
        found["values"] = rows(points, c) if draw(st.booleans()) else rows(points)
    asked = points
    if draw(st.booleans()):
        found["queries"], asked = rows(queries, d), queries
    timed = draw(st.booleans())
    flat = draw(st.booleans())
    tail = () if flat else (k,)
    if timed:
        found["times"] = [float(i + 1) for i in range(t)]
        sizes = [asked + i % 2 for i in range(samples)] if ragged else None
        found["targets"] = (
            [some(t, n, *tail) for n in sizes] if sizes else some(samples, t, asked, *tail)
        )
    else:
        found["targets"] = rows(asked, *tail)
    if draw(st.booleans()):
        found["parameters"] = some(samples, p) if draw(st.booleans()) else some(samples)
    return samples, found


@given(arguments())
def test_whatever_is_allowed_works(drawn):
    samples, found = drawn
    data = Dataset.from_arrays(**found)
    assert len(data) == samples
    for i, sample in enumerate(data):
        assert isinstance(sample, Sample)
        assert sample.values.dtype == torch.float32
        targets = np.asarray(found["targets"][i], dtype=np.float32)
        np.testing.assert_array_equal(sample.truth.numpy().ravel(), targets.ravel())
        if "values" in found:
            values = np.asarray(found["values"][i], dtype=np.float32)
            np.testing.assert_array_equal(sample.values.numpy().ravel(), values.ravel())
    low, high = zip(*data.spec.domain, strict=True)
    assert all(a < b for a, b in zip(low, high, strict=True))


def test_times_that_were_rounded_are_whole_steps_again():
    """A model counts steps, and would refuse what is off by the digits somebody printed."""
    targets = RANDOM.random((5, 3, 7))
    data = Dataset.from_arrays(points=X, values=A, targets=targets, times=[0.3333, 0.6667, 1.0])
    assert data[0].times == data.layout.times == tuple(data.spec.dt * i for i in (1, 2, 3))
    again = Dataset.from_samples([replace(s, times=(0.3333, 0.6667, 1.0)) for s in data])
    assert again[0].times == data[0].times


def test_as_many_queries_as_samples_and_channels_as_points_is_no_grid():
    """Every size of the targets could be one of a grid of points."""
    points, targets = RANDOM.random((2, 2, 1)), RANDOM.random((2, 1, 2, 2))
    data = Dataset.from_arrays(points=points, targets=targets, times=[1.0])
    assert data[0].truth.shape == (1, 2, 2)
    assert not data.layout.curved


def test_the_layout_knows_grids_that_are_curved_and_samples_without_points():
    def layout(**arrays):
        return Dataset.from_arrays(**arrays).layout

    values = RANDOM.random((5, 4, 6))
    assert not layout(points=GRID, values=values, targets=values).curved
    bent = GRID + 0.1 * GRID[..., ::-1] ** 2
    assert layout(points=bent, values=values, targets=values).curved
    assert layout(points=X, values=A, queries=bent, targets=values).curved
    assert not layout(points=X, values=A, queries=GRID, targets=values).curved
    assert not layout(points=RANDOM.random((5, 7, 2)), values=A, targets=U).curved
    assert layout(parameters=np.arange(5), queries=X, targets=U).alone
    assert not layout(parameters=np.arange(5), points=RANDOM.random((5, 7, 2)), targets=U).alone


def test_numbers_of_numpy_in_a_list_are_an_array():
    data = Dataset.from_arrays(
        parameters=[np.float64(i) for i in range(5)], queries=X, targets=list(U)
    )
    assert data[3].parameters.tolist() == [3.0]
    assert data.layout.flat_parameters


def test_moved_to_another_origin_places_stay_where_they_are():
    data = Dataset.from_arrays(points=5e6 + 10 * X, values=A, targets=U)
    origin = tuple(v + 2.0 for v in data.layout.origin)
    moved = data.like(replace(data.layout, origin=origin))
    np.testing.assert_allclose(
        moved[0].points.double().numpy() + origin, 5e6 + 10 * X, atol=1e-5, rtol=0
    )
    assert moved.layout.origin == origin
    assert moved[0].queries is moved[0].points or moved[0].queries.equal(moved[0].points)
    assert data.like(data.layout) is data
    near = Dataset.from_arrays(points=X, values=A, targets=U)
    moved = near.like(replace(near.layout, origin=(1.0, 2.0)))
    torch.testing.assert_close(moved[0].points, near[0].points - torch.tensor((1.0, 2.0)))
