"""The flags of `ipot generate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ipot.commands.flags import Folder


@dataclass(kw_only=True)
class Generate:
    """Generate the data of a problem into the data folder, where they are not there yet.

    usage: ipot generate PROBLEM [flags], for instance

        ipot generate darcy --count.train 100 --resolution 141
        ipot generate darcy --small
        ipot generate darcy --format original --out files

    Data are kept under a hash of their recipe; asking for more samples, or running again after a
    crash, continues where it left off. Sample 17 is the same sample on any device. The format
    `original` writes them once more as files in the published layout, which
    `ipot train PROBLEM --problem.files DIR` reads as it reads the published ones.
    """

    usual: ClassVar = (
        *("splits", "small", "resolution", "format", "out", "data", "device", "quiet", "json"),
    )

    splits: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
    """Which splits to generate."""
    small: bool = False
    """Sizes for a first look: a small problem and few samples, which other flags may change."""
    resolution: int | None = None
    """Points a side: of what is stored; the problem's own resolution by default."""
    format: Literal["store", "original"] = "store"
    """Format of what is written: store, in the data folder alone; original, as files in the
    published layout, too."""
    out: Folder = None
    """Where the result goes: a folder for files of the format original."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON: where each split lies and how large it is."""


FLAGS = Generate
