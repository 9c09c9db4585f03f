"""Weights on disk: one file, whole or absent, and nothing in it is ever unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ipot import files
from ipot.errors import RunError
from ipot.models.base import Operator


def save(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors, and plain values in the file's header."""
    ready = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    try:
        with files.atomic(path) as temporary:
            save_file(ready, temporary, metadata={"state": json.dumps(state)})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot write {path}: {reason}. The file before it is kept; make room and go on "
            f"with `ipot train --resume {path.parent}`."
        ) from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read them again; a file cut short is refused."""
    try:
        with safe_open(path, "pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
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
    model.load_state_dict(tensors)


def owner(model: Operator) -> dict[str, str]:
    """Whose weights they are, for the header of their file."""
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
    """An optimiser's state by the place of the parameter in it."""
    state = optimizer.state_dict()["state"]
    return {
        f"{place}/{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for place, entries in state.items()
        for name, value in entries.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put an optimiser's state back."""
    content = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        place, name = key.split("/")
        state.setdefault(int(place), {})[name] = value
    optimizer.load_state_dict({**content, "state": state})


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names under a prefix, to keep several sets in one file."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def of_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The set that was kept under a prefix."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
