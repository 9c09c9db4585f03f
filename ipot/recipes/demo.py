"""The demo: Darcy flow, small enough for three minutes on two cores."""

from __future__ import annotations

from dataclasses import replace

from ipot.problems.darcy import Darcy
from ipot.recipes.experiment import Data, Experiment, experiment

COARSE = 29
"""Points a side of the sensors, and of the queries in training."""
FINE = 85
"""Cells a side that the equation is solved on, and of the queries at the end."""


def demo(minutes: float = 2.3, seed: int = 0) -> Experiment:
    """Darcy on 85 x 85 cells, learnt at 29 x 29 with random subsets of the sensors."""
    base = experiment("darcy", "ipot")
    return replace(
        base,
        preset="demo",
        problem=Darcy(size=FINE, resolution=COARSE),
        data=Data(train=800, validation=40, test=50),
        model=replace(
            base.model,
            latents=64,
            width=64,
            blocks=2,
            heads=4,
            cross_heads=2,
            # 29 points a side resolve frequencies up to 14: higher ones would break finer queries.
            bins=(8,),
            max_frequency=(16.0,),
        ),
        training=replace(
            base.training,
            epochs=1000,
            minutes=minutes,
            batch=10,
            learning_rate=3e-3,
            augment=True,
            points=0.7,
            queries=0.3,
            validate_every=4,
            seed=seed,
        ),
    )
