"""What several commands share: parsing, printing, reporting of generated data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ipot.data.store import Store
from ipot.training.journal import Progress

Flags = TypeVar("Flags")

Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


def parse(kind: type[Flags], arguments: Sequence[str], command: str, default: Any = None) -> Flags:
    """The flags of a command from its dataclass; wrong usage exits with status 2."""
    keys = {} if default is None else {"default": default}
    return tyro.cli(
        kind,
        args=list(arguments),
        prog=f"ipot {command}",
        **keys,
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


@dataclass
class Generation:
    """Says how large the data will be before the folder is filled, then how far it is."""

    store: Store
    bytes_each: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        self.progress = Progress(quiet=self.quiet, every=5.0)

    def announce(self, problem: Any, counts: dict[str, tuple[int, int]], resolution: Any) -> None:
        """`counts` maps a split to (wanted, already there)."""
        missing = {s: max(0, want - have) for s, (want, have) in counts.items()}
        if not any(missing.values()) or self.quiet:
            return
        size = sum(missing.values()) * problem.bytes_each(resolution)
        what = ", ".join(f"{n} {s}" for s, n in missing.items() if n)
        say(f"generating {problem.name}: {what} samples, about {_size(size)} in {self.store.root}")

    def __call__(self, split: str, done: int, count: int) -> None:
        """Progress of one split."""
        self.progress.show(f"  {split}: {done} of {count}", last=done == count)


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
