"""The paper's hyper-parameters for all eight problems, as its two tables and its code have them.

Weights of the processor are tied, fields are not normalised, the decoder goes straight to the
output channels. Where the paper's equations and the authors' code disagree, the preset `paper` is
the equations and the preset `authors` the code: it takes keys and values of the processor from the
latent state as it is, and builds the feed-forward of the encoder without ever calling it. The table
also holds the sizes of each problem, so that a model can be counted before its data exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ipot.errors import UnknownName, shown
from ipot.models.ipot import Config
from ipot.spec import Spec
from ipot.training.settings import Training


@dataclass(frozen=True)
class Row:
    """One column of the paper's tables."""

    channels: int
    outputs: int
    bins: tuple[int, ...]
    highest: tuple[int, ...]
    latents: int
    width: int
    cross_heads: int
    heads: int
    blocks: int
    batch: int
    epochs: int
    step_epochs: int


TABLE = {
    "burgers": Row(1, 1, (64,), (64,), 256, 64, 8, 8, 1, 20, 2000, 250),
    "darcy": Row(1, 1, (32, 32), (32, 32), 256, 64, 1, 8, 4, 10, 1000, 200),
    "navier_stokes": Row(10, 1, (12, 12), (20, 20), 512, 128, 1, 4, 2, 100, 5000, 250),
    "airfoil": Row(2, 1, (8, 8), (16, 16), 128, 64, 1, 4, 2, 20, 1600, 200),
    "elasticity": Row(1, 1, (16,) * 4, (16,) * 4, 512, 64, 1, 4, 4, 10, 1600, 200),
    "plasticity": Row(1, 4, (3,) * 3, (12,) * 3, 256, 64, 1, 2, 2, 10, 1600, 200),
    "shallow_water": Row(2, 2, (20,) * 3, (32,) * 3, 256, 128, 2, 8, 2, 64, 3000, 500),
    "era5": Row(7, 1, (64, 64), (64, 128), 512, 128, 1, 8, 4, 10, 5000, 500),
}

# Problems that take another's column: same samples, other data.
STAND_INS = {"era5_synthetic": "era5"}

# Where the paper gives a model another view of a problem than its default.
PROBLEM: dict[str, dict[str, Any]] = {
    "airfoil": {"inputs": "mesh"},
    "elasticity": {"polar": "corner"},
    "plasticity": {"repeated": True},
}


def row(problem: str) -> Row:
    """The column of a problem."""
    problem = STAND_INS.get(problem, problem)
    if problem not in TABLE:
        raise UnknownName(
            f"the paper has no problem {shown(problem)}, so there is no preset `paper` for it. It "
            f"has {', '.join(TABLE)}; use --preset default."
        )
    return TABLE[problem]


def model(problem: str) -> Config:
    """The architecture table."""
    r = row(problem)
    return Config(
        latents=r.latents,
        width=r.width,
        blocks=r.blocks,
        heads=r.heads,
        cross_heads=r.cross_heads,
        cross_head_width=64,
        cross_gain=1.0,
        bins=r.bins,
        max_frequency=tuple(map(float, r.highest)),
        coordinates="raw",
        feed_forward=2,
        encoder_feed_forward=4,
        tied=True,
        lifted=False,
        decoder="narrow",
        local=False,
        output_scale=0.1,
    )


def authors(problem: str) -> Config:
    """The architecture of the authors' code."""
    return replace(model(problem), raw_keys=True, encoder_feed_forward=0)


def training(problem: str) -> Training:
    """The training table."""
    r = row(problem)
    return Training(
        epochs=r.epochs,
        batch=r.batch,
        learning_rate=1e-3,
        weight_decay=0.01,
        schedule="step",
        step_epochs=r.step_epochs,
        clip=None,
        last_batch="fill",
    )


def spec(problem: str) -> Spec:
    """The sizes of a problem, for counting parameters without its data."""
    r = row(problem)
    return Spec(
        name=problem,
        inputs=tuple(f"input {i}" for i in range(r.channels)),
        outputs=tuple(f"output {i}" for i in range(r.outputs)),
        domain=((0.0, 1.0),) * len(r.bins),
    )
