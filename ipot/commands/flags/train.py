"""The flags of `ipot train`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipot.commands.flags import File, Folder, Preset
from ipot.training.settings import PATIENCE


@dataclass(kw_only=True)
class Train:
    """Train a model on a problem and leave a run folder.

    usage: ipot train PROBLEM [MODEL] [flags], for instance

        ipot train darcy --out runs/darcy
        ipot train darcy --minutes 5 --augment --out runs/five
        ipot train darcy --preset paper --out runs/paper
        ipot train navier_stokes ipot --problem.viscosity 1e-4 --model.latents 512 --epochs 50
        ipot train darcy --seeds 0 1 2 --out runs/spread
        ipot train darcy --problem.files published --out runs/published
        ipot train --resume runs/darcy
        torchrun --max-restarts 3 -m ipot train darcy --out runs/darcy --resume-or-start

    Without MODEL, the one that does best on the problem is trained: lattice or ipot. Missing data
    are generated first. Ctrl-C stops cleanly with a checkpoint; --resume continues as if nothing
    had happened. Under torchrun the batch is shared among the processes.
    """

    usual: ClassVar = (
        *("out", "minutes", "epochs", "augment", "seed", "seeds", "preset", "small", "resume"),
        *("resume_or_start", "start_from", "device", "quiet", "json"),
    )

    out: Folder = None
    """Where the result goes: the run folder; runs/PROBLEM-MODEL-PRESET by default."""
    minutes: float | None = None
    """Training time in minutes: short for --training.minutes."""
    epochs: int | None = None
    """Passes over the training data: short for --training.epochs; only a limit beside minutes."""
    augment: bool = False
    """Turn every sample by a random symmetry of the problem."""
    seed: int = 0
    """Seed of what is drawn at random: the initial weights, the order of samples."""
    seeds: tuple[int, ...] = ()
    """Train once for each of these seeds: the result is their mean and spread."""
    preset: Preset = "default"
    """Whose settings: default, our own; paper, the paper's tables; authors, the same where the code
    of IPOT's authors departs from the paper's equations."""
    small: bool = False
    """Sizes for a first look: small problem, small model, few samples; other flags change them."""
    resume: Folder = None
    """Go on with the run that was stopped in this folder; beside it only --data, --device, --trust,
    --peer-timeout, --quiet, --record and --json."""
    resume_or_start: bool = False
    """Go on with the run in --out if there is one, and start it if not."""
    start_from: Folder = None
    """Start from the best weights of another run, to fine-tune it."""
    data: Folder = None
    """Folder of generated data; $IPOT_DATA or the user's cache by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    peer_timeout: float = PATIENCE
    """Seconds that processes under torchrun wait for one that does not answer."""
    quiet: bool = False
    """No progress."""
    record: File = None
    """Write it down in this ledger: the run when it has ended, e.g. in results/runs.json; `ipot
    evaluate --record` adds its errors on the test split."""
    json: bool = False
    """Print the result as JSON."""


FLAGS = Train
