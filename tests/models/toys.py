"""A system that cannot do without a grid, found by this module's dotted path."""

from dataclasses import dataclass

import torch

from ipot.models.base import OneStep
from ipot.spec import Need


@dataclass(frozen=True, kw_only=True)
class Config:
    bias: bool = True
    """Whether to add a constant."""


class Stencil(OneStep):
    """A linear map of every value and of the mean of its neighbours on the grid."""

    needs = frozenset({Need.GRID, Need.SAME_POINTS})

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.map = torch.nn.Linear(2 * spec.channels, len(spec.outputs), bias=config.bias)

    def advance(self, batch):
        field = batch.values.unflatten(1, batch.grid)
        axes = range(1, 1 + len(batch.grid))
        around = torch.stack([field.roll(s, a) for a in axes for s in (1, -1)]).mean(0)
        return self.map(torch.cat([field, around], -1).flatten(1, -2))


MODEL = Stencil
