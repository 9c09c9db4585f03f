"""A network of dense layers that add to what they see."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ipot.nn.precise import Precise


class ResidualMLP(nn.Module):
    """h = σ(W x), then h + σ(W h) for every hidden layer, then a linear layer; σ is a GELU.

    What comes in may be coordinates: the first layer keeps their precision.
    """

    def __init__(self, into: int, width: int, out: int, layers: int) -> None:
        super().__init__()
        self.into = Precise(into, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, out)

    def forward(self, x: Float[Tensor, "... into"]) -> Float[Tensor, "... out"]:
        """Every row by itself."""
        x = F.gelu(self.into(x))
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return self.out(x)
