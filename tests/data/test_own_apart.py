"""Points and queries far from each other, or from zero, and things that are no data at all."""

import numpy as np
import pytest
import torch

from ipot.data.own import Dataset
from ipot.errors import DataError

POINTS = np.random.default_rng(0).random((10, 2))
FIELDS = np.random.default_rng(1).standard_normal((4, 10))


def arrays(**others):
    return Dataset.from_arrays(**{"points": POINTS, "values": FIELDS, "targets": FIELDS} | others)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_points_that_are_nothing_beside_the_queries_are_refused(scale):
    with pytest.raises(DataError, match=r"axis 0 and queries .* Check that both are in the same"):
        arrays(queries=POINTS * scale)


def test_queries_that_fall_together_are_warned_of():
    with pytest.warns(UserWarning, match="queries cannot be told apart in float32"):
        data = arrays(queries=POINTS + 1e9)
    assert len(data[0].queries) == 10


@pytest.mark.filterwarnings("error")
def test_a_plane_of_queries_within_a_volume_is_nothing_to_be_told_of():
    volume = np.random.default_rng(2).random((10, 3))
    plane = np.c_[POINTS, 0.5 + 1e-16 * np.arange(10)]
    assert arrays(points=volume, queries=plane).spec.query_dimension == 3


def test_a_side_without_extent_has_one_however_far_it_lies():
    data = arrays(points=POINTS * [1, 0] + [0, 1e17])
    assert all(high > low for low, high in data.spec.domain)


class Broken:
    def __getattr__(self, name):
        raise RuntimeError(f"broken {name}")

    def __repr__(self):
        raise RuntimeError("broken repr")


@pytest.mark.plain
@pytest.mark.parametrize("name", ["points", "values", "targets", "geographic", "inputs", "periods"])
def test_objects_that_fail_when_looked_at_are_refused_by_name(name):
    with pytest.raises(DataError, match=name):
        arrays(**{name: Broken()})


def test_a_refusal_names_the_queries_where_they_alone_are_given():
    given = {"queries": np.array(["a", "b"]), "parameters": np.zeros((4, 1))}
    with pytest.raises(DataError, match="queries must hold real numbers"):
        Dataset.from_arrays(targets=FIELDS, **given)


@pytest.mark.plain
def test_rows_in_a_nested_tensor_are_refused():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(DataError, match="index must have one axis, got a nested tensor"):
        arrays().select(nested)
