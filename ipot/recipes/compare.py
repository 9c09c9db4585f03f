"""Systems side by side: the same data, the same loop, the same minutes.

Every system keeps the settings of its recipe and has a run folder of its own, so that a comparison
goes on where it was stopped. What cannot be trained stays in the table, with the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from ipot import files, lock, registry, safe_read
from ipot.data.store import Store
from ipot.device import choose, out_of_memory, release_memory
from ipot.errors import DataError, Diverged, RunError, UnknownName, Unsupported, shown
from ipot.models.base import parameter_count
from ipot.problems.base import SPLITS
from ipot.recipes import published, systems
from ipot.recipes.experiment import PRESETS, Experiment, SplitReport, build, experiment, load_data
from ipot.recipes.running import ended, refuse_other, run_or_resume
from ipot.recipes.studies import Question, ask
from ipot.run_folder import Run, environment
from ipot.training import journal
from ipot.training.settings import Training
from ipot.training.trainer import Result
from ipot.typed_json import from_value

PLENTY = 1_000_000
"""Epochs that no system reaches before its time is up."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one system."""

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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A system under the terms of a comparison, or the reason why it cannot take part."""

    model: str
    settings: Experiment | None = None
    parameters: int | None = None
    view: tuple[str, ...] = ()
    """Settings of the problem that its recipe had to change, in words."""
    reason: str = ""


def shared(problem: str, preset: str = "default") -> Experiment:
    """What all systems start from: a problem in its default view and its numbers of samples."""
    if preset not in PRESETS:
        raise UnknownName(f"unknown preset {shown(preset)}. Known: {', '.join(PRESETS)}")
    return replace(experiment(problem), problem=registry.find("problems", problem), preset=preset)


def chosen(words: str) -> list[str]:
    """The systems that are meant by names with commas between them, or by `all`."""
    if words.strip() == "all":
        return registry.names("models")
    found = [word.strip() for word in words.split(",") if word.strip()]
    found = [name if "." in name else name.replace("-", "_").lower() for name in found]
    if not found:
        known = ", ".join(registry.names("models"))
        raise UnknownName(f"no system to compare in {shown(words)}. Known: {known}; or all")
    for name in found:
        registry.find("models", name)
    return list(dict.fromkeys(found))


def compare(
    base: Experiment,
    models: Sequence[str],
    out: Path | str,
    *,
    minutes: float,
    seed: int = 0,
    augment: bool = False,
    small: bool = False,
    device: str = "auto",
    store: Store | None = None,
    report: SplitReport | None = None,
    tell: Callable[[str], None] = lambda text: None,
    quiet: bool = False,
    trusted: bool = False,
) -> Comparison:
    """Train systems one after the other, score each on the test split, leave compare.json.

    `base` says which problem, view and samples; see `shared`. `small` takes the systems' own
    small sizes. Called again with the same settings
    it skips what has ended and goes on with what was stopped. A system that was compared before,
    is not named now and lives outside this package is imported only where `out` is `trusted`.
    """
    terms = {"minutes": minutes, "seed": seed, "augment": augment}
    _refuse(base, terms)
    options = {"device": device, "store": store or Store(), "report": report, "quiet": quiet}
    options |= {"trusted": trusted}
    with lock.locked(Path(out), "comparing"):
        return _compared(base, list(models), Path(out), terms, small, options, tell)


def _compared(
    base: Experiment,
    models: list[str],
    out: Path,
    terms: dict[str, Any],
    small: bool,
    options: dict[str, Any],
    tell: Callable[[str], None],
) -> Comparison:
    place = choose(options["device"])
    # Systems that were compared here before stay in the table.
    before = sorted(path.parent.name for path in out.glob("*/test.json"))
    for name in before:
        if "." in name and name not in models:
            registry.named_in_file("models", name, out / name, trusted=options["trusted"])
    models = list(dict.fromkeys([*models, *before]))
    plans = [_plan(base, name, terms, small) for name in models]
    for plan in plans:
        _refuse_folder(plan, out / plan.model)
    if any(plan.settings and not _test(out / plan.model).exists() for plan in plans):
        # Data that cannot be had are no system's fault: they end the comparison here.
        for split in SPLITS:
            load_data(base, split, store=options["store"], device=place, report=options["report"])
    rows, tests = [], []
    for number, plan in enumerate(plans, 1):
        tell(f"{plan.model} ({number} of {len(plans)}): {_state(plan, out / plan.model)}")
        test = _outcome(plan, out / plan.model, options)
        rows.append(_row(plan, out / plan.model, test, base, terms["minutes"]))
        tests.append(test)
        found = _comparison(base, terms, place, rows, _simple(plans, tests))
        files.write_json(out / "compare.json", found.as_dict())
    return found


def _refuse(base: Experiment, terms: dict[str, Any]) -> None:
    """Refuse what would fail for every system."""
    Training(**terms)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise Unsupported("a comparison runs in one process: start it without torchrun")
    if terms["augment"] and not base.problem.spec.symmetries:
        raise Unsupported(f"{base.problem.name} lists no symmetry to augment by")


def _plan(base: Experiment, model: str, terms: dict[str, Any], small: bool) -> Plan:
    """The settings of a system's recipe, with what all systems share put in their place."""
    try:
        own = experiment(base.problem_name, model, base.preset)
        view = _own_view(base, own)
        settings = replace(
            own,
            problem=replace(base.problem, **view),
            data=base.data,
            model=systems.small(model, own.model) if small else own.model,
            training=replace(own.training, epochs=PLENTY, **terms),
        )
        parameters = parameter_count(build(settings))
    except (Unsupported, UnknownName, DataError, RunError) as error:
        return Plan(model=model, reason=_first_sentence(error))
    words = tuple(f"its recipe sets problem.{name} to {value!r}" for name, value in view.items())
    return Plan(model=model, settings=settings, parameters=parameters, view=words)


