"""Tensors of different lengths side by side: padded with zeros to the longest, and masked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ipot.errors import DataError
from ipot.memory import SMALL, free_memory, refuse_too_large


def padded(tensors: Sequence[Tensor], axis: int, name: str) -> Tensor:
    """Stack, with zeros behind the shorter ones along one axis."""
    longest = max(t.shape[axis] for t in tensors)
    _refuse_large(name, tensors, axis, longest)
    if all(t.shape[axis] == longest for t in tensors):
        return _stacked(tensors)
    shape = list(tensors[0].shape)
    shape[axis] = longest
    out = tensors[0].new_zeros(len(tensors), *shape)
    for row, tensor in zip(out, tensors, strict=True):
        try:
            row.narrow(axis, 0, tensor.shape[axis]).copy_(tensor)
        except RuntimeError as error:
            raise DataError(
                f"samples of one batch disagree: {tuple(tensor.shape)} beside "
                f"{tuple(tensors[0].shape)}"
            ) from error
    return out


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    try:
        return torch.stack(list(tensors))
    except RuntimeError as error:
        shapes = sorted({tuple(t.shape) for t in tensors})
        raise DataError(f"samples of one batch disagree in shape: {shapes}") from error


def _refuse_large(name: str, tensors: Sequence[Tensor], axis: int, longest: int) -> None:
    """Refuse what the memory cannot hold side by side, before any of it is taken: an expanded
    tensor may have any shape without taking memory itself."""
    first, shape = tensors[0], list(tensors[0].shape)
    shape[axis] = longest
    size = len(tensors) * math.prod(shape) * first.element_size()
    if size > SMALL and first.device.type == "cpu":
        refuse_too_large(f"{name} of {len(tensors)} samples", size, free_memory())


def shared_or_padded(tensors: Sequence[Tensor], axis: int, name: str) -> Tensor:
    """Tensors as one; the same object in all of them is kept once, with a leading 1."""
    if all(t is tensors[0] for t in tensors):
        return tensors[0].unsqueeze(0)
    return padded(tensors, axis, name)


def padded_or_none(tensors: Sequence[Tensor | None], axis: int, name: str) -> Tensor | None:
    """Tensors as one, which all or none of the samples must have."""
    present = [t for t in tensors if t is not None]
    if not present:
        return None
    if len(present) != len(tensors):
        raise DataError(f"{len(present)} of {len(tensors)} samples have {name}: all or none must")
    return padded(present, axis, name)


def row_mask(lengths: Sequence[int], device: torch.device) -> Tensor | None:
    """True where a row is real; None where all are."""
    if len(set(lengths)) == 1:
        return None
    columns = torch.arange(max(lengths), device=device)
    return columns < torch.tensor(lengths, device=device).unsqueeze(1)
