"""Samples as a data set, checked to be alike and to have weights and sizes that can be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.data.own_arrays import array
from ipot.errors import DataError
from ipot.samples import Sample, collate
from ipot.spec import Need


def held(samples: list[Sample]) -> Stacked | Ragged:
    """Stacked where all samples have one size, and edges are not kept."""
    shapes = {(s.points.shape, s.queries.shape, s.grid, s.query_grid) for s in samples}
    if len(shapes) > 1 or any(s.edges is not None for s in samples):
        return Ragged(samples)
    for name in ("points", "queries"):
        rows = [getattr(s, name) for s in samples]
        if all(torch.equal(r, rows[0]) for r in rows):
            samples = [replace(s, **{name: rows[0]}) for s in samples]
    return Stacked(replace(collate(samples), index=None))


def listed(samples: Any) -> list[Sample]:
    """An argument `samples`, all of them of one kind."""
    if isinstance(samples, Sample) or not isinstance(samples, Iterable):
        raise DataError(
            f"samples must be a list of ipot.Sample, got one {type(samples).__name__}. Arrays "
            "become a data set by ipot.Dataset.from_arrays."
        )
    samples = list(samples)
    if not samples:
        raise DataError("samples is empty: there is nothing to learn from")
    for i, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise DataError(f"samples[{i}] is a {type(sample).__name__}, not an ipot.Sample")
        _refuse_unlike(i, sample, samples[0])
    return samples


def structure(data: Stacked | Ragged) -> dict[str, Any]:
    """What systems that need more than points may rely on."""
    first, provides = data[0], set()
    if isinstance(data, Stacked):
        if len(data.data.points) == 1:
            provides.add(Need.FIXED_POINTS)
        d = data.data
        if d.points.shape == d.queries.shape and torch.equal(d.points, d.queries):
            provides.add(Need.SAME_POINTS)
        if first.grid is not None:
            provides.add(Need.GRID)
    elif all(s.points is s.queries for s in data.samples):
        provides.add(Need.SAME_POINTS)
    shape: tuple[int, ...] = ()
    if Need.FIXED_POINTS in provides and len(first.points):
        shape = first.grid or (len(first.points),)
    return {"provides": frozenset(provides), "shape": shape}


def refuse_weights(data: Stacked | Ragged) -> None:
    """Refuse weights that are negative, or of a sample in which no query would count."""
    if isinstance(data, Stacked):
        rows = [] if data.data.weights is None else list(data.data.weights)
    else:
        rows = [s.weights for s in data.samples if s.weights is not None]
    for i, weights in enumerate(rows):
        which = f"weights of sample {i}" if len(rows) == len(data) else "weights"
        if bool((weights < 0).any()):
            at = int((weights < 0).nonzero()[0])
            raise DataError(
                f"{which}: {float(weights[at]):g} at query {at} is negative. A weight says what a "
                "query counts: 0 or more, like the area around it."
            )
        if not bool((weights > 0).any()):
            raise DataError(f"{which} are all zero: at least one query must count")


def _refuse_unlike(i: int, sample: Sample, first: Sample) -> None:
    """Refuse a sample that is of another kind than the first."""
    if sample.targets is None:
        raise DataError(f"samples[{i}] has no targets: there is nothing to learn from it")
    for name in ("points", "values", "queries", "targets", "parameters", "weights"):
        one, other = getattr(sample, name), getattr(first, name)
        if (one is None) != (other is None):
            raise DataError(f"samples[{i}] and samples[0]: only one of them has {name}")
        if one is None:
            continue
        if one.layout != torch.strided:
            raise DataError(f"{name} of samples[{i}] is sparse: give it by .to_dense()")
        array(f"{name} of samples[{i}]", one)  # refused where it holds no real numbers
        if name != "weights" and one.shape[-1] != other.shape[-1]:
            raise DataError(
                f"samples[{i}] has {name} {tuple(one.shape)}, samples[0] {tuple(other.shape)}: "
                "the last axis must be the same"
            )
        if not bool(torch.isfinite(one).all()):
            raise DataError(f"{name} of samples[{i}] holds values that are not finite")
    if sample.times != first.times:
        raise DataError(f"samples[{i}] has the times {sample.times}, samples[0] {first.times}")
