"""The trainer's own step, timed with all that the trainer chooses for it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ipot.bench.counts import Work
from ipot.bench.measuring import Terms, Timing, forget, held_memory, memory_since, time_calls
from ipot.bench.rows import Row, lacks
from ipot.data.dataset import Dataset
from ipot.device import out_of_memory, reset_peak_memory, synchronize
from ipot.errors import RunError
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.training.distributed import World
from ipot.training.draws import Draw, Draws, ahead, steps_of
from ipot.training.execution import choose, precision_for
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Step, fast_products


def time_ours(
    model: Operator,
    data: Dataset,
    settings: Training,
    terms: Terms,
    row: Row,
    work: Work | None,
    *,
    by_epochs: bool = False,
    witness: Callable[[Step], None] = lambda step: None,
) -> Row:
    """A row with its numbers, or with the reason why there are none.

    Steps are timed one by one and the median is taken; where they differ in size, whole epochs are
    timed instead and shared out among their steps, so that each size counts as often as it comes.
    The `witness` is shown the first step when it is done.
    """
    forget()
    device, said, world = terms.device, [*row.notes, *lacks(terms.device)], World()
    precision = precision_for(settings, device, said.append)
    draws = Draws(data, model.spec, settings)
    before = held_memory(device)
    reset_peak_memory(device)
    step = Step(
        *(model.train(), RelativeL2(), make_optimizer(model, settings, [], device), draws),
        settings,
        device=device,
        precision=precision,
        mode=choose(settings, data, device, world, said.append),
        world=world,
        say=said.append,
    )
    batches, numbers = _batches(draws, 0, device), itertools.count()
    start = time.perf_counter()
    try:
        with fast_products():

            def call() -> None:
                step(next(batches), next(numbers), settings.learning_rate)

            call()
            synchronize(device)
            first = time.perf_counter() - start
            loss, _ = step.read()
            witness(step)
            if by_epochs:
                _once_each(step, draws, settings.learning_rate)
                steps = draws.steps_per_epoch
                batches = _batches(draws, steps, device)  # from the start of an epoch
                timing = _time_epochs(call, steps, terms)
            else:
                timing = time_calls(call, device, seconds=terms.seconds)
    except (RuntimeError, MemoryError, RunError) as error:
        if not out_of_memory(error):
            raise
        return replace(row, reason=f"out of memory at batch {row.batch}")
    finally:
        step.close()
    row = replace(
        row,
        kind=step.mode,
        precision=precision,
        first_loss=loss,
        setup_seconds=max(0.0, first - 1e-3 * timing.ms),
        notes=tuple(said),
    )
    memory = memory_since(before, device)
    return per_epoch(row.timed(timing, memory, work, terms.top), len(data), settings)


def first_gradients(step: Step) -> list[Tensor]:
    """The gradients of a step that was the first, clipped as they were: they are all that there is
    in the optimiser's averages."""
    found = []
    for group in step.optimizer.param_groups:
        share = 1.0 - group["betas"][0]
        for p in group["params"]:
            mean = step.optimizer.state[p].get("exp_avg")
            found.append(torch.zeros_like(p) if mean is None else mean / share)
    return found


def per_epoch(row: Row, samples: int, settings: Training) -> Row:
    """The row with the time of an epoch of so many samples."""
    steps = steps_of(samples, row.batch, settings)
    return replace(row, epoch_seconds=1e-3 * (row.ms or 0.0) * steps)


def _batches(draws: Draws, first: int, device: torch.device) -> Iterator[Draw | Batch]:
    """What the steps work on, from a step on, as the trainer has it: samples that do not lie on the
    device are collated between the steps, and that counts."""
    if draws.data.resident:
        return ahead(draws, first, device)
    return map(draws.ragged_batch, itertools.count(first))


def _once_each(step: Step, draws: Draws, rate: float) -> None:
    """A step of every size that there is, so that none is met for the first time on the clock."""
    if draws.data.resident:
        for example in draws.examples():
            step(example, 0, rate)


def _time_epochs(call: Callable[[], object], steps: int, terms: Terms) -> Timing:
    """The time of a step as a share of its epoch."""

    def epoch() -> None:
        for _ in range(steps):
            call()

    return time_calls(epoch, terms.device, seconds=terms.seconds).scaled(1 / steps)
