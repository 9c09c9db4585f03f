"""Checkpoints: weights and counters in one file, whole or absent, from which a run resumes.

Nothing in it is ever unpickled.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from ipot import files, safe_read
from ipot.errors import RunError, shown
from ipot.models._shapes import Shapes
from ipot.models.base import Operator
from ipot.training.optimizer import Average
from ipot.typed_json import from_dict, hints_of


def save(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors, and plain values in the file's header."""
    ready = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    try:
        with files.atomic(path) as temporary:
            # Bytes, since `save_file` has a temporary file of its own, which a kill leaves.
            temporary.write_bytes(to_bytes(ready, metadata={"state": json.dumps(state)}))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot write {path}: {reason}. The file before it is kept; make room and go on "
            f"with `ipot train --resume {path.parent}`."
        ) from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and values; a damaged file is refused."""
    with _opened(path) as file:
        state = _state(file, path)
        return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118


def header(path: Path) -> tuple[Shapes, dict[str, Any]]:
    """The names and shapes in a file's header, and the values there; no tensor is read."""
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        found = {n: (tuple(s.get_shape()), str(s.get_dtype())) for n, s in slices.items()}
        return found, _state(file, path)


def _state(file: Any, path: Path) -> dict[str, Any]:
    state = safe_read.parse_json((file.metadata() or {}).get("state", "{}"), path)
    if not isinstance(state, dict):
        raise RunError(f"{path}: its state must be an object with names, got {shown(state)}")
    return state


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        safe_read.regular_file(path)
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError as error:
        raise RunError(f"{path} is not there: the run has not been saved yet") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(
            f"{path} is damaged or cut short ({error}). The other checkpoint of the run may "
            "still be whole: last.safetensors to go on from, best.safetensors to evaluate."
        ) from error


def load_weights(model: nn.Module, tensors: dict[str, Tensor], where: Path | str) -> None:
    """Put weights into a model of the same shape, or say what does not fit."""
    own = model.state_dict()
    missing, extra = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    other = [n for n in own if n in tensors and own[n].shape != tensors[n].shape]
    if missing or extra or other:
        parts = [
            f"{label}: {', '.join(found[:4])}{' ...' if len(found) > 4 else ''}"
            for label, found in (("missing", missing), ("unknown", extra), ("other shape", other))
            if found
        ]
        raise RunError(f"the weights in {where} do not fit this model ({'; '.join(parts)})")
    odd = [n for n in own if own[n].is_floating_point() != tensors[n].is_floating_point()]
    if odd:
        raise RunError(f"the weights in {where} do not fit this model (other type: {odd[0]})")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise RunError(
                f"{where}: {name} holds numbers that are not finite. The file is damaged: put a "
                "copy of it back, or train again."
            )
    model.load_state_dict(tensors)


def owner(model: Operator) -> dict[str, str]:
    """The model and problem that weights belong to, for the header of their file."""
    return {"model": model.name, "problem": model.spec.name}


def refuse_other(state: dict[str, Any], wanted: dict[str, str], where: Path | str) -> None:
    """Refuse weights whose header names another owner; one that names none is let through."""
    found = {name: state.get(name, value) for name, value in wanted.items()}
    if found != wanted:
        theirs, ours = (f"{o['model']} for {o['problem']}" for o in (found, wanted))
        raise RunError(
            f"{where} holds weights of {theirs}, and weights of {ours} belong there: the file "
            "must have come from another run. Put the right one back, or train again."
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimiser's state, by the number of the parameter and the name of the entry."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}/{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, entries in state.items()
        for name, value in entries.items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    where: Path | str = "the checkpoint",
) -> None:
    """Put an optimiser's state back, if it is of these parameters."""
    content = optimizer.state_dict()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition("/")
        known = number.isdecimal() and len(number) < 9 and int(number) < len(parameters)
        if not known or not (value.ndim == 0 or value.shape == parameters[int(number)].shape):
            raise RunError(
                f"{where}: {shown(key)} is not of the optimiser of this model. Put the right file "
                "back, or train again."
            )
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**content, "state": state})


def copy_into(own: Mapping[str, Tensor], tensors: dict[str, Tensor], where: Path | str) -> None:
    """Copy tensors to those of the same names; none may be missing or have another shape."""
    if own.keys() != tensors.keys() or any(own[n].shape != t.shape for n, t in tensors.items()):
        raise RunError(
            f"{where} holds {', '.join(sorted(tensors)[:4]) or 'nothing'} where this run has "
            f"{', '.join(sorted(own)[:4]) or 'nothing'}, or of other shapes. Train again."
        )
    with torch.no_grad():
        for name, value in tensors.items():
            own[name].copy_(value)


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with a prefix before their names, to keep several sets in one file."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def of_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


