"""Run what is left of a plan, and write every outcome down as soon as it is there.

A run is that of `ipot train` (`ipot.recipes.running`), in a folder of its own that goes on where it
was stopped. A run that diverges or has no memory is recorded as that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ipot.data.store import Store
from ipot.device import choose, out_of_memory, release_memory
from ipot.errors import Diverged, IpotError
from ipot.evaluation.evaluate import Scores
from ipot.models.base import Operator, parameter_count
from ipot.recipes import ledger
from ipot.recipes.experiment import Experiment, SplitReport
from ipot.recipes.running import restore, run
from ipot.recipes.studies import Question, ask_model
from ipot.reproduce import figures, measuring
from ipot.reproduce.items import Cell
from ipot.reproduce.jobs import question, settings
from ipot.reproduce.plan import Task
from ipot.reproduce.records import ENDED, NUMERICS, Record
from ipot.run_folder import environment


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where runs are made and written down."""

    out: Path
    ledger: Path
    store: Store
    device: str = "auto"
    command: str = ""
    quiet: bool = False
    report: SplitReport | None = None
    tell: Callable[[str], None] = lambda text: None

    def folder(self, task: Task) -> Path:
        """The run folder of a task. Other data or numerics have another folder."""
        assert task.job is not None
        made = settings(task.job, task.way, seed=task.seed)
        name = f"seed-{task.seed}-v{NUMERICS}.{made.problem.version}"
        return self.out / "runs" / task.job.name / (task.way.words or "published") / name


def execute(task: Task, place: Place) -> str:
    """Run a task, record it, draw its pictures; its outcome in words."""
    torch.compiler.reset()  # what the run before has left behind is none of this one's memory
    release_memory()
    if task.job is None:
        record = _facts(task, place) | measuring.measure(task, place.store, place.device)
        ledger.add(place.ledger, [record], replacing=True)
        return record["outcome"]
    made = settings(task.job, task.way, seed=task.seed)
    record = _facts(task, place) | {"data_version": made.problem.version, "tests": {}}
    try:
        record |= _trained(task, made, place)
    except Diverged as error:
        record["outcome"] = f"diverged: the loss was not finite at step {error.step}"
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        record["outcome"] = "out of memory"
    if record["outcome"] != ENDED:
        record |= {name: made.as_dict()[name] for name in ("problem", "data", "model", "training")}
        ledger.add(place.ledger, [record], replacing=True)
        return record["outcome"]
    record |= _scored(task, made, place)
    ledger.add(place.ledger, [record], replacing=not _is_known(record, place))
    draw(task, place)
    return "; ".join(f"{name}: {error:.3g}" for name, error in record["tests"].items())


def _facts(task: Task, place: Place) -> Record:
    """What any record says."""
    where = environment()
    return {
        "id": task.identity,
        "job": task.name,
        "way": task.way.words,
        "seed": task.seed,
        "numerics": NUMERICS,
        "machine": where.get("gpu") or measuring.processor(),
        "torch": where.get("torch"),
        "commit": ledger.commit(),
        "command": place.command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "outcome": ENDED,
    }


def _trained(task: Task, made: Experiment, place: Place) -> dict[str, Any]:
    """Train to the end: what the ledger keeps of the run."""
    folder = place.folder(task)
    keep = {"device": place.device, "store": place.store, "report": place.report}
    result = run(made, folder, or_resume=True, quiet=place.quiet, **keep)
    if result.best_validation == float("inf") or result.best_validation != result.best_validation:
        return {"outcome": "diverged: no validation error was finite"}
    told = ledger.record_of(folder, command=place.command)
    return told | _facts(task, place)


def _scored(task: Task, made: Experiment, place: Place) -> dict[str, Any]:
    """The test errors of the cells, and why there are none of some."""
    model, _ = restore(place.folder(task), choose(place.device))
    tests: dict[str, float] = {}
    refused: dict[str, str] = {}
    answers: dict[Question, Scores | str] = {}
    for cell in task.cells:
        asked = question(cell, made, task.way)
        if asked not in answers:
            answers[asked] = _answer(model, made, asked, place)
        answer = answers[asked]
        if isinstance(answer, str):
            refused[cell.asks] = answer
        else:
            tests[cell.asks] = score(cell, answer)
    extra = {"refused": refused} if refused else {}
    return {"tests": tests, "parameters": parameter_count(model), **extra}


def _answer(model: Operator, made: Experiment, asked: Question, place: Place) -> Scores | str:
    try:
        return ask_model(model, made, asked, store=place.store, report=place.report).scores
    except IpotError as error:
        return str(error).split(". ")[0].rstrip(".")
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return "out of memory"


def score(cell: Cell, scores: Scores) -> float:
    """A cell's number: the relative error, or the mean squared one over its frames.

    The first target is one step behind the last input, which stands at t = 0.
    """
    if cell.frames is None:
        return scores.relative_l2
    first, last = cell.frames
    chosen = scores.mse_per_time[max(first, 1) - 1 : last - 1]
    return sum(chosen) / len(chosen)


def _is_known(record: Record, place: Place) -> bool:
    """Whether the ledger has this very run already, and gains tests only."""
    before = next((r for r in ledger.read(place.ledger) if r["id"] == record["id"]), None)
    alike = ("numerics", "data_version", "problem", "model", "training", "data", "outcome")
    return before is not None and all(before.get(name) == record[name] for name in alike)


def draw(task: Task, place: Place) -> None:
    """The pictures of a run that has ended, where they are not drawn yet."""
    if task.job is None or not (place.folder(task) / "best.safetensors").exists():
        return
    made = settings(task.job, task.way, seed=task.seed)
    for cell in task.cells:
        file = figures.path(place.out, cell)
        if cell.picture and not file.exists():
            asked = question(cell, made, task.way)
            figures.draw(cell, place.folder(task), asked, file, place.store, place.device)
