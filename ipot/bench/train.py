"""Training steps: the trainer's beside the plain version's, uneven samples beside equal ones."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import torch
from torch import Tensor

from ipot.bench.counts import Work, training_work
from ipot.bench.measuring import (
    Memory,
    Terms,
    Timing,
    forget,
    free_memory,
    held_memory,
    memory_since,
    peak_of,
    time_calls,
)
from ipot.bench.plain_model import PlainStep, first_in_pieces
from ipot.bench.rows import EQUAL, OURS, PLAIN, RAGGED, Row, with_ratios
from ipot.bench.samples import FIELDS, own_meshes, random_samples, uneven
from ipot.bench.trainer_step import first_gradients, per_epoch, time_ours
from ipot.data.dataset import Dataset, Stacked
from ipot.data.packed import Packed
from ipot.device import out_of_memory, reset_peak_memory
from ipot.errors import DataError, OutOfMemory, UnknownName, Unsupported
from ipot.models.base import Operator
from ipot.recipes.experiment import Experiment, build, statistics_of
from ipot.training.draws import Draws
from ipot.training.execution import placed
from ipot.training.settings import Training

SHARE = 0.8
"""Of the free memory, what a step may be predicted to take where running out ends the process."""


def check_training(
    settings: Experiment, device: torch.device, ragged: float | int | None = None
) -> None:
    """Refuse what cannot be measured, before any work."""
    if ragged is not None:
        check_spread(ragged)
    if settings.training.step == "graph" and device.type != "cuda":
        raise Unsupported(f"--step graph needs a GPU, and this is {device}: use --step auto")
    if settings.problem.name not in FIELDS:
        raise UnknownName(
            f"`ipot bench train` does not know the shape of {settings.problem_name}'s data. Known: "
            f"{', '.join(FIELDS)}"
        )
    if settings.training.batch > settings.data.train:
        raise DataError(
            f"a batch of {settings.training.batch} is larger than the {settings.data.train} "
            f"training samples of {settings.problem_name}: choose a smaller --batch"
        )


def measure_training(
    settings: Experiment, terms: Terms, *, plain: bool = True, ragged: float | int | None = None
) -> list[Row]:
    """Ours and, unless told otherwise, the plain version, from the same weights.

    With `ragged`, also what sizes that differ by up to such a share cost; see `ipot.bench.train`.
    """
    check_training(settings, terms.device, ragged)
    drawn = random_samples(settings.problem, settings.data.train)
    data = drawn.to(terms.device)
    model = build(settings, statistics_of(settings, data)).to(terms.device)
    exact = "float64" if settings.training.precision == "float64" else "float32"
    if exact == "float64":
        model, data = model.double(), data.astype(torch.float64)
    draws = Draws(data, model.spec, settings.training)
    batch = draws.stacked_batch(draws(0).to(terms.device))
    work = training_work(model, batch)
    row = Row(
        problem=settings.problem_name,
        version=OURS,
        batch=batch.size,
        points=batch.values.shape[1],
        queries=batch.queries.shape[-2],
        steps=len(batch.times),
    )
    del batch
    terms.tell(f"{settings.problem_name}: ours")
    first: list[Tensor] = []
    keep = {"witness": lambda step: first.extend(first_gradients(step))}
    own = copy.deepcopy(model)
    rows = [time_ours(own, data, settings.training, terms, row, work, **keep)]
    if plain:
        terms.tell(f"{settings.problem_name}: plain")
        row = replace(row, version=PLAIN, kind="eager", precision=exact)
        slow, gradients = _plain(model, data, settings.training, terms, row, work)
        rows = [_compared(rows[0], slow, first, gradients), slow]
    if ragged is not None:
        del data, draws  # the rows to come have data of their own on the device
        row = replace(row, kind="", precision="")
        rows += measure_ragged(model, drawn, settings.training, terms, row, ragged)
    return with_ratios(rows)


def _plain(
    model: Operator, data: Stacked, settings: Training, terms: Terms, row: Row, work: Work
) -> tuple[Row, list[Tensor]]:
    """The plain version, at the largest halving of the batch that fits into memory, and the
    gradients of its first step, clipped."""
    forget()
    size = row.batch
    if terms.device.type == "cpu":
        size = _affordable(size, _step(model, data, settings, 1), terms.device)
    found = None
    while size and found is None:
        found = _attempt(model, data, settings, size, terms)
        size = size if found else size // 2
    if found is None:
        return replace(row, reason="out of memory at batch 1"), []
    timing, memory = found
    timing = timing.scaled(row.batch / size)
    draws = Draws(data, model.spec, settings)
    whole = draws.stacked_batch(draws(0).to(terms.device))
    note = f"plain at batch {size}, its time scaled to {row.batch}"
    loss, gradients = first_in_pieces(model, whole, size)
    if settings.clip is not None:
        factor = float((settings.clip / (_norm(gradients) + 1e-6)).clamp(max=1.0))
        gradients = [factor * gradient for gradient in gradients]
    row = replace(row, first_loss=loss, notes=() if size == row.batch else (note,))
    return per_epoch(row.timed(timing, memory, work, terms.top), len(data), settings), gradients


def _attempt(
    model: Operator, data: Stacked, settings: Training, size: int, terms: Terms
) -> tuple[Timing, Memory] | None:
    """Time and memory of steps with so many samples; None where they do not fit."""
    step = _step(model, data, settings, size)
    before = held_memory(terms.device)
    reset_peak_memory(terms.device)
    try:
        timing = time_calls(step, terms.device, seconds=terms.seconds)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        timing = None
    # Behind the error, which held on to all that was in memory when it was raised.
    if timing is None:
        del step
        forget()
        return None
    return timing, memory_since(before, terms.device)


def _step(model: Operator, data: Stacked, settings: Training, size: int):
    """The plain step with so many samples, on weights of its own, to be called again and again."""
    draws = Draws(data, model.spec, replace(settings, batch=size))
    step, numbers = PlainStep(copy.deepcopy(model).train(), draws, settings), itertools.count()
    device = data.data.values.device
    return lambda: step(draws(next(numbers)).to(device))


def _affordable(size: int, one, device: torch.device) -> int:
    """The largest halving of a batch that fits into free memory, by what one sample takes."""
    taken, free = peak_of(one, device).above, free_memory(device)
    if taken is None or free is None:
        return size
    while size > 1 and size * taken > SHARE * free:
        size //= 2
    return size


def _compared(ours: Row, plain: Row, first: list[Tensor], gradients: list[Tensor]) -> Row:
    """Ours with how far its first loss and gradient lie from the plain version's. The loss of
    weights that have learnt nothing says little: whatever they answer, it is about 1."""
    if ours.first_loss is None or not plain.first_loss:
        return ours
    off = _norm([a - b for a, b in zip(first, gradients, strict=True)]) / _norm(gradients)
    return replace(
        ours,
        difference=abs(ours.first_loss / plain.first_loss - 1),
        gradient_difference=float(off),
    )


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack([t.double().norm() for t in tensors]))


def check_spread(spread: float | int) -> None:
    """Refuse what is no share of a sample's size."""
    if not 0 <= spread < 1:
        raise DataError(
            f"--ragged must be at least 0 and less than 1, got {spread:g}: 0.5 draws sizes from "
            "half of the problem's to one and a half times that"
        )


