"""The update of joined parameters: what is kept for them, and which kernel changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate import cuda
from ipot.training.joined_memory import UNIT, Memory

SMALLEST = 2048
"""Floats in a share of an update: what a block of torch's kernel takes in one go."""
MOST = 36
"""Shares of an update: torch's kernel takes the addresses of so many tensors in one launch."""


class Joined(NamedTuple):
    """What an update changes: the parameters, and what is kept for them."""

    values: Float[Tensor, " n"]
    means: Float[Tensor, " n"]
    squares: Float[Tensor, " n"]


class Plan:
    """The update of those parameters that have gradients, which all have seen `count` steps.

    Their moments are joined here, and what the optimiser keeps for a parameter is a part of that.
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
        kind = KernelUpdate if self.by_kernel else FusedUpdate
        self.updates, self.sizes = [], []
        for group, steps in zip(groups, self.steps.split(list(map(len, groups))), strict=True):
            runs = _runs([memory.places[p] for p in group])
            self.updates.append(kind(joined, runs, steps) if runs else None)
            self.sizes.append(sum(end - start for start, end in runs))
        zeros = memory.vector.new_zeros(UNIT)
        self._gaps = [zeros[: -p.numel() % UNIT] for p in self.parameters]
        self._seen: Float[Tensor, ""] | None = None

    def is_for(self, parameters: Sequence[Tensor]) -> bool:
        """Whether it was made for these parameters."""
        if len(parameters) != len(self.parameters):
            return False
        return all(a is b for a, b in zip(parameters, self.parameters, strict=True))

    def gather(self) -> Float[Tensor, " n"]:
        """The gradients, as their parameters lie but for those that have none."""
        parts = []
        for p, gap in zip(self.parameters, self._gaps, strict=True):
            assert p.grad is not None
            parts.append(p.grad.reshape(-1))
            if len(gap):
                parts.append(gap)
        if not self.by_kernel:
            return torch.cat(parts)
        # The steps go along, behind the gradients, which costs no launch: programs of our kernel
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
    """The update of a group by our kernel, which counts its steps too."""

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
        """Take a step behind so many that were `seen`, in memory apart from where they are kept."""
        values, means, squares = self._joined
        counts = (self._steps, seen)
        self._launch(
            *(values, gradient, means, squares), *counts, self._table, group["lr"], divisor, group
        )


class FusedUpdate:
    """The update of a group by torch's fused kernel, which takes it in shares."""

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
        """Take a step whose number is kept already."""
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
    """Whether what lies in this vector is updated by our kernel."""
    return vector.device.type == "cuda" and cuda.available(vector.device)


def _runs(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places, where those that touch each other are one."""
    runs: list[tuple[int, int]] = []
    for start, end in places:
        if runs and runs[-1][1] == start:
            start = runs.pop()[0]
        runs.append((start, end))
    return runs


def _cuts(runs: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Runs in pieces of much the same size, if possible no more than so many."""
    total = sum(end - start for start, end in runs)
    whole = max(1, most + 1 - len(runs))  # every run may end in a shorter piece
    size = max(SMALLEST, UNIT * -(-total // (UNIT * whole)))
    for start, end in runs:
        for place in range(start, end, size):
            yield place, min(place + size, end)
