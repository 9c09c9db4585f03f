"""Queries far outside of the domain are found, however many they are and wherever they lie."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ipot.recipes import studies
from ipot.recipes.studies import warn_outside
from ipot.samples import Batch
from ipot.spec import Spec

SPEC = Spec(name="strip", inputs=("a",), outputs=("u",), domain=((0.0, 1.0), (-1.0, 3.0)))
ROUND = Spec(
    name="ring",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0), (-1.0, 3.0)),
    periods=(1.0, None),
)


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch):
    monkeypatch.setattr(studies, "LOOKED_AT", 7)


def batch(queries, times=(1.0,)):
    size = len(queries)
    return Batch(
        points=torch.zeros(1, 1, 2), values=torch.zeros(size, 1, 1), queries=queries, times=times
    )


def inside(*shape):
    random = torch.Generator().manual_seed(0)
    return torch.rand(*shape, 2, generator=random) * torch.tensor([1.0, 4.0]) - torch.tensor([0, 1])


def said(queries, spec=SPEC, times=(1.0,)):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_outside(batch(queries, times), spec)
    assert len(caught) <= 1
    return str(caught[0].message) if caught else None


def test_nothing_is_said_of_queries_inside_or_just_outside():
    queries = inside(1, 50)
    queries[0, 20] = torch.tensor([-0.049, 3.19])
    queries[0, 33] = torch.tensor([1.049, -1.19])
    assert said(queries) is None
    assert said(queries.double()) is None


@pytest.mark.parametrize("place", [0, 6, 7, 30, 49])
@pytest.mark.parametrize("where", [(-0.06, 0.0), (1.06, 0.0), (0.5, -1.21), (0.5, 3.21)])
def test_one_outside_is_found_wherever_it_stands(place, where):
    queries = inside(1, 50)
    queries[0, place] = torch.tensor(where)
    found = said(queries)
    assert found.startswith("1 of 50 queries lie outside the domain ((0.0, 1.0), (-1.0, 3.0))")
    assert f"the first at {queries[0, place].tolist()}:" in found


def test_all_are_counted_and_the_first_is_named():
    queries = inside(2, 25)
    queries[0, 9, 0], queries[0, 10, 0], queries[1, 3, 1], queries[1, 24, 0] = 5.0, 6.0, 7.0, 8.0
    found = said(queries)
    assert found.startswith("4 of 50 queries")
    assert f"the first at {queries[0, 9].tolist()}:" in found


def test_what_comes_round_again_has_no_outside():
    queries = inside(1, 20)
    queries[0, 4, 0] = 17.0
    assert said(queries, ROUND) is None
    queries[0, 11, 1] = 17.0
    assert said(queries, ROUND).startswith("1 of 20 queries")


def test_what_is_no_number_hides_nobody():
    queries = inside(1, 20)
    queries[0, 8] = torch.nan
    assert said(queries) is None
    queries[0, 9, 0] = 9.0
    assert said(queries).startswith("1 of 20 queries")


@pytest.mark.parametrize("moving", [False, True])
def test_queries_may_lie_in_memory_as_they_like(moving):
    times = (1.0, 2.0) if moving else (1.0,)
    lead = (3, 2) if moving else (3,)
    queries = inside(*lead, 20).transpose(-1, -2).contiguous().transpose(-1, -2)
    assert not queries.is_contiguous()
    assert said(queries, times=times) is None
    queries[2, ..., 13, 0] = 4.0
    wanted = "2 of 120" if moving else "1 of 60"
    assert said(queries, times=times).startswith(f"{wanted} queries")


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that anything made in memory of its own."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for made in out if isinstance(out, tuple | list) else [out]:
            new = isinstance(made, torch.Tensor) and (
                made.untyped_storage().data_ptr() not in given
            )
            if new:
                self.elements = max(self.elements, made.numel())
        return out


@pytest.mark.parametrize("outside", [False, True])
def test_nothing_as_large_as_the_queries_is_made(tmp_path, outside):
    queries = inside(1, 1000)
    queries[0, ::3] += 9.0 * outside
    np.save(tmp_path / "queries.npy", queries.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "queries.npy", mmap_mode="r+"))
    with Largest() as largest:
        found = said(mapped)
    assert (found is not None) == outside
    assert 0 < largest.elements <= 2 * 7
