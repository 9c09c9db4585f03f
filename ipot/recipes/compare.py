"""Systems side by side: the same data, the same loop, the same minutes.

Every system keeps the settings of its recipe and has a run folder of its own, so that a comparison
goes on where it was stopped. What cannot be trained stays in the table, with the reason.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from ipot import files, lock, registry, trust
from ipot.data.store import Store
from ipot.device import busy_cores, choose, out_of_memory, release_memory
from ipot.errors import (
    DataError,
    Diverged,
    IpotError,
    RunError,
    UnknownName,
    Unsupported,
    shown,
)
from ipot.models.base import parameter_count
from ipot.problems.base import SPLITS
from ipot.recipes import systems
from ipot.recipes.compare_table import (
    Comparison,
    Entrant,
    comparison_of,
    read_test,
    row_of,
    simple_scores,
)
from ipot.recipes.experiment import PRESETS, Experiment, SplitReport, build, experiment, load_data
from ipot.recipes.own_data import OwnData
from ipot.recipes.running import refuse_other, restore, run
from ipot.recipes.studies import Question, ask_model
from ipot.run_folder import Run
from ipot.training.settings import Training
from ipot.training.trainer import Stopped

CROWDED = 0.1
"""Of the cores, and half of one at the least, that other programs may use without a remark."""
PLENTY = 1_000_000
"""Epochs that no system reaches before its time is up."""
Recipe = Callable[[str], Experiment]


def shared(problem: str, preset: str = "default") -> Experiment:
    """The settings that all systems share: a problem in its default view and its numbers of
    samples."""
    if preset not in PRESETS:
        raise UnknownName(f"unknown preset {shown(preset)}. Known: {', '.join(PRESETS)}")
    made = experiment(problem, "ipot")
    return replace(made, problem=registry.find("problems", problem), preset=preset)


def chosen(words: str | Sequence[str]) -> list[str]:
    """The systems named in a list, by names with commas between them, or by `all`."""
    listed = [words] if isinstance(words, str) else list(words)
    if odd := [word for word in listed if not isinstance(word, str)]:
        raise UnknownName(f"systems are given by their names, got {shown(odd[0])}")
    found = [word.strip() for some in listed for word in some.split(",") if word.strip()]
    if found == ["all"]:
        return registry.names("models")
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
    recipe: Recipe | None = None,
    simple: dict[str, Any] | None = None,
    channels: Sequence[int] | None = None,
) -> Comparison:
    """Train systems one after the other, score each on the test split, leave compare.json.

    `base` says which problem, view and samples; see `shared`. `small` takes the systems' own
    small sizes. Called again with the same settings
    it skips what has ended and goes on with what was stopped. A system that was compared before,
    is not named now and lives outside this package is imported only where `out` is `trusted`.

    `recipe` gives the settings of a system by its name, where they are not those of the problem's
    recipes, `simple` what answers without a model score, and `channels` the outputs that are scored
    where it is not all: for data of one's own.
    """
    terms = {"minutes": minutes, "seed": seed, "augment": augment}
    _refuse(base, terms)
    store = store or Store()
    options = {"device": device, "store": store, "report": report, "quiet": quiet}
    options |= {"trusted": trusted, "channels": None if channels is None else list(channels)}
    if recipe is None:
        recipe = functools.partial(_of_problem, base, small=small)
    out = Path(out)
    with lock.locked(out, "comparing"):
        torch_device = choose(device)
        plans = _plans(base, list(models), out, terms, recipe, trusted)
        for plan in plans:
            _refuse_folder(plan, out / plan.model)
        if any(plan.settings and not _test(out / plan.model).exists() for plan in plans):
            # Data that cannot be had are no system's fault: they end the comparison here.
            for split in SPLITS:
                load_data(base, split, store=store, device=torch_device, report=report)
        rows, tests = [], []
        for number, plan in enumerate(plans, 1):
            tell(f"{plan.model} ({number} of {len(plans)}): {_state(plan, out / plan.model)}")
            test = _outcome(plan, out / plan.model, options, tell)
            rows.append(row_of(plan, out / plan.model, test, base, minutes, small=small))
            tests.append(test)
            guesses = simple or simple_scores(plans, tests)
            found = comparison_of(base, terms, torch_device, rows, guesses, small=small)
            files.write_json(out / "compare.json", found.as_dict())
        return found


def _plans(
    base: Experiment,
    models: list[str],
    out: Path,
    terms: dict[str, Any],
    recipe: Recipe,
    trusted: bool,
) -> list[Entrant]:
    """The systems that are asked for, and those that were compared here before: they stay in the
    table."""
    before = sorted(path.parent.name for path in out.glob("*/test.json"))
    for name in before:
        if "." in name and name not in models:
            code = _code_of(out / name)
            trust.named_in_file("models", name, out / name, trusted=trusted, recorded=code)
    return [_plan(base, name, terms, recipe) for name in dict.fromkeys([*models, *before])]


def _code_of(folder: Path) -> Any:
    """The record of a model's code in the settings of its run."""
    config = Run(folder).config() if Run(folder).config_file.exists() else {}
    code = config.get("code")
    return code.get("model") if isinstance(code, dict) else None


