"""Samples of data sets with offsets and scales of their own know their units."""

import numpy as np
import pytest
import torch

from ipot.data.own import Dataset
from ipot.errors import DataError
from ipot.samples import Sample, collate

RANDOM = np.random.default_rng(0)
X, A, U = RANDOM.random((7, 2)), RANDOM.random((6, 7)), RANDOM.random((6, 7))


def data(offset=0.0, scale=1.0, rows=slice(None), **changes):
    given = {"points": X, "values": offset + scale * A[rows], "targets": offset + scale * U[rows]}
    return Dataset.from_arrays(**given | changes)


def as_given(found, name):
    scaling = found.layout.scaling(name)
    held = [getattr(s, name) for s in found]
    return np.stack([h.double().numpy() if scaling is None else scaling.undo(h) for h in held])


@pytest.mark.parametrize(
    ("one", "other"),
    [((1e9, 1.0), (1e9 + 50, 1.0)), ((1e6, 1.0), (0.0, 1e3)), ((0.0, 1e-200), (0.0, 3e-200))],
)
def test_samples_of_different_units_are_brought_to_one(one, other):
    first, second = data(*one, slice(0, 3)), data(*other, slice(3, 6))
    assert first.layout.scalings() != second.layout.scalings()
    found = Dataset.from_samples([*first, *second])
    for name, numbers in (("values", A), ("targets", U)):
        wanted = np.concatenate([one[0] + one[1] * numbers[:3], other[0] + other[1] * numbers[3:]])
        have = as_given(found, name).reshape(6, 7)
        np.testing.assert_allclose(have, wanted, rtol=0, atol=2e-6 * np.ptp(wanted))


def test_places_too_and_a_mesh_stays_shared():
    first = data(points=1e7 + X, rows=slice(0, 3))
    second = data(points=3e7 + X, rows=slice(3, 6))
    found = Dataset.from_samples([*first, *second])
    have = as_given(found, "points")
    np.testing.assert_allclose(have[0], 1e7 + X, atol=1.0)
    np.testing.assert_allclose(have[5], 3e7 + X, atol=1.0)
    again = Dataset.from_samples([*first, *data(1e9, points=1e7 + X, rows=slice(3, 6))])
    np.testing.assert_allclose(as_given(again, "points")[5], 1e7 + X, atol=1e-6)
    assert again[0].points is again[5].points


def test_samples_of_one_data_set_are_what_they_were():
    whole = data(1e9)
    again = Dataset.from_samples(list(whole))
    assert again.layout.scalings() == whole.layout.scalings()
    for one, other in zip(again, whole, strict=True):
        assert one.values.equal(other.values)
        assert one.targets.equal(other.targets)
    assert data()[0].units is None


def test_samples_made_by_hand_are_as_given():
    mine = Sample(
        points=torch.tensor(X),
        values=torch.tensor(1e9 + A[0])[:, None],
        queries=torch.tensor(X),
        targets=torch.tensor(1e9 + U[0])[None, :, None],
    )
    found = Dataset.from_samples([mine, *data(1e9 + 5, rows=slice(1, 6))])
    np.testing.assert_allclose(as_given(found, "values")[0, :, 0], 1e9 + A[0], atol=1e-5)
    np.testing.assert_allclose(as_given(found, "values")[1, :, 0], 1e9 + 5 + A[1], atol=1e-5)


@pytest.mark.plain
def test_a_batch_of_different_units_is_refused():
    assert collate(list(data(1e9))).size == 6
    with pytest.raises(DataError, match=r"samples\[1\] counts in other units .*from_samples"):
        collate([data(1e9)[0], data(2e9)[0]])
