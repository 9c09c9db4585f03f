"""The table of a comparison: a row for each system, from its run folder and its scores."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ipot import safe_read
from ipot.errors import RunError
from ipot.recipes import published
from ipot.recipes.experiment import Experiment
from ipot.recipes.own_data import OwnData
from ipot.recipes.running import ended
from ipot.run_folder import Run, environment
from ipot.training import journal
from ipot.training.trainer import Result
from ipot.typed_json import from_value


@dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one system."""

    model: str
    parameters: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    """Of training, the last validation included."""
    epoch_seconds: float | None = None
    """With its share of the validations."""
    setup_seconds: float | None = None
    """Compiling and capturing, which the minutes do not count."""
    peak_gib: float | None = None
    error: float | None = None
    """Relative L2 on the test split, with the weights that validation chose."""
    published: float | None = None
    source: str = ""
    """Of the published error."""
    reason: str = ""
    """Why there is no error."""
    notes: tuple[str, ...] = ()
    """What a reader must know before comparing this row with others."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of training and the validation error then."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All rows, best first, and what they were made with."""

    problem: dict[str, Any]
    data: dict[str, Any]
    terms: dict[str, Any]
    """Minutes, seed and augmentation, the same for all."""
    preset: str
    device: str
    environment: dict[str, Any]
    rows: list[Row]
    mean_field: float | None
    references: dict[str, float]
    small: bool = False
    """Whether systems and problem have sizes for a first look."""
    remarks: tuple[str, ...] = ()
    """What a reader must know of all errors."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A system under the terms of a comparison, or the reason why it cannot take part."""

    model: str
    settings: Experiment | None = None
    parameters: int | None = None
    view: tuple[str, ...] = ()
    """Settings of the problem that its recipe had to change, in words."""
    reason: str = ""


def row_of(
    plan: Entrant,
    folder: Path,
    test: dict[str, Any],
    base: Experiment,
    minutes: float,
    *,
    small: bool = False,
) -> Row:
    """The result of a system, from its run folder and its scores on the test split.

    What others have published is no comparison for `small` sizes.
    """
    viscosity = getattr(base.problem, "viscosity", None)
    where = (base.problem.name, plan.model)
    quoted = None if small else published.quoted(*where, viscosity=viscosity)
    remark = None if small else published.remark(*where, viscosity=viscosity)
    notes = [*plan.view, *([f"nothing published to quote: {remark}"] if remark else [])]
    notes += [test["busy"]] if test.get("busy") else []
    row = Row(
        model=plan.model,
        parameters=plan.parameters,
        published=quoted.error if quoted else None,
        source=quoted.source if quoted else "",
    )
    if plan.settings is None or not Run(folder).config_file.exists():
        return replace(row, reason=test["reason"], notes=tuple(notes))
    lines = journal.read(Run(folder).metrics)
    row = replace(
        row,
        error=_error(test, base),
        reason=test.get("reason", ""),
        curve=[
            (line["seconds"], line["validation"])
            for line in lines
            if line.get("validation") is not None and line.get("seconds") is not None
        ],
    )
    notes += _other_environment(Run(folder))
    if result := ended(Run(folder)):
        row = replace(row, **_efforts(result, lines))
        notes += _unlike(result, minutes)
    return replace(row, notes=tuple(notes))


def _error(test: dict[str, Any], base: Experiment) -> float | None:
    """The error on test samples; of data of one's own weighted where they have weights, as a fit
    prints it."""
    weighted = test.get("weighted_relative_l2")
    own = isinstance(base.problem, OwnData) and weighted is not None
    return weighted if own else test.get("relative_l2")


def _efforts(result: Result, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Epochs, seconds and memory of a training."""
    # The first line is written at the end of the first epoch, unless time ran out before it.
    whole = lines[0]["step"] if lines and lines[0].get("epoch") == 1 else None
    return {
        "epochs": result.epochs,
        "seconds": result.seconds,
        "epoch_seconds": None if whole is None else result.seconds * whole / max(1, result.steps),
        "setup_seconds": result.setup_seconds,
        "peak_gib": result.peak_gib,
    }


def _unlike(result: Result, minutes: float) -> list[str]:
    """A note if a run did not use its minutes as it should."""
    notes = []
    if result.epochs == 0:
        notes.append("the minutes ended before its first epoch did")
    if result.seconds < 60 * minutes:
        notes.append("its epochs ended before the minutes did")
    if result.seconds > 66 * minutes:
        notes.append("its last step and validation ended more than a tenth beyond the minutes")
    return notes


def _other_environment(folder: Run) -> list[str]:
    """A note on a system that was trained somewhere else than this one would be now."""
    then, now = folder.config().get("environment"), environment()
    then = then if isinstance(then, dict) else {}
    other = [k for k in ("gpu", "system", "torch", "threads") if then.get(k) != now[k]]
    if not other:
        return []
    return ["trained elsewhere: " + ", ".join(f"{k} {then.get(k)}" for k in other)]


def simple_scores(plans: list[Entrant], tests: list[dict[str, Any]]) -> dict[str, Any]:
    """The scores of predictions without a model, for the shared view of the problem, if there are
    any."""
    pairs = sorted(zip(plans, tests, strict=False), key=lambda pair: len(pair[0].view))
    scored = [test for _, test in pairs if "relative_l2" in test]
    guesses = [test["mean_field"] for test in scored if test["mean_field"] is not None]
    simple = next((test["references"] for test in scored if test["references"]), {})
    return {
        "mean_field": guesses[0] if guesses else None,
        "references": {name: scores["relative_l2"] for name, scores in simple.items()},
    }


def comparison_of(
    base: Experiment,
    terms: dict[str, Any],
    device: torch.device,
    rows: list[Row],
    simple: dict[str, Any],
    *,
    small: bool = False,
) -> Comparison:
    """The rows so far, best first, with what they were made with."""
    settings = base.as_dict()
    problem = settings["problem"]
    if isinstance(base.problem, OwnData):
        problem = {"name": base.problem.spec.name, "fingerprint": problem["fingerprint"]}
    return Comparison(
        problem=problem,
        data=settings["data"],
        terms=terms,
        preset=base.preset,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        environment=environment(),
        small=small,
        rows=sorted(rows, key=lambda row: math.inf if row.error is None else row.error),
        **simple,
    )


def read_test(path: Path) -> dict[str, Any]:
    """What a system scored before, or the reason why it has no score."""
    advice = "Remove it to score again."
    content = safe_read.read_json(path, advice=advice)
    if isinstance(content, dict) and isinstance(content.get("reason"), str):
        return content
    try:
        if not isinstance(content, dict):
            raise RunError("it must hold an object with names")
        from_value(float, content.get("relative_l2"), "relative_l2")
        from_value(float | None, content.get("mean_field", ""), "mean_field")
        from_value(float | None, content.get("weighted_relative_l2"), "weighted_relative_l2")
        from_value(str, content.get("busy", ""), "busy")
        simple = content.get("references")
        if not isinstance(simple, dict) or not all(isinstance(r, dict) for r in simple.values()):
            raise RunError("references must be an object of objects")
        for name, scores in simple.items():
            from_value(float, scores.get("relative_l2"), f"references.{name}.relative_l2")
    except RunError as error:
        raise RunError(f"cannot read {path}: {error}. {advice}") from error
    return content