def measure_ragged(
    model: Operator, data: Stacked, settings: Training, terms: Terms, row: Row, spread: float
) -> list[Row]:
    """Equal sizes and uneven ones of the same samples, from the same weights.

    In both every sample has a mesh of its own: what one mesh for all of them saves is no matter of
    sizes. The row has the problem and its sizes; the data lie on the CPU.
    """
    terms.tell(f"{row.problem}: {EQUAL}")
    work = None
    made, equal = _placed(own_meshes(data), settings, terms, replace(row, version=EQUAL))
    if made is not None:
        draws = Draws(made, model.spec, settings)
        work = training_work(model, draws.stacked_batch(draws(0).to(terms.device)))
        equal = time_ours(copy.deepcopy(model), made, settings, terms, equal, work, by_epochs=True)
        del draws
    del made  # before there is another copy of the data
    terms.tell(f"{row.problem}: {RAGGED}")
    made, ragged = _placed(uneven(data, spread), settings, terms, replace(row, version=RAGGED))
    if made is not None:
        ragged = replace(ragged, notes=(*ragged.notes, _padding(Draws(made, model.spec, settings))))
        ragged = time_ours(
            copy.deepcopy(model), made, settings, terms, ragged, work, by_epochs=True
        )
    if ragged.ms is not None and equal.ms:
        ragged = replace(ragged, over_equal=ragged.ms / equal.ms)
    return [equal, ragged]


def _placed(
    data: Dataset, settings: Training, terms: Terms, row: Row
) -> tuple[Dataset | None, Row]:
    """The data where the trainer would put them, and the row with what it would say; or none."""
    forget()
    said: list[str] = []
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    try:
        data = placed(data, settings, terms.device, dtype, said.append)
    except OutOfMemory:
        return None, replace(row, reason=f"out of memory with {len(data)} samples")
    return data, replace(row, notes=tuple(said))


def _padding(draws: Draws) -> str:
    """How much an epoch's batches are padded, in words."""
    data, held, real = draws.data, 0, 0
    for number in range(draws.steps_per_epoch):
        draw = draws(number)
        samples = [data[i] for i in draw.index.tolist()]
        sizes = [(len(s.points), s.queries.shape[-2]) for s in samples]
        box = tuple(map(max, zip(*sizes, strict=True)))
        if isinstance(data, Packed) and draw.box is not None:
            box = data.boxes[draw.box]
        times = len(samples[0].times)
        held += len(samples) * (box[0] + times * box[1])
        real += sum(points + times * queries for points, queries in sizes)
    padding = f"{100 * (1 - real / held):.1f} % of their rows padding"
    if not isinstance(data, Packed):
        return f"batches are collated, {padding}"
    many = len(data.boxes)
    return f"batches of {many} size{'s' * (many > 1)}, {padding}"
