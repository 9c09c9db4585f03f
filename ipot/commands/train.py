"""`ipot train`: train a model on a problem, or continue a run."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from ipot.commands.flags.train import Train
from ipot.commands.output import Generation, emit, say, show
from ipot.commands.parsing import flag_value, parse, parse_with_settings, split_names
from ipot.data.store import Store
from ipot.errors import RunError, Unsupported
from ipot.recipes import ledger
from ipot.recipes.experiment import Experiment, experiment, small
from ipot.recipes.running import resume, run
from ipot.recipes.several_seeds import run_seeds
from ipot.run_folder import Run
from ipot.training.distributed import first_process
from ipot.training.journal import duration, read
from ipot.training.trainer import Result, Stopped

LONGEST = 10_000_000
"""Seconds that processes may wait for each other: torch cannot count to infinity."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    try:
        resumed = any(a == "--resume" or a.startswith("--resume=") for a in arguments)
        if resumed and arguments[0].startswith("-"):
            return _resume(parse(Train, arguments, "train"))
        names, rest = split_names(arguments, ["problem", "model"], Train, "train")
        base = experiment(
            names["problem"], names.get("model"), flag_value(rest, "--preset", "default")
        )
        if "model" not in names and base.model_name != "ipot" and "--quiet" not in rest:
            say(
                f"model: {base.model_name}, the best so far on {base.problem_name}; "
                f"`ipot train {base.problem_name} ipot` trains the paper's"
            )
        base = small(base) if "--small" in rest else base
        settings, flags = parse_with_settings(
            base, Train, rest, "train " + " ".join(names.values())
        )
        return _train(settings, flags, shlex.join(["ipot", "train", *arguments]))
    except Stopped as stop:
        say(f"ipot train: {stop}")
        return 128 + stop.signal


def _train(settings: Experiment, flags: Any, command: str) -> int:
    _refuse_timeout(flags.peer_timeout)
    if flags.resume is not None:
        raise RunError("--resume takes its settings from the run: leave out problem and model")
    name = f"{settings.problem_name}-{settings.model_name}-{settings.preset}"
    out = flags.out or Path("runs") / name
    if flags.record is not None:
        ledger.read(flags.record)  # refused now and not behind the run
    store = Store(flags.data)
    generation = Generation(store, quiet=flags.quiet)
    options: dict[str, Any] = {
        "device": flags.device,
        "store": store,
        "start_from": flags.start_from,
        "patience": flags.peer_timeout,
    }
    options |= {"report": generation, "quiet": flags.quiet, "trusted": flags.trust}
    if flags.seeds:
        if settings.training.seed != 0:
            raise Unsupported(
                f"--seed {settings.training.seed}: --seeds says which; leave one of them out"
            )
        summary = run_seeds(settings, out, list(flags.seeds), **options)
        if not first_process():
            return 0
        if flags.record is not None:
            folders = [out / f"seed-{seed}" for seed in flags.seeds]
            ledger.add(flags.record, [ledger.record_of(f, command=command) for f in folders])
        if flags.json:
            emit(summary | {"out": str(out)})
        else:
            for row in summary["runs"]:
                print(f"seed {row['seed']}: validation {row['best_validation']:.5f}")
            print(f"mean {summary['mean']:.5f}, spread {summary['spread']:.5f}")
        return 0
    result = run(settings, out, or_resume=flags.resume_or_start, **options)
    _record(out, flags, command)
    _report(result, out, flags)
    return 0


def _record(out: Path, flags: Any, command: str | None) -> None:
    if flags.record is not None and first_process():
        ledger.add(flags.record, [ledger.record_of(out, command=command)])


def _refuse_timeout(seconds: float) -> None:
    if not 0 < seconds <= LONGEST:
        raise Unsupported(
            f"--peer-timeout must be seconds, more than 0 and at most {LONGEST}, got {seconds}"
        )


def _resume(flags: Train) -> int:
    _refuse_timeout(flags.peer_timeout)
    own = ("resume", "data", "device", "trust", "peer_timeout", "quiet", "record", "json")
    other = [
        f.name for f in fields(Train) if f.name not in own and getattr(flags, f.name) != f.default
    ]
    if flags.resume is None or other:
        extra = ", ".join(f"--{name.replace('_', '-')}" for name in other)
        raise RunError(f"--resume takes its settings from the run: leave out {extra}")
    result = resume(
        flags.resume,
        device=flags.device,
        store=Store(flags.data),
        quiet=flags.quiet,
        trusted=flags.trust,
        patience=flags.peer_timeout,
    )
    _record(flags.resume, flags, None)
    _report(result, flags.resume, flags)
    return 0


def _report(result: Result, out: Path, flags: Any) -> None:
    from ipot.report import plots, tables

    if not first_process():
        return

    rows = read(Run(out).metrics)
    plots.save(plots.training(rows), out / "loss.png")
    if flags.json:
        emit(result.as_dict() | {"out": str(out)})
        return
    cells = [
        ["relative L2 on validation samples", f"{result.best_validation:.5f}"],
        ["reached in epoch", f"{result.best_epoch} of {result.epochs}"],
        ["training loss at the end", f"{result.loss:.5f}"],
        ["time", f"{duration(result.seconds)}, {result.steps} steps"],
        ["step", f"{result.step_kind}, {result.precision}"],
    ]
    show(tables.table(str(out), ["", "value"], cells))
    trust = " --trust" if "code" in Run(out).config() else ""
    say(f"next: ipot evaluate {out}{trust}    ipot plot {out}{trust}")
