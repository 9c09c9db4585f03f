"""What two processes do together; the tests look at what they leave."""

import json
import os
import signal
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from training.toys import CPU, Kill, Poison, fit, relay

from ipot.errors import DataError, Diverged
from ipot.training import journal
from ipot.training.distributed import world
from ipot.training.trainer import Stopped

STEPS = {
    "epochs": 4,
    "batch": 4,
    "precision": "float64",
    "points": 0.75,
    "queries": 0.5,
    "augment": True,
    "average": 0.9,
    "validate_every": 1,
    "save_seconds": 0.0,
}
"""Twelve steps with all choices on."""
FIXED = STEPS | {"points": 1.0, "queries": 1.0, "augment": False}
SHORT = STEPS | {"epochs": 3}


def both(rank: int, size: int, root: Path) -> None:
    """All scenarios in one group of processes, since a group takes seconds to start."""
    journal._tensorboard = lambda folder: None
    os.environ["WORLD_SIZE"] = str(size)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{root / 'meeting'}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    said = {}
    with world(CPU) as here:
        for scenario in SCENARIOS:
            try:
                said[scenario.__name__] = scenario(here, root)
            except Exception:
                said[scenario.__name__] = traceback.format_exc()
    (root / f"said-{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


def equal_stacked(here, root):
    return fit(root / "stacked", world=here, **STEPS).as_dict()


def equal_ragged(here, root):
    return fit(root / "ragged", world=here, data="ragged", **STEPS).as_dict()


def equal_relay(here, root):
    """A relay on meshes that differ, whose neighbours each process finds for its own samples; and
    on a grid that stays the same."""
    ragged = fit(root / "relay", world=here, data="ragged", network=relay("ragged"), **STEPS)
    fixed = fit(root / "relay_fixed", world=here, network=relay(), **FIXED)
    return [ragged.as_dict(), fixed.as_dict()]


def stopped(here, root):
    """Only the second process gets a signal; both stop, and both go on."""
    objective = Kill(4, signal.SIGTERM) if here.rank == 1 else None
    try:
        fit(root / "stopped", world=here, objective=objective, **SHORT)
    except Stopped as error:
        here.barrier()
        return [error.signal, fit(root / "stopped", world=here, **SHORT).steps]


def poisoned(here, root):
    """Only the second process meets a loss that is not finite, in the last step of an epoch."""
    objective = Poison(5) if here.rank == 1 else None
    try:
        fit(root / "poisoned", world=here, objective=objective, **SHORT)
    except Diverged as error:
        return error.step


def indivisible(here, root):
    try:
        fit(root / "indivisible", world=here, batch=3)
    except DataError as error:
        return str(error)


def flags(here, root):
    return [here.any(False), here.any(here.rank == 1), here.any(True), here.first, here.size]


SCENARIOS = (equal_stacked, equal_ragged, equal_relay, stopped, poisoned, indivisible, flags)


def together(root: Path) -> list[dict]:
    """Run both processes and return what each of them said."""
    # Forked, they need not import anything again.
    torch.multiprocessing.start_processes(both, args=(2, root), nprocs=2, start_method="fork")
    return [json.loads((root / f"said-{rank}.json").read_text()) for rank in range(2)]
