"""`ipot compare`: several systems, the same data, the same minutes."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ipot import registry
from ipot.commands.flags.compare import Compare
from ipot.commands.flags.own_data import OwnData
from ipot.commands.output import Generation, emit, say, show
from ipot.commands.parsing import flag_value, parse, parse_with_settings, split_names
from ipot.data.store import Store
from ipot.errors import UnknownName, Unsupported, shown
from ipot.own.compare import side_by_side
from ipot.recipes import ledger
from ipot.recipes.compare import chosen, compare, shared
from ipot.recipes.compare_table import Comparison
from ipot.recipes.experiment import Experiment, small
from ipot.training.trainer import Stopped

PROBLEMS_ALONE = ("preset", "small", "augment", "data", "record")
"""Flags that mean nothing for your own data."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    command = shlex.join(["ipot", "compare", *arguments])
    names, rest = split_names(arguments, ["problem"], Compare, "compare")
    try:
        if _is_path(names["problem"]):
            found, out, flags = _on_own_data(Path(names["problem"]), rest)
        else:
            found, out, flags = _on_problem(names["problem"], rest, command)
    except (Stopped, KeyboardInterrupt) as stop:
        say(f"ipot compare: stopped; the same command goes on: {command}")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    _report(found, out, command, flags)
    return 0 if any(row.error is not None for row in found.rows) else 1


def _is_path(word: str) -> bool:
    """Whether a file or folder is meant, and no problem; `./darcy` is a folder in any case."""
    if word.replace("-", "_").lower() in registry.names("problems"):
        return False
    return os.sep in word or "*" in word or Path(word).exists()


def _on_problem(name: str, rest: list[str], command: str) -> tuple[Comparison, Path, Any]:
    try:
        base = shared(name, flag_value(rest, "--preset", "default"))
    except UnknownName as error:
        if "." in name or name in registry.names("problems"):
            raise
        raise UnknownName(f"{error} Nor is {shown(name)} a file or folder here.") from None
    base, flags = parse_with_settings(
        small(base) if "--small" in rest else base,
        Compare,
        rest,
        f"compare {name}",
        parts=("problem", "data"),
    )
    _refuse_said(flags, [f.name for f in fields(OwnData)], f"data of your own, not for {name}")
    out = flags.out or Path("runs") / f"compare-{base.problem_name}"
    found = _compare(base, flags, out)
    if flags.record is not None:
        ledger.add(flags.record, _records(found, out, command))
    return found, out, flags


def _on_own_data(path: Path, rest: list[str]) -> tuple[Comparison, Path, Any]:
    flags = parse(Compare, rest, f"compare {path}")
    _refuse_said(flags, PROBLEMS_ALONE, "a built-in problem, not for data of your own")
    out = flags.out or Path("runs") / f"compare-{path.stem}"
    found = side_by_side(
        path,
        flags.models,
        say=(lambda line: None) if flags.quiet else say,
        out=out,
        minutes=flags.minutes,
        device=flags.device,
        seed=flags.seed,
        trusted=flags.trust,
        quiet=flags.quiet,
        **flags.options(),
    )
    return found, out, flags


def _refuse_said(flags: Any, names: Sequence[str], what: str) -> None:
    """Refuse flags that were said and are for something else."""
    default = {f.name: f.default for f in fields(Compare)}
    if said := [n for n in names if getattr(flags, n) != default[n]]:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise Unsupported(f"{listed}: for {what}. Leave it out.")


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
    from ipot.report import comparison, tables

    written = comparison.write(found, out, command)
    if flags.json:
        emit(found.as_dict() | {"out": str(out)})
        return
    rows, footnotes = comparison.cells(found)
    show(tables.table(comparison.heading(found), comparison.columns(found), rows))
    for line in (*footnotes, *found.remarks):
        print(line)
    say(f"written: {', '.join(str(out / name) for name in ('compare.json', *written))}")
