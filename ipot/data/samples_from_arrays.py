"""Samples as one data set: from columns of arrays, or from samples, which must be alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ipot.data.arrays import Column, array, is_listed, tensor
from ipot.data.dataset import Ragged, Stacked
from ipot.data.facts import grid_of, is_straight, times_given
from ipot.data.scaling import Scaling
from ipot.errors import DataError
from ipot.samples import Batch, Sample, collate
from ipot.spec import Need


def places(name: str, given: Any, count: int | None, scaling: Scaling | None) -> Column:
    """Coordinates: one mesh for all, or one for each sample; a line may leave out its axis."""
    if is_listed(given):
        each = [array(f"{name}[{i}]", a) for i, a in enumerate(given)]
        each = [a[:, None] if a.ndim == 1 else a for a in each]
        for i, a in enumerate(each):
            if a.ndim != 2:
                raise DataError(f"{name}[{i}] must have the shape (n, D), got {a.shape}")
            if a.shape[1] != each[0].shape[1]:
                raise DataError(
                    f"{name}[{i}] must be (n, {each[0].shape[1]}) like {name}[0], got {a.shape}"
                )
        found = [tensor(f"{name}[{i}]", a, scaling) for i, a in enumerate(each)]
        if len({t.shape for t in found}) != 1:
            return Column(name, each=tuple(found))
        if all(torch.equal(t, found[0]) for t in found):
            return _counted(name, found[0], len(found), count)
        return Column(name, stacked=torch.stack(found))
    whole = array(name, given)
    if whole.ndim == 1:
        whole = whole[:, None]
    if whole.ndim not in (2, 3) or not whole.shape[-1]:
        raise DataError(
            f"{name} must be (N, D) for one mesh of all samples, (S, N, D), or a list of (N_i, D); "
            f"got shape {whole.shape}"
        )
    if whole.ndim == 2:
        return Column(name, shared=tensor(name, whole, scaling))
    found = tensor(name, whole, scaling)
    if len(found) > 1 and bool((found == found[:1]).all()):
        return _counted(name, found[0], len(found), count)
    return Column(name, stacked=found)


def _counted(name: str, mesh: torch.Tensor, found: int, count: int | None) -> Column:
    """One mesh that was given for every sample again, as one."""
    if count is not None and found != count:
        raise DataError(f"{name} has {found} samples, targets have {count}")
    return Column(name, shared=mesh)


def unrolled(
    name: str, places: Any, rows_name: str, rows: Any, *, lead: int = 1
) -> tuple[Any, Any]:
    """Places (H, W, 2) and rows (S, H, W, ...) of a grid as (H W, 2) and (S, H W, ...).

    Other arguments are given back as they are. Places (S, N, D) look alike where there are as many
    samples as lines: then they are a grid if its lines are straight. `lead` axes of the rows lie in
    front of the grid's.
    """
    if places is None or is_listed(places) or is_listed(rows):
        return places, rows
    where, what = array(name, places), array(rows_name, rows)
    if not where.ndim or not where.shape[-1]:
        raise DataError(f"{name} has no coordinates: its last axis is empty, got {where.shape}")
    if what.ndim == lead + 1 and where.ndim > 2:
        where = where.reshape(-1, where.shape[-1]) if _sized(where, what, lead) else where
        return where, what
    grid = where.shape[:-1]
    if len(grid) < 2 or what.shape[lead : lead + len(grid)] != grid:
        return places, rows
    flat = where.reshape(-1, where.shape[-1])
    per_sample = len(grid) == 2 and len(where) == len(what) and what.shape[lead] == grid[1]
    if per_sample and not is_straight(where):
        return places, rows
    rest = what.shape[lead + len(grid) :]
    return flat, what.reshape(*what.shape[:lead], len(flat), *rest)


def _sized(where: np.ndarray, what: np.ndarray, lead: int) -> bool:
    """Whether rows that lie in one axis are those of a grid of places, unrolled already."""
    nodes = math.prod(where.shape[:-1])
    return what.shape[lead] == nodes and (len(where) != len(what) or is_straight(where))


def refuse_transposed(given: dict[str, Column], targets: Column, *, axis: int) -> None:
    """Refuse rows whose first axis is that of places that all samples share; in targets the rows
    have the number `axis`. Nothing is turned round: what was meant is for the user to say."""
    asked = given.get("queries", given.get("points"))
    for rows, places, own in (
        (targets, asked, axis),
        (given.get("values"), given.get("points"), 1),
    ):
        if rows is None or rows.stacked is None or places is None or places.shared is None:
            continue
        shape, count = tuple(rows.stacked.shape), len(places.shared)
        if shape[own] != count == shape[0]:
            raise DataError(transposed(rows.name, shape, own, places.name, count))


def transposed(name: str, shape: tuple[int, ...], axis: int, places: str, count: int) -> str:
    """What to say of rows that lead with places where they should lead with samples."""
    times, rest = (", times" if axis == 2 else ""), ", channels" if len(shape) > axis + 1 else ""
    turned = f"{name}.T" if len(shape) == 2 else f"numpy.moveaxis({name}, 0, {axis})"
    return (
        f"{name} have {shape[axis]} rows and {places} {count}: one is needed for each. Their shape "
        f"{shape} looks transposed, (points, samples{times}{rest}) where (samples{times}, points"
        f"{rest}) is expected: if so, give {name}={turned}."
    )


def joined(
    given: dict[str, Column],
    targets: Column,
    times: Any,
    *,
    flat: tuple[bool, bool, bool],
) -> Stacked | Ragged:
    """Samples from checked columns.

    `flat` says of values, targets and parameters whether they lack an axis for channels.
    """
    steps = (1.0,) if times is None else times_given(times)
    flat_values, flat_targets, flat_parameters = flat
    targets = _widened(targets, flat_targets)
    if times is None:
        targets = targets.map(lambda t: t.unsqueeze(-3))
    queries = given["queries"] if "queries" in given else given["points"]
    points = given.get("points") or Column("points", shared=torch.zeros(0, queries.first.shape[-1]))
    values = _widened(given["values"], flat_values) if "values" in given else None
    scalars = _widened(given["parameters"], flat_parameters) if "parameters" in given else None
    weights = given.get("weights")
    _refuse_rows(targets, queries)
    if values is not None:
        _refuse_rows(values, points)
    if weights is not None:
        _refuse_rows(weights, queries, axis=-1)
    if "points" in given:
        _refuse_empty(points)
    _refuse_empty(queries)
    found = sorted(set(targets.sizes(-3)))
    if found != [len(steps)]:
        raise DataError(f"targets have {_words(found)} times, and `times` has {len(steps)}")
    if values is None:
        values = points.map(lambda t: t[..., :0])
    columns = (points, values, queries, targets, *([] if weights is None else [weights]))
    if all(c.each is None for c in columns):
        return _stacked(points, values, queries, targets, scalars, weights, steps)
    return Ragged(
        [
            Sample(
                points=points.of(i),
                values=values.of(i),
                queries=queries.of(i),
                targets=targets.of(i),
                times=steps,
                parameters=None if scalars is None else scalars.of(i),
                weights=None if weights is None else weights.of(i),
                index=i,
            )
            for i in range(targets.count or 0)
        ]
    )


def _stacked(points, values, queries, targets, scalars, weights, times) -> Stacked:
    """All samples as whole tensors; a mesh that they share is kept once."""
    own = values.stacked
    if own is None:
        own = values.shared.expand(targets.count, -1, -1)
    places = points.led()
    return Stacked(
        Batch(
            points=places,
            values=own,
            queries=places if queries is points else queries.led(),
            targets=targets.stacked,
            times=times,
            parameters=None if scalars is None else scalars.stacked,
            weights=None if weights is None else weights.led(),
            grid=None if points.shared is None else grid_of(points.shared),
            query_grid=None if queries.shared is None else grid_of(queries.shared),
        ),
        check=False,  # every column was
    )


def _widened(found: Column, flat: bool) -> Column:
    """With an axis for channels, and as many of them in every sample."""
    if flat:
        return found.map(lambda t: t.unsqueeze(-1))
    widths = found.sizes(-1)
    for i, width in enumerate(widths):
        if width != widths[0]:
            raise DataError(
                f"{found.name}[{i}] has {width} channels, {found.name}[0] has {widths[0]}"
            )
    return found


def _refuse_rows(rows: Column, places: Column, *, axis: int = -2) -> None:
    """Refuse rows that are not as many as the places they belong to."""
    own, theirs = rows.sizes(axis), places.sizes(-2)
    for i in range(max(len(own), len(theirs))):
        a, b = min(i, len(own) - 1), min(i, len(theirs) - 1)
        if own[a] != theirs[b]:
            ragged = rows.each is not None or places.each is not None
            where = f" in sample {i}" if ragged else ""
            hint = ""
            if places.of(b).shape[-1] == own[a]:
                turned = "[p.T for p in points]" if places.each is not None else "points.T"
                hint = f" Rows are points and columns coordinates: {places.name}="
                hint += f"{turned.replace('points', places.name)}."
            raise DataError(
                f"{rows.name} have {own[a]} rows{where} and {places.name} {theirs[b]}: one is "
                f"needed for each. Without the axis of samples {rows.name} are "
                f"{tuple(rows.of(a).shape)}, {places.name} {tuple(places.of(b).shape)}.{hint}"
            )


def _refuse_empty(places: Column) -> None:
    sizes = places.sizes(-2)
    if min(sizes) == 0:
        where = "" if places.shared is not None else f" of sample {sizes.index(0)}"
        raise DataError(f"{places.name}{where} hold no row: leave that sample out")


def _words(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


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
