"""Numbers of a run for TensorBoard, where it is installed."""

from __future__ import annotations

import io
import os
import socket
import time
from pathlib import Path
from typing import Any


class Board:
    """One event file of TensorBoard, which is written before each call returns.

    TensorBoard's own writer leaves this to a thread, which prints a traceback of its own when the
    disk fails, and tells the caller later or never.
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
    """An event as it lies in a file."""
    # Its attributes are made when it is imported.
    from tensorboard.compat.proto.event_pb2 import Event  # pyrefly: ignore[missing-module-attribute]
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(Event(wall_time=time.time(), **content).SerializeToString())
    return buffer.getvalue()
