"""Parameters side by side in one tensor, and the update of all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate import cuda

UNIT = 64
"""Every parameter begins at a multiple of so many floats: 256 bytes, more than any kernel asks."""


class Memory:
    """One tensor that holds parameters one after the other."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        ends = [0]
        for p in self.parameters:
            ends.append(ends[-1] + UNIT * -(-p.numel() // UNIT))
        self.ranges = dict(zip(self.parameters, pairwise(ends), strict=True))
        self.vector = self.parameters[0].detach().new_zeros(ends[-1])
        for p in self.parameters:
            p.data = self.of(self.vector, p).copy_(p.detach())
        self._addresses = [p.data_ptr() for p in self.parameters]

    def of(self, vector: Float[Tensor, " n"], parameter: Tensor) -> Tensor:
        """The part of a vector that belongs to a parameter."""
        start, _ = self.ranges[parameter]
        return vector[start : start + parameter.numel()].view(parameter.shape)

    def intact(self) -> bool:
        """True if all parameters are still where they were put."""
        where = zip(self.parameters, self._addresses, strict=True)
        return all(p.data_ptr() == address for p, address in where)

    def leave(self) -> None:
        """Move every parameter back to memory of its own, if enough is free."""
        with suppress(RuntimeError):  # not enough memory: they stay
            for p, address in zip(self.parameters, self._addresses, strict=True):
                if p.data_ptr() == address:
                    p.data = p.detach().clone()


def copies(
    tensors: Sequence[Tensor],
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor, int]]]:
    """Copies with the layout of the tensors: side by side in one memory where those are.

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
    """True if parameters can be joined to one tensor that torch's fused kernel can update."""
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
    """True if no parameter shares memory with another tensor."""
    there = [(t, *_range(t)) for t in others if t.layout == torch.strided and t.numel()]
    for p in parameters:
        first, last = _range(p)
        if any(t is not p and first < end and start < last for t, start, end in there):
            return False
    return True


def _range(tensor: Tensor) -> tuple[int, int]:
    """The first and last address of a tensor."""
    start = tensor.data_ptr()
    return start, start + _extent(tensor) * tensor.element_size()


def _extent(tensor: Tensor) -> int:
    """How many elements of memory a tensor spans."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


SMALLEST = 2048
"""Floats in a share of an update: what a block of torch's kernel takes in one go."""
MOST = 36
"""Shares of an update: torch's kernel takes the addresses of so many tensors in one launch."""


class Joined(NamedTuple):
    """What an update changes: the parameters and the optimiser's moments."""

    values: Float[Tensor, " n"]
    means: Float[Tensor, " n"]
    squares: Float[Tensor, " n"]


