"""Parameters side by side in one tensor, so that a few launches update all of them.

A model has a hundred small parameters. One by one their norms, their clipping and their update are
a dozen launches, in which the largest parameter keeps one block busy while the others are done. In
one tensor the gradients are one vector with one norm, and the update is shared out evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

UNIT = 64
"""Every parameter begins at a multiple of so many floats: 256 bytes, more than any kernel asks."""
SMALLEST = 2048
"""Floats in a share of an update: what a block of torch's kernel takes in one go."""


class JoinedAdamW(torch.optim.AdamW):
    """Fused AdamW for parameters that lie in one tensor.

    Its state is kept by parameter, as torch does: these tensors are parts of joined ones. So a
    checkpoint looks as ever, and torch's own `step()` may be taken at any time. Where parameters
    cannot be joined, or no longer are, `gather` says so by None and there is only that step.
    """

    joined = False
    """Whether updates go over joined tensors."""
    _memory: Memory | None = None
    _plan: Plan | None = None

    def join(self, beside: Iterable[Tensor] = ()) -> None:
        """Move the parameters into one tensor, if they are of a kind.

        They must be on their device by now. A parameter that shares its memory with one of the
        tensors `beside`, or with another parameter, is meant to: then all stay where they are.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.joined = _alike(parameters) and _apart(parameters, [*parameters, *beside])
        self._memory = Memory(parameters) if self.joined else None

    def part(self) -> None:
        """Give every parameter memory of its own again: who saves or exports one of them would
        take along all of them."""
        if self._memory is not None:
            self._memory.leave()
        self.joined, self._memory, self._plan = False, None, None

    @torch.no_grad()
    def gather(self) -> Float[Tensor, " n"] | None:
        """The gradients as one vector, with zeros between them; None for the ordinary way.

        Which parameters have gradients is seen at the first step. Where that changes, or somebody
        moves a parameter elsewhere, the ordinary way is taken for good.
        """
        plan = self._planned() if self.joined else None
        self.joined = plan is not None
        return None if plan is None else plan.gather()

    def step(
        self,
        closure: Callable[[], float] | None = None,
        *,
        gradient: Float[Tensor, " n"] | None = None,
        divisor: Float[Tensor, ""] | None = None,
    ) -> float | None:
        """Update the parameters by what `gather` returned, divided by a number on the device.

        Without a gradient this is torch's own step, by the gradients that the parameters hold.
        """
        if gradient is None:
            self._plan = None  # other parameters may be stepped now: look at their counts again
            found = super().step(closure)
            # Torch's fused kernels change them without a sign, which whoever keeps something that
            # was made from them looks for.
            torch.autograd.graph.increment_version(
                [p for group in self.param_groups for p in group["params"]]
            )
            return found
        if self._plan is None:
            raise RuntimeError("there is no plan for this gradient: call gather() before step()")
        self._plan.update(self.param_groups, gradient, divisor)
        return None

    def _planned(self) -> Plan | None:
        """How to update what has gradients now, if that can be done in one."""
        groups = [[p for p in g["params"] if p.grad is not None] for g in self.param_groups]
        found = [p for group in groups for p in group]
        if self._memory is None or not self._memory.intact():
            return None
        if not all(p in self._memory.places for p in found):  # of a group that was added since
            return None
        if not found or not all(map(_usual, self.param_groups)) or not all(map(_dense, found)):
            return None
        if self._plan is None or self._plan.state is not self.state:  # at first, or newly loaded
            count = _count(self.state, found)
            self._plan = None if count is None else Plan(self._memory, groups, self.state, count)
        elif not self._plan.is_for(found):
            return None
        return self._plan


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


class Shares(NamedTuple):
    """What one launch works on: parts of the parameters of a group, and of their moments."""

    values: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


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
        self.shares, self.sizes = [], []
        for group in groups:
            cuts = list(_cuts([memory.places[p] for p in group], _most()))
            values, first, second = (
                [vector[a:b] for a, b in cuts] for vector in (memory.vector, means, squares)
            )
            self.shares.append(Shares(values, first, second, [self.steps[0]] * len(cuts)))
            self.sizes += [b - a for a, b in cuts]
        zeros = memory.vector.new_zeros(UNIT)
        self._gaps = [zeros[: -p.numel() % UNIT] for p in self.parameters]

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
        return torch.cat(parts)

    @torch.no_grad()
    def update(
        self,
        groups: Sequence[dict[str, Any]],
        gradient: Float[Tensor, " n"],
        divisor: Float[Tensor, ""] | None,
    ) -> None:
        """Take a step with the rates and settings of the groups."""
        self.steps.add_(1)
        slices = iter(gradient.split(self.sizes))
        for group, shares in zip(groups, self.shares, strict=True):
            if not shares.values:
                continue
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                shares.values,
                [next(slices) for _ in shares.values],
                shares.means,
                shares.squares,
                [],
                shares.steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
            )
        # The parameters were changed in another tensor than themselves; whoever keeps something
        # that was made from them must see it.
        torch.autograd.graph.increment_version(self.parameters)


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


def _alike(parameters: Sequence[Tensor]) -> bool:
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


def _apart(parameters: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
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


def _usual(group: dict[str, Any]) -> bool:
    """Whether a group is updated in no other way than by the fused kernel."""
    unusual = ("amsgrad", "maximize", "differentiable")
    plain = all(isinstance(beta, float) for beta in group["betas"])
    return bool(group["fused"]) and plain and not any(group[name] for name in unusual)


def _dense(parameter: Tensor) -> bool:
    """Whether a parameter's gradient is one that can be joined to others."""
    grad = parameter.grad
    return grad is not None and (grad.layout, grad.dtype) == (torch.strided, parameter.dtype)


def _count(state: dict, parameters: Sequence[Tensor]) -> float | None:
    """The steps that parameters have seen; None if not all have seen the same.

    This waits for the device where there is a state, which is after a resume.
    """
    kept = [state[p]["step"] for p in parameters if state.get(p)]
    if not kept:
        return 0.0
    counts = set(torch.stack(kept).tolist())
    return counts.pop() if len(kept) == len(parameters) and len(counts) == 1 else None


def _most() -> int:
    """Shares of an update: a block each, as many as one launch takes and a GPU runs at once.

    Torch's kernels take the addresses of 36 tensors, and of 252 if they were built for CUDA 13.
    """
    cuda = int((torch.version.cuda or "0").split(".")[0])
    return 128 if cuda >= 13 else 36


def _cuts(places: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Places in pieces of much the same size, where those that touch each other are one."""
    runs: list[tuple[int, int]] = []
    for start, end in places:
        if runs and runs[-1][1] == start:
            start = runs.pop()[0]
        runs.append((start, end))
    total = sum(end - start for start, end in runs)
    size = max(SMALLEST, UNIT * -(-total // (UNIT * most)))
    for start, end in runs:
        for place in range(start, end, size):
            yield place, min(place + size, end)
