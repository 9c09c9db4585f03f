"""Two processes, one of which is lost; each writes down what became of it."""

import json
import multiprocessing
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from training.toys import CPU, Kill, fit

from ipot.errors import DataError, RunError
from ipot.training import journal
from ipot.training.distributed import world

PATIENCE = 0.5


def two(scenario, root: Path, survivors=(0, 1)) -> dict[int, list]:
    """Run a scenario in two processes; what those that survive have said."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=one, args=(scenario, rank, root)) for rank in range(2)]
    for process in processes:
        process.start()
    try:
        for rank in survivors:
            processes[rank].join(60)
            assert processes[rank].exitcode == 0
    finally:
        for process in processes:  # some are stopped for good
            process.kill()
            process.join()
    return {rank: json.loads((root / f"said-{rank}").read_text()) for rank in survivors}


def one(scenario, rank: int, root: Path) -> None:
    journal._tensorboard = lambda folder: None
    os.environ["WORLD_SIZE"] = "2"
    meeting = f"file://{root / 'meeting'}"
    # Time enough to meet on a busy machine; the patience of the world is a shorter one.
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=3)
    )
    said = []
    try:
        with world(CPU, PATIENCE) as here:
            scenario(here, root, said)
    except RunError as error:
        said.append(str(error))
    (root / f"said-{rank}").write_text(json.dumps(said))
    os._exit(0)  # without waiting for the other, which may be stopped


def slow_first(here, root, said):
    """Longer than the patience, as generating data is; then it refuses something."""

    def generate():
        time.sleep(3 * PATIENCE)
        return "made"

    def refuse():
        raise DataError("no such data")

    said.append(here.lead(generate))
    said.append(here.lead(lambda: [1]))
    try:
        here.lead(refuse)
    except DataError:
        said.append("refused")
    except RunError as error:
        said.append(str(error))


def killed_in_training(here, root, said):
    objective = Kill(4, signal.SIGKILL) if here.rank == 1 else None
    fit(root / "run", world=here, objective=objective, save_seconds=0.0)


def stopped_in_training(here, root, said):
    """A machine that is cut off closes no connection."""
    objective = Kill(4, signal.SIGSTOP) if here.rank == 1 else None
    fit(root / "run", world=here, objective=objective, save_seconds=0.0)


def first_stopped(here, root, said):
    here.lead(lambda: os.kill(os.getpid(), signal.SIGSTOP))
