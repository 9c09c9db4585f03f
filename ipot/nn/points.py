"""What a point is to a network: its place, the values there, the parameters of its case."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.spec import Bounds


class UnitBox(nn.Module):
    """Coordinates of a domain, mapped to [0, 1] along every axis."""

    def __init__(self, domain: Bounds) -> None:
        super().__init__()
        low = torch.tensor([a for a, _ in domain])
        size = torch.tensor([b - a for a, b in domain])
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("size", size, persistent=False)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """The same points in the unit box."""
        return (x - self.low) / self.size


class Lift(nn.Module):
    """Positions and values to the width: two layers, the first split so that the positions of a
    shared mesh are multiplied once for the whole batch."""

    def __init__(self, positions: int, values: int, width: int) -> None:
        super().__init__()
        self.from_position = nn.Linear(positions, width)
        self.from_value = nn.Linear(values, width, bias=False) if values else None
        self.out = nn.Linear(width, width)

    def forward(self, position: Tensor, value: Tensor | None = None) -> Tensor:
        """(B or 1, N, F) and (B, N, C) to (B, N, width)."""
        hidden = self.from_position(position)
        if self.from_value is not None:
            hidden = hidden + self.from_value(value)
        return self.out(nn.functional.gelu(hidden))


def with_parameters(
    values: Float[Tensor, "B N C"], parameters: Float[Tensor, "B P"] | None
) -> Float[Tensor, "B N CP"]:
    """Values with the parameters of their sample as further channels, the same at every point."""
    if parameters is None:
        return values
    wide = parameters.to(values.dtype).unsqueeze(1).expand(-1, values.shape[1], -1)
    return torch.cat([values, wide], -1)
