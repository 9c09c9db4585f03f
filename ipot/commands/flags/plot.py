"""The flags of `ipot plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags import Fill, Folder

Kind = Literal["fields", "rollout", "loss", "sensors", "resolution", "time"]


@dataclass
class Plot:
    """Draw pictures of a trained model: of a run into its folder, of a saved model into
    MODEL-pictures in the current folder, or into --out.

        ipot plot runs/darcy
        ipot plot runs/darcy --kind fields sensors --keep 0.25 --out pictures
        ipot plot surrogate new_cases/ --sample 3

    fields: input, truth, prediction and error of a test sample; rollout: the same over time;
    loss: the training curve; sensors, resolution, time: the error against the fraction of the
    inputs observed, the resolution of the queries, and time. Without --kind, all that make sense.

    Of a model of your own data, fields and rollouts show a sample of data that you give.
    """

    usual: ClassVar = (
        *("run", "cases", "kind", "out", "format", "sample", "keep", "resolution"),
        *("query_resolution", "steps", "samples", "device"),
    )

    run: Annotated[str, tyro.conf.Positional]
    """Run folder, the folder of a saved model, or the name of a model in the package: darcy."""
    cases: Annotated[Path | None, tyro.conf.Positional] = None
    """File or folder with the sample that fields and rollouts show, instead of test data."""
    targets_from: Path | None = None
    """A file of its own for the targets of a series: stations in, a grid out."""
    kind: tuple[Kind, ...] = ()
    """Which pictures."""
    sample: int = 0
    """Which test sample the fields and rollouts show."""
    keep: float = 1.0
    """Fraction of the input points kept; in fields and rollouts."""
    resolution: int | None = None
    """Points a side: of the inputs."""
    query_resolution: int | None = None
    """Points a side of the queries; as the inputs by default."""
    mask: str | None = None
    """Hide inputs: disk leaves a hole in the middle, left, right and border keep that part alone;
    a problem may have masks of its own."""
    fill: Fill | None = None
    """Interpolate the inputs that are missing: those that --mask and --keep hide, from those that
    are seen, for a system that takes all of them."""
    steps: int | None = None
    """Steps of the rollout; also more than in training."""
    samples: int = 20
    """How many test samples; the curves average over so many at most."""
    format: Literal["png", "pdf", "svg"] = "png"
    """Format of what is written."""
    out: Folder = None
    """Where the result goes: a folder for the pictures; that of the run, or MODEL-pictures, unless
    said."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON: the files that were written."""


FLAGS = Plot
