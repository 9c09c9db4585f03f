"""What several commands share: parsing, printing, reporting of generated data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ipot.data.store import Store
from ipot.report.tables import bytes_
from ipot.training.journal import Progress

Flags = TypeVar("Flags")

Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


def parse(kind: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """The flags of a command from its dataclass; wrong usage exits with status 2."""
    return tyro.cli(
        kind,
        args=list(arguments),
        prog=f"ipot {command}",
    )


def emit(content: Any) -> None:
    """JSON for a program to read; not-a-number becomes null, since JSON has none."""
    print(json.dumps(_plain(content), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def say(text: str) -> None:
    """A remark that is not the result: it goes to stderr, so that stdout can be piped."""
    print(text, file=sys.stderr, flush=True)


def show(table: Any) -> None:
    """A table, as wide as it needs to be."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(table)


class Generation:
    """Says how large the data will be before the folder is filled, then how far it is."""

    def __init__(self, store: Store, *, quiet: bool = False) -> None:
        self.store, self.quiet = store, quiet
        self.progress = Progress(quiet=quiet, every=5.0)
        self._split = ""

    def __call__(self, split: str, done: int, count: int, bytes_each: int) -> None:
        """Progress of one split, from before its first piece on."""
        if split != self._split and not self.quiet:
            size = bytes_((count - done) * bytes_each)
            say(f"generating {count - done} {split} samples, about {size}, into {self.store.root}")
        self._split = split
        self.progress.show(f"  {split}: {done} of {count}", last=done == count)
