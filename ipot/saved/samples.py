"""A few samples beside a saved model, to try it with: samples.npz.

Its arrays are called points, values, queries, targets, parameters and times, as far as the model
has them, with an axis for samples in front, of length one where all samples share the array. They
are in the user's own units and in the form that `Surrogate.predict` takes: without an axis for
channels or times where the training data had none. Of samples that are too large, as of a million
points, some places are kept, and `whole` has the numbers of points and queries that there were.
Numbers that the model holds in other units are
float64, since float32 could round away what tells them apart.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ipot.data.layout import Layout
from ipot.samples import Sample

SAMPLES = "samples.npz"
MOST = 400_000
"""Bytes that the archive should have at most."""
EXACT = ((8, "float32"), (4, "float32"), (2, "float32"), (1, "float32"))
"""How many samples to try to keep, and in which numbers: the first that fits is taken."""
PACKED = 4
"""Times as many bytes before compression are not tried at all: so far numbers rarely shrink."""
LEAST = 200
"""Places of a sample that was too large; fewer show nothing of it."""


def archive(data: Any, layout: Layout, kept: Sequence[tuple[int, str]] = EXACT) -> bytes:
    """The first samples of a data set as an npz archive: as many as fit into `MOST` bytes and have
    one size, or what `kept` ends with. Values and targets have the numbers that it names."""
    content = b""
    for count, kind in kept:
        some = [data[i] for i in range(min(count, len(data)))]
        if len({_sizes(sample) for sample in some}) > 1:
            continue
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays(some, layout, kind))
        content = buffer.getvalue()
        if len(content) <= MOST:
            break
    return content


def archive_if_small(data: Any, layout: Layout, *, thin: bool = True) -> bytes | None:
    """The archive of exact numbers. Where not even one sample is small enough, some places of the
    first one stand for it, if it may be `thin`; None if not."""
    first = data[0]
    held = sum(part.numel() for part in _parts(first).values()) * np.dtype(np.float32).itemsize
    if held <= PACKED * MOST:
        content = archive(data, layout)
        if len(content) <= MOST:
            return content
    return _thinned(first, layout) if thin else None


def _thinned(sample: Sample, layout: Layout) -> bytes | None:
    """The archive of a sample at as many of its places, drawn at random, as fit; None where those
    are too few to show anything. `whole` says how many points and queries there were."""
    points, queries = len(sample.points), sample.queries.shape[-2]
    same = points == queries and torch.equal(sample.points, sample.queries)
    places = {"points": points, "queries": queries}
    parts = _parts(sample)
    most = max(places.values())
    each = sum(part.numel() for name, part in parts.items() if name != "parameters") / most
    rows = int(MOST / (np.dtype(np.float32).itemsize * each))
    random = np.random.default_rng(0)
    order = {name: random.permutation(count) for name, count in places.items()}
    if same:
        order["queries"] = order["points"]
    while rows >= LEAST:
        kept = {name: torch.from_numpy(np.sort(found[:rows])) for name, found in order.items()}
        here, there = kept["points"], kept["queries"]
        thin = replace(
            sample,
            points=sample.points.cpu()[here],
            values=sample.values.cpu()[here],
            queries=sample.queries.cpu().index_select(-2, there),
            targets=sample.truth.cpu().index_select(-2, there),
            weights=None,
            edges=None,
            grid=None,
            query_grid=None,
        )
        buffer = io.BytesIO()
        whole = np.array([[points, queries]])
        np.savez_compressed(buffer, allow_pickle=False, **arrays([thin], layout), whole=whole)
        if len(buffer.getvalue()) <= MOST:
            return buffer.getvalue()
        rows = rows * 3 // 4
    return None


def arrays(some: Sequence[Sample], layout: Layout, kind: str = "float32") -> dict[str, np.ndarray]:
    """Samples of one size as arrays by name; what all share has a first axis of length one."""
    found: dict[str, np.ndarray] = {}
    for name in _parts(some[0]):
        parts = [getattr(sample, name) for sample in some]
        # An axis of values and targets always counts the samples.
        fields = name in ("values", "targets")
        same = not fields and all(torch.equal(part, parts[0]) for part in parts[1:])
        whole = torch.stack(parts[:1] if same else parts).cpu()
        scaling = layout.scaling(name)
        if scaling is not None:
            found[name] = _as_given(name, scaling.undo(whole, name), layout)
        else:
            numbers = whole.numpy().astype(kind if fields else np.float32)
            found[name] = _as_given(name, numbers, layout)
    if layout.timed:
        found["times"] = np.array(some[0].times)
    return found


def _parts(sample: Sample) -> dict[str, torch.Tensor]:
    """The arrays that a sample has: without points that are none, and values without channels."""
    names = ("points", "values", "queries", "targets", "parameters")
    held = {name: getattr(sample, name) for name in names}
    return {name: part for name, part in held.items() if part is not None and part.numel()}


def _sizes(sample: Sample) -> tuple[Any, ...]:
    return tuple((name, tuple(part.shape)) for name, part in _parts(sample).items())


def _as_given(name: str, whole: np.ndarray, layout: Layout) -> np.ndarray:
    """Arrays (S, ...) without the axes that the user's had not."""
    if name == "targets" and not layout.timed:
        whole = whole[:, 0]
    flat = {
        "values": layout.flat_values,
        "targets": layout.flat_targets,
        "parameters": layout.flat_parameters,
    }
    return whole[..., 0] if flat.get(name, False) else whole
