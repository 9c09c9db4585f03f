"""What commands print and write: results as text or JSON, remarks, tables, and how far data are."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipot import files
from ipot.errors import DataError
from ipot.report.tables import bytes_
from ipot.typed_json import with_leaves

if TYPE_CHECKING:  # both import torch, which a list that is printed does not need
    from ipot.data.store import Store


def emit(content: Any) -> None:
    """JSON for a program to read; not-a-number becomes null, since JSON has none."""
    print(json.dumps(_plain(content), indent=2))


def is_emitted(content: Any, flags: Any) -> bool:
    """Write a result to --out and print it with --json, where asked; True if it is printed."""
    if flags.out is not None:
        files.write_json(flags.out, _plain(content))
    if flags.json:
        emit(content)
    return flags.json


def refuse_there(out: Path | None, *, overwrite: bool) -> None:
    """Refuse to write over a file, or into a folder with something in it, that is there already."""
    if out is None or overwrite or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    raise DataError(
        f"--out {out} is there already: choose another, or add --overwrite to write over it"
    )


def _plain(value: Any) -> Any:
    """A value whose NaNs are null, which JSON has instead."""
    return with_leaves(value, lambda x: None if isinstance(x, float) and x != x else x)


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
        from ipot.training.journal import Progress

        self.store, self.quiet = store, quiet
        self.progress = Progress(quiet=quiet, every=5.0)
        self._split = ""
        self._start, self._had = 0.0, 0

    def __call__(self, split: str, done: int, count: int, bytes_each: int) -> None:
        """Progress of one split, from before its first piece on."""
        if split != self._split:
            self._split, self._start, self._had = split, time.monotonic(), done
            if not self.quiet:
                size = bytes_((count - done) * bytes_each)
                missing = f"{count - done} {split} samples"
                say(f"generating {missing}, about {size}, into {self.store.root}")
        text = f"  {split}: {done} of {count}{self._left(done, count)}"
        self.progress.show(text, last=done == count)

    def _left(self, done: int, count: int) -> str:
        """The time that the rest will take if it goes on as since the start."""
        from ipot.training.journal import duration

        made = done - self._had
        if not made or done == count:
            return ""
        seconds = (time.monotonic() - self._start) / made * (count - done)
        return f", about {duration(seconds)} left"
