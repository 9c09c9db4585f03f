"""Training data as tables: a row of inputs and a row of targets for each sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import DataError
from ipot.evaluation.carry import evenly
from ipot.evaluation.frames import Frame, Places, Rows, Shared
from ipot.samples import Sample
from ipot.spec import Spec

CARRIED_SAMPLES = 1500
"""Samples on meshes of their own that are learned from; of more, so many are taken evenly."""
BLOCK = 1 << 22
"""Numbers that are worked on at once, in float64."""
CONSTANT = 1e-6
"""A channel that varies by less than this share of its size does so by rounding."""


class Table:
    """Rows of standardised inputs, and rows of targets, in a frame.

    Inputs are centred at every place, and each channel is scaled so that it counts the same,
    whatever its unit and however many points it stands at; so does each parameter. A channel that
    is the same in all samples counts nothing. Numbers stay as they are stored until asked for.
    """

    def __init__(
        self, data: Dataset, frame: Frame, inputs: Sequence[Tensor], targets: Tensor
    ) -> None:
        self.data, self.frame = data, frame
        self.shape = tuple(targets.shape[1:])
        self._inputs, self._targets = list(inputs), targets.flatten(1)
        self._centres = [_mean(block) for block in self._inputs]
        self._scales = [_scale(b, c) for b, c in zip(self._inputs, self._centres, strict=True)]

    def __len__(self) -> int:
        return len(self._targets)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the targets."""
        return self.data[0].truth.dtype

    @property
    def width(self) -> int:
        """Columns of inputs."""
        return sum(c.numel() for c in self._centres)

    def inputs(self, rows: Tensor | slice) -> Tensor:
        """Standardised inputs of some samples (rows, width), in float64."""
        return self._standardised([block[rows] for block in self._inputs])

    def targets(self, rows: Tensor | slice) -> Tensor:
        """Targets of some samples in one row each, in float64."""
        return self._targets[rows].double()

    def inputs_of(self, samples: Sequence[Sample]) -> Tensor:
        """The standardised inputs of other samples (samples, width)."""
        found = [self.frame.inputs(sample) for sample in samples]
        return self._standardised([torch.stack(list(b)) for b in zip(*found, strict=True)])

    def select(self, rows: Tensor) -> Table:
        """Some of the samples."""
        inputs = [block[rows] for block in self._inputs]
        targets = self._targets[rows].unflatten(1, self.shape)
        return Table(self.data.select(rows.tolist()), self.frame, inputs, targets)

    def blocks(self) -> Iterator[slice]:
        """All rows, piece by piece."""
        size = max(1, BLOCK // max(1, self.width, self._targets.shape[1]))
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def _standardised(self, blocks: Sequence[Tensor]) -> Tensor:
        scaled = [
            ((block.double() - centre) * scale).flatten(1)
            for block, centre, scale in zip(blocks, self._centres, self._scales, strict=True)
        ]
        return torch.cat(scaled, 1)


def tables(train: Dataset, spec: Spec) -> list[Table]:
    """The training data in every frame that may serve: one where all samples share a mesh."""
    if len(train) == 0:
        raise DataError("simple predictors need at least one training sample, got none")
    train = train.to("cpu")
    shared = Shared.of(train)
    if not (shared.points and shared.queries) and len(train) > CARRIED_SAMPLES:
        train = train.select(evenly(len(train), CARRIED_SAMPLES).tolist())
    frame = Places(train, shared, spec)
    if isinstance(train, Stacked) and shared.points and shared.queries:
        whole = train.data  # what lies there in rows already is not copied
        scalars = [] if whole.parameters is None else [whole.parameters.unsqueeze(1)]
        return [Table(train, frame, [whole.values, *scalars], whole.truth)]
    inputs, targets = _rows(train, frame)
    found = [Table(train, frame, inputs, targets)]
    if frame.shape_counts and (spec.channels or spec.parameters):
        values, _, *parameters = inputs
        found.append(Table(train, frame.without_shape(), [values, *parameters], targets))
    if shared.sizes:
        rows = Rows(train, shared, spec)
        found.append(Table(train, rows, *_rows(train, rows)))
    return found


def _rows(data: Dataset, frame: Frame) -> tuple[list[Tensor], Tensor]:
    """Blocks of inputs (samples, rows, channels), and targets (samples, T, places, K)."""
    inputs, targets = [], []
    for i in range(len(data)):
        sample = data[i]
        kind = sample.truth.dtype
        inputs.append([block.to(kind) for block in frame.inputs(sample)])
        targets.append(frame.targets(sample).to(kind))
    return [torch.stack(list(blocks)) for blocks in zip(*inputs, strict=True)], torch.stack(targets)


def _mean(block: Tensor) -> Tensor:
    """The mean over samples at every place (rows, channels), in float64."""
    total = torch.zeros(block.shape[1:], dtype=torch.float64)
    for part in _parts(block):
        total += part.sum(0)
    return total / len(block)


def _scale(block: Tensor, centre: Tensor) -> Tensor:
    """What every channel is multiplied by (channels)."""
    spread = torch.zeros(block.shape[2], dtype=torch.float64)
    size = torch.zeros(block.shape[2], dtype=torch.float64)
    for part in _parts(block):
        spread += (part - centre).square().sum((0, 1))
        size += part.square().sum((0, 1))
    constant = spread <= CONSTANT**2 * size
    each = (spread / len(block)).sqrt()
    return torch.where(constant, torch.zeros_like(each), 1 / torch.where(constant, 1.0, each))


def _parts(block: Tensor) -> Iterator[Tensor]:
    size = max(1, BLOCK // max(1, block[0].numel()))
    for start in range(0, len(block), size):
        yield block[start : start + size].double()
