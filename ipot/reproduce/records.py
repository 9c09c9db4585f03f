"""What the ledger holds of a job: read with care, so that nothing wrong is averaged.

The ledger is that of `ipot.recipes.ledger`, one sealed record a run or measurement. A record here
also says of which job it is, which version of the data and of the numerics it was made with, and
how it ended where it has no numbers. One that lacks any of this is refused by name; one that was
made with other settings, data or numerics is stale: it is shown as such and left out of means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipot.errors import RunError
from ipot.recipes import ledger
from ipot.recipes.experiment import Experiment
from ipot.reproduce.items import Cell, Job
from ipot.reproduce.jobs import Way, settings
from ipot.typed_json import to_dict

NUMERICS = 1
"""Raise it with a change of models, training or metrics that changes what a run ends with."""
KEYS = ("job", "way", "seed", "numerics", "machine", "commit", "date", "outcome", ledger.SEAL)
RUN_KEYS = ("problem", "data_version", "data", "model", "training", "epochs", "seconds")
ENDED = "ended"
"""The outcome of what has numbers; any other outcome says why there are none."""
INDIFFERENT = {"training": ("seed", "workers", "save_seconds", "step"), "problem": ("files",)}
"""Settings that make no other run."""
Record = ledger.Record


def identity(name: str, way: Way, seed: int) -> str:
    """What a record is known by: running a job again replaces it."""
    return " / ".join([name, *([way.words] if way.words else []), f"seed {seed}"])


def read(file: Path | str) -> list[Record]:
    """All records, each of them whole."""
    records = ledger.read(file)
    for record in records:
        lost = [key for key in KEYS if record.get(key) is None and key != "way"]
        if record.get("outcome") == ENDED and "rows" not in record:
            lost += [key for key in RUN_KEYS if record.get(key) is None]
            tests = record["tests"].items()
            lost += [f"tests: {name}" for name, error in tests if not _number(error)]
        if lost:
            raise RunError(
                f"{file}: the record {record['id']} is incomplete ({', '.join(lost)}). Remove it, "
                "and what it is of is run again."
            )
    return records


def _number(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def seen(records: Iterable[Record], name: str, way: Way | None = None) -> list[Record]:
    """The records of a job or a measurement, made in this way or in any."""
    mine = [record for record in records if record["job"] == name]
    return [r for r in mine if way is None or r["way"] == way.words]


def stale(record: Record, job: Job, way: Way) -> list[str]:
    """What a record was made with that is otherwise today; empty for one that holds."""
    wanted = settings(job, way, seed=record["seed"])
    other = [] if record["numerics"] == NUMERICS else ["numerics"]
    if record.get("data_version") != wanted.problem.version:
        other.append("version of the data")
    return other + _unlike(record, wanted)


def _unlike(record: Record, wanted: Experiment) -> list[str]:
    """Settings by name that differ. A setting that is newer than the record had its default."""
    asked = wanted.as_dict()
    usual = {
        "problem": to_dict(type(wanted.problem)(), infinite=True),
        "model": to_dict(type(wanted.model)(), infinite=True),
        "training": to_dict(type(wanted.training)(), infinite=True),
        "data": {},
    }
    found = []
    for group, defaults in usual.items():
        there = record.get(group) or {}
        for name, value in asked[group].items():
            was = there.get(name, defaults.get(name))
            if was != value and name not in INDIFFERENT.get(group, ()):
                found.append(f"{group}.{name}")
    return found


@dataclass(frozen=True, kw_only=True)
class Result:
    """What there is of a cell: numbers of current records, or words on why there are none."""

    cell: Cell
    state: str
    errors: tuple[float, ...] = ()
    records: tuple[Record, ...] = ()
    way: str = ""
    """Empty for the published schedule, else the budget that the numbers were made in."""
    stand_in: str = ""
    """The problem that stood in for the paper's."""


def result(cell: Cell, job: Job, records: Iterable[Record], ways: Iterable[Way]) -> Result:
    """The numbers of a cell, from the first of the ways that has any."""
    stand_in = "" if cell.job is None or cell.job.problem == job.problem else job.problem
    if cell.impossible:
        return Result(cell=cell, state=f"cannot: {cell.impossible}", stand_in=stand_in)
    states, records = [], list(records)
    for way in ways:
        mine = seen(records, job.name, way)
        old = {r["id"]: names for r in mine if (names := stale(r, job, way))}
        held = [r for r in mine if r["id"] not in old and cell.asks in r["tests"]]
        if held:
            return Result(
                cell=cell,
                state=f"{len(held)} seed{'s' * (len(held) > 1)}",
                errors=tuple(r["tests"][cell.asks] for r in held),
                records=tuple(held),
                way=way.words,
                stand_in=stand_in,
            )
        states += [r["outcome"] for r in mine if r["id"] not in old and r["outcome"] != ENDED]
        states += [f"stale ({', '.join(names[:3])})" for names in old.values()]
    return Result(cell=cell, state=states[0] if states else "not run", stand_in=stand_in)


def measured(cell: Cell, records: Iterable[Record], way: Way) -> Result:
    """What was measured for a cell without a job."""
    for record in seen(records, cell.name, way):
        if record["numerics"] != NUMERICS:
            return Result(cell=cell, state="stale (numerics)")
        if record["outcome"] != ENDED:
            return Result(cell=cell, state=record["outcome"])
        return Result(cell=cell, state="measured", records=(record,), way=way.words)
    return Result(cell=cell, state="not run")
