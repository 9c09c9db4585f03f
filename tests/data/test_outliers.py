"""A few numbers far from the others round these away in float32: a warning names the channel."""

import re
import warnings

import numpy as np
import pytest
import torch

from ipot.data.own import Dataset
from ipot.samples import Sample

RANDOM = np.random.default_rng(0)
X, A, U = RANDOM.random((7, 2)), RANDOM.random((5, 7)), RANDOM.random((5, 7))


def data(**changes):
    return Dataset.from_arrays(**{"points": X, "values": A, "targets": U} | changes)


def spoiled(numbers, outlier):
    numbers = numbers.copy()
    numbers[2, 3] = outlier
    return numbers


def percent(warned):
    """How much of the range is lost, by a warning."""
    return float(re.search(r"by (\S+) % of the range", str(warned[0].message))[1])


@pytest.mark.parametrize(
    ("numbers", "outlier", "lost"),
    [
        (A, 1e300, 100),
        (A, -1e300, 100),
        (A, 1e12, 100),
        (1e9 + A, 0.0, 100),
        (1e9 + 1e4 * A, -9999.0, 0.6),
    ],
)
@pytest.mark.parametrize("name", ["values", "targets"])
@pytest.mark.filterwarnings("ignore:targets of 4 samples")
def test_an_outlier_that_rounds_the_others_away_is_told_of(name, numbers, outlier, lost):
    with pytest.warns(UserWarning, match=rf"^{name}: nearly all numbers lie between") as warned:
        found = data(**{name: spoiled(numbers, outlier)})
    assert percent(warned) == pytest.approx(lost, rel=0.2)
    if lost == 100 and abs(outlier) > 1e200:  # and it is true
        assert getattr(found[0], name).unique().numel() == 1


def test_the_channel_is_named_and_lists_and_parameters_are_looked_at():
    both = np.stack([A, spoiled(A, 1e300)], -1)
    with pytest.warns(UserWarning, match="^values: channel 1: nearly all"):
        data(values=both)
    with pytest.warns(UserWarning, match="^values: nearly all"):
        data(points=[X] * 5, values=list(spoiled(A, 1e300)), targets=list(U))
    numbers = np.append(RANDOM.random(9), 1e300)
    with pytest.warns(UserWarning, match="^parameters: nearly all"):
        data(values=A[:1].repeat(10, 0), targets=U[:1].repeat(10, 0), parameters=numbers)


def test_samples_are_looked_at():
    samples = [
        Sample(
            points=torch.tensor(X),
            values=torch.tensor(spoiled(A, 1e300)[i])[:, None],
            queries=torch.tensor(X),
            targets=torch.tensor(U[i])[None, :, None],
        )
        for i in range(5)
    ]
    with pytest.warns(UserWarning, match="^values: nearly all"):
        Dataset.from_samples(samples)


@pytest.mark.parametrize(
    "numbers",
    [
        A,
        spoiled(A, 300.0),
        spoiled(A, 1e-300),
        spoiled(0 * A + 3, 1e300),  # a constant: nothing differs
        10.0 ** RANDOM.uniform(-12, 0, A.shape),  # of all sizes, and each is held
        1e9 + A,
        1e9 + np.arange(35).reshape(5, 7),
        A[:, :1].repeat(7, 1),
    ],
    ids=str,
)
def test_what_float32_holds_is_not_remarked_on(numbers):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data(values=numbers)


def test_a_variable_of_xarray_is_named():
    from ipot.formats.series.samples import from_xarray

    xr = pytest.importorskip("xarray")
    field = RANDOM.random((12, 3, 4))
    coords = {"time": np.arange(12.0), "lat": [0.0, 1.0, 2.0], "lon": [0.0, 1.0, 2.0, 3.0]}
    good = xr.Dataset({"t": (("time", "lat", "lon"), field)}, coords)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_xarray(good, inputs="t", targets="t")
    field[4, 1, 1] = 1e300
    with pytest.warns(UserWarning, match="^targets: t: nearly all numbers lie between") as warned:
        from_xarray(good, inputs="t", targets="t")
    assert percent(warned) == 100


def in_lists(targets):
    sizes = [7, 7, 7, 7, 5]
    a, u = ([row[:k] for row, k in zip(n, sizes, strict=True)] for n in (A, targets))
    return data(points=[X[:k] for k in sizes], values=a, targets=u)


def in_samples(targets):
    x = torch.tensor(X)
    return Dataset.from_samples(
        Sample(
            points=x,
            values=torch.tensor(a)[:, None],
            queries=x,
            targets=torch.tensor(u)[None, :, None],
        )
        for a, u in zip(A, targets, strict=True)
    )


@pytest.mark.parametrize("make", [lambda u: data(targets=u), in_lists, in_samples])
def test_samples_whose_targets_count_as_zero_are_told_of(make):
    targets = U.copy()
    targets[3] *= 1e-200
    with pytest.warns(UserWarning, match=r"targets of 1 samples, first sample 3, are .*e-20[01]"):
        make(targets)


def test_targets_that_are_zero_or_all_tiny_are_not_remarked_on():
    targets = U.copy()
    targets[3] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data(targets=targets)
        data(targets=1e-200 * targets)
