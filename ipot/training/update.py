"""What changes the weights: the optimiser, the rate, the average."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ipot.training.joined import JoinedAdamW
from ipot.training.joined_memory import copies
from ipot.training.settings import Training


def make_optimizer(
    model: nn.Module, settings: Training, groups: list, device: torch.device
) -> JoinedAdamW:
    """AdamW, fused into one pass; on a GPU its rate is a tensor so that a graph can read it.

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
        weight_decay=settings.weight_decay,
        fused=True,
        capturable=cuda,
    )
    if cuda:  # a tensor of its own for each group, or the last factor would serve them all
        for group in optimizer.param_groups:
            group["lr"] = rate.clone()
    optimizer.join(beside=[*model.parameters(), *model.buffers()])
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, base: float) -> None:
    """Give every group its rate; one that is a tensor is filled, since a graph holds it."""
    for group in optimizer.param_groups:
        rate = base * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Average:
    """An exponential average of the weights, with a short memory at first."""

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
        """Take in the weights as they are now."""
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
