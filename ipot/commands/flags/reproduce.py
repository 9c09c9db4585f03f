"""The flags of `ipot reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from ipot.commands.flags import File, Folder


@dataclass(kw_only=True)
class Reproduce:
    """Run items of the paper, and write tables with ours beside the printed numbers.

    usage: ipot reproduce [ITEM ...] [flags], for instance

        ipot reproduce --list
        ipot reproduce table1/darcy --seeds 0 1 2
        ipot reproduce table1 --minutes 2
        ipot reproduce figure3 shallow-water --shard 1/2
        ipot reproduce settings
        ipot reproduce all --small

    An ITEM is table1, table2, table3, figure3, figure4, figure5, shallow-water, perceiver-io,
    navier-stokes, interpolated or claims; a row of one, like table1/darcy; a cell, like
    table1/darcy/ipot; all; or settings, which prints the appendix's tables of sizes.

    What will be run, and about how long it takes here, is said first. What is in the ledger is not
    run again, and what was stopped goes on. The folder then has reproduction.md, .json, .tex and
    figures.
    """

    usual: ClassVar = (
        *("items", "list", "minutes", "seeds", "shard", "small", "out", "record", "device"),
        *("quiet", "json"),
    )

    items: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Items, rows or cells; all of them by `all`."""
    list: bool = False
    """Run nothing: list every cell with its command, its cost, the printed number, ours."""
    minutes: float | None = None
    """Training time in minutes: of each run, instead of its published schedule; numbers are
    labelled so."""
    seeds: tuple[int, ...] = (0,)
    """Train once for each of these seeds."""
    shard: str | None = None
    """Only part I of N of the runs, as I/N: one for each machine or GPU."""
    small: bool = False
    """Sizes for a first look: small problems and systems, two epochs; all of it on a CPU in
    minutes, to see it work."""
    files: tuple[str, ...] = ()
    """Published data instead of generated ones, as PROBLEM=FOLDER."""
    out: Folder = None
    """Where the result goes: a folder for runs, tables and figures; runs/reproduction unless
    said."""
    record: File = None
    """Write it down in this ledger: results/reproduction.json by default, with --small
    reproduction-ledger.json in --out."""
    merge: tuple[Path, ...] = ()
    """Ledgers of other machines: take their records over before anything else. Where both have a
    record of a run, theirs stays."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON: the cells."""


FLAGS = Reproduce
