"""The flags of `ipot demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from ipot.commands.flags import Folder


@dataclass
class Demo:
    """Learn Darcy flow on a small grid, then ask where nothing was ever measured.

        ipot demo
        ipot demo --minutes 1 --out /tmp/demo

    Generates permeabilities and pressures with our own solver, trains an IPOT on lattices for two
    minutes, and evaluates it on unseen samples: with all sensors, half and a quarter of them, at
    queries three times as fine as those of the training, and once more averaged over the symmetries
    of the square. Ends in a table and a picture.
    """

    usual: ClassVar = ("out", "minutes", "seed", "data", "device", "quiet", "json")

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo")
    """Where the result goes: a folder for the run and the picture; an earlier demo in it is
    replaced."""
    minutes: float = 2.2
    """Training time in minutes."""
    seed: int = 0
    """Seed of what is drawn at random: the initial weights and the order of samples."""
    data: Folder = None
    """Folder of generated data; OUT/data by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON."""


FLAGS = Demo
