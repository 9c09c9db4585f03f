"""`ipot data inspect`: what is in a file or a folder, and what could be learned from it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

import tyro

from ipot.commands.common import emit, parse, show
from ipot.errors import shown
from ipot.formats import Inventory, inspect
from ipot.report import tables

ABOUT = """
usage: ipot data inspect PATH [--json]    (ipot data inspect --help tells more)

  inspect   what is in a file or a folder: names, sizes, ranges, missing values
"""


@dataclass
class Inspect:
    """Say what is in a file or a folder, and what could be inputs and targets.

        ipot data inspect cases/
        ipot data inspect era5.nc

    Reads .npz, .npy, CSV, Parquet, HDF5 (also of The Well), VTU and VTP, netCDF, Zarr and GRIB, and
    folders of such files with a case in each.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """File or folder."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name != "inspect":
        helped = name in ("-h", "--help")
        unknown = f"ipot data: unknown {shown(name)}\n\n" if name and not helped else ""
        print(unknown + cleandoc(ABOUT), file=sys.stdout if helped else sys.stderr)
        raise SystemExit(0 if helped else 2)
    flags = parse(Inspect, rest, "data inspect")
    found = inspect(flags.path)
    if flags.json:
        emit(asdict(found))
    else:
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