WRITE_EVERY = 5.0
"""Seconds for which newer best weights wait: safe writing takes as long as a short epoch."""


class BestWeights:
    """The best weights of a run: kept in memory, written within seconds, or at `flush`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._written = -WRITE_EVERY

    def keep(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Replace the weights and their header."""
        self._pending = {name: t.detach().clone() for name, t in tensors.items()}, state
        if time.monotonic() - self._written >= WRITE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what has not been written yet."""
        if self._pending is not None:
            save(self.path, *self._pending)
            self._pending, self._written = None, time.monotonic()


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
    """True if validation, and not time or epochs, ended the run."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def result_from(content: Any) -> Result:
    """How a run ended, from its JSON; refused if a number is not one."""
    return _numbers_from(Result, content)


def state_from(content: Any) -> State:
    """The counters of a checkpoint, from its JSON."""
    return _numbers_from(State, content)


def _numbers_from(cls: type, content: Any) -> Any:
    """A dataclass from plain values; NaN and infinity stand for errors that are not known yet."""
    if not isinstance(content, dict):
        raise RunError(f"expected an object with names, got {shown(content)}")
    odd = {
        name: value
        for name, value in content.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    hints = hints_of(cls)
    if bad := [name for name in odd if float not in (hints.get(name), *get_args(hints.get(name)))]:
        raise RunError(f"{bad[0]} must be {hints.get(bad[0])}, got {odd[bad[0]]}")
    found = from_dict(cls, content | dict.fromkeys(odd, 0.0), cls.__name__.lower())
    return replace(found, **odd)


@dataclass
class State:
    """The counters in a checkpoint: with the tensors, all that is needed to resume."""

    step: int = 0
    seconds: float = 0.0
    best_validation: float = float("inf")
    best_epoch: int = 0
    best_progress: float = 0.0
    """The part of the run that was done at the best validation."""
    out_of_patience: bool = False
    """True once the best validation is too long ago."""
    average_count: int = 0
    loss: float = float("nan")
    """The mean over the steps of the last row of the journal."""
    loss_sum: float = 0.0
    """Losses since that row."""
    reported: int = 0
    """The step of that row."""


class Resumable:
    """All tensors in the checkpoint of a run: weights, optimiser, the objective's `own` parameters,
    and the average of the weights if there is one."""

    def __init__(
        self,
        model: Operator,
        optimizer: torch.optim.Optimizer,
        own: Iterable[Tensor],
        average: Average | None,
    ) -> None:
        self.model, self.optimizer, self.average = model, optimizer, average
        self.own = {str(i): parameter for i, parameter in enumerate(own)}

    def save(self, path: Path, state: State) -> None:
        """Write everything that is needed to go on."""
        state.average_count = self.average.count if self.average else 0
        tensors = with_prefix("model", self.model.state_dict())
        tensors |= with_prefix("optimizer", optimizer_tensors(self.optimizer))
        tensors |= with_prefix("objective", self.own)
        if self.average:
            tensors |= with_prefix("average", self.average.mean)
        save(path, tensors, asdict(state) | owner(self.model))

    def restore(self, path: Path, *, epochs: int) -> State:
        """Put everything back, and return the counters; `epochs` is the length of the run."""
        tensors, content = load(path)
        wanted = owner(self.model)
        refuse_other(content, wanted, path)
        content = {name: value for name, value in content.items() if name not in wanted}
        # Checkpoints of before there was patience lack its counters.
        done = content.get("best_epoch", 0) / epochs
        content = {"best_progress": done, "out_of_patience": False} | content
        if unknown := set(content) ^ set(asdict(State())):
            raise RunError(f"{path} was written by another version ({unknown})")
        try:
            state = state_from(content)
        except RunError as error:
            raise RunError(f"{path}: {error}. Train again.") from error
        load_weights(self.model, of_prefix("model", tensors), path)
        load_optimizer(self.optimizer, of_prefix("optimizer", tensors), path)
        copy_into(self.own, of_prefix("objective", tensors), path)
        if self.average:
            copy_into(self.average.mean, of_prefix("average", tensors), path)
            self.average.count = state.average_count
        return state
