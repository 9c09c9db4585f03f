"""Several processes under `torchrun`, or one: the loop is the same.

A process that waits for another gets an error at once if that has ended, and after its patience if
that does not answer. Only the first process may take longer, while it generates data: it tells the
others that it is alive.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ipot import files
from ipot.errors import RunError
from ipot.training.settings import PATIENCE

Found = TypeVar("Found")

OF_PEERS = ("gloo", "nccl", "connection closed", "connection reset", "timed out", "socket", "peer")
"""Words of errors that libraries raise where another process is gone; they have no type of their
own."""
NEVER = 2**62
"""A step that no run reaches."""
_groups = itertools.count()


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int = 0
    size: int = 1
    patience: float = PATIENCE

    @property
    def first(self) -> bool:
        """True if this process writes files and reports."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """True in all processes if the flag is True in any."""
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

    def _reduce(self, value: int | float, how: dist.ReduceOp) -> int | float:
        # On the CPU if it has a backend: errors are raised there, and do not end the process.
        device = "cpu" if "cpu:" in dist.get_backend_config() else "cuda"
        dtype = torch.long if isinstance(value, int) else torch.float64
        tensor = torch.tensor(value, device=device, dtype=dtype)
        dist.all_reduce(tensor, op=how)
        return tensor.item()

    def barrier(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            self._reduce(0, dist.ReduceOp.MAX)

    def lead(self, work: Callable[[], Found]) -> Found | None:
        """Run a function in the first process while the others wait.

        It may take any time; the others wait while it is alive. If it raises an error, so do they.
        Its result is returned to all processes if it is a text, a number or a flag; the others get
        None if it is anything else.
        """
        if self.size == 1:
            return work()
        store = dist.distributed_c10d._get_default_store()
        key = f"ipot/lead/{next(_turns)}"
        if not self.first:
            return self._follow(store, key)
        try:
            with _pulse(store, key, self.patience):
                found = work()
        except BaseException as error:
            words = str(error) or type(error).__name__
            store.set(f"{key}/done", json.dumps({"error": words}))
            raise
        told = found if isinstance(found, str | int | float) else None
        store.set(f"{key}/done", json.dumps({"found": told}))
        return found

    def _follow(self, store: Any, key: str) -> Any:
        """Wait for the first process while it is alive."""
        last, seen, pause = b"", time.monotonic(), 0.005
        while not store.check([f"{key}/done"]):
            if store.check([f"{key}/pulse"]) and (now := store.get(f"{key}/pulse")) != last:
                last, seen = now, time.monotonic()
            if time.monotonic() - seen > self.patience:
                raise _lost(self.patience, "the first process gives no sign of life")
            time.sleep(pause)
            pause = min(2 * pause, 0.5, self.patience / 10)
        told = json.loads(store.get(f"{key}/done"))
        if "error" in told:
            raise RunError(f"the first process of this run has ended: {told['error']}")
        return told["found"]


_turns = itertools.count()
"""All processes count alike, so that each turn has keys of its own."""


@contextmanager
def _pulse(store: Any, key: str, patience: float) -> Iterator[None]:
    """Tell the others, from a thread, that this process is alive, several times within their
    patience."""
    over = threading.Event()

    def beat() -> None:
        with suppress(RuntimeError):  # the others are gone, and this process will find out
            for count in itertools.count():
                store.set(f"{key}/pulse", str(count))
                if over.wait(min(5.0, patience / 5)):
                    return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _lost(patience: float, why: str) -> RunError:
    return RunError(
        f"another process of this run has ended, or has not answered for {patience:g} s: {why}. "
        "Look at what it said. The last checkpoint is kept: start all processes again with "
        "--resume, or with --resume-or-start."
    )


def restarted() -> bool:
    """True if `torchrun` has started this process again after a failure."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def launch() -> str | None:
    """The `torchrun` that started this process, the same after each restart; None if none did."""
    return files.process_token(os.getppid()) if "TORCHELASTIC_RESTART_COUNT" in os.environ else None


def first_process() -> bool:
    """True if this process reports: the first under `torchrun`, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def world(device: torch.device, patience: float = PATIENCE) -> Iterator[World]:
    """Join the processes that `torchrun` started; alone where it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    started = not dist.is_initialized()
    lost = False
    try:
        if started:
            backend = "gloo"
            if device.type == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
                backend = "cpu:gloo,cuda:nccl"
            limit = timedelta(seconds=patience)
            store, rank, size = next(dist.rendezvous("env://", timeout=limit))
            # The store outlives a group: a second one of the same processes, that of the next seed
            # say, would find the addresses of the first in it and wait for them.
            own = dist.PrefixStore(f"ipot/{next(_groups)}", store)
            dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=limit)
        yield World(dist.get_rank(), dist.get_world_size(), patience)
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or any(w in str(error).lower() for w in OF_PEERS)
        if not lost:
            raise
        raise _lost(patience, (str(error).strip().splitlines() or [""])[0][:200]) from error
    finally:
        # What still refers to the group must go first, or its threads abort the process at exit.
        gc.collect()
        if started and dist.is_initialized():
            _leave(device, lost)


def _leave(device: torch.device, lost: bool) -> None:
    """Leave the group, without waiting for kernels that wait for a process that is gone."""
    if lost and device.type == "cuda":
        with suppress(Exception):
            dist.distributed_c10d._abort_process_group()
        return
    dist.destroy_process_group()
