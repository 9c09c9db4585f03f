"""Odd arguments of a data set: they work, or the refusal names them and says what to do."""

import contextlib

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from ipot.data.facts import step_of
from ipot.data.own import Dataset
from ipot.errors import DataError, IpotError, UnknownName

RANDOM = np.random.default_rng(0)
X, A, U = RANDOM.random((7, 2)), RANDOM.random((5, 7)), RANDOM.random((5, 7))
GIVEN = {"points": X, "values": A, "targets": U}
TENSOR = torch.tensor(A)


def data(**changes):
    return Dataset.from_arrays(**GIVEN | changes)


TENSORS = {
    "bfloat16": TENSOR.bfloat16(),
    "float16": TENSOR.half(),
    "float8": TENSOR.to(torch.float8_e4m3fn),
    "sparse": TENSOR.to_sparse(),
    "sparse rows": TENSOR.to_sparse_csr(),
    "with gradients": TENSOR.clone().requires_grad_(),
    "whole": (10 * TENSOR).int(),
    "yes or no": TENSOR > 0.5,
    "a negative view": torch._neg_view(TENSOR),
    "a list": list(TENSOR.bfloat16()),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_of_every_kind(kind):
    given = TENSORS[kind]
    wanted = torch.stack(given) if isinstance(given, list) else given.detach()
    wanted = wanted.to_dense() if wanted.layout != torch.strided else wanted
    found = torch.stack([s.values[:, 0] for s in data(values=given)])
    torch.testing.assert_close(found, wanted.float(), rtol=0, atol=0)


REFUSED = {
    "nested": ({"values": torch.nested.nested_tensor(list(TENSOR))}, "values is a nested tensor"),
    "nowhere": ({"values": TENSOR.to("meta")}, "values lies on the device 'meta'"),
    "complex": ({"values": TENSOR + 1j}, "values must hold real numbers"),
    "no targets": ({"targets": None}, "targets is None"),
    "negative weights": ({"weights": -np.ones(7)}, "weights: -1 at query 0 is negative"),
    "a negative weight": (
        {"weights": np.where(np.arange(35).reshape(5, 7) == 17, -2, 1)},
        "weights of sample 2: -2 at query 3 is negative",
    ),
    "no weight": ({"weights": np.zeros(7)}, "weights are all zero"),
    "no weight in one": (
        {"points": [X] * 4 + [X[:3]], "values": [*A[:4], A[4, :3]]}
        | {"targets": [*U[:4], U[4, :3]], "weights": [np.ones(7)] * 4 + [np.zeros(3)]},
        "weights of sample 4 are all zero",
    ),
    "NaN weights": ({"weights": np.full(7, np.nan)}, "weights holds nan"),
    "one weight": ({"weights": 3}, "weights has 0 axes"),
    "periods in words": ({"periods": "ab"}, "periods must be like {0: 1.0}"),
    "one period": ({"periods": 3}, "periods must be like {0: 1.0}"),
    "a set of periods": ({"periods": {1.0, 2.0}}, "periods must be like {0: 1.0}"),
    "too few periods": ({"periods": (1.0,)}, "periods has 1 entries for 2 coordinates"),
    "a period that is text": ({"periods": {0: "1"}}, "periods: that of axis 0 must be a number"),
    "a listed one": ({"periods": [1.0, "x"]}, "periods: that of axis 1 must be a number"),
    "a period True": ({"periods": {0: True}}, "periods: that of axis 0 must be a number"),
    "negative": ({"periods": {0: -1.0}}, "periods: that of axis 0 must be positive, got -1"),
    "endless": ({"periods": {0: 10**400}}, "periods: that of axis 0 must be finite, got 1000"),
    "zero": ({"periods": {0: 0}}, "periods: that of axis 0 must be positive, got 0"),
    "an axis that is text": ({"periods": {"0": 1.0}}, "periods names axis '0'"),
    "an axis that is no whole number": ({"periods": {0.0: 1.0}}, "periods names axis 0.0"),
    "units of nothing": (
        {"units": {"v": "K"}, "outputs": "u"},
        "units: there is no channel 'v'. The channels are u, value",
    ),
    "one unit": ({"units": "K"}, "units must be a mapping like {'target': 'K'}"),
    "a list of units": ({"units": ["K"]}, "units must be a mapping"),
    "a unit that is no text": ({"units": {"target": 3}}, "units: that of 'target' must be text"),
    "names that are none": ({"inputs": 3}, "inputs must be a list of names, got 3"),
    "names without order": ({"outputs": {"u"}}, "outputs must be a list of names"),
    "a name that is none": ({"outputs": [None]}, "outputs[0] must be a name"),
    "an empty name": ({"outputs": [""]}, "outputs[0] must be a name"),
    "parameters": ({"parameter_names": 3}, "parameter_names must be a list of names"),
    "a number for a name": ({"name": 3}, "name must be a name in quotation marks, got 3"),
    "geographic": ({"geographic": "no"}, "geographic must be True or False, got 'no'"),
}


@pytest.mark.plain
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_name_of_the_argument(case):
    arguments, message = REFUSED[case]
    with pytest.raises(DataError) as caught:
        data(**arguments)
    assert message in str(caught.value)


@pytest.mark.plain
def test_one_name_alone_and_what_counts_as_one():
    found = data(outputs="u", inputs=np.array(["a"]), units={"u": "K", "a": "m"}, periods=[None, 2])
    assert (found.spec.outputs, found.spec.inputs, found.spec.units) == (("u",), ("a",), ("K",))
    assert found.spec.periods == (None, 2.0)
    assert data(periods={np.int64(0): torch.tensor(1.5)}).spec.periods == (1.5, None)
    assert data(targets=1e25 * U)[0].truth.max() > 1e23  # it is scaled where it is learned from
    assert data(targets=0 * U).spec.outputs == ("target",)  # nothing is not too little


@pytest.mark.parametrize(
    ("times", "step", "count"),
    [
        ([2, 5], 1, 5),
        ([3, 7], 1, 7),
        ([4, 10], 2, 5),
        ([0.1, 0.25], 0.05, 5),
        ([1, 2.3, 3.7], 0.1, 37),
        (np.float32([0.1, 0.25, 0.7]), 0.05, 14),
        ([999, 1000], 1, 1000),
        ([1e30, 2.5e30], 5e29, 5),
        ([2e-30, 5e-30], 1e-30, 5),
        ([0.3333, 0.6667, 1.0], 1 / 3, 3),
        ([7], 7, 1),
    ],
    ids=str,
)
def test_the_step_is_the_largest_that_fits(times, step, count):
    found = step_of(tuple(float(t) for t in times))
    assert found == (pytest.approx(step, rel=1e-6), count)
    many = data(targets=RANDOM.random((5, len(times), 7)), times=times)
    assert (many.spec.dt, many.spec.steps) == found
    np.testing.assert_allclose(many[0].times, times, rtol=2e-3)


@pytest.mark.parametrize("times", [[1, 2**0.5], [1, 1001], [1, 1.0004], [997, 1009]], ids=str)
def test_times_off_every_step_are_refused(times):
    with pytest.raises(DataError, match="whole multiples of one step, 1000 at most"):
        step_of(tuple(map(float, times)))


@pytest.mark.plain
def test_some_of_the_samples():
    whole = data(targets=np.arange(35.0).reshape(5, 7))
    first = [float(s.truth[0, 0, 0]) for s in whole]
    for index, wanted in (
        (slice(0, 2), [0, 1]),
        (slice(None, None, -2), [4, 2, 0]),
        ([3, -1], [3, 4]),
        (np.array([1, 1]), [1, 1]),
        (torch.tensor([2]), [2]),
        (np.array([True, False, False, True, False]), [0, 3]),
        (range(3), [0, 1, 2]),
    ):
        for found in (whole[index], whole.select(index)):
            assert isinstance(found, Dataset)
            assert [float(s.truth[0, 0, 0]) for s in found] == [first[i] for i in wanted]
            assert found.spec == whole.spec
    for index in (-1, np.int64(4), torch.tensor(4), np.array(4)):
        assert float(whole[index].truth[0, 0, 0]) == first[4]
    assert [len(part) for part in whole.split(np.float32(0.6), seed=np.int64(3))] == [3, 2]


@pytest.mark.plain
def test_samples_that_are_not_there():
    whole = data()
    for index, message in (
        ([1000], "there is no sample 1000: of 5, the last is 4"),
        ([-6], "there is no sample -6"),
        ("a", "index must be a list of whole numbers, got 'a'"),
        (3, "index must be a list of whole numbers, got 3"),
        (None, "index must be a list of whole numbers"),
        ([1.5], "got 1.5"),
        ([[1, 2]], r"got \[1, 2\]"),
        (np.zeros((2, 2), int), r"index must have one axis, got the shape \(2, 2\)"),
        ([True, False], "yes or no for 2 samples, and there are 5"),
        (slice("a"), "samples cannot be taken by"),
        ([], "no sample is chosen"),
    ):
        with pytest.raises(DataError, match=message):
            whole.select(index)
    for index in (1.5, "a", None, True, 5, -6, slice(5, 5), ...):
        with pytest.raises(DataError):
            whole[index]
    with pytest.raises(IndexError):  # what Python's own sequences raise
        whole[5]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": "a"}, "train must lie between 0 and 1, like 0.8, got 'a'"),
        ({"train": 1.5}, "train must lie between 0 and 1"),
        ({"train": 0}, "train must lie between 0 and 1"),
        ({"train": None}, "train must lie between 0 and 1"),
        ({"train": True}, "train must lie between 0 and 1"),
        ({"seed": "x"}, "seed must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number from 0"),
        ({"seed": 2**70}, "seed must be a whole number from 0"),
    ],
    ids=str,
)
def test_splits_that_cannot_be(arguments, message):
    with pytest.raises(DataError, match=message):
        data().split(**arguments)


