"""Attention without softmax: Q (Kᵀ V) / n, linear in the number of points.

    galerkin    keys and values are normalised over the points
    fourier     queries and keys are

A normalisation over the points takes the place of the softmax: each channel of a head is a function
on the points, and is brought to mean 0 and variance 1 there. Positions enter by rotating queries
and keys, so that a product of the two depends on how far apart they lie.
Cao, "Choose a Transformer: Fourier or Galerkin", 2021; Li, Meidani and Farimani, 2023.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Kind = Literal["galerkin", "fourier"]


class Rotation(NamedTuple):
    """Cosines and sines of the angles by which pairs of channels are turned."""

    cosine: Float[Tensor, "B1 one N pairs"]
    sine: Float[Tensor, "B1 one N pairs"]


class Rotary(nn.Module):
    """Rotation angles from D coordinates in the unit box, for heads of a given width.

    Each coordinate turns as many pairs of channels as the others, at frequencies from `fastest`
    (radians over the box) down by a factor of 10000; remaining channels are not turned.
    """

    def __init__(self, dimension: int, head_width: int, fastest: float) -> None:
        super().__init__()
        pairs = head_width // (2 * dimension)
        if pairs < 1:
            raise ValueError(f"a head of width {head_width} has no pair for {dimension} axes")
        frequency = fastest * 1e4 ** (-torch.arange(pairs) / pairs)
        self.register_buffer("frequency", frequency, persistent=False)

    def forward(self, places: Float[Tensor, "B1 N D"]) -> Rotation:
        """The rotation of every point; not a matmul, which would round phases under autocast."""
        angle = (places.unsqueeze(-1) * self.frequency).flatten(-2).unsqueeze(1)
        return Rotation(angle.cos(), angle.sin())


def rotate(x: Float[Tensor, "B H N e"], by: Rotation | None) -> Float[Tensor, "B H N e"]:
    """Turn channels 1 and P + 1, 2 and P + 2, ..., for P pairs."""
    if by is None:
        return x
    pairs = by.cosine.shape[-1]
    a, b, rest = x.split([pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
    turned = (a * by.cosine - b * by.sine, a * by.sine + b * by.cosine)
    return torch.cat([*turned, rest.to(turned[0].dtype)], dim=-1)


def real(x: Float[Tensor, "B H N e"], mask: Bool[Tensor, "B N"] | None) -> Tensor:
    """The rows with zeros at padding."""
    return x if mask is None else x.masked_fill(~mask[:, None, :, None], 0.0)


def count_points(x: Tensor, mask: Tensor | None) -> Tensor | int:
    """The number of real points of each sample (B, 1, 1, 1), or of all samples; at least 1."""
    if mask is None:
        return max(x.shape[-2], 1)
    return mask.sum(-1).clamp(min=1).view(-1, 1, 1, 1)


def normalize_points(
    x: Float[Tensor, "B H N e"], mask: Bool[Tensor, "B N"] | None = None, epsilon: float = 1e-5
) -> Float[Tensor, "B H N e"]:
    """Every channel of every head with mean 0 and variance 1 over the real points.

    Padding comes out as zero. Statistics are taken in float32 at least.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    count = count_points(x, mask)
    x = real(x, mask)
    x = real(x - x.sum(-2, keepdim=True) / count, mask)
    return x * torch.rsqrt(x.square().sum(-2, keepdim=True) / count + epsilon)


class LinearAttention(nn.Module):
    """Heads of linear attention, of points among themselves or of queries to points.

    `summary` reduces the points to a matrix for each head, however many they are; `read` applies it
    to queries. One head as wide as the model has no output projection. The initial weights are
    those of the published code: orthogonal and small, with a multiple of the identity.
    """

    def __init__(
        self, width: int, *, heads: int, head_width: int | None = None, kind: Kind = "galerkin"
    ) -> None:
        super().__init__()
        head_width = head_width or width
        inner = heads * head_width
        self.heads, self.kind = heads, kind
        self.to_query, self.to_key, self.to_value = (
            nn.Linear(width, inner, bias=False) for _ in range(3)
        )
        plain = heads == 1 and head_width == width
        self.to_out = nn.Identity() if plain else nn.Linear(inner, width)

    @torch.no_grad()
    def start_near_identity(self, *names: Literal["query", "key", "value"]) -> None:
        """Give these projections their published initial weights, head by head."""
        for name in names:
            weight = getattr(self, f"to_{name}").weight
            for head in weight.chunk(self.heads):
                size = head.shape[0]
                nn.init.orthogonal_(head, gain=1 / size)
                head.add_(torch.eye(*head.shape) / size)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        rotation: Rotation | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Points attend to each other."""
        query = self._split(self.to_query(x))
        if self.kind == "fourier":
            query = normalize_points(query, mask)
        return self._answer(query, rotation, self.summary(x, rotation, mask))

    def summary(
        self,
        x: Float[Tensor, "B N d"],
        rotation: Rotation | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B H e e"]:
        """Kᵀ V / n over the real points."""
        key = normalize_points(self._split(self.to_key(x)), mask)
        value = self._split(self.to_value(x))
        value = normalize_points(value, mask) if self.kind == "galerkin" else real(value, mask)
        key = rotate(key, rotation) / count_points(key, mask)
        return key.transpose(-1, -2) @ value.to(key.dtype)

    def read(
        self,
        x: Float[Tensor, "B1 M d"],
        rotation: Rotation | None,
        summary: Float[Tensor, "B H e e"],
    ) -> Float[Tensor, "B M d"]:
        """Queries attend to points. They are not normalised, so each answer depends on its own
        query alone."""
        return self._answer(self._split(self.to_query(x)), rotation, summary)

    def _answer(self, query: Tensor, rotation: Rotation | None, summary: Tensor) -> Tensor:
        out = rotate(query, rotation).to(summary.dtype) @ summary
        return self.to_out(out.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
