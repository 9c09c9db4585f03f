"""`ipot data inspect`: what is in a file or a folder, and what could be learned from it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from inspect import cleandoc

from ipot.commands.flags.data import ABOUT, FLAGS, Inspect
from ipot.commands.output import is_emitted, refuse_there, show
from ipot.commands.parsing import parse
from ipot.errors import shown
from ipot.formats import Inventory, inspect
from ipot.report import tables


def main(arguments: list[str]) -> int:
    """Run the command."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name not in FLAGS:
        unknown = f"ipot data: unknown {shown(name)}\n\n" if name else ""
        print(unknown + cleandoc(ABOUT), file=sys.stderr)
        raise SystemExit(2)
    flags = parse(Inspect, rest, "data inspect")
    refuse_there(flags.out, overwrite=flags.overwrite)
    found = inspect(flags.path)
    if not is_emitted(asdict(found), flags):
        _show(found)
    return 0


def _show(found: Inventory) -> None:
    sizes = ""
    if found.points is not None:
        low, high = found.points
        sizes = f", {low:,} points" if low == high else f", {low:,} to {high:,} points"
    count = f"{found.cases:,} case{'s' if found.cases != 1 else ''}"
    heading = f"{found.path}: {found.kind}, {count}{sizes}"
    columns = ["name", "can be", "shape", "type", "lowest", "highest", "mean", "missing", "unit"]
    rows: list[list[object]] = [
        [
            *(v.name, v.role, v.shape, v.dtype, _number(v.low), _number(v.high), _number(v.mean)),
            *(f"{v.missing:,}" if v.missing else "", v.units),
        ]
        for v in found.variables
    ]
    print(heading)
    show(tables.table("", columns, rows))
    for note in found.notes:
        print(note)
    if found.suggestion:
        print(f"Train on it, with these names or others:  {found.suggestion}")
    elif any(v.role.startswith("input") for v in found.variables):
        print("To train, mend what is noted above, or name fields: ipot fit --help")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
