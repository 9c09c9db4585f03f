"""Attention among slices of a domain instead of its points: physics attention."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn.attention import attention

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
# A slice that no point belongs to has a token of about zero.
TINY = 1e-5
COLDEST, HOTTEST = 0.1, 5.0


def gather(
    weights: Float[Tensor, "B H N S"], values: Float[Tensor, "B H N e"]
) -> Float[Tensor, "B H S e"]:
    """Slice tokens: the mean of the points' values, each weighted by its part in the slice."""
    total = weights.sum(2).unsqueeze(-1)
    return weights.transpose(-1, -2) @ values / (total + TINY)


class PhysicsAttention(nn.Module):
    """Points are distributed over slices, slices attend to each other, and points get the result
    back.

        w = softmax(S P(x) / τ)            the parts of a point in the slices, τ for each head
        z = Σ w V(x) / Σ w                 tokens of the slices
        out = W Σ w Attention(z, z, z)     over slices, for every point

    P and V are linear maps of a point, or convolutions of three nodes along each of `axes` axes of
    a grid. The cost is linear in the points.
    """

    def __init__(self, width: int, *, heads: int, slices: int, axes: int = 0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} does not divide among {heads} heads")
        head = width // heads
        self.heads = heads
        self.project = (
            CONVOLUTIONS[axes](width, 2 * width, 3, padding=1)
            if axes
            else nn.Linear(width, 2 * width)
        )
        self.to_slice = nn.Linear(head, slices)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.to_query_key_value = nn.Linear(head, 3 * head, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        mask: Bool[Tensor, "B N"] | None = None,
        grid: tuple[int, ...] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """The update of every point; `grid` is the shape of the points where P and V are
        convolutions."""
        place, value = self._project(x, grid)
        weights = self.weights(place, mask)
        query, key, new = self.to_query_key_value(gather(weights, value)).chunk(3, -1)
        out = weights @ self.attention(query, key, new).to(weights.dtype)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def attention(
        self,
        query: Float[Tensor, "B H S e"],
        key: Float[Tensor, "B H S e"],
        value: Float[Tensor, "B H S e"],
    ) -> Float[Tensor, "B H S e"]:
        """Slices attend to each other."""
        return attention(query, key, value)

    def weights(
        self, place: Float[Tensor, "B H N e"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B H N S"]:
        """The parts of every point in the slices, which sum to one; padding has no part in any."""
        heat = self.temperature.clamp(COLDEST, HOTTEST)
        weights = (self.to_slice(place) / heat).softmax(-1)
        return weights if mask is None else weights * mask[:, None, :, None]

    def _project(self, x: Tensor, grid: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
        if isinstance(self.project, nn.Linear):
            both = self.project(x)
        else:
            both = self.project(x.transpose(1, 2).unflatten(-1, grid)).flatten(2).transpose(1, 2)
        place, value = both.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return place, value
