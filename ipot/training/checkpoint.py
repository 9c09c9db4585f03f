"""Weights on disk: one file, whole or absent, and nothing in it is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from ipot import files, safe_read
from ipot.errors import RunError, shown
from ipot.models._shapes import Shapes
from ipot.models.base import Operator


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
    """Read them again; a file cut short is refused."""
    with _opened(path) as file:
        state = _state(file, path)
        return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118


def header(path: Path) -> tuple[Shapes, dict[str, Any]]:
    """What a file says it holds, and the values beside it; no tensor is read."""
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
        place, _, name = key.partition("/")
        known = place.isdecimal() and len(place) < 9 and int(place) < len(parameters)
        if not known or not (value.ndim == 0 or value.shape == parameters[int(place)].shape):
            raise RunError(
                f"{where}: {shown(key)} is not of the optimiser of this model. Put the right file "
                "back, or train again."
            )
        state.setdefault(int(place), {})[name] = value
    optimizer.load_state_dict({**content, "state": state})


def copy_into(own: Mapping[str, Tensor], tensors: dict[str, Tensor], where: Path | str) -> None:
    """Copy tensors to those of the same names, of which none may be missing or of other shape."""
    if own.keys() != tensors.keys() or any(own[n].shape != t.shape for n, t in tensors.items()):
        raise RunError(
            f"{where} holds {', '.join(sorted(tensors)[:4]) or 'nothing'} where this run has "
            f"{', '.join(sorted(own)[:4]) or 'nothing'}, or of other shapes. Train again."
        )
    with torch.no_grad():
        for name, value in tensors.items():
            own[name].copy_(value)


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names under a prefix, to keep several sets in one file."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def of_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The set that was kept under a prefix."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
