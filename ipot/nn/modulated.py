"""Fields as networks of position, one network for all and a code for each."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class FourierNet(nn.Module):
    """A multiplicative filter network whose amplitudes are shifted by a code.

        z₀ = γ₀(x) (A₀ α + b₀)
        z_l = γ_l(x) (B_l z_{l-1} + A_l α + b_l),   l = 1 ... layers
        u = C z + c

    The filters γ_l(x) = [sin(ω_l x), cos(ω_l x)] are learnt and see nothing but the position: they
    are computed once for all codes. Their frequencies start within ± scale / √(D (layers + 1)), so
    that a product of all of them starts with about the same range however deep it is.
    """

    def __init__(
        self, dimension: int, *, code: int, width: int, layers: int, scale: float = 64.0
    ) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"half of the width are sines, half cosines: {width} is odd")
        self.scale = scale * (layers + 1) ** -0.5
        span = dimension**-0.5
        shape = (layers + 1, width // 2, dimension)
        self.frequencies = nn.Parameter(torch.empty(shape).uniform_(-span, span))
        self.first = nn.Parameter(torch.empty(width).uniform_(-span, span))
        self.shifts = nn.ModuleList(nn.Linear(code, width, bias=False) for _ in range(layers + 1))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, 1)

    def filters(self, x: Float[Tensor, "B1 M D"]) -> tuple[Tensor, ...]:
        """The filters of all layers at positions, each (B or 1, M, width)."""
        if x.shape[-1] != self.frequencies.shape[-1]:
            wanted = self.frequencies.shape[-1]
            raise ValueError(f"positions must have {wanted} coordinates, got {x.shape[-1]}")
        # Not a matmul: that may round the phases, to bf16 under autocast or to TF32 in training.
        weights = (self.scale * self.frequencies).flatten(0, 1)
        phase = x[..., :1] * weights[:, 0]
        for axis in range(1, x.shape[-1]):
            phase = phase + x[..., axis : axis + 1] * weights[:, axis]
        phases = phase.unflatten(-1, self.frequencies.shape[:2]).unbind(-2)
        return tuple(torch.cat([p.sin(), p.cos()], -1) for p in phases)

    def forward(
        self, filters: tuple[Tensor, ...], codes: Float[Tensor, "B K c"]
    ) -> Float[Tensor, "B M K"]:
        """The field of every code, at the positions of the filters."""
        first, *rest = (f.unsqueeze(1) for f in filters)
        shift, *shifts = (a(codes).unsqueeze(-2) for a in self.shifts)
        z = first * (shift + self.first)
        for layer, here, shift in zip(self.layers, rest, shifts, strict=True):
            z = here * (layer(z) + shift)
        return self.out(z).squeeze(-1).transpose(1, 2)
