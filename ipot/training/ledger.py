"""What steps report. It stays on the device, so that nobody waits for it at every step."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Ledger(nn.Module):
    """The sum of losses, the number of steps, and the first step that was not finite."""

    loss_sum: Tensor
    count: Tensor
    fault: Tensor

    def __init__(self, clip: float | None, device: torch.device) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("loss_sum", torch.zeros((), device=device, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), device=device, dtype=torch.long))
        self.register_buffer("fault", torch.full((), -1, device=device, dtype=torch.long))

    def forward(self, loss: Float[Tensor, ""], gradient: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """Take in a step, and return what its gradients are to be divided by, to clip them.

        Of the gradient only the norm matters: it may be given as the norms of its parts. It says
        whether an update is finite, also where the loss itself still is.
        """
        norm = torch.linalg.vector_norm(gradient)
        self.loss_sum += loss
        # The sum is finite as long as every loss was; asking it makes one launch of all this.
        bad = ~(torch.isfinite(self.loss_sum) & torch.isfinite(norm)) & (self.fault < 0)
        self.fault.copy_(torch.where(bad, self.count, self.fault))
        self.count += 1
        most = torch.inf if self.clip is None else self.clip
        return ((norm + 1e-6) / most).clamp(min=1.0)

    def read(self) -> tuple[float, int]:
        """The sum of losses since the last reading and the first faulty step (-1: none).

        This waits for the device.
        """
        loss, fault = self.loss_sum.item(), int(self.fault.item())
        self.loss_sum.zero_()
        return loss, fault