@pytest.mark.plain
def test_samples_that_are_none():
    samples = list(data())
    for given in ("abc", [1], None, 3, samples[0], {0: samples[0]}):
        with pytest.raises(
            DataError, match=r"samples(\[0\] is a|.* must be a list of ipot.Sample)"
        ):
            Dataset.from_samples(given)
    with pytest.raises(DataError, match="samples is empty"):
        Dataset.from_samples()
    with pytest.raises(UnknownName, match=r"no argument 'foo'\. .* takes inputs, outputs"):
        Dataset.from_samples(foo=1)
    with pytest.raises(DataError, match="history must be a whole number"):
        Dataset.from_samples(samples, history="a")
    with pytest.raises(DataError, match="there is no channel 'v'"):
        Dataset.from_samples(samples, units={"v": "K"})


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
ARGUMENTS = ("points", "values", "queries", "targets", "parameters", "weights", "times")


@hypothesis.given(st.dictionaries(st.sampled_from(ARGUMENTS), SHAPES, min_size=1, max_size=4))
@hypothesis.settings(max_examples=150, deadline=None)
def test_arrays_of_any_shape_work_or_are_refused(shapes):
    """Empty axes too: no error of another kind comes out."""
    arrays = {name: 1.0 + np.arange(np.prod(s)).reshape(s) for name, s in shapes.items()}
    with contextlib.suppress(IpotError):
        assert all(torch.isfinite(s.truth).all() for s in data(**arrays))


