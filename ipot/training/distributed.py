"""Several processes under `torchrun`, or one: the loop does not see a difference."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


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
        if self.size == 1:
            return flag
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        tensor = torch.tensor(int(flag), device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return bool(tensor.item())

    def barrier(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            dist.barrier()


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
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        if started:
            dist.destroy_process_group()
