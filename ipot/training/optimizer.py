"""The optimiser: AdamW over parameters in one tensor, its rate, and the average of weights.

A model has a hundred small parameters. Norms, clipping and update parameter by parameter are a
dozen launches on a GPU, in which the largest parameter keeps one block busy while the others are
idle. In one tensor the gradients are one vector with one norm, and the update is distributed
evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.training.joined_parameters import Memory, Plan, alike, apart, copies
from ipot.training.settings import Training


def make_optimizer(
    model: nn.Module, settings: Training, groups: list, device: torch.device
) -> JoinedAdamW:
    """AdamW, fused into one pass. On a GPU its rate is a tensor, so that a CUDA graph can read it.

    A group of an objective's own may have a `factor` on the rate of the schedule. The model must be
    on the device: its parameters are joined in one tensor there, where they can be.
    """
    everything = [{"params": [p for p in model.parameters() if p.requires_grad]}, *groups]
    cuda = device.type == "cuda"
    rate: Any = settings.learning_rate
    if cuda:
        rate = torch.tensor(rate, device=device)
    optimizer = JoinedAdamW(
        everything,
        lr=rate,
        weight_decay=settings.weight_decay if settings.decay == "decoupled" else 0.0,
        fused=True,
        capturable=cuda,
    )
    if cuda:  # a tensor of its own for each group, or the last factor would serve them all
        for group in optimizer.param_groups:
            group["lr"] = rate.clone()
    optimizer.join(beside=[*model.parameters(), *model.buffers()])
    return optimizer


def add_penalty(parameters: Iterable[nn.Parameter], weight: float) -> None:
    """Add the gradient of an L2 penalty to the gradients: coupled weight decay."""
    held = [(p, p.grad) for p in parameters if p.grad is not None]
    values, grads = [p.detach() for p, _ in held], [grad for _, grad in held]
    # Not in place: a gradient may be a view of another.
    added = torch._foreach_add(grads, values, alpha=weight)
    for (p, _), grad in zip(held, added, strict=True):
        p.grad = grad


def set_rate(optimizer: torch.optim.Optimizer, base: float) -> None:
    """Set the rate of every group. A tensor is filled in place, since a CUDA graph holds it."""
    for group in optimizer.param_groups:
        rate = base * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Average:
    """An exponential average of the weights, over few steps at first."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.count = decay, 0
        self.live = dict(model.named_parameters())
        live = [p.detach() for p in self.live.values()]
        mean, vectors = copies(live)
        self.mean = dict(zip(self.live, mean, strict=True))
        # Lists made once: they are read at every step.
        self._lists: tuple[list[Tensor], list[Tensor]] = mean, live
        self._joined = [(copy, vector) for copy, vector, held in vectors if held > 1]
        alone = [(copy, vector) for copy, vector, held in vectors if held == 1]
        self._alone = [copy for copy, _ in alone], [vector for _, vector in alone]

    def update(self) -> None:
        """Update the average with the current weights."""
        self.count += 1
        decay = min(self.decay, self.count / (self.count + 9.0))
        for mean, live in self._joined:  # the gaps between them too, which nobody reads
            mean.lerp_(live, 1.0 - decay)
        if self._alone[0]:
            torch._foreach_lerp_(*self._alone, 1.0 - decay)

    def swap(self) -> None:
        """Exchange the average and the live weights; a second call undoes it."""
        mean, live = self._lists
        kept = [p.clone() for p in live]
        torch._foreach_copy_(live, mean)
        torch._foreach_copy_(mean, kept)


class JoinedAdamW(torch.optim.AdamW):
    """Fused AdamW for parameters that lie in one tensor.

    Its state is kept by parameter as in torch, as parts of joined tensors. So checkpoints have
    torch's format, and torch's own `step()` can be taken at any time. If parameters cannot be
    joined, or no longer are, `gather` returns None and only that step is left.
    """

    joined = False
    """True while updates go over joined tensors."""
    _memory: Memory | None = None
    _plan: Plan | None = None

    def join(self, beside: Iterable[Tensor] = ()) -> None:
        """Move the parameters into one tensor, if their type and device allow it.

        They must be on their device. If a parameter shares memory with another one or with a tensor
        in `beside`, that is taken to be on purpose, and none is moved.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.joined = alike(parameters) and apart(parameters, [*parameters, *beside])
        self._memory = Memory(parameters) if self.joined else None

    def part(self) -> None:
        """Give every parameter memory of its own again. Otherwise saving or exporting one of them
        would include all."""
        if self._memory is not None:
            self._memory.leave()
        self.joined, self._memory, self._plan = False, None, None

    @torch.no_grad()
    def gather(self) -> Float[Tensor, " n"] | None:
        """The gradients as one vector, with zeros between them; None if torch's own step is to be
        taken.

        Which parameters have gradients is seen at the first step. If that changes, or a parameter
        is moved elsewhere, torch's own step is taken from then on.
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
        """Update the parameters with the result of `gather`, divided by a number on the device.

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
        """The joined update of the parameters that have gradients; None if they cannot be
        joined."""
        groups = [[p for p in g["params"] if p.grad is not None] for g in self.param_groups]
        found = [p for group in groups for p in group]
        if self._memory is None or not self._memory.intact():
            return None
        if not all(p in self._memory.ranges for p in found):  # of a group that was added since
            return None
        if not found or not all(map(_usual, self.param_groups)) or not all(map(_dense, found)):
            return None
        if self._plan is None or self._plan.state is not self.state:  # at first, or newly loaded
            count = _count(self.state, found)
            self._plan = None if count is None else Plan(self._memory, groups, self.state, count)
        elif not self._plan.is_for(found):
            return None
        return self._plan


def _usual(group: dict[str, Any]) -> bool:
    """True if the fused kernel knows all settings of a group."""
    unusual = ("amsgrad", "maximize", "differentiable")
    plain = all(isinstance(beta, float) for beta in group["betas"])
    return bool(group["fused"]) and plain and not any(group[name] for name in unusual)


def _dense(parameter: Tensor) -> bool:
    """True if a parameter's gradient can be joined to others."""
    grad = parameter.grad
    return grad is not None and (grad.layout, grad.dtype) == (torch.strided, parameter.dtype)


def _count(state: dict, parameters: Sequence[Tensor]) -> float | None:
    """The number of steps that all parameters have taken; None if it is not the same for all.

    This waits for the device where there is a state, which is after a resume.
    """
    kept = [state[p]["step"] for p in parameters if state.get(p)]
    if not kept:
        return 0.0
    counts = set(torch.stack(kept).tolist())
    return counts.pop() if len(kept) == len(parameters) and len(counts) == 1 else None
