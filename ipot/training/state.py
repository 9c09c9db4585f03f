"""What is known of a run besides its weights: while it goes, and when it has ended."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from ipot.errors import RunError, shown
from ipot.typed_json import from_dict, hints_of


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


def result_from(content: Any) -> Result:
    """How a run ended, from its JSON; refused where a number is none."""
    return _numbers_from(Result, content)


def state_from(content: Any) -> State:
    """The counters of a checkpoint, from its JSON."""
    return _numbers_from(State, content)


def _numbers_from(kind: type, content: Any) -> Any:
    """A dataclass of plain values. NaN and infinity are numbers here: errors not known yet."""
    if not isinstance(content, dict):
        raise RunError(f"expected an object with names, got {shown(content)}")
    odd = {
        name: value
        for name, value in content.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    hints = hints_of(kind)
    if bad := [name for name in odd if float not in (hints.get(name), *get_args(hints.get(name)))]:
        raise RunError(f"{bad[0]} must be {hints.get(bad[0])}, got {odd[bad[0]]}")
    found = from_dict(kind, content | dict.fromkeys(odd, 0.0), kind.__name__.lower())
    return replace(found, **odd)


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