class Plan:
    """The update of the parameters that have gradients, all after the same `count` of steps.

    Their moments are joined to one tensor, and the optimiser's state for a parameter is a part of
    it.
    """

    def __init__(
        self, memory: Memory, groups: Sequence[Sequence[Tensor]], state: dict, count: float
    ) -> None:
        self.parameters, self.state = [p for group in groups for p in group], state
        self.steps = memory.vector.new_full((len(self.parameters),), count)
        means, squares = torch.zeros_like(memory.vector), torch.zeros_like(memory.vector)
        for step, p in zip(self.steps.unbind(), self.parameters, strict=True):
            entries = state[p]
            entries["step"] = step
            for name, vector in (("exp_avg", means), ("exp_avg_sq", squares)):
                kept, mine = entries.get(name), memory.of(vector, p)
                entries[name] = mine if kept is None else mine.copy_(kept)
        joined = Joined(memory.vector, means, squares)
        self.by_kernel = goes_by_kernel(memory.vector)
        update = KernelUpdate if self.by_kernel else FusedUpdate
        self.updates, self.sizes = [], []
        for group, steps in zip(groups, self.steps.split(list(map(len, groups))), strict=True):
            runs = _runs([memory.ranges[p] for p in group])
            self.updates.append(update(joined, runs, steps) if runs else None)
            self.sizes.append(sum(end - start for start, end in runs))
        zeros = memory.vector.new_zeros(UNIT)
        self._gaps = [zeros[: -p.numel() % UNIT] for p in self.parameters]
        self._seen: Float[Tensor, ""] | None = None

    def is_for(self, parameters: Sequence[Tensor]) -> bool:
        """True if the plan was made for these parameters."""
        if len(parameters) != len(self.parameters):
            return False
        return all(a is b for a, b in zip(parameters, self.parameters, strict=True))

    def gather(self) -> Float[Tensor, " n"]:
        """The gradients as one vector, in the order of the parameters, which all have one."""
        parts = []
        for p, gap in zip(self.parameters, self._gaps, strict=True):
            assert p.grad is not None
            parts.append(p.grad.reshape(-1))
            if len(gap):
                parts.append(gap)
        if not self.by_kernel:
            return torch.cat(parts)
        # The steps go along, after the gradients, which costs no launch: programs of our kernel
        # read them there, while others of them count on where the steps are kept.
        joined = torch.cat([*parts, self.steps[:1]])
        self._seen = joined[-1]
        return joined[:-1]

    @torch.no_grad()
    def update(
        self,
        groups: Sequence[dict[str, Any]],
        gradient: Float[Tensor, " n"],
        divisor: Float[Tensor, ""] | None,
    ) -> None:
        """Take a step with the rates and settings of the groups."""
        if not self.by_kernel:
            self.steps.add_(1)
        elif self._seen is None:
            raise RuntimeError("this gradient was used before: call gather() before every step()")
        slices = gradient.split(self.sizes)
        for group, update, part in zip(groups, self.updates, slices, strict=True):
            if update is not None:
                update(group, part, divisor, self._seen)
        self._seen = None  # lets go of the gradient
        # The parameters were changed in another tensor than themselves; whoever keeps something
        # that was made from them must see it.
        torch.autograd.graph.increment_version(self.parameters)


class KernelUpdate:
    """The update of a group by our kernel, which also counts the steps."""

    def __init__(
        self, joined: Joined, runs: Sequence[tuple[int, int]], steps: Float[Tensor, " p"]
    ) -> None:
        from ipot.accelerate.cuda import adamw

        self._joined, self._steps, self._launch = joined, steps, adamw.adamw
        self._table = adamw.pieces(runs, steps.device)

    def __call__(
        self,
        group: dict[str, Any],
        gradient: Float[Tensor, " n"],
        divisor: Float[Tensor, ""] | None,
        seen: Float[Tensor, ""],
    ) -> None:
        """Take the step after `seen` others. That count is another tensor than the one in the
        state."""
        values, means, squares = self._joined
        counts = (self._steps, seen)
        self._launch(
            *(values, gradient, means, squares), *counts, self._table, group["lr"], divisor, group
        )


class FusedUpdate:
    """The update of a group by torch's fused kernel, in pieces of similar size."""

    def __init__(
        self, joined: Joined, runs: Sequence[tuple[int, int]], steps: Float[Tensor, " p"]
    ) -> None:
        cuts = list(_cuts(runs, MOST))
        self._shares = [[vector[a:b] for a, b in cuts] for vector in joined]
        self._sizes = [b - a for a, b in cuts]
        self._steps = [steps[0]] * len(cuts)

    def __call__(
        self,
        group: dict[str, Any],
        gradient: Float[Tensor, " n"],
        divisor: Float[Tensor, ""] | None,
        seen: None,
    ) -> None:
        """Take a step whose number is in the state already."""
        values, means, squares = self._shares
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            values,
            list(gradient.split(self._sizes)),
            means,
            squares,
            [],
            self._steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
        )


def goes_by_kernel(vector: Tensor) -> bool:
    """True if this vector is updated by our kernel."""
    return vector.device.type == "cuda" and cuda.available(vector.device)


def _runs(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges, with adjacent ones joined."""
    runs: list[tuple[int, int]] = []
    for start, end in ranges:
        if runs and runs[-1][1] == start:
            start = runs.pop()[0]
        runs.append((start, end))
    return runs


def _cuts(runs: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Pieces of similar size of some ranges, at most `most` pieces if possible."""
    total = sum(end - start for start, end in runs)
    whole = max(1, most + 1 - len(runs))  # every run may end in a shorter piece
    size = max(SMALLEST, UNIT * -(-total // (UNIT * whole)))
    for start, end in runs:
        for first in range(start, end, size):
            yield first, min(first + size, end)
