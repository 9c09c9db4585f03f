"""`ipot compare`: several systems, the same data, the same minutes."""

from __future__ import annotations

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ipot import files
from ipot.commands.common import (
    Folder,
    Generation,
    emit,
    flag_value,
    parse_with_settings,
    say,
    show,
    small_if_asked,
    split_names,
)
from ipot.data.store import Store
from ipot.recipes import ledger
from ipot.recipes.compare import chosen, compare, shared
from ipot.recipes.compare_table import Comparison
from ipot.recipes.experiment import Experiment
from ipot.training.trainer import Stopped


@dataclass(kw_only=True)
class Compare:
    """Train several systems for the same time on the same data, and score them side by side.

    usage: ipot compare PROBLEM [flags], for instance

        ipot compare darcy --minutes 1
        ipot compare darcy --models ipot,transformer --minutes 5 --augment --out runs/five
        ipot compare navier_stokes --problem.viscosity 1e-4 --count.train 500
        ipot compare burgers --small --minutes 0.2 --device cpu

    Each system keeps the settings of its own recipe; data, minutes, seed and augmentation are the
    same for all. Beside the error on the test split stand what others have published and what the
    mean field scores. A system that cannot be trained is listed with the reason. Ctrl-C stops
    cleanly, and the same command goes on. The folder then holds a run for every system, and
    compare.md, compare.json and compare.png.
    """

    models: str = "all"
    """Names with commas between them; all takes every system that can."""
    minutes: float = 1.0
    """Training time of each system, without its set-up."""
    out: Path | None = None
    """Folder; runs/compare-PROBLEM unless said."""
    seed: int = 0
    """Of the initial weights and the order of samples."""
    preset: str = "default"
    """default: our own schedule; paper: the published settings."""
    small: bool = False
    """Sizes for a first look: small systems, a small problem and few samples; flags of the problem
    and --count may change the latter."""
    augment: bool = False
    """Turn every sample by a random symmetry of the problem, for every system."""
    data: Folder = None
    """Data folder; $IPOT_DATA or the user's cache unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import systems outside ipot that were compared in the folder before and are not named now."""
    quiet: bool = False
    """No progress."""
    record: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write every system that has ended down in this ledger, with its test error, e.g.
    results/runs.json."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    names, rest = split_names(arguments, ["problem"], "compare", Compare.__doc__)
    base = shared(names["problem"], flag_value(rest, "--preset", "default"))
    base, flags = parse_with_settings(
        small_if_asked(base, rest),
        Compare,
        rest,
        f"compare {names['problem']}",
        parts=("problem", "data"),
    )
    command = shlex.join(["ipot", "compare", *arguments])
    out = flags.out or Path("runs") / f"compare-{base.problem_name}"
    try:
        found = _compare(base, flags, out)
    except (Stopped, KeyboardInterrupt) as stop:
        say(f"ipot compare: stopped; the same command goes on: {command}")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    if flags.record is not None:
        ledger.add(flags.record, _records(found, out, command))
    _report(found, out, command, flags)
    return 0 if any(row.error is not None for row in found.rows) else 1


def _compare(base: Experiment, flags: Any, out: Path) -> Comparison:
    if flags.record is not None:
        ledger.read(flags.record)  # refused now and not behind the runs
    store = Store(flags.data)
    return compare(
        base,
        chosen(flags.models),
        out,
        minutes=flags.minutes,
        seed=flags.seed,
        augment=flags.augment,
        small=flags.small,
        device=flags.device,
        store=store,
        report=Generation(store, quiet=flags.quiet),
        tell=(lambda text: None) if flags.quiet else say,
        quiet=flags.quiet,
        trusted=flags.trust,
    )


def _records(found: Comparison, out: Path, command: str) -> list[ledger.Record]:
    """Those that were scored; the others have their reason in compare.json."""
    return [
        ledger.record_of(out / row.model, command=command, tests={ledger.AS_TRAINED: row.error})
        for row in found.rows
        if row.error is not None
    ]


def _report(found: Comparison, out: Path, command: str, flags: Any) -> None:
    from ipot.report import comparison, plots, tables

    files.write_text(out / "compare.md", comparison.page(found, command))
    scored = any(row.error is not None for row in found.rows)
    if scored:
        plots.save(plots.comparison(found), out / "compare.png")
    if flags.json:
        emit(found.as_dict() | {"out": str(out)})
        return
    rows, footnotes = comparison.cells(found)
    show(tables.table(comparison.heading(found), comparison.columns(found), rows))
    for line in footnotes:
        print(line)
    say(f"written: {out}/compare.md, .json" + (" and .png" if scored else ""))
