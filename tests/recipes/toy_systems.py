"""Small systems that learn, cannot, diverge or ask for too much, each under a dotted path."""

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import nn

from ipot.errors import Unsupported
from ipot.models.base import OneStep


@dataclass(frozen=True, kw_only=True)
class Config:
    factor: float = 1.0


class Linear(OneStep):
    """One number: u = s a."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.scale = nn.Parameter(torch.zeros(()))

    def advance(self, batch):
        return self.config.factor * self.scale * batch.values


class Double(Linear):
    """The same, twice as quick to learn, with a number that does nothing."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.idle = nn.Parameter(torch.zeros(()))

    def advance(self, batch):
        return 2 * super().advance(batch) + 0 * self.idle


class Diverging(Linear):
    """Not a number from the second step on."""

    def advance(self, batch):
        return super().advance(batch) + torch.where(self.scale == 0, 0.0, torch.nan)


class Hungry(Linear):
    """Memory runs out at once; `calls` counts how often that was tried."""

    calls = 0

    def advance(self, batch):
        type(self).calls += 1
        raise torch.OutOfMemoryError("tried to allocate 1 TiB")


class Broken(Linear):
    """A mistake in the code."""

    def advance(self, batch):
        raise RuntimeError("shapes cannot be multiplied")


class Picky(Linear):
    """Refuses when it is built."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        raise Unsupported("Picky needs more. Take another one.")


class Late(Linear):
    """Refuses when it sees the data."""

    def examine(self, data):
        raise Unsupported("Late needs other data")


SYSTEMS = (Linear, Double, Diverging, Hungry, Broken, Picky, Late)


def modules():
    """A module for each of them, as the registry would find it under its dotted path."""
    for kind in SYSTEMS:
        module = ModuleType(f"toys.{kind.__name__.lower()}", kind.__doc__)
        module.Config, module.MODEL = Config, kind
        yield module
