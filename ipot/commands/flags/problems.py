"""The flags of `ipot problems`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipot.commands.flags import Folder


@dataclass
class Problems:
    """List the problems: sizes, splits, symmetries and where their data come from.

    usage: ipot problems [PROBLEM] [flags], for instance

        ipot problems
        ipot problems darcy
        ipot problems --gallery --out pictures --small

    With a name, all there is to know of one problem: its settings, units and files. The settings
    are flags of `generate` and `train`: --problem.viscosity 1e-4.
    """

    usual: ClassVar = ("gallery", "out", "small", "data", "device", "quiet", "json")

    gallery: bool = False
    """Draw some samples of every problem, or of the one named, into the folder --out."""
    out: Folder = None
    """Where the result goes: a folder for the pictures of --gallery."""
    small: bool = False
    """Sizes for a first look: seconds on a CPU."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON."""


FLAGS = Problems
