"""What must hold of whatever comes back, without knowing the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from campaign.attack import Lost
from campaign.attacks._array_cases import Given

HELD = 2.0**-24
"""How far float32 rounds, as a part of the number."""
FAR = 1000.0
"""Times their spread that numbers may lie from zero before float32 is not good enough."""
BESIDE = 1e20
"""Times their own spread that points and queries may lie apart, which are counted from one origin
in units of their common extent."""
CLOSE = 1e-6
"""Of the spread: what a data set may lose of numbers that are further away."""
NOISE = 64
"""Steps of the precision that numbers came in: what differs by less may count as one number."""
NOTHING = 1e-37
"""What float32 does not hold well beside numbers of size one."""
ENDLESS = 1e299
"""A relative error that may be anything from here on."""
ALIKE = 1e-4
"""Of the largest answer: what answers to the same question may differ by."""


def numbers(value: Any) -> list[np.ndarray]:
    """The arrays in an answer, whatever holds them."""
    if isinstance(value, list | tuple):
        found = [a for v in value for a in numbers(v)]
        # Answers to a list are a list, of the same numbers.
        return [np.stack(found)] if found and len({a.shape for a in found}) == 1 else found
    if hasattr(value, "data_vars"):
        return [np.asarray(v.values) for v in value.data_vars.values()]
    return [np.asarray(getattr(value, "values", value))]


def finite(value: Any, what: str) -> None:
    """Refuse answers that are not finite numbers."""
    for found in numbers(value):
        if found.dtype.kind != "f":
            raise Lost(f"{what} is of the kind {found.dtype}")
        if not np.isfinite(found).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
            raise Lost(f"{what} is {found[place]} at {place}, and nobody said so")


def alike(one: Any, other: Any, what: str) -> None:
    """Refuse answers to the same question that differ."""
    first, second = numbers(one), numbers(other)
    if [a.shape for a in first] != [b.shape for b in second]:
        raise Lost(f"{what}: shapes {[a.shape for a in first]}, {[b.shape for b in second]}")
    for a, b in zip(first, second, strict=True):
        if not a.size:
            continue
        off = float(np.abs(a.astype(np.float64) - b).max())
        size = float(np.abs(b).max())
        if not off <= ALIKE * size:
            raise Lost(f"{what}: answers of size {size:.3g} differ by {off:.3g}")


def answered(answer: Any, asked: Given) -> None:
    """Refuse answers that are not finite, or not one for each place that was asked for."""
    finite(answer, "the answer")
    # Queries that nobody can tell the number of say nothing, and the points nothing beside them.
    where = asked.plain.get("queries" if "queries" in asked.values else "points")
    if where is None or isinstance(where, list) or where.ndim < 2:
        return
    rows = int(np.prod(where.shape[:-1]))
    if where.ndim == 2 and any(a.size % rows for a in numbers(answer)):
        raise Lost(f"{rows} places were asked for, the answer is {numbers(answer)[0].shape}")


def in_own_units(data: Any, name: str) -> list[np.ndarray]:
    """What a data set holds of an argument, sample by sample, as it was given."""
    layout = data.layout
    rows = [getattr(s, name).detach().double().numpy().astype(np.longdouble) for s in data]
    if hasattr(layout, "scaling"):  # a change of units for every argument
        scaling = layout.scaling(name)
        if scaling is None:
            return rows
        offset, scale = (np.asarray(v, np.longdouble) for v in (scaling.offset, scaling.scale))
        return [r * scale + offset for r in rows]
    if name in ("points", "queries") and layout.origin:
        return [r + np.asarray(layout.origin, np.longdouble) for r in rows]
    return rows


def holds(data: Any, meant: Given, among: np.ndarray | None = None) -> None:
    """Refuse a data set that does not hold the numbers that were given, as well as float32 holds
    each channel, or a channel of all numbers that are in the same units, where these are told."""
    count = len(data)
    for name in ("targets", "values", "parameters", "points", "queries"):
        plain = meant.plain.get(name)
        if plain is None or (name == "points" and not len(data[0].points)):
            continue
        if data.spec.geographic and name in ("points", "queries"):
            continue  # degrees need no digits beyond those of the globe
        found = in_own_units(data, name)
        if not found[0].size:
            continue
        wanted = [_own(name, plain, i, f, count) for i, f in enumerate(found)]
        channels = found[0].shape[-1]
        have = [f.reshape(-1, channels) for f in found]
        ends = np.concatenate(wanted) if among is None else among.reshape(-1, 1)
        span = _Span.of(ends.astype(np.longdouble))
        _close(name, have, wanted, span, _precision(meant, name), _extent(meant, name, channels))


def _precision(meant: Given, name: str) -> float:
    """The relative step between numbers as they were given."""
    given = meant.values[name]
    one = given[0] if isinstance(given, list | tuple) and len(given) else given
    dtype = str(getattr(one, "dtype", "float64"))
    steps = {"float16": 2**-10, "float32": 2**-23, "bfloat16": 2**-7, "float8": 2**-3}
    return next((s for kind, s in steps.items() if kind in dtype), 2.0**-52)


def _own(name: str, plain: Any, index: int, found: np.ndarray, count: int) -> np.ndarray:
    """The numbers of one sample among those that were given, in the shape that was found."""
    whole = plain if isinstance(plain, list) else np.asarray(plain)
    if not isinstance(whole, list) and name in ("points", "queries") and whole.size == found.size:
        own = whole  # one mesh for all
    elif len(whole) == count:
        own = np.asarray(whole[index])
    else:
        raise Lost(f"{name}: {len(whole)} samples were given, and {count} are held")
    if own.size != found.size:
        raise Lost(f"{name}: a sample of shape {own.shape} is held as {found.shape}")
    return own.astype(np.longdouble).reshape(-1, found.shape[-1])


def _extent(meant: Given, name: str, axes: int) -> Any:
    """How far points and queries reach along every axis, if they have the same axes; 0 of others.

    Those that lie close together beside the others are rounded by more than they need alone.
    """
    if name not in ("points", "queries"):
        return 0.0
    ends = []
    for places in (meant.plain.get(n) for n in ("points", "queries")):
        for a in places if isinstance(places, list) else [] if places is None else [places]:
            rows = np.asarray(a).astype(np.longdouble)
            if rows.ndim > 1 and rows.shape[-1] == axes and rows.size:
                rows = rows.reshape(-1, axes)
                ends += [rows.min(0), rows.max(0)]
    return np.ptp(np.stack(ends), axis=0) if ends else 0.0


class _Span(NamedTuple):
    """The ends of channels."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> _Span:
        none = np.zeros(rows.shape[1:], np.longdouble)
        return cls(rows.min(0), rows.max(0)) if rows.size else cls(none, none)


