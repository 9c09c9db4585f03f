"""New data for a trained model: opened as the training data were, and compared with them.

Data with other channels or coordinates are refused. Warnings are given for inputs far outside of
their range in training, and for places that look like radians.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ipot.data.argument_checks import is_whole, path_given, refuse_many_steps
from ipot.data.dataset import Ragged, Stacked
from ipot.data.facts import in_radians
from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.data.quantities import looks_like
from ipot.errors import DataError, Unsupported, shown, warn_user
from ipot.formats.detect import is_labelled as holds_labelled
from ipot.formats.open_data import OpenedData, open_data
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import by_trained_names
from ipot.formats.trajectories import KIND
from ipot.formats.xarray_files import as_dataset, is_labelled, open_series
from ipot.models._wrappers import Normalized
from ipot.models.base import Operator
from ipot.nn.globe import GLOBAL
from ipot.samples import Batch, Sample
from ipot.spec import Spec
from ipot.surrogate.inputs import is_steady, times_of

OF_TIME = ("history", "lead", "every", "season")
NAMED = ("static", "time", "sample")
"""What a series says of how its frames become samples."""


def open_as_trained(
    source: Any, *, spec: Spec, about: Mapping[str, Any], series: Series | None, targets: Any = None
) -> OpenedData:
    """Samples from a path or an xarray object, by the names that a model was trained with.

    `targets` are where the answers are, if elsewhere, as for stations in and a grid out.
    """
    if series is not None:
        return _of_series(source, series, targets)
    if targets is not None:
        raise DataError(
            "targets: the model was not trained on labelled arrays, and its answers are in the "
            "same file as its inputs: leave it out"
        )
    if is_labelled(source):
        raise Unsupported(
            "an xarray object was given, and the model was not trained on such: give a path or an "
            "ipot.Dataset"
        )
    columns = about.get("columns", {})
    told = {n: columns[n] for n in ("inputs", "targets", "parameters") if columns.get(n)}
    if columns.get("kind") == KIND:
        told |= {n: columns[n] for n in ("history", "lead", "every")}
    else:
        told |= {"where": columns.get("inputs_where", "points")}
        told |= {"geographic": True} if spec.geographic else {}
    return open_data(source, split=False, **told)


def _of_series(source: Any, series: Series, targets: Any) -> OpenedData:
    source = by_trained_names(series, _opened("data", source))
    answers = source if targets is None else _opened("targets", targets)
    if missing := [n for n in series.targets if n not in answers.variables]:
        there = ", ".join(map(str, answers.data_vars)) or "nothing"
        way = " Where they are in data of their own, give targets=... (--targets-from)."
        raise DataError(
            f"the answers to compare with are missing: {', '.join(missing)}; there is {there}."
            f"{way if targets is None else ''}"
        )
    options = {n: getattr(series, n) for n in NAMED if getattr(series, n)}
    if series.clock is not None:
        options |= {n: getattr(series, n) for n in OF_TIME}
    told: Any = series.targets
    if targets is not None:
        told = answers[list(series.targets)]
    inputs = (*series.inputs, *series.scalars)
    return open_data(source, inputs=inputs, targets=told, split=False, **options)


def _opened(name: str, given: Any) -> Any:
    """An xarray data set of an object of xarray or a path."""
    if isinstance(given, str | os.PathLike):
        path = path_given(name, given)
        if not holds_labelled(path):
            raise DataError(
                f"{name}={path}: the model was trained on labelled arrays; give netCDF, Zarr or "
                "GRIB like those"
            )
        return open_series(path)
    return as_dataset(given, name)


def one_sample(data: Any, index: int) -> Sample:
    """A sample, or the sample number `index` of a data set."""
    if isinstance(data, Sample):
        return data
    if not isinstance(data, Dataset | Stacked | Ragged):
        raise DataError(
            "sample must be an ipot.Sample, like data[0], an ipot.Dataset, an xarray object or a "
            f"path, got {type(data).__name__}"
        )
    if not is_whole(index) or not 0 <= index < len(data):
        raise DataError(
            f"sample {shown(index)}: the data have {len(data)}, which are counted from 0"
        )
    return data[int(index)]


def refuse_beside_path(told: Mapping[str, Any]) -> None:
    """Refuse arguments that are in the file already."""
    if given := [name for name, value in told.items() if value is not None]:
        raise DataError(f"{', '.join(given)}: a path was given, and what is in it goes in alone")


DEFAULT = re.compile(r"(value|target|parameter)(_\d+)?")
"""Names that data have where nobody gave any."""


def refuse_other_kind(spec: Spec, given: Spec) -> None:
    """Refuse data with other channels, coordinates or places than the model's."""
    for name in ("inputs", "outputs", "parameters"):
        own, other = getattr(spec, name), getattr(given, name)
        # Data without names count by their order; others by their names.
        own, other = _as_now(own), _as_now(other)
        if len(own) != len(other) or (own != other and _named(own) and _named(other)):
            raise DataError(
                f"the model has {len(own)} {name} ({', '.join(own) or 'none'}), the data "
                f"{len(other)} ({', '.join(other) or 'none'})"
            )
    for name, words in (
        ("dimension", "coordinates of a point"),
        ("query_dimension", "coordinates of a query"),
    ):
        own, other = getattr(spec, name), getattr(given, name)
        if own != other:
            raise DataError(f"the model has {own} {words}, the data {other}")
    if spec.geographic != given.geographic:
        raise DataError(
            "longitude and latitude: the model and the data must both have them, or neither "
            "(geographic=True)"
        )


