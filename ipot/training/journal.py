"""Reports of a run in progress: metrics on disk and for TensorBoard, progress on the screen."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipot import files, safe_read
from ipot.errors import RunError, warn_user

NUMBERS = ("loss", "validation", "learning_rate", "seconds", "steps_per_second")
"""Entries of a row besides its epoch and step."""


class Journal:
    """Appends a line for each epoch to `metrics.jsonl`, and to TensorBoard where installed.

    `say` tells the user that TensorBoard's files could not be written: training goes on without.
    """

    def __init__(
        self, path: Path, *, resume_step: int = 0, say: Callable[[str], object] = warn_user
    ) -> None:
        self.path, self._unsynced, self._say = path, False, say
        # A link that leads nowhere yet would have the rows written to wherever it points.
        if path.exists() or path.is_symlink():
            # Steps after the checkpoint will be run again: forget what they said the first time.
            kept = [row for row in read(path) if row["step"] <= resume_step]
            files.write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._board: Board | None = None
        with self._optional():
            self._board = _tensorboard(path.parent)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row. It survives the end of the process, and after `sync` a power cut."""
        with self._told():
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self._unsynced = True
        if self._board is not None:
            values = {
                name: value
                for name, value in row.items()
                if isinstance(value, int | float) and name not in ("epoch", "step")
            }
            with self._optional():
                self._board.add_scalars(values, row["step"])

    def sync(self) -> None:
        """Write all rows to disk. This must happen before the checkpoint that counts them is
        written: a run that resumed from it would lack them."""
        if self._unsynced:
            with self._told():
                files.sync(self.path)
                files.sync(self.path.parent)
            self._unsynced = False

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror or error}. The last checkpoint is "
                f"kept: make room, and go on with `ipot train --resume {self.path.parent}`."
            ) from error

    @contextmanager
    def _optional(self) -> Iterator[None]:
        """Stop writing for TensorBoard when the disk fails: `metrics.jsonl` has the same
        numbers."""
        try:
            yield
        except OSError as error:
            self._board = None
            self._say(
                f"cannot write {self.path.parent / 'tensorboard'}: {error.strerror or error}. "
                f"Training goes on without TensorBoard; {self.path.name} has all numbers."
            )


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a journal, without lines that are damaged or cut short."""
    rows = []
    try:
        for line in safe_read.read_lines(path):
            try:
                row = safe_read.parse_json(line, path)
            except RunError:
                continue
            if _is_row(row):
                rows.append(row)
    except FileNotFoundError:
        return []
    return rows


def _is_row(row: Any) -> bool:
    """True if a line is a row of a journal: whole step and epoch, and numbers elsewhere."""
    if not isinstance(row, dict):
        return False
    counts = (row.get("step"), row.get("epoch", 0))
    numbers = [row[name] for name in NUMBERS if row.get(name) is not None]
    return all(type(value) is int and 0 <= value < 1 << 63 for value in counts) and all(
        type(value) is float or (type(value) is int and abs(value) < 1 << 63) for value in numbers
    )


class Progress:
    """Progress as a line that is redrawn on a terminal, and elsewhere as a new line now and
    then."""

    def __init__(self, *, quiet: bool = False, every: float = 10.0) -> None:
        self.quiet, self.every = quiet, every
        self.live = sys.stderr.isatty()
        self._last = -1e9

    def show(self, text: str, *, last: bool = False) -> None:
        """Show a text; all but the last may be skipped."""
        now = time.monotonic()
        pause = 0.2 if self.live else self.every
        if self.quiet or (not last and now - self._last < pause):
            return
        self._last = now
        if self.live:
            sys.stderr.write("\r\033[K" + text + ("\n" if last else ""))
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()


class Speed:
    """Steps a second over the last few seconds."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = [(time.monotonic(), 0)]

    def tick(self) -> None:
        """Count a step."""
        now, count = time.monotonic(), self.marks[-1][1] + 1
        if now - self.marks[-1][0] > 0.5 or len(self.marks) == 1:
            self.marks = [*self.marks[-10:], (now, count)]
        else:
            self.marks[-1] = (self.marks[-1][0], count)

    def rate(self) -> float:
        """Steps a second."""
        (t0, n0), (_, n1) = self.marks[0], self.marks[-1]
        return (n1 - n0) / max(1e-9, time.monotonic() - t0)


def duration(seconds: float) -> str:
    """A number of seconds in words."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def _tensorboard(folder: Path) -> Board | None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        return None
    return Board(folder / "tensorboard")


class Board:
    """A TensorBoard event file, written before each call returns.

    TensorBoard's own writer uses a thread, which prints a traceback when the disk fails and tells
    the caller late or never.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        # TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / name
        with self.path.open("xb") as file:
            file.write(_record(file_version="brain.Event:2"))

    def add_scalars(self, values: dict[str, float], step: int) -> None:
        """Add numbers by their names."""
        from torch.utils.tensorboard.summary import scalar

        records = (
            _record(summary=scalar(name, value), step=step) for name, value in values.items()
        )
        content = b"".join(records)
        with self.path.open("ab") as file:
            file.write(content)


def _record(**content: Any) -> bytes:
    """An event in the format of the file."""
    # Its attributes are made when it is imported.
    from tensorboard.compat.proto.event_pb2 import Event  # pyrefly: ignore[missing-module-attribute]
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(Event(wall_time=time.time(), **content).SerializeToString())
    return buffer.getvalue()