def _close(
    name: str, found: list[Any], wanted: list[Any], span: _Span, precision: float, extent: Any
) -> None:
    have, want = np.concatenate(found), np.concatenate(wanted)
    if not want.size:
        return
    low, high = (np.broadcast_to(end, want.shape[1:]) for end in span)
    spread, largest = high - low, np.maximum(np.abs(low), np.abs(high))
    rounded = HELD * largest * 1.01
    near = (largest <= 1.01 * FAR * spread) | (spread <= NOISE * precision * largest)
    allowed = CLOSE * spread + np.where(near, rounded, 0)
    allowed += np.where(spread <= NOISE * precision * largest, spread, 0)
    # Places that are all alike need not be told apart, however far the others reach.
    beside = (extent <= BESIDE * spread) | (spread == 0)
    allowed += np.where(beside, HELD * extent * 1.01, 0)
    # What is tiny beside the others is among the smallest numbers of float32, in common units.
    allowed += np.where(extent > 1e-20, 2.0**-149 * np.maximum(extent, 1), 0)
    # Numbers at the edge of float64 have few digits themselves.
    allowed += 2e-323
    off = np.abs(have - want).max(0)
    if not (off <= allowed).all():
        c = int(np.argmax(~(off <= allowed)))
        raise Lost(
            f"{name}: channel {c} spans {float(low[c]):.6g} to {float(high[c]):.6g} and is held "
            f"with an error of {float(off[c]):.3g}, {float(allowed[c]):.3g} are allowed"
        )


def same_sample(one: Any, other: Any, what: str) -> None:
    """Refuse samples that differ in a single bit."""
    for name in ("points", "values", "queries", "targets", "parameters", "weights"):
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None) or (a is not None and not a.equal(b)):
            raise Lost(f"{what}: {name} of a sample are not those that were there")
    if one.times != other.times:
        raise Lost(f"{what}: times {one.times} became {other.times}")


def scored(scores: Any, answers: Any, targets: Any) -> None:
    """Refuse relative errors that are not those of the answers, as counted here."""
    sizes = [np.sqrt((np.asarray(t, np.longdouble) ** 2).sum()) for t in targets]
    for i, (answer, target) in enumerate(zip(answers, targets, strict=True)):
        a, t = np.asarray(answer, np.longdouble), np.asarray(target, np.longdouble)
        norm = sizes[i]
        if norm < NOTHING * max(sizes):
            continue  # zero beside the others, of which a warning was given: errors are absolute
        wanted = float(np.sqrt(((a - t) ** 2).sum()) / norm) if norm > 0 else None
        if wanted is not None and wanted > ENDLESS:
            wanted = None
        found = scores.per_sample[i]
        # Answers and targets that agree in most of their digits leave few for the error.
        if wanted is not None and abs(found - wanted) > 1e-3 * wanted + 1e-5:
            raise Lost(f"the relative error of sample {i} is {wanted:.6g}, and {found:.6g} is said")
