"""What is known of a run besides its weights: while it goes, and when it has ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended."""

    validation: float
    best_validation: float
    best_epoch: int
    loss: float
    epochs: int
    steps: int
    seconds: float
    """Of the run, without its set-up."""
    setup_seconds: float
    """What compiling and capturing the first step took, the last time that the run was started."""
    step_kind: str
    precision: str
    peak_gib: float | None
    """The most memory that was held: of the GPU, or of the process where there is none."""
    out_of_patience: bool = False
    """Whether validation, and not time or epochs, ended the run."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass
class State:
    """The counters that a checkpoint carries; with the weights they are all there is to resume."""

    step: int = 0
    seconds: float = 0.0
    best_validation: float = float("inf")
    best_epoch: int = 0
    best_progress: float = 0.0
    """The part of the run that was done then."""
    out_of_patience: bool = False
    """Whether a validation found the best one too far behind."""
    average_count: int = 0
    loss: float = float("nan")
    """The mean over the steps of the last row of the journal."""
    loss_sum: float = 0.0
    """Losses since that row."""
    reported: int = 0
    """The step of that row."""
