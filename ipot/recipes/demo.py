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
    """Darcy on 85 x 85 cells, learnt at 29 x 29 by an IPOT on lattices, also from fewer sensors."""
    base = experiment("darcy", "lattice")
    return replace(
        base,
        preset="demo",
        problem=Darcy(size=FINE, resolution=COARSE),
        data=Data(train=800, validation=40, test=50),
        # A step must not take long on a CPU: narrow, and one block on each lattice.
        model=replace(base.model, width=24, most_width=96, blocks=1, heads=4),
        training=replace(
            base.training,
            epochs=1000,
            minutes=minutes,
            batch=10,
            learning_rate=2e-3,
            gradient_loss=0.0,
            validate_every=4,
            seed=seed,
        ),
    )