def _refuse(base: Experiment, terms: dict[str, Any]) -> None:
    """Refuse what would fail for every system."""
    Training(**terms)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise Unsupported("a comparison runs in one process: start it without torchrun")
    if terms["augment"] and not base.problem.spec.symmetries:
        raise Unsupported(f"{base.problem.name} lists no symmetry to augment by")


def _plan(base: Experiment, model: str, terms: dict[str, Any], recipe: Recipe) -> Entrant:
    """The settings of a system's recipe, with what all systems share put in their place."""
    try:
        own = recipe(model)
        view = _own_view(base, own)
        settings = replace(
            own,
            problem=replace(base.problem, **view),
            data=base.data,
            training=replace(own.training, epochs=PLENTY, **terms),
        )
        parameters = parameter_count(build(settings))
    except (Unsupported, UnknownName, DataError, RunError) as error:
        return Entrant(model=model, reason=_first_sentence(error))
    words = tuple(f"its recipe sets problem.{name} to {value!r}" for name, value in view.items())
    return Entrant(model=model, settings=settings, parameters=parameters, view=words)


def _of_problem(base: Experiment, model: str, *, small: bool) -> Experiment:
    """The settings of a system's own recipe for a problem."""
    own = experiment(base.problem_name, model, base.preset)
    return replace(own, model=systems.small(model, own.model)) if small else own


def _own_view(base: Experiment, own: Experiment) -> dict[str, Any]:
    """What a recipe changes of the problem, where the caller has not chosen something else."""
    if isinstance(base.problem, OwnData):
        return {}
    default = registry.find("problems", base.problem_name)
    return {
        f.name: getattr(own.problem, f.name)
        for f in fields(default)
        if getattr(own.problem, f.name) != getattr(default, f.name)
        and getattr(base.problem, f.name) == getattr(default, f.name)
    }


def _refuse_folder(plan: Entrant, folder: Path) -> None:
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


def _state(plan: Entrant, folder: Path) -> str:
    """The next step for a system, in words."""
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


def _outcome(
    plan: Entrant, folder: Path, options: dict[str, Any], tell: Callable[[str], None]
) -> dict[str, Any]:
    """Train and score a system: what `ipot evaluate --json` prints, or a reason.

    A system that diverged has ended. Missing memory or structure may be there the next time.
    """
    if plan.settings is None:
        return {"reason": plan.reason}
    if _test(folder).exists():
        lock.sweep(folder)  # which nobody takes any more: a kill may have left its file
        before = read_test(_test(folder))
        if "reason" in before or before.get("channels") == options["channels"]:
            return before
    # What the system before has left behind is none of this one's memory.
    torch.compiler.reset()
    release_memory()
    busy = _crowded(options["device"])
    if busy:
        tell(f"{busy}: its minutes are worth less than those of a system that has them alone")
    try:
        test = _train(plan.settings, folder, options)
    except Diverged as error:
        test = {"reason": f"diverged: the loss was not finite at step {error.step}"}
    except (Unsupported, DataError) as error:
        return {"reason": _first_sentence(error)}
    except Exception as error:
        if isinstance(error, RuntimeError | MemoryError) and out_of_memory(error):
            return {"reason": "out of memory"}
        if "." not in plan.model or isinstance(error, IpotError | Stopped):
            raise
        # Code of somebody's own: the other systems are compared all the same.
        said = _first_sentence(error).partition("\n")[0][:200]
        return {"reason": f"its code failed: {type(error).__name__}: {said}"}
    test = test | {"busy": f"{busy} when it began"} if busy else test
    files.write_json(_test(folder), test)
    return test


def _crowded(device: str) -> str:
    """A remark if other programs use this machine's cores: minutes on a CPU are not comparable
    then."""
    if choose(device).type != "cpu":
        return ""
    busy, cores = busy_cores()
    if busy <= max(0.5, CROWDED * cores):
        return ""
    return f"other programs kept {min(busy, cores):.1f} of {cores} cores busy"


def _train(settings: Experiment, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    channels = options["channels"]
    how = {name: value for name, value in options.items() if name != "channels"}
    result = run(settings, folder, or_resume=True, **how)
    if not math.isfinite(result.best_validation):
        return {"reason": "diverged: no validation error was finite"}
    own = settings.problem if isinstance(settings.problem, OwnData) else None
    model, known = restore(folder, choose(options["device"]), data=own, trusted=options["trusted"])
    keep = {name: options[name] for name in ("store", "report")}
    found = ask_model(model, known, Question(), channels=channels, **keep).as_dict()
    return found if channels is None else found | {"channels": channels}


def _first_sentence(error: Exception) -> str:
    """A reason short enough for a table, without advice that belongs elsewhere."""
    return str(error).split(". ")[0].rstrip(".")
