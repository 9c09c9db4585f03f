"""`ipot compare`: several systems, the same data, the same minutes."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

from ipot import files
from ipot.commands.common import (
    Generation,
    emit,
    flag_value,
    parse_with_settings,
    say,
    show,
    small_if_asked,
    split_names,
)
from ipot.commands.flags.compare import Compare
from ipot.data.store import Store
from ipot.recipes import ledger
from ipot.recipes.compare import chosen, compare, shared
from ipot.recipes.compare_table import Comparison
from ipot.recipes.experiment import Experiment
from ipot.training.trainer import Stopped


def main(arguments: list[str]) -> int:
    """Run the command."""
    names, rest = split_names(arguments, ["problem"], Compare, "compare")
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
