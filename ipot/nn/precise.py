"""A layer for coordinates."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Precise(nn.Linear):
    """A linear layer that autocast does not touch.

    In half precision a coordinate has eight bits: neighbours on a fine mesh would be one point.
    """

    def forward(self, input: Float[Tensor, "... into"]) -> Float[Tensor, "... out"]:
        """The layer in the precision of its weights."""
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.to(self.weight.dtype))
