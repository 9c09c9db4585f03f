"""Several processes under `torchrun`, or one: the loop does not see a difference."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

NEVER = 2**62
"""A step that no run reaches."""


@dataclass(frozen=True)
class World:
    """Who this process is among the others."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether any process raised a flag; all of them get the same answer."""
        return flag if self.size == 1 else bool(self._reduce(int(flag), dist.ReduceOp.MAX))

    def mean(self, value: float) -> float:
        """The mean over all processes."""
        return value if self.size == 1 else self._reduce(value, dist.ReduceOp.SUM) / self.size

    def earliest(self, step: int) -> int:
        """The smallest step that any process names; -1 where none does."""
        if self.size == 1:
            return step
        first = self._reduce(step if step >= 0 else NEVER, dist.ReduceOp.MIN)
        return -1 if first == NEVER else int(first)

    def _reduce(self, value: float, how: dist.ReduceOp) -> float:
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        kind = torch.long if isinstance(value, int) else torch.float64
        tensor = torch.tensor(value, device=device, dtype=kind)
        dist.all_reduce(tensor, op=how)
        return tensor.item()

    def barrier(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            dist.barrier()


def first_process() -> bool:
    """Whether this process, started by `torchrun` or alone, is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def world(device: torch.device) -> Iterator[World]:
    """Join the processes that `torchrun` started; alone where it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    started = not dist.is_initialized()
    if started:
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        # The others wait while the first process generates data.
        patience = timedelta(hours=12)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=patience)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        # What still refers to the group must go first, or its threads abort the process at exit.
        gc.collect()
        if started:
            dist.destroy_process_group()