EMPTY = {
    "no coordinates": ({"points": np.zeros((7, 0))}, "points has no coordinates"),
    "none of a grid": ({"points": np.zeros((0, 7, 2))}, "points"),
    "no coordinates of a grid": ({"points": np.zeros((7, 1, 0))}, "points has no coordinates"),
    "no points": ({"points": np.zeros((0, 2))}, "points"),
    "no channels": ({"targets": np.zeros((5, 7, 0))}, "targets"),
    "no samples": ({"targets": np.zeros((0, 7))}, "targets is empty"),
    "no times": ({"targets": np.zeros((5, 0, 7)), "times": []}, "times"),
    "a number": ({"targets": 3.0}, "targets has 0 axes"),
    "a view without end": (
        {"values": np.broadcast_to(1.0, (10**4, 10**4, 10**4))},
        "values in float32 takes",
    ),
    "a tensor without end": (
        {"values": torch.zeros(()).expand(10**6, 10**6)},
        "values in float32 takes",
    ),
    "a sparse one": (
        {
            "values": torch.sparse_coo_tensor(
                torch.zeros(2, 1).long(), torch.ones(1), (10**7, 10**7)
            )
        },
        "values in float32 takes",
    ),
    "numbers in a list": ({"points": [X, np.float64(3.0)]}, "points[1] must have the shape"),
}


@pytest.mark.plain
@pytest.mark.parametrize("case", EMPTY)
def test_empty_and_endless_arrays_are_refused(case):
    arguments, message = EMPTY[case]
    with pytest.raises(DataError) as caught:
        data(**arguments)
    assert message in str(caught.value)


@pytest.mark.plain
def test_an_index_without_end_is_refused():
    with pytest.raises(DataError, match="index"):
        data().select(np.broadcast_to(1, 10**12))
    with pytest.raises(DataError, match="taken by a whole number"):
        data().select(torch.ones(3).to_sparse())
