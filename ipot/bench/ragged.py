"""What samples of uneven sizes cost in training, beside equal ones with as many points."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from ipot.bench.counts import training_work
from ipot.bench.ours import time_ours
from ipot.bench.rows import EQUAL, RAGGED, Row
from ipot.bench.samples import own_meshes, uneven
from ipot.bench.terms import Terms, forget
from ipot.data.dataset import Dataset, Stacked
from ipot.data.packed import Packed
from ipot.errors import DataError, OutOfMemory
from ipot.models.base import Operator
from ipot.training.draws import Draws
from ipot.training.execution import placed
from ipot.training.settings import Training


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
