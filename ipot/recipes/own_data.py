"""Data of the user's own in the place of a built-in problem.

An experiment on them is trained, resumed, restored and saved by the code that does so for any
other. What differs is that its run folder has no recipe to make the data again: it describes them,
and whoever resumes the run brings them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from ipot import safe_read
from ipot.data import dataset
from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.data.ranges import ranges_held
from ipot.errors import DataError, RunError, Unsupported, shown
from ipot.problems.base import Problem
from ipot.saved.config_file import check_layout, spec_from_dict
from ipot.spec import Spec
from ipot.typed_json import from_dict, from_value, plain, to_dict

OWN_DATA = "own data"
"""The name of the problem in the settings of such an experiment."""
HELD_OUT = 0.08
"""Of the samples, for choosing the best weights; as many again for the scores and bounds."""
MOST_HELD = 200
FEW = 10
"""Samples below which all are learned from: what could be held out would tell nothing."""
FEWEST = 30
"""Samples below which none are set aside for scores and bounds of their own."""
ENTRIES = ("fingerprint", "spec", "layout", "columns", "series")
"""What config.json says of the data."""


@dataclass(frozen=True)
class Splits:
    """Samples to learn from, to choose weights by, and to score with (None where too few)."""

    train: Dataset
    validation: Dataset
    held_out: Dataset | None

    def counts(self) -> dict[str, int]:
        """How many there are; none to validate with, where those of training are used again."""
        again = self.validation is self.train
        return {
            "train": len(self.train),
            "validation": 0 if again else len(self.validation),
            "test": 0 if self.held_out is None else len(self.held_out),
        }


def split(data: Dataset, seed: int) -> Splits:
    """Parts drawn at random; small data sets keep none for scores, very small ones none at all."""
    if len(data) < 2:
        raise DataError(f"at least two samples are needed to learn from, got {len(data)}")
    if len(data) < FEW:
        return Splits(data, data, None)
    held = min(MOST_HELD, max(1, round(HELD_OUT * len(data))))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = 2 if len(data) >= FEWEST else 1
    # Bounds at 90 % take nine samples at the least.
    held = max(held, 10) if parts == 2 else held
    learnt = data.select(sorted(order[parts * held :]))
    validation = data.select(sorted(order[:held]))
    scored = data.select(sorted(order[held : 2 * held])) if parts == 2 else None
    return Splits(learnt, validation, scored)


@dataclass(frozen=True, kw_only=True)
class OwnData(Problem):
    """The user's data as the problem of an experiment; from a file, their description alone."""

    name: ClassVar[str] = OWN_DATA
    about: ClassVar[str] = "data of your own"
    source: ClassVar[str] = "your own"
    sizes: ClassVar[Mapping[str, int]] = {}
    generated: ClassVar[bool] = False

    fingerprints: tuple[str, ...]
    """What tells these data from others; behind the first, as earlier releases wrote it."""
    facts: Spec | None
    """None in a run that an earlier release started, which did not write them down."""
    layout: Layout
    columns: Mapping[str, Any] = field(default_factory=dict)
    """What the fields are called in the files that they were read from."""
    series: Mapping[str, Any] | None = None
    """How labelled arrays become samples and answers, where the data are such."""
    splits: Splits | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        data: Dataset,
        splits: Splits,
        *,
        columns: Mapping[str, Any] | None = None,
        series: Mapping[str, Any] | None = None,
    ) -> OwnData:
        """A data set and its parts."""
        known = [fingerprint(data)]
        if data.layout.scaling("points") or data.layout.scaling("queries"):
            known.append(fingerprint(data, origins=False))
        if (names := before(data.spec.inputs)) != data.spec.inputs:
            named = Dataset(data.data, replace(data.spec, inputs=names), data.layout)
            known.append(fingerprint(named))
        return cls(
            fingerprints=tuple(known),
            facts=data.spec,
            layout=replace(data.layout, **ranges_held(splits.train.data)),
            columns=columns or {},
            series=series,
            splits=splits,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for config.json."""
        return {
            "fingerprint": self.fingerprints[0],
            "spec": to_dict(self.spec),
            "layout": plain(self.layout.as_dict(), "layout", exact=True),
            "columns": plain(self.columns, "columns"),
            "series": plain(self.series, "series"),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], where: str) -> OwnData:
        """The description of data in a config.json, without the data."""
        if unknown := sorted(set(content) - set(ENTRIES)):
            raise RunError(
                f"{where}: unknown problem.{unknown[0]}; known: {', '.join(ENTRIES)}. Put back "
                "what was written."
            )
        if odd := safe_read.what_is_odd(content):
            raise RunError(f"{where}: problem: {odd}")
        told = from_value(str, content.get("fingerprint"), f"{where}: problem.fingerprint")
        facts, layout = None, Layout()
        if content.get("spec") is not None:
            facts = spec_from_dict(content["spec"], f"{where}: problem.spec")
            layout = from_dict(Layout, content.get("layout", {}), where, "problem.layout")
            try:
                check_layout(layout.as_dict(), facts)
            except RunError as error:
                raise RunError(f"{where}: problem: {error}") from error
        for name in ("columns", "series"):
            if not isinstance(content.get(name) or {}, dict):
                got = shown(content[name])
                raise RunError(f"{where}: problem.{name} must be an object with names, got {got}")
        return cls(
            fingerprints=(told,),
            facts=facts,
            layout=layout,
            columns=content.get("columns") or {},
            series=content.get("series"),
        )

    @property
    def spec(self) -> Spec:
        """The facts that a model is sized from."""
        if self.facts is None:
            raise RunError("the facts of these data are not known: bring the data")
        return self.facts

    def found_again(self, data: OwnData, where: str) -> OwnData:
        """The user's data, refused if they are not those that this describes."""
        if self.fingerprints[0] not in data.fingerprints:
            raise RunError(
                f"{where}: the run was trained on other data than these. Give the same data, or "
                "start anew with another out=..."
            )
        # The name of the data is that of their file, which may be another now: weights have the
        # first one.
        facts = self.facts or data.facts
        return replace(data, fingerprints=self.fingerprints, facts=facts)

    def load(self, split: str, count: int, **how: Any) -> dataset.Dataset:
        """A part of the data; the validation data are those of training where there are few."""
        if self.splits is None:
            raise Unsupported(
                "this run is of data of your own, which are not kept with it: give them to "
                "ipot.fit(data, resume=...), or score a model on others with "
                "`ipot evaluate MODEL new_cases`"
            )
        parts = {"train": self.splits.train, "validation": self.splits.validation}
        found = self.splits.held_out if split == "test" else parts[split]
        if found is None:
            raise Unsupported("these data are too few to hold some out for a test")
        return found.data

    def generate(self, *_: Any, **__: Any) -> Any:
        """Never called, since `load` has the data already."""
        raise Unsupported("data of your own are not generated")

    dataset = bytes_each = generate


def before(names: tuple[str, ...]) -> tuple[str, ...]:
    """Channels of frames as they were called before: the last one, now t, was t-0."""
    return tuple(name.replace("(t)", "(t-0)") for name in names)


def fingerprint(data: Dataset, *, origins: bool = True) -> str:
    """Tells data sets apart: facts and sizes, the sums of all numbers, and all numbers of some
    samples spread over it. Without `origins` it is as 0.1.0 wrote it."""
    spec = data.spec
    facts = (spec.inputs, spec.outputs, spec.parameters, spec.domain, spec.query_domain)
    facts += (spec.periods, spec.geographic, spec.dt, spec.steps, len(data))
    names = ("points", "queries", "values", "targets", "parameters")
    names = names if origins else names[2:]
    if units := {n: u for n in names if (u := data.layout.scaling(n)) is not None}:
        facts += (units,)
    digest = hashlib.sha256(repr(facts).encode())
    for columns in data.data.columns():
        sums = [None if c is None else float(c.double().sum()) for c in columns]
        digest.update(repr(sums).encode())
    for index in range(0, len(data), max(1, len(data) // 16)):
        s = data[index]
        for tensor in (s.points, s.values, s.queries, s.truth, s.parameters, s.weights):
            if tensor is not None:
                digest.update(repr(tuple(tensor.shape)).encode())
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def as_experiment(content: dict[str, Any]) -> dict[str, Any]:
    """The config.json of a fit in the form of every experiment, which 0.1.0 did not write yet."""
    if content.get("kind") != OWN_DATA:
        return content
    model = content.get("model")
    return {
        "problem": {"name": OWN_DATA, "fingerprint": content.get("data")},
        "model": {"name": "ipot", **model} if isinstance(model, dict) else model,
        "data": {"train": 0, "validation": 0, "test": 0, "seed": content.get("seed")},
        **{
            n: content[n]
            for n in ("training", "preset", "normalize", "environment")
            if n in content
        },
    }
