"""A small operator with a known answer, smoothing on a circle, and ways to disturb its training."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.data.packed import Packed
from ipot.data.statistics import Statistics
from ipot.models._wrappers import wrap
from ipot.models.ipot import IPOT, Config
from ipot.models.relay import Config as RelayConfig
from ipot.models.relay import Relay
from ipot.problems.base import Problem
from ipot.run_folder import Run
from ipot.samples import Batch, Sample
from ipot.seeds import generator
from ipot.spec import Need, Spec
from ipot.training import checkpoint, journal
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.trainer import Result, train

# Bits depend on the number of threads, and processes that tests start do not see conftest.py.
torch.set_num_threads(1)

CPU = torch.device("cpu")
MODES = 3
SPEC = Spec(
    name="smoothing",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0),),
    periods=(1.0,),
    symmetries=("translation",),
    provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
)
TINY = Config(latents=6, width=16, blocks=1, heads=2, cross_heads=2, bins=(MODES,))


def field(coefficients, x, smoothing=0.0):
    """Fourier sums at places x (n): one row for each set of coefficients, high modes damped."""
    k = torch.arange(1, MODES + 1)
    phase = 2 * math.pi * x[:, None] * k
    waves = torch.cat([phase.cos(), phase.sin()], -1) * torch.exp(-smoothing * k).repeat(2)
    return coefficients @ waves.T


def coefficients(count, seed=0):
    return torch.randn(count, 2 * MODES, generator=generator(seed, "toy"))


def line(points):
    return torch.arange(points) / points


def on_grid(c, points):
    """One shared grid."""
    x = line(points)
    return Stacked(
        Batch(
            points=x.view(1, -1, 1),
            values=field(c, x).unsqueeze(-1),
            queries=x.view(1, -1, 1),
            targets=field(c, x, 0.5).view(len(c), 1, -1, 1),
            grid=(points,),
            query_grid=(points,),
        )
    )


def stacked(count=12, points=12, seed=0):
    return on_grid(coefficients(count, seed), points)


def ragged(count=12, seed=0, low=6, high=16):
    """Scattered points, other ones and another number of them in every sample."""
    samples = []
    for index, c in enumerate(coefficients(count, seed)):
        random = generator(seed, "places", index)
        n, m = torch.randint(low, high, (2,), generator=random).tolist()
        x, y = torch.rand(n, generator=random), torch.rand(m, generator=random)
        samples.append(
            Sample(
                points=x[:, None],
                values=field(c, x)[:, None],
                queries=y[:, None],
                targets=field(c, y, 0.5)[None, :, None],
                index=index,
            )
        )
    return Ragged(samples)


def packed(count=12, seed=0, **sizes):
    """The same held on a device."""
    return Packed(ragged(count, seed, **sizes), device=CPU, batch=4)


DATA = {"stacked": stacked, "ragged": ragged, "packed": packed}
EVERYTHING = {
    "points": 0.75,
    "queries": 0.5,
    "augment": True,
    "average": 0.9,
    "epochs": 4,
    "batch": 4,
    "validate_every": 1,
    "save_seconds": 0.0,
}
"""All that can make a resume inexact, at once: three steps an epoch, twelve in all."""


def model(spec=SPEC, config=TINY, statistics=None, seed=0):
    torch.manual_seed(seed)
    sizes = (spec.channels, len(spec.outputs), len(spec.parameters))
    return wrap(IPOT(config, spec), statistics or Statistics.identity(*sizes))


def relay(data="stacked"):
    """A tiny relay that has been shown its first points."""
    torch.manual_seed(0)
    sizes = {"width": 16, "blocks": 2, "heads": 2, "latents": 3, "states": 4, "cross_heads": 2}
    made = wrap(Relay(RelayConfig(**sizes, bins=(MODES,)), SPEC), Statistics.identity(1, 1, 0))
    made.measure(DATA[data]()[0].points)
    return made


def fit(
    path, *, data="stacked", objective=None, world=None, network=None, quiet=True, **settings
) -> Result:
    """Train the tiny model in a folder; one that holds a checkpoint is continued."""
    training = Training(**{"epochs": 2, "batch": 4, "step": "eager", **settings})
    inputs, held_out = DATA[data](), DATA[data](count=4, seed=1)
    Path(path).mkdir(parents=True, exist_ok=True)
    return train(
        network or model(),
        inputs,
        held_out,
        training,
        Run(Path(path)),
        device=CPU,
        objective=objective,
        world=world,
        quiet=quiet,
    )


class Trouble(RelativeL2):
    """The usual objective, with something done to the loss of one step (counted from 0)."""

    def __init__(self, step, done_so_far=0):
        self.step, self.calls = step, done_so_far

    def __call__(self, network, batch):
        loss = super().__call__(network, batch)
        self.calls += 1
        return self.act(loss) if self.calls - 1 == self.step else loss

    def act(self, loss):
        raise NotImplementedError


class Kill(Trouble):
    """Send this process a signal in the middle of a step."""

    def __init__(self, step, number):
        super().__init__(step)
        self.number = number

    def act(self, loss):
        os.kill(os.getpid(), self.number)
        return loss


class Poison(Trouble):
    """A loss that is not a number."""

    def act(self, loss):
        return loss * float("nan")


class PoisonGradient(Trouble):
    """A loss that is finite, with a gradient that is not: the derivative of √x at 0."""

    def act(self, loss):
        return loss + (loss - loss).sqrt()


def contents(path):
    """All that a run leaves and that must not depend on how often it was stopped."""
    last, state = checkpoint.load(Path(path) / "last.safetensors")
    best, chosen = checkpoint.load(Path(path) / "best.safetensors")
    state.pop("seconds")
    names = ("epoch", "step", "loss", "learning_rate", "validation")
    rows = [
        {name: row.get(name) for name in names}
        for row in journal.read(Path(path) / "metrics.jsonl")
    ]
    return last, best, {"state": state, "best": chosen, "rows": rows}


def assert_same_run(path, other):
    """Weights, optimiser, average, best weights, counters and journal agree to the last bit."""
    last, best, rest = contents(path)
    other_last, other_best, other_rest = contents(other)
    assert rest == other_rest
    for mine, theirs in ((last, other_last), (best, other_best)):
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


@dataclass(frozen=True, kw_only=True)
class Smoothing(Problem):
    """The same as a problem of the registry, found by this module's dotted path."""

    name: ClassVar[str] = "smoothing"
    about: ClassVar[str] = "smoothing on a circle"
    source: ClassVar[str] = "a formula"
    sizes: ClassVar[Mapping[str, int]] = {"train": 12, "validation": 4, "test": 4}

    size: int = 12
    """Points."""

    @property
    def spec(self):
        return SPEC

    def generate(self, split, indices, *, seed, device, resolution):
        seeds = [seed * 1000 + len(split) * 100 + i for i in indices]
        return {"coefficients": torch.cat([coefficients(1, s) for s in seeds])}

    def dataset(self, fields, resolution, query_resolution):
        return on_grid(fields["coefficients"], self.size)

    def bytes_each(self, resolution):
        return 8 * MODES


PROBLEM = Smoothing()