def refuse_other_layout(spec: Spec, layout: Layout, given: Layout) -> None:
    """Refuse data of another layout: with times or without, with parameters alone or with points,
    or at times that are no steps of the model."""
    own_times = times_of(spec, layout)
    steady = layout.timed and is_steady(spec, layout)
    if steady and given.times not in ((), own_times):
        raise DataError(f"{spec.name} is steady, and the data are at times: {list(given.times)}")
    if layout.timed != given.timed and not steady:
        own, other = ("with", "without") if layout.timed else ("without", "with")
        raise DataError(f"the model was trained on targets {own} times, the data are {other} them")
    if layout.alone != given.alone:
        own, other = ("no points", "points") if layout.alone else ("points", "no points")
        raise DataError(f"the model was trained on samples with {own}, the data have {other}")
    steps = [time / spec.dt for time in given.times]
    if any(abs(step - round(step)) > 1e-3 or round(step) < 1 for step in steps):
        raise DataError(
            f"times of the data, {list(given.times)}, are no multiples of the model's step, "
            f"{spec.dt:g}"
        )
    refuse_many_steps("times of the data", max(steps, default=0.0))
    if given.times and layout.timed and max(given.times) > (1 + 1e-6) * max(own_times):
        warn_user(
            f"the data go to time {max(given.times):g}, and the model has seen "
            f"{max(own_times):g}: an extrapolation, not to be trusted",
        )


