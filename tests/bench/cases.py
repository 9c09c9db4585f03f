"""A tiny IPOT for a rollout, and batches for it; problems at small sizes."""

from __future__ import annotations

from dataclasses import replace

import torch

from ipot.data.dataset import Stacked
from ipot.models.ipot import Config
from ipot.recipes import systems
from ipot.recipes.experiment import build_model, experiment
from ipot.samples import Batch
from ipot.spec import Spec

Z, WIDTH, HEADS, CROSS, EACH, BINS, BLOCKS = 6, 8, 2, 2, 5, 3, 2
FEED, ENCODER_FEED = 2, 3
SPEC = Spec(
    name="film",
    inputs=("a", "b", "c"),
    outputs=("u", "v"),
    domain=((0.0, 1.0), (0.0, 2.0)),
    steps=4,
    dt=0.5,
)
CONFIG = Config(
    latents=Z,
    width=WIDTH,
    blocks=BLOCKS,
    heads=HEADS,
    cross_heads=CROSS,
    cross_head_width=EACH,
    bins=(BINS,),
    feed_forward=FEED,
    encoder_feed_forward=ENCODER_FEED,
    tied=True,
    lifted=False,
    decoder="narrow",
    local=False,
)


def model(config=CONFIG, spec=SPEC, dtype=torch.float64):
    return build_model("ipot", config, spec).to(dtype)


def batch(size=3, n=11, m=7, *, shared=True, times=(0.5, 1.0, 1.5, 2.0), moving=False):
    random = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64)

    lead = 1 if shared else size
    return Batch(
        points=draw(lead, n, 2),
        values=draw(size, n, 3),
        queries=draw(lead, *([len(times)] if moving else []), m, 2),
        targets=draw(size, len(times), m, 2),
        times=times,
    )


def data(**sizes):
    return Stacked(batch(**sizes))


def small(problem="darcy", preset="paper", count=8, **training):
    """Settings of a problem's training at a small size, eager unless said."""
    base = experiment(problem, "ipot", preset)
    chosen = {"batch": 4, "step": "eager", "last_batch": "leave"}
    return replace(
        base,
        problem=base.problem.small(),
        data=replace(base.data, train=count),
        model=systems.small("ipot", base.model),
        training=replace(base.training, **chosen | training),
    )
