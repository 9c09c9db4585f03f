"""The flags of `ipot evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags import File, Fill, Folder


@dataclass
class Evaluate:
    """Score a trained model on test samples, as they are or seen otherwise.

    For instance, a quarter of the sensors of a coarser grid in, a fine grid out:

        ipot evaluate runs/darcy --keep 0.25 --resolution 43 --query-resolution 421

    A model of your own data is scored on a file or folder like those it was trained on:

        ipot evaluate surrogate new_cases/ --json
        ipot evaluate surrogate stations.nc --targets-from grid.nc

    The error is the paper's: for each sample the L2 norm of the error over times, queries and
    channels, divided by that of the truth; then the mean over samples. Where there are several
    steps, a second table has root mean square errors at some of them, in the units of the field and
    weighted by area where points stand for areas, and what simple forecasts score beside the model.
    """

    usual: ClassVar = (
        *(
            "run",
            "cases",
            "targets_from",
            "keep",
            "resolution",
            "query_resolution",
            "mask",
            "fill",
            "steps",
        ),
        *("samples", "symmetric", "device", "json", "out"),
    )

    run: Annotated[str, tyro.conf.Positional]
    """Run folder, the folder of a saved model, or the name of a model in the package: darcy."""
    cases: Annotated[Path | None, tyro.conf.Positional] = None
    """File or folder with samples and their answers, instead of the test data of a problem."""
    targets_from: Path | None = None
    """A file of its own for the targets of a series: stations in, a grid out."""
    keep: float = 1.0
    """Fraction of the input points kept; drawn anew for every sample."""
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
    samples: int | None = None
    """How many test samples; as many as the run says by default."""
    seed: int = 0
    """Seed of what is drawn at random: the sensors kept."""
    symmetric: bool = False
    """Average the answers over the symmetries of the problem: eight times the work for Darcy."""
    weights: Literal["best", "last"] = "best"
    """Those of the lowest validation error, or the last ones."""
    batch: int = 16
    """Samples at a time."""
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
    record: File = None
    """Write it down in this ledger: the error, in the record of this run, e.g. in
    results/runs.json."""
    json: bool = False
    """Print the result as JSON: with the error of every sample."""
    out: File = None
    """Where the result goes: a file, as JSON."""
    overwrite: bool = False
    """Write over what is there already."""


FLAGS = Evaluate