def _own_view(base: Experiment, own: Experiment) -> dict[str, Any]:
    """What a recipe changes of the problem, where the caller has not chosen something else."""
    default = registry.find("problems", base.problem_name)
    return {
        f.name: getattr(own.problem, f.name)
        for f in fields(default)
        if getattr(own.problem, f.name) != getattr(default, f.name)
        and getattr(base.problem, f.name) == getattr(default, f.name)
    }


def _refuse_folder(plan: Plan, folder: Path) -> None:
    """Refuse the run of another comparison, before any system has used time."""
    if plan.settings is None:
        return
    if Run(folder).config_file.exists():
        refuse_other(Run.open(folder), plan.settings)
    elif _test(folder).exists():
        raise RunError(
            f"{folder} holds scores (test.json) and no config.json: part of the run is lost. Put "
            "it back, or remove the folder to train the system again."
        )


def _state(plan: Plan, folder: Path) -> str:
    """What comes next for a system, in words."""
    if plan.settings is None:
        return plan.reason
    if _test(folder).exists():
        return "has ended before"
    if Run(folder).config_file.exists():
        return "goes on"
    return f"{plan.settings.training.minutes:g} min"


def _test(folder: Path) -> Path:
    """Where the scores of a system are kept, or the reason why it has none."""
    return folder / "test.json"


def _outcome(plan: Plan, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train and score a system: what `ipot evaluate --json` prints, or a reason.

    A system that diverged has ended. Missing memory or structure may be there the next time.
    """
    if plan.settings is None:
        return {"reason": plan.reason}
    if _test(folder).exists():
        lock.sweep(folder)  # which nobody takes any more: a kill may have left its file
        return read_test(_test(folder))
    # What the system before has left behind is none of this one's memory.
    torch.compiler.reset()
    release_memory()
    try:
        test = _train(plan.settings, folder, options)
    except Diverged as error:
        test = {"reason": f"diverged: the loss was not finite at step {error.step}"}
    except (Unsupported, DataError) as error:
        return {"reason": _first_sentence(error)}
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return {"reason": "out of memory"}
    files.write_json(_test(folder), test)
    return test


def _train(settings: Experiment, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    result = run_or_resume(settings, folder, **options)
    if not math.isfinite(result.best_validation):
        return {"reason": "diverged: no validation error was finite"}
    keep = {name: options[name] for name in ("device", "store", "report")}
    return ask(folder, Question(), **keep).as_dict()


def _row(plan: Plan, folder: Path, test: dict[str, Any], base: Experiment, minutes: float) -> Row:
    viscosity = getattr(base.problem, "viscosity", None)
    where = (base.problem.name, plan.model)
    quoted = published.quoted(*where, viscosity=viscosity)
    remark = published.remark(*where, viscosity=viscosity)
    notes = [*plan.view, *([f"nothing published to quote: {remark}"] if remark else [])]
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
        error=test.get("relative_l2"),
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


def _efforts(result: Result, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the training took."""
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
    """What the clock did otherwise than it should."""
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


def _simple(plans: list[Plan], tests: list[dict[str, Any]]) -> dict[str, Any]:
    """What answers without a model score; those to the shared view of the problem, if there are."""
    pairs = sorted(zip(plans, tests, strict=False), key=lambda pair: len(pair[0].view))
    scored = [test for _, test in pairs if "relative_l2" in test]
    guesses = [test["mean_field"] for test in scored if test["mean_field"] is not None]
    simple = next((test["references"] for test in scored if test["references"]), {})
    return {
        "mean_field": guesses[0] if guesses else None,
        "references": {name: scores["relative_l2"] for name, scores in simple.items()},
    }


def _comparison(
    base: Experiment,
    terms: dict[str, Any],
    place: torch.device,
    rows: list[Row],
    simple: dict[str, Any],
) -> Comparison:
    settings = base.as_dict()
    return Comparison(
        problem=settings["problem"],
        data=settings["data"],
        terms=terms,
        preset=base.preset,
        device=torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
        environment=environment(),
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
        simple = content.get("references")
        if not isinstance(simple, dict) or not all(isinstance(r, dict) for r in simple.values()):
            raise RunError("references must be an object of objects")
        for name, scores in simple.items():
            from_value(float, scores.get("relative_l2"), f"references.{name}.relative_l2")
    except RunError as error:
        raise RunError(f"cannot read {path}: {error}. {advice}") from error
    return content


def _first_sentence(error: Exception) -> str:
    """A reason short enough for a table, without advice that belongs elsewhere."""
    return str(error).split(". ")[0].rstrip(".")
