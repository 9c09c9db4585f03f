"""Dense layers: a plain network, one with residuals, a layer for coordinates, initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
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
    `norm` adds a LayerNorm after it, `bias=False` leaves out the bias of all layers.
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


class Precise(nn.Linear):
    """A linear layer that autocast does not touch.

    In half precision a coordinate has eight bits: neighbours on a fine mesh would be one point.
    """

    def forward(self, input: Float[Tensor, "... into"]) -> Float[Tensor, "... out"]:
        """The layer in the precision of its weights."""
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.to(self.weight.dtype))


class ResidualMLP(nn.Module):
    """h = σ(W x), then h + σ(W h) for every hidden layer, then a linear layer; σ is a GELU.

    The inputs may be coordinates: the first layer keeps their precision.
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


# The deviation of a standard normal cut at twice its deviation.
CUT = 0.87962566103423978


@torch.no_grad()
def truncate(module: nn.Module, deviation: float | None = None) -> None:
    """Initialise all linear layers from a normal distribution cut at two deviations, biases with
    zero.

    The default deviation is such that a layer keeps the variance of its inputs.
    """
    for layer in module.modules():
        if not isinstance(layer, nn.Linear):
            continue
        std = deviation or layer.in_features**-0.5 / CUT
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        if layer.bias is not None:
            layer.bias.zero_()
