"""The best weights of a run, on their way to the disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import Tensor

from ipot.training import checkpoint

PATIENCE = 5.0
"""Seconds for which newer best weights wait: safe writing takes as long as a short epoch."""


class Best:
    """Keeps weights in memory at once and on disk before long; `flush` leaves none behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._written = -PATIENCE

    def keep(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Take weights and their header in the place of any before."""
        self._pending = {name: t.detach().clone() for name, t in tensors.items()}, state
        if time.monotonic() - self._written >= PATIENCE:
            self.flush()

    def flush(self) -> None:
        """Write what has not been written yet."""
        if self._pending is not None:
            checkpoint.save(self.path, *self._pending)
            self._pending, self._written = None, time.monotonic()