def _as_now(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of an earlier release as they are now: the last frame was called t-0."""
    return tuple(name.replace("(t-0)", "(t)") for name in names)


def warn_radians(samples: Sequence[Sample], spec: Spec) -> None:
    """Warn of places that look like radians, for a model of degrees: their latitudes are outside of
    the training region in degrees and inside in radians, or they would cover half the globe in
    radians."""
    if not spec.geographic or in_radians(spec.domain) or in_radians(spec.query_domain):
        return
    for name, domain in (("points", spec.domain), ("queries", spec.query_domain)):
        kept = {id(p): p for s in samples if (p := getattr(s, name)).numel()}
        places = [p.reshape(-1, p.shape[-1])[:, :2] for p in kept.values()]
        if not places:
            continue
        low = torch.stack([p.amin(0) for p in places]).amin(0).tolist()
        high = torch.stack([p.amax(0) for p in places]).amax(0).tolist()
        box = tuple(zip(low, high, strict=True))
        (west, east), (south, north) = box
        wide = east - west >= math.pi and north - south >= math.pi / 2
        away = high[1] < domain[1][0] or low[1] > domain[1][1]
        back = [math.degrees(v) for v in (south, north)]
        known = domain[1][0] - 1 <= back[0] and back[1] <= domain[1][1] + 1
        if in_radians(box) and (wide or (away and known)):
            warn_user(
                f"{name} have longitudes from {west:.4g} to {east:.4g} and latitudes from "
                f"{south:.4g} to {north:.4g}, which looks like radians; the model was trained in "
                "degrees (numpy.rad2deg)",
            )
            return


def _named(names: tuple[str, ...]) -> bool:
    """True if these names were given by the user."""
    return not all(DEFAULT.fullmatch(name) for name in names)


def refuse_other_sample(spec: Spec, sample: Sample, what: str = "sample is") -> None:
    """Refuse a sample with other channels or coordinates than the model's."""
    try:
        spec.check(sample)
    except DataError as error:
        raise DataError(f"{what} not of the model's kind: {error}") from error


def points_as_queries(batch: Batch, spec: Spec) -> tuple[Batch, Spec]:
    """The batch with its points as queries, to find points outside of the training region."""
    points, mask = batch.points, batch.point_mask
    if mask is not None:  # what lies in the padding is nowhere
        points = points.expand(len(mask), -1, -1)[mask].unsqueeze(0)
    nothing = {"query_mask": None, "query_grid": None, "targets": None, "weights": None}
    bare = replace(batch, queries=points, **nothing)
    return bare, replace(spec, query_domain=spec.domain, query_periods=spec.periods)


def turned(batch: Batch, spec: Spec) -> tuple[Batch, Spec]:
    """Queries and spec to find places outside of the training region with: longitudes 350 and -10
    degrees are the same, and none is outside if training went all around."""
    if not spec.geographic:
        return batch, spec
    (west, east), *_ = spec.query_domain
    if east - west >= GLOBAL[0]:
        return batch, replace(spec, query_periods=(360.0, *spec.query_periods[1:]))
    longitude, middle = batch.queries[..., :1], (west + east) / 2
    nearer = longitude - 360.0 * torch.round((longitude - middle) / 360.0)
    return replace(batch, queries=torch.cat([nearer, batch.queries[..., 1:]], -1)), spec


MARGIN = 3.0
"""Times the range of training that a single number may lie outside of it before that is remarked
on: of what varies wildly, the next sample may well reach beyond all others."""
USUAL_MARGIN, MANY = 1.0, 0.25
"""Times the usual range of training, and the part of an input that may lie so far outside of it."""
NAMED_AT_MOST = 3
"""Channels that a remark names: ten past frames are all alike."""
DEVIATIONS = 20.0
"""Standard deviations from the mean that stand for this, in models that do not know their range."""
REACH = 3.0
"""Standard deviations that their range is taken to reach from the mean."""

Ends = tuple[Tensor, Tensor]
"""The smallest and the largest number of every channel, in float64."""


class Seen(NamedTuple):
    """What a model has seen of every channel in training."""

    all: Ends
    """The smallest and the largest number."""
    usual: Ends
    """Between these lie nearly all."""
    single: Ends
    """No number of an input should lie outside of these,"""
    many: Ends
    """and few outside of these."""
    known: Ends | None = None
    """Mean and deviation, where the rest is reckoned from them and is nothing to tell a user."""


def seen_in_training(model: Operator, layout: Layout | None = None) -> dict[str, Seen]:
    """The range of values and parameters in training, from the model's layout or its scales."""
    found: dict[str, Seen] = {}
    scales = next((m for m in model.modules() if isinstance(m, Normalized)), None)
    for name, prefix in (("values", "input"), ("parameters", "parameter")):
        if layout is not None and layout.span(name)[0]:
            whole, usual = (
                (torch.tensor(low).double(), torch.tensor(high).double())
                for low, high in (layout.span(name), layout.usual(name))
            )
            few, width = whole[1] - whole[0], usual[1] - usual[0]
            # A channel that never changed says nothing of its range, but any other value is new.
            few = torch.where(few > 0, MARGIN * few, 1e-3 * whole[1].abs())
            # Nor does one that is nearly always the same.
            width = torch.where(width > 0, USUAL_MARGIN * width, few)
            found[name] = Seen(whole, usual, _around(whole, few), _around(usual, width))
        elif scales is not None:
            mean, scale = (
                getattr(scales, f"{prefix}_{n}").double().cpu() for n in ("mean", "scale")
            )
            near = _around((mean, mean), REACH * scale)
            far = _around((mean, mean), DEVIATIONS * scale)
            found[name] = Seen(near, near, far, far, (mean, scale))
    return found


def _around(ends: Ends, margin: Tensor) -> Ends:
    return ends[0] - margin, ends[1] + margin


def ends_of(samples: Iterable[Sample]) -> dict[str, Ends]:
    """The range of values and parameters in samples; a shared tensor is read once."""
    found: dict[str, Ends] = {}
    read: set[int] = set()
    for sample in samples:
        for name in ("values", "parameters"):
            column = getattr(sample, name)
            if column is None or not column.numel() or id(column) in read:
                continue
            read.add(id(column))
            low, high = torch.aminmax(column.reshape(-1, column.shape[-1]), dim=0)
            if name in found:
                low, high = torch.minimum(low, found[name][0]), torch.maximum(high, found[name][1])
            found[name] = low, high
    return {n: (low.double().cpu(), high.double().cpu()) for n, (low, high) in found.items()}


def warn_unlike(
    samples: Sequence[Sample],
    seen: dict[str, Seen],
    spec: Spec,
    layout: Layout | None = None,
) -> None:
    """Give one warning that names the channels which are far outside of their range in training:
    by a single number that is very far outside, or by many that are outside of what is usual."""
    said, given = [], ends_of(samples)
    for name, labels, units in (
        ("values", spec.inputs, spec.input_units),
        ("parameters", spec.parameters, spec.parameter_units),
    ):
        if name not in given or name not in seen:
            continue
        (low, high), known = given[name], seen[name]
        if len(low) != len(known.all[0]):
            continue  # of another model, which is refused by name where the batch is looked at
        single = (low < known.single[0]) | (high > known.single[1])
        many = (low < known.many[0]) | (high > known.many[1])
        if many.any():  # and not for nothing: it takes another look at all numbers
            many &= _part_outside(samples, name, known.many) > MANY
        scaling = None if layout is None else layout.scaling(name)
        for i, label in enumerate(labels):
            ends = _given(scaling, low, i), _given(scaling, high, i)
            trained = _given(scaling, known.all[0], i), _given(scaling, known.all[1], i)
            other = looks_like(units[i], ends, trained) if i < len(units) else None
            if not single[i] and not many[i] and other is None:
                continue
            unit = f" {units[i]}" if i < len(units) else ""
            if known.known is not None:
                mean = _given(scaling, known.known[0], i)
                factor = 1 if scaling is None else abs(scaling.scale[i])
                deviation = known.known[1][i].item() * factor
                was = f"it had {mean:.6g}{unit} with a deviation of {deviation:.3g}"
            elif single[i] or other is not None:
                was = f"from {trained[0]:.6g} to {trained[1]:.6g}{unit}"
            else:
                usual = [_given(scaling, end, i) for end in known.usual]
                was = f"nearly all of it from {usual[0]:.6g} to {usual[1]:.6g}{unit}"
            said.append(
                f"{label} ({name}) goes from {ends[0]:.6g} to {ends[1]:.6g}, in training {was}"
                + (f": this looks like {other}" if other is not None else "")
            )
    if said:
        more = f"; and {len(said) - NAMED_AT_MOST} more" if len(said) > NAMED_AT_MOST else ""
        named = "; ".join(said[:NAMED_AT_MOST]) + more
        warn_user(
            f"inputs far outside of those that the model has seen: {named}. The answer "
            "is an extrapolation, not to be trusted; check the units.",
        )


def _part_outside(samples: Iterable[Sample], name: str, ends: Ends) -> Tensor:
    """Which part of the numbers of every channel lies outside of some ends: the largest such part
    of any sample."""
    found = torch.zeros(len(ends[0]), dtype=torch.float64)
    for sample in samples:
        column = getattr(sample, name)
        if column is None or not column.numel():
            continue
        rows = column.reshape(-1, column.shape[-1])
        low, high = (end.to(rows) for end in ends)
        part = ((rows < low) | (rows > high)).double().mean(0).cpu()
        found = torch.maximum(found, part)
    return found


def _given(scaling: Any, numbers: Sequence[float] | Tensor, channel: int) -> float:
    """A number in the units of the user's data."""
    held = float(numbers[channel])
    return held if scaling is None else held * scaling.scale[channel] + scaling.offset[channel]
