"""How arrays were given, in which units they are held, and samples brought from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ipot.data.arrays import array, is_listed, spans_of
from ipot.data.dataset import Dataset as Samples
from ipot.data.dataset import Ragged, Stacked
from ipot.data.facts import place_scalings
from ipot.data.quantities import Agreement, behind
from ipot.data.scaling import (
    FAR,
    HELD,
    LOST,
    Scaling,
    Span,
    scaling_of,
    warn_outliers,
    warn_vanished,
)
from ipot.errors import DataError, shown
from ipot.samples import Sample
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the arrays were given, so that answers are given back alike."""

    flat_values: bool = False
    """Values had no axis for channels."""
    flat_targets: bool = False
    """Targets had no axis for channels."""
    flat_parameters: bool = False
    timed: bool = False
    """Targets had an axis for times."""
    origin: tuple[float, ...] = ()
    """Taken off the coordinates, which would be rounded too much so far from zero."""
    curved: bool = False
    """Places had the axes of a grid whose lines are not straight."""
    own_points: bool = False
    """Points were an array (S, N, D), rows for every sample: such arrays are no grid later."""
    own_queries: bool = False
    """Queries were an array (S, M, E), rows for every sample."""
    alone: bool = False
    """Samples had no points: their parameters alone tell them apart."""
    times: tuple[float, ...] = ()
    """Those of the targets, where they had any."""
    origin_scale: tuple[float, ...] = ()
    """What coordinates, less their origin, are divided by where float32 has no such numbers."""
    query_origin: tuple[float, ...] = ()
    """The origin of queries that have other coordinates than the points."""
    query_scale: tuple[float, ...] = ()
    value_offset: tuple[float, ...] = ()
    """Taken off every channel of the values in float64; then they are divided by the scale.
    Nothing is where these are empty."""
    value_scale: tuple[float, ...] = ()
    target_offset: tuple[float, ...] = ()
    target_scale: tuple[float, ...] = ()
    parameter_offset: tuple[float, ...] = ()
    parameter_scale: tuple[float, ...] = ()
    value_low: tuple[float, ...] = ()
    """The smallest and the largest number of every channel in training, less their offset."""
    value_high: tuple[float, ...] = ()
    target_low: tuple[float, ...] = ()
    target_high: tuple[float, ...] = ()
    parameter_low: tuple[float, ...] = ()
    parameter_high: tuple[float, ...] = ()
    value_usual_low: tuple[float, ...] = ()
    """Between these lie all but a few of the numbers of training (`data/ranges.py`)."""
    value_usual_high: tuple[float, ...] = ()
    target_usual_low: tuple[float, ...] = ()
    target_usual_high: tuple[float, ...] = ()
    parameter_usual_low: tuple[float, ...] = ()
    parameter_usual_high: tuple[float, ...] = ()

    def scaling(self, what: str) -> Scaling | None:
        """The change of units that points, queries, values, targets or parameters are held in."""
        if what == "queries" and not (self.query_origin or self.query_scale):
            what = "points"
        names = ("origin", "origin_scale") if what == "points" else _FIELDS[what]
        offset, scale = (getattr(self, name) for name in names)
        if not offset and not scale:
            return None
        return Scaling(offset or (0.0,) * len(scale), scale or (1.0,) * len(offset))

    def scalings(self) -> dict[str, Scaling]:
        """All changes of units that there are."""
        return {n: s for n in ("points", *_FIELDS) if (s := self.scaling(n)) is not None}

    def with_scaling(self, what: str, scaling: Scaling | None) -> Layout:
        """This layout with a change of units for one of them."""
        offset, scale = ((), ()) if scaling is None else (scaling.offset, scaling.scale)
        if what == "points":
            # Origins alone are what models had before there were scales.
            scale = () if all(s == 1 for s in scale) else scale
        names = ("origin", "origin_scale") if what == "points" else _FIELDS[what]
        return replace(self, **dict(zip(names, (offset, scale), strict=True)))

    def span(self, what: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The smallest and largest numbers of training, as they are held; empty where unknown."""
        name = what.removesuffix("s")
        return getattr(self, f"{name}_low"), getattr(self, f"{name}_high")

    def usual(self, what: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Between which numbers nearly all of training lie, as they are held; models of earlier
        releases know the smallest and largest alone, or nothing."""
        name = what.removesuffix("s")
        low, high = getattr(self, f"{name}_usual_low"), getattr(self, f"{name}_usual_high")
        return (low, high) if low else self.span(what)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what there is no need to say is left out, as it was before."""
        return {k: v for k, v in asdict(self).items() if v != () or k in _ALWAYS}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Layout:
        """A layout from JSON, which somebody may have edited."""
        kinds = {f.name: bool if f.type == "bool" else tuple for f in fields(cls)}
        if unknown := sorted(set(content) - set(kinds)):
            raise DataError(f"layout: unknown {', '.join(unknown)}; known: {', '.join(kinds)}")
        settings: dict[str, Any] = {}
        for name, value in content.items():
            if kinds[name] is bool and isinstance(value, bool):
                settings[name] = value
            elif kinds[name] is tuple and _numbers(value):
                settings[name] = tuple(float(v) for v in value)
            else:
                wanted = "true or false" if kinds[name] is bool else "a list of numbers"
                raise DataError(f"layout: {name} must be {wanted}, got {shown(value)}")
        return cls(**settings)


_ALWAYS = ("origin", "times")
_FIELDS = {
    "queries": ("query_origin", "query_scale"),
    **{f"{n}s": (f"{n}_offset", f"{n}_scale") for n in ("value", "target", "parameter")},
}


def _numbers(value: Any) -> bool:
    """Whether a value from JSON is a list of numbers."""
    return isinstance(value, list | tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    )


CHANNELS = {"values": "inputs", "targets": "outputs", "parameters": "parameters"}
"""Columns of a sample whose channels have units, and what a `Spec` calls their names."""


def with_places(layout: Layout, points: Any, queries: Any, *, geographic: bool) -> Layout:
    """A layout with the changes of units that places need."""
    here, there = place_scalings(points, queries, geographic=geographic)
    if points is None or queries is None or here == there:
        return layout.with_scaling("points", here or there)
    if there is None:  # of other coordinates: the origin of the points is not theirs
        first = array("queries", queries[0] if is_listed(queries) else queries)
        there = Scaling.none(first.shape[-1] if first.ndim > 1 else 1)
    return layout.with_scaling("points", here).with_scaling("queries", there)


def scaled_samples(
    samples: Sequence[Sample], layout: Layout, *, history: int, geographic: bool
) -> tuple[list[Sample], Layout]:
    """Samples in float32, with the changes of units that their numbers need."""
    units = samples[0].units
    if units and all(s.units == units for s in samples):
        for name, scaling in units.items():
            if name != "queries" or scaling != units.get("points"):
                layout = layout.with_scaling(name, scaling)
        return converted(samples, {}), layout
    samples = _as_given(samples)
    points = [s.points for s in samples] if len(samples[0].points) else None
    layout = with_places(layout, points, [s.queries for s in samples], geographic=geographic)
    found: dict[str, list[Span] | None] = {}
    looked_at: dict[str, Any] = {}
    for name in CHANNELS:
        columns = [getattr(s, name) for s in samples]
        found[name] = None
        if columns[0] is not None and columns[0].shape[-1]:
            arrays = [array(f"{name} of samples[{i}]", c) for i, c in enumerate(columns)]
            found[name] = spans_of(name, arrays, columns[0].shape[-1])
            looked_at[name] = arrays, found[name]
    past, targets = [], found["targets"]
    if history and found["values"] is not None and targets is not None:
        # An answer becomes an input again: a field has the same units in all of its frames.
        width = len(targets)
        past, found["values"] = _cut(found["values"], history * width)
        for i, span in enumerate(past):
            targets[i % width] = targets[i % width].join(span)
    scalings = {name: scaling_of(name, found[name]) for name in CHANNELS}
    if past:
        scalings["values"] = _behind(scalings["targets"], len(past), scalings["values"], found)
    for name in CHANNELS:
        layout = layout.with_scaling(name, scalings[name])
    for name, (arrays, spans) in looked_at.items():
        warn_outliers(name, arrays, spans, scalings[name])
    changes: dict[str, Change] = {}
    changes |= {n: (None, layout.scaling(n)) for n in ("points", "queries", *CHANNELS)}
    made, scaling = converted(samples, changes), scalings["targets"]
    if looked_at.get("targets") and not (scaling and any(scaling.offset)):
        warn_vanished(looked_at["targets"][0], [s.truth for s in made])
    return made, layout


def _as_given(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Samples in the units that their numbers were given in, in float64 where those changed."""
    if not any(s.units for s in samples):
        return samples
    # Those that share units also share tensors, as of a mesh: they are changed together.
    together: list[tuple[Any, list[int]]] = []
    for i, sample in enumerate(samples):
        same = next((rows for units, rows in together if units == sample.units), None)
        if same is None:
            together.append((sample.units, [i]))
        else:
            same.append(i)
    found = list(samples)
    for units, rows in together:
        changes: dict[str, Change] = {n: (scaling, None) for n, scaling in (units or {}).items()}
        if not changes:
            continue
        some = converted([samples[i] for i in rows], changes, wide=tuple(changes))
        for i, sample in zip(rows, some, strict=True):
            found[i] = replace(sample, units=None)
    return found


def _cut(spans: list[Span], count: int) -> tuple[list[Span], list[Span] | None]:
    return spans[:count], spans[count:] or None


def _behind(
    frame: Scaling | None, count: int, rest: Scaling | None, found: dict[str, Any]
) -> Scaling | None:
    """The change of units of past frames, `count` channels of them, and of the channels behind."""
    if frame is None and rest is None:
        return None
    frame = frame or Scaling.none(len(found["targets"]))
    rest = rest or Scaling.none(len(found["values"] or ()))
    width = len(frame.offset)
    return Scaling(
        (*(frame.offset[i % width] for i in range(count)), *rest.offset),
        (*(frame.scale[i % width] for i in range(count)), *rest.scale),
    )


Change = tuple[Scaling | None, Scaling | None]
"""The units that numbers are in, and those that they are to be in."""


def converted(
    samples: Sequence[Sample], changes: dict[str, Change], wide: Sequence[str] = ()
) -> list[Sample]:
    """Samples in float32 and other units; tensors that samples share are changed once, and stay
    shared. Those of `wide` names stay in float64."""
    kept: dict[tuple[int, Change], Tensor] = {}

    def one(name: str, given: Tensor) -> Any:
        change = changes.get(name, (None, None))
        key = id(given), change
        if key not in kept:
            kept[key] = _changed(name, given, *change, wide=name in wide)
        return kept[key]

    names = ("points", "queries", *CHANNELS, "weights")
    # The samples are kept until all are made, so that no id is given away twice.
    rows = [{n: t for n in names if (t := getattr(s, n)) is not None} for s in samples]
    return [
        replace(s, **{n: one(n, t) for n, t in row.items()})
        for s, row in zip(samples, rows, strict=True)
    ]


def carried(
    data: Stacked | Ragged, spec: Spec, own: Layout, other: Layout, wide: Sequence[str] = ()
) -> list[Sample]:
    """Samples in the units of another layout, by way of float64; `wide` names stay in it."""
    changes: dict[str, Change] = {}
    for name in ("points", "queries", *CHANNELS):
        before, after = own.scaling(name), other.scaling(name)
        if before == after:
            continue
        if name in CHANNELS:
            _refuse_lost(name, getattr(spec, CHANNELS[name]), data, before, other)
        changes[name] = before, after
    return converted([data[i] for i in range(len(data))], changes, wide)


UNITS = {"values": "input_units", "targets": "units", "parameters": "parameter_units"}
"""Columns of a sample, and what a `Spec` calls the units that their channels are declared in."""


def in_units_of(layout: Layout, own: Spec, other: Spec) -> tuple[Layout, Spec]:
    """The layout and the facts of data whose numbers are taken in the units that others declare.

    What is held stays as it is: only what it is counted from and in is another.
    """
    agreed, facts = Agreement("the model"), own
    for name, key in UNITS.items():
        labels, given, wanted = getattr(own, CHANNELS[name]), getattr(own, key), getattr(other, key)
        if not given or len(given) != len(wanted):
            continue  # where there are other channels, that is refused elsewhere
        channels = zip(labels, given, wanted, strict=True)
        changes = [agreed.change(label, a, b, source="the data") for label, a, b in channels]
        if any(changes):
            layout = layout.with_scaling(name, behind(layout.scaling(name), changes))
            facts = replace(facts, **{key: wanted})
    agreed.say()
    return layout, facts


def counted_by(sample: Sample, layout: Layout) -> Sample:
    """A sample in the units of a layout, by way of float64; a sample that says nothing of its units
    is in those that it was given in."""
    own: Mapping[str, Any] = sample.units or {}
    names = ("points", "queries", *CHANNELS)
    changes: dict[str, Change] = {n: (own.get(n), layout.scaling(n)) for n in names}
    changes = {n: (before, after) for n, (before, after) in changes.items() if before != after}
    if not changes:
        return sample
    return replace(converted([sample], changes)[0], units=layout.scalings())


def spans_held(data: Samples) -> dict[str, Any]:
    """The smallest and largest numbers of all channels, as fields of a layout."""
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for columns in data.columns():
        for name, column in zip(CHANNELS, columns, strict=True):
            if column is None or not column.numel():
                continue
            low, high = torch.aminmax(column.reshape(-1, column.shape[-1]), dim=0)
            if name in found:
                low = torch.minimum(low, found[name][0])
                high = torch.maximum(high, found[name][1])
            found[name] = low, high
    return {
        f"{name.removesuffix('s')}_{end}": tuple(ends[i].double().tolist())
        for name, ends in found.items()
        for i, end in enumerate(("low", "high"))
    }


def _changed(
    name: str, given: Tensor, before: Scaling | None, after: Scaling | None, *, wide: bool
) -> Tensor:
    """A tensor in other units, in float32 or float64."""
    if before is None and after is None:
        return given.detach().resolve_neg().float()
    whole = array(name, given)
    whole = whole if before is None else before.undo(whole, "data")
    held = torch.from_numpy(whole if after is None else after.apply(whole))
    held = held.double() if wide else held.float()
    if not bool(torch.isfinite(held).all()):
        raise DataError(
            f"data: {name} are too far from those that the model was trained on to be counted in "
            "its units. Check that they are in the same units as those."
        )
    return held.to(given.device)


def _refuse_lost(
    name: str, labels: Sequence[str], data: Stacked | Ragged, before: Scaling | None, other: Layout
) -> None:
    """Refuse data that were rounded by too much for a model that tells finer numbers apart."""
    low, high = other.span(name)
    held = spans_held(data)
    if not low or f"{name.removesuffix('s')}_low" not in held:
        return
    ends = [held[f"{name.removesuffix('s')}_{end}"] for end in ("low", "high")]
    own = before or Scaling.none(len(low))
    theirs = other.scaling(name) or Scaling.none(len(low))
    for i, label in enumerate(labels):
        largest = abs(ends[0][i]) * own.scale[i]
        if name != "targets" and ends[0][i] == ends[1][i] and largest > FAR:
            continue  # one number for all: had float32 rounded it, it would be an offset by now
        rounded = HELD * max(abs(ends[0][i]), abs(ends[1][i])) * own.scale[i]
        spread = (high[i] - low[i]) * theirs.scale[i]
        if spread and rounded > LOST * spread:
            raise DataError(
                f"data: {name} of {label} are rounded by {rounded:.1g} here, and the model was "
                f"trained on numbers that differ by {spread:.3g} in all. Make one data set of more "
                "samples, which then tells such numbers apart."
            )
