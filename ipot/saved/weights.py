"""Weights in a file, read only when they are known to fit the model that asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ipot.errors import RunError
from ipot.models._shapes import Shapes
from ipot.safe_read import regular_file


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write them; those that share memory are written each by itself."""
    ready = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()}
    path.write_bytes(save(ready, metadata={"format": "pt"}))


def rounded(tensors: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """The tensors with the matrices among those of these names in float16, half the bytes.

    Vectors and whatever else is no weight, such as the scales of the data, are few and stay exact.
    """
    ready = {}
    for name, tensor in tensors.items():
        if name in names and tensor.ndim > 1 and tensor.dtype == torch.float32:
            tensor = tensor.to(torch.float16)
            if not bool(torch.isfinite(tensor).all()):
                raise RunError(
                    f"{name} has weights beyond 65504, the largest number of float16: save the "
                    'model with precision="float32"'
                )
        ready[name] = tensor
    return ready


def widened(found: Shapes) -> Shapes:
    """The shapes of tensors of which some were rounded, as those of the model that they are of."""
    return {n: (shape, "F32" if kind == "F16" else kind) for n, (shape, kind) in found.items()}


def read_shapes(path: Path) -> Shapes:
    """What a file says it holds; no tensor is read."""
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {n: (tuple(s.get_shape()), str(s.get_dtype())) for n, s in slices.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors, in which every number must be finite."""
    with _opened(path) as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, tensor in found.items():
        bad = ~tensor.isfinite()
        if bool(bad.any()):
            raise RunError(
                f"{path}: {name} holds {int(bad.sum())} values that are not finite (NaN or "
                "infinity). Copy or download the folder again, or train again."
            )
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        regular_file(path)
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError as error:
        raise RunError(f"{path} is not there: the folder is not whole") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(
            f"{path} is damaged or cut short ({error}). Copy or download the folder again."
        ) from error
