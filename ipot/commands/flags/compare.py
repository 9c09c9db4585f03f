"""The flags of `ipot compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipot.commands.flags import File, Folder, Preset
from ipot.commands.flags.own_data import OwnData


@dataclass(kw_only=True)
class Compare(OwnData):
    """Train several systems for the same time on the same data, and score them side by side.

    usage: ipot compare PROBLEM_OR_DATA [flags], for instance

        ipot compare darcy --minutes 1
        ipot compare darcy --models ipot transformer --minutes 5 --augment --out runs/five
        ipot compare navier_stokes --problem.viscosity 1e-4 --count.train 500
        ipot compare burgers --small --minutes 0.2 --device cpu
        ipot compare my_data/ --inputs a --targets u --models ipot fno relay --minutes 1

    Each system keeps the settings of its own recipe; data, minutes, seed and augmentation are the
    same for all. Beside the error on the test split stand what others have published and what the
    mean field scores. A system that cannot be trained is listed with the reason. Ctrl-C stops
    cleanly, and the same command goes on. The folder then holds a run for every system, and
    compare.md, compare.json and compare.png.

    Of a file or a folder of your own, `ipot data inspect PATH` lists the names. Settings and parts
    of the data are those of `ipot fit`; beside the errors stand those of the nearest neighbour and
    a linear model. Every system answers alone: none is blended with a linear model, as `ipot fit`
    does unless --no-blend is said. --small, --preset, --augment, --data and --record are for
    problems.
    """

    usual: ClassVar = (
        *("models", "minutes", "inputs", "targets", "parameters", "history", "lead", "out", "seed"),
        *("augment", "small", "device", "json"),
    )

    models: tuple[str, ...] = ("all",)
    """Systems by name; all takes every one that can."""
    minutes: float = 1.0
    """Training time in minutes: of each system, without its set-up."""
    out: Folder = None
    """Where the result goes: a folder; runs/compare-NAME by default."""
    seed: int = 0
    """Seed of what is drawn at random: the initial weights and the order of samples."""
    preset: Preset = "default"
    """Whose settings: default, our own schedule; paper, the published ones."""
    small: bool = False
    """Sizes for a first look: small systems, a small problem and few samples; flags of the problem
    and --count may change the latter."""
    augment: bool = False
    """Turn every sample by a random symmetry of the problem."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that a folder names: here, systems that were compared in it before
    and are not named now."""
    quiet: bool = False
    """No progress."""
    record: File = None
    """Write it down in this ledger: every system that has ended, with its test error, e.g. in
    results/runs.json."""
    json: bool = False
    """Print the result as JSON."""


FLAGS = Compare
