"""A plain network of dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Activation = Literal["gelu", "relu", "silu", "swish", "tanh", "identity"]


class Swish(nn.Module):
    """x σ(β x) / 1.1 with a slope that is learnt; β = softplus of a number that starts at 1/2."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Every number by itself."""
        return x * torch.sigmoid(x * nn.functional.softplus(self.slope)) / 1.1


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "swish": Swish,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


class MLP(nn.Module):
    """Linear layers of the given sizes with an activation between them.

    `MLP((3, 64, 64, 1))` has two hidden layers. The last layer is linear unless `activate_last`;
    `norm` puts a LayerNorm behind it, `bias=False` takes the bias of all layers away.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: Activation = "gelu",
        norm: bool = False,
        bias: bool = True,
        activate_last: bool = False,
    ) -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"an MLP needs two sizes at least, all positive: {tuple(sizes)}")
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after, bias=bias), ACTIVATIONS[activation]()]
        if not activate_last:
            layers.pop()
        if norm:
            layers.append(nn.LayerNorm(sizes[-1]))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Float[Tensor, "... into"]) -> Float[Tensor, "... out"]:
        """Every row by itself."""
        return self.layers(x)
