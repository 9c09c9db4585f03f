"""Your own data: arrays in, a data set out that knows what it is.

data = ipot.Dataset.from_arrays(points=x, values=a, queries=y, targets=u)
train, test = data.split(0.8)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch

from ipot.data.argument_checks import (
    flag,
    fraction,
    is_row,
    is_whole,
    refuse_unknown_units,
    row,
    rows,
    seed_given,
    text,
    units_of,
)
from ipot.data.arrays import Column, array, column, is_listed, same_count
from ipot.data.dataset import Ragged, Stacked
from ipot.data.facts import bounds, named, periods_of, snapped, step_of
from ipot.data.layout import (
    CHANNELS,
    Layout,
    carried,
    in_units_of,
    scaled_samples,
    spans_held,
    with_places,
)
from ipot.data.samples_from_arrays import (
    held,
    joined,
    listed,
    places,
    refuse_transposed,
    refuse_weights,
    structure,
    unrolled,
)
from ipot.errors import DataError, UnknownName, shown
from ipot.samples import Sample
from ipot.spec import Spec

__all__ = ["Dataset", "Layout"]

FACTS = (
    *("inputs", "outputs", "parameter_names", "units", "periods", "geographic", "history"),
    "name",
)
"""What may be told of samples, besides what is found in them."""


BY_KEYWORDS = (
    "{what} takes arrays by their names, got {got}: ipot.Dataset.from_arrays(points=x, values=a, "
    "targets=u), where x are places (N, D), a what is known there and u what is learned, samples "
    "first. ipot.fit takes the data set."
)


@dataclass(frozen=True, eq=False)
class InTime:
    """Of the samples of a data set that are windows of a series."""

    lines: tuple[str, ...]
    """What comes in at which times and what comes out at which, to read."""
    season: np.ndarray | None = None
    """(S, T): the time of the year of every target as an angle, where times are dates."""

    def select(self, rows: Sequence[int]) -> InTime:
        """Those of some of the samples."""
        return self if self.season is None else replace(self, season=self.season[list(rows)])


class Dataset:
    """Your own samples, with the facts that a model is sized from."""

    def __init__(
        self,
        data: Stacked | Ragged,
        spec: Spec,
        layout: Layout | None = None,
        in_time: InTime | None = None,
    ) -> None:
        if not isinstance(data, Stacked | Ragged):
            raise DataError(BY_KEYWORDS.format(what="ipot.Dataset(...)", got=type(data).__name__))
        self.data, self.spec, self.layout = data, spec, layout or Layout()
        self.in_time = in_time

    @classmethod
    def from_arrays(
        cls,
        *unnamed: Any,
        targets: Any = None,
        points: Any = None,
        values: Any = None,
        queries: Any = None,
        parameters: Any = None,
        times: Any = None,
        weights: Any = None,
        inputs: str | Sequence[str] | None = None,
        outputs: str | Sequence[str] | None = None,
        parameter_names: str | Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        periods: Mapping[int, float] | Sequence[float | None] | None = None,
        geographic: bool = False,
        name: str = "own data",
    ) -> Dataset:
        """Arrays with a leading axis for samples, or lists of arrays where meshes differ::

            points      (N, D) shared by all samples, (S, N, D), or a list of (N_i, D)
            values      (S, N, C) or (S, N), or a list: what is known at the points
            queries     as points; where the targets are. The points by default
            targets     (S, M, K) or (S, M), or a list; with `times` (S, T, M, K) or (S, T, M)
            parameters  (S, P) or (S): numbers that hold for a whole sample
            times       T times at which the targets are, multiples of one step from 0: [2, 5] are
                        steps of 1
            weights     (M), (S, M) or a list: what each query counts, in training and its
                        scores; areas of cells, for instance
            periods     {axis: period} of coordinates that wrap around
            geographic  the first two coordinates are longitude and latitude in degrees

        Without `points` the parameters alone tell samples apart; without `values` the places of
        the points do. On a grid all of them may have its axes instead of N or M, with places
        (H, W, 2) and values (S, H, W).
        """
        if unnamed:
            got = f"{len(unnamed)} without a name"
            raise DataError(BY_KEYWORDS.format(what="ipot.Dataset.from_arrays", got=got))
        if targets is None:
            raise DataError("targets is None: say what is to be learned, targets=u")
        geographic, timed = flag("geographic", geographic), times is not None
        axes = [_axes("points", points), _axes("queries", queries)]
        name_asked, asked = ("points", points) if queries is None else ("queries", queries)
        asked, targets = unrolled(name_asked, asked, "targets", targets, lead=2 if timed else 1)
        if values is not None:
            points, values = unrolled("points", points, "values", values)
        elif queries is None:
            points = asked
        queries = queries if queries is None else asked
        wanted = column("targets", targets, (2, 3) if timed else (1, 2))
        flat_targets = wanted.first.ndim == (2 if timed else 1)
        layout = with_places(Layout(), points, queries, geographic=geographic)
        given: dict[str, Column] = {}
        if points is not None:
            given["points"] = places("points", points, wanted.count, layout.scaling("points"))
        if values is not None:
            if points is None:
                raise DataError("values are given without points: say where they are, points=...")
            given["values"] = column("values", values, (1, 2))
        if queries is not None:
            scaling = layout.scaling("queries")
            given["queries"] = places("queries", queries, wanted.count, scaling)
        if parameters is not None:
            given["parameters"] = column("parameters", parameters, (0, 1))
        if weights is not None:
            given["weights"] = column("weights", weights, (1,), shared_rank=1)
        refuse_transposed(given, wanted, axis=2 if timed else 1)
        same_count([wanted, *given.values()])
        if "points" not in given and "queries" not in given:
            raise DataError("neither points nor queries are given: say where the targets are")
        if "points" not in given and "parameters" not in given:
            raise DataError(
                "neither points nor parameters are given: there is nothing to predict from"
            )
        layout = replace(
            layout,
            flat_values="values" in given and given["values"].first.ndim == 1,
            flat_targets=flat_targets,
            flat_parameters="parameters" in given and given["parameters"].first.ndim == 0,
            timed=timed,
        )
        for found in (wanted, *given.values()):
            if found.name in CHANNELS:
                layout = layout.with_scaling(found.name, found.scaling)
        data = joined(
            given,
            wanted,
            times,
            flat=(layout.flat_values, layout.flat_targets, layout.flat_parameters),
        )
        grids = data[0].grid, data[0].query_grid
        curved = [
            _axes(name, place) != before and grid is None
            for name, place, before, grid in zip(
                ("points", "queries"), (points, queries), axes, grids, strict=True
            )
        ]
        return cls.of(
            data,
            layout=replace(
                layout,
                curved=any(curved),
                own_points=axes[0] == 3 and _by_sample(given.get("points")),
                own_queries=axes[1] == 3 and _by_sample(given.get("queries")),
            ),
            inputs=inputs,
            outputs=outputs,
            parameter_names=parameter_names,
            units=units,
            periods=periods,
            geographic=geographic,
            name=name,
        )._with_units(units)

    @classmethod
    def from_samples(cls, samples: Iterable[Sample] = (), **facts: Any) -> Dataset:
        """Samples as they are; the keywords are those of `from_arrays` that name and describe.

        Samples of data sets with different offsets or scales are brought to common ones.
        """
        if unknown := [name for name in facts if name not in FACTS]:
            raise UnknownName(
                f"Dataset.from_samples has no argument {', '.join(map(shown, unknown))}. Besides "
                f"samples it takes {', '.join(FACTS)}"
            )
        samples = listed(samples)
        times = snapped(samples[0].times)
        layout = Layout(timed=len(samples[0].times) > 1)
        history, geographic = facts.get("history", 0), facts.get("geographic", False)
        samples, layout = scaled_samples(
            samples,
            layout,
            history=history if is_whole(history) else 0,
            geographic=geographic is True,
        )
        samples = [replace(s, index=i, times=times, units=None) for i, s in enumerate(samples)]
        return cls.of(held(samples), layout=layout, **facts)._with_units(facts.get("units"))

    @classmethod
    def of(
        cls,
        data: Stacked | Ragged,
        *,
        layout: Layout | None = None,
        inputs: str | Sequence[str] | None = None,
        outputs: str | Sequence[str] | None = None,
        parameter_names: str | Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        periods: Mapping[int, float] | Sequence[float | None] | None = None,
        geographic: bool = False,
        history: int = 0,
        name: str = "own data",
        in_time: InTime | None = None,
        input_units: Mapping[str, str] | None = None,
    ) -> Dataset:
        """Samples that are a data set already, with the facts that are found in them or told.

        `units` are those of all channels by their names; `input_units` are those of inputs and
        parameters, where an output of the same name may have another.
        """
        first, name, geographic = data[0], text("name", name), flag("geographic", geographic)
        if not is_whole(history) or history < 0:
            raise DataError(f"history must be a whole number of frames, got {shown(history)}")
        scalars = 0 if first.parameters is None else len(first.parameters)
        outputs = named("outputs", outputs, first.truth.shape[-1], "target")
        refuse_weights(data)
        domain, query_domain = bounds(data, geographic=geographic)
        layout = layout or Layout(timed=len(first.times) > 1)
        wraps = periods_of(periods, domain, "points", layout.origin_scale)
        same = len(domain) == len(query_domain)
        own_units = units if input_units is None else input_units
        named_inputs = named("inputs", inputs, first.values.shape[-1], "value")
        scalar_names = named("parameter_names", parameter_names, scalars, "parameter")
        dt, steps = step_of(first.times)
        layout = replace(
            layout, alone=not len(first.points), times=first.times if layout.timed else ()
        )
        spec = Spec(
            name=name,
            inputs=named_inputs,
            outputs=outputs,
            parameters=scalar_names,
            domain=domain,
            periods=wraps,
            query_domain=query_domain,
            query_periods=wraps if same else periods_of(None, query_domain, "queries"),
            units=units_of(units, outputs),
            input_units=units_of(own_units, named_inputs),
            parameter_units=units_of(own_units, scalar_names),
            geographic=geographic,
            dt=dt,
            steps=steps,
            history=history,
            **structure(data),
        )
        return cls(data, spec, layout, in_time)

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> Dataset: ...

    def __getitem__(self, index: Any) -> Any:
        if is_row(index) or not isinstance(index, slice | Iterable) or isinstance(index, str):
            found = self.data[row(index, len(self))]
            units = self.layout.scalings()
            return replace(found, units=units) if units else found
        return self.select(index)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def select(self, index: Any) -> Dataset:
        """Some of the samples, by their numbers, a slice or a yes or no for each; the facts stay
        those of all."""
        chosen = rows(index, len(self))
        in_time = None if self.in_time is None else self.in_time.select(chosen)
        return Dataset(self.data.select(chosen), self.spec, self.layout, in_time)

    def like(self, layout: Layout, *, wide: Sequence[str] = ()) -> Dataset:
        """These samples in the units of another layout, as a model counts them.

        Tensors of `wide` names stay in float64 where their units change: what is tiny or huge in
        those of the model is neither zero nor infinite then.
        """
        names = ("points", "queries", *CHANNELS)
        if all(layout.scaling(n) == self.layout.scaling(n) for n in names):
            return self
        samples = carried(self.data, self.spec, self.layout, layout, wide)
        own = self.layout
        for name in names:
            own = own.with_scaling(name, layout.scaling(name))
        return Dataset(held(samples), self.spec, own, self.in_time)

    def in_units_of(self, spec: Spec) -> Dataset:
        """These samples as if they had been given in the units of other facts, where both say
        units: what differs is converted, with a warning, or refused."""
        layout, facts = in_units_of(self.layout, self.spec, spec)
        return self if layout is self.layout else Dataset(self.data, facts, layout, self.in_time)

    def split(self, train: float = 0.8, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Two data sets, the first with a fraction of the samples, drawn at random."""
        train, seed = fraction("train", train), seed_given(seed)
        count = min(len(self) - 1, max(1, round(train * len(self))))
        if len(self) < 2:
            raise DataError("one sample cannot be split: give at least two")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).tolist()
        return self.select(sorted(order[:count])), self.select(sorted(order[count:]))

    def constants(self) -> dict[str, float]:
        """Outputs that are one number in all samples, and that number, in the units given."""
        found: dict[str, float] = {}
        ends = spans_held(self.data)
        scaling = self.layout.scaling("targets")
        pairs = zip(ends["target_low"], ends["target_high"], strict=True)
        for i, (low, high) in enumerate(pairs):
            if low == high:
                undone = low if scaling is None else scaling.offset[i] + scaling.scale[i] * low
                found[self.spec.outputs[i]] = undone
        return found

    def describe(self) -> list[str]:
        """What it holds, in lines."""
        spec, shown = self.spec, self if not self.data.stacked else [self[0]]
        said = []
        for word, found in (
            ("points", {len(s.points) for s in shown}),
            ("queries", {s.queries.shape[-2] for s in shown}),
        ):
            low, high = min(found), max(found)
            if high:
                said.append(f"{low} {word}" if low == high else f"{low} to {high} {word}")
        lines = [f"{len(self)} samples, {' and '.join(said)} each"]
        if self.in_time is not None:
            return [*lines, *self.in_time.lines]
        if spec.inputs:
            lines.append(f"in: {', '.join(spec.inputs)}")
        if spec.parameters:
            lines.append(f"parameters: {', '.join(spec.parameters)}")
        lines.append(f"out: {', '.join(spec.outputs)}")
        if spec.steps > 1:
            lines.append(f"{spec.steps} steps of {spec.dt:g}")
        return lines

    def _with_units(self, units: Any) -> Dataset:
        """Itself, where units are those of its channels."""
        spec = self.spec
        refuse_unknown_units(units, (*spec.outputs, *spec.inputs, *spec.parameters))
        return self

    def __repr__(self) -> str:
        return f"<ipot.Dataset: {'; '.join(self.describe())}>"


def _by_sample(places: Column | None) -> bool:
    """Whether there are rows for every sample."""
    return places is not None and places.shared is None


def _axes(name: str, places: Any) -> int:
    """How many axes places have that are one array."""
    return 0 if places is None or is_listed(places) else array(name, places).ndim
