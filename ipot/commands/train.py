"""`ipot train`: train a model on a problem, or continue a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from ipot.commands.common import (
    Folder,
    Generation,
    emit,
    flag_value,
    parse,
    parse_with_settings,
    say,
    show,
    small_if_asked,
    split_names,
)
from ipot.data.store import Store
from ipot.errors import RunError, Unsupported
from ipot.recipes import ledger
from ipot.recipes.experiment import Experiment, experiment
from ipot.recipes.running import resume, run
from ipot.recipes.several_seeds import run_seeds
from ipot.run_folder import Run
from ipot.training.distributed import PATIENCE, first_process
from ipot.training.journal import duration, read
from ipot.training.trainer import Result, Stopped

LONGEST = 10_000_000
"""Seconds that processes may wait for each other: torch cannot count to infinity."""


@dataclass(kw_only=True)
class Train:
    """Train a model on a problem and leave a run folder.

    usage: ipot train PROBLEM [MODEL] [flags], for instance

        ipot train darcy --out runs/darcy
        ipot train darcy --preset paper --out runs/paper
        ipot train navier_stokes --problem.viscosity 1e-4 --model.latents 512 --training.epochs 50
        ipot train darcy --seeds 0 1 2 --out runs/spread
        ipot train darcy --problem.files published --out runs/published
        ipot train --resume runs/darcy
        torchrun --max-restarts 3 -m ipot train darcy --out runs/darcy --resume-or-start

    MODEL is ipot unless said. The data are generated first where they are not there yet. Ctrl-C
    stops cleanly with a checkpoint; --resume continues as if nothing had happened. Under torchrun
    the batch is shared among the processes.
    """

    out: Path | None = None
    """Run folder; runs/PROBLEM-MODEL-PRESET unless said."""
    preset: str = "default"
    """default: our own settings; paper: the paper's tables; authors: the same where the code of
    IPOT's authors departs from the paper's equations."""
    small: bool = False
    """Sizes for a first look: small problem, small model, few samples; other flags change them."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Continue this run; beside it only --data, --device, --trust, --peer-timeout, --quiet,
    --record and --json."""
    resume_or_start: bool = False
    """Go on with the run in --out if there is one of the same settings, and start it if not."""
    start_from: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Fine-tune: start from the best weights of another run of the same model."""
    seeds: tuple[int, ...] = ()
    """Train once for each of these seeds and report mean and spread."""
    data: Folder = None
    """Data folder; $IPOT_DATA or the user's cache unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that the run of --resume or --start-from names: only where you know
    where it comes from."""
    peer_timeout: float = PATIENCE
    """Seconds that processes under torchrun wait for one that does not answer."""
    quiet: bool = False
    """No progress."""
    record: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the run down in this ledger when it has ended, e.g. results/runs.json; `ipot evaluate
    --record` adds its errors on the test split."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    try:
        resumed = any(a == "--resume" or a.startswith("--resume=") for a in arguments)
        if resumed and arguments[0].startswith("-"):
            return _resume(parse(Train, arguments, "train"))
        names, rest = split_names(arguments, ["problem", "model"], "train", Train.__doc__)
        base = experiment(
            names["problem"], names.get("model", "ipot"), flag_value(rest, "--preset", "default")
        )
        base = small_if_asked(base, rest)
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
