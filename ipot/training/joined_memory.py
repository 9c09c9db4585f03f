"""One tensor that holds many, each as a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

UNIT = 64
"""Every parameter begins at a multiple of so many floats: 256 bytes, more than any kernel asks."""


class Memory:
    """One tensor that holds parameters, each at a place of its own."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        ends = [0]
        for p in self.parameters:
            ends.append(ends[-1] + UNIT * -(-p.numel() // UNIT))
        self.places = dict(zip(self.parameters, pairwise(ends), strict=True))
        self.vector = self.parameters[0].detach().new_zeros(ends[-1])
        for p in self.parameters:
            p.data = self.of(self.vector, p).copy_(p.detach())
        self._addresses = [p.data_ptr() for p in self.parameters]

    def of(self, vector: Float[Tensor, " n"], parameter: Tensor) -> Tensor:
        """The part of a vector that is a parameter's."""
        start, _ = self.places[parameter]
        return vector[start : start + parameter.numel()].view(parameter.shape)

    def intact(self) -> bool:
        """Whether all parameters are still where they were put."""
        where = zip(self.parameters, self._addresses, strict=True)
        return all(p.data_ptr() == address for p, address in where)

    def leave(self) -> None:
        """Move every parameter that is still here to memory of its own, if there is any left."""
        with suppress(RuntimeError):  # not enough: they are as good where they are
            for p, address in zip(self.parameters, self._addresses, strict=True):
                if p.data_ptr() == address:
                    p.data = p.detach().clone()


def copies(
    tensors: Sequence[Tensor],
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor, int]]]:
    """Copies that lie as the tensors do: side by side in one memory where those share one.

    Beside them, a vector of each such memory, from the first tensor in it to the last, the vector
    that it was copied from, and how many of the tensors lie there.
    """
    shared: dict[Any, list[Tensor]] = {}
    for t in tensors:
        shared.setdefault((t.untyped_storage().data_ptr(), t.dtype, t.device), []).append(t)
    made: dict[int, Tensor] = {}
    vectors = []
    for together in shared.values():
        first = min(t.storage_offset() for t in together)
        last = max(t.storage_offset() + _extent(t) for t in together)
        vector = together[0].as_strided((last - first,), (1,), first)
        copy = vector.clone()
        vectors.append((copy, vector, len(together)))
        for t in together:
            made[id(t)] = copy.as_strided(t.shape, t.stride(), t.storage_offset() - first)
    return [made[id(t)] for t in tensors], vectors


def alike(parameters: Sequence[Tensor]) -> bool:
    """Whether parameters can lie in one tensor that torch's fused kernel works on."""
    if not parameters or parameters[0].device.type not in ("cpu", "cuda"):
        return False
    device = parameters[0].device
    return all(
        type(p.data) is Tensor
        and (p.dtype, p.device, p.layout) == (torch.float32, device, torch.strided)
        and p.numel() > 0
        and p.is_contiguous()
        and not p.is_inference()
        for p in parameters
    )


def apart(parameters: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether no parameter shares memory with another tensor."""
    there = [(t, *_range(t)) for t in others if t.layout == torch.strided and t.numel()]
    for p in parameters:
        first, last = _range(p)
        if any(t is not p and first < end and start < last for t, start, end in there):
            return False
    return True


def _range(tensor: Tensor) -> tuple[int, int]:
    """The addresses between which a tensor lies."""
    start = tensor.data_ptr()
    return start, start + _extent(tensor) * tensor.element_size()


def _extent(tensor: Tensor) -> int:
    """Elements of memory from the first of a tensor to its last."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
