"""The flags of `ipot models`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipot.commands.flags import File, Preset


@dataclass
class Models:
    """List the models, their size for a problem and preset, and what each needs of the data.

        ipot models
        ipot models --problem navier_stokes --preset paper
        ipot models --trained

    Beside our count stands the published one, where a paper has printed any for the problem.
    With --preset paper any of the paper's eight problems can be named, whether or not its data can
    be generated yet: the parameter counts need only the sizes in the paper's tables.

    With --trained those are listed that come with the package, trained: their names stand in the
    place of a folder in `ipot predict`, `evaluate`, `plot` and `export`, and in `ipot.load`.
    """

    usual: ClassVar = ("trained", "problem", "preset", "json", "out")

    trained: bool = False
    """List the trained models in the package: errors on test samples, minutes, machine, size."""

    problem: str = "darcy"
    """The problem that the systems are built for."""
    preset: Preset = "default"
    """Whose settings: default, our own; paper, the published ones; authors, IPOT as in its authors'
    code."""
    json: bool = False
    """Print the result as JSON."""
    out: File = None
    """Where the result goes: a file, as JSON."""
    overwrite: bool = False
    """Write over what is there already."""


FLAGS = Models
