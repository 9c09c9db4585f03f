"""Places on the unit torus for the points of a space, by a map that is learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.nn.mlp import MLP
from ipot.nn.points import FourierFeatures
from ipot.nn.spectral import at_least_single
from ipot.spec import Bounds

FREQUENCIES = 8
"""Whole frequencies of the features that the map sees of every coordinate."""
START = 0.01
"""Factor on the last layer of the map: close to the identity, and not at rest."""


class Chart(nn.Module):
    """x to the torus: its coordinates in units of the domain, moved by a network.

    A periodic coordinate goes once around the torus in a period. Any other one leaves the part
    `padding` of its length free behind its end, so that its two ends do not meet. On a sphere the
    coordinates are colatitude and longitude. A space with fewer axes than the torus lies at zero
    along the rest, before it is moved. The network also sees `codes` numbers of a sample.
    """

    def __init__(
        self,
        domain: Bounds,
        periods: Sequence[float | None],
        *,
        padding: Sequence[float],
        codes: int,
        width: int,
        sphere: bool = False,
    ) -> None:
        super().__init__()
        self.sphere, self.rank, dimension = sphere, len(padding), len(domain)
        if sphere:
            low, length = [0.0, 0.0], [math.pi * (1 + padding[0]), 2 * math.pi]
        else:
            low = [a for a, _ in domain]
            spans = zip(domain, periods, padding, strict=False)
            length = [p or (b - a) * (1 + room) for (a, b), p, room in spans]
        self.register_buffer("low", torch.tensor(low), persistent=False)
        self.register_buffer("length", torch.tensor(length), persistent=False)
        self.features = FourierFeatures(
            (FREQUENCIES,) * dimension,
            (2.0 * FREQUENCIES,) * dimension,
            domain=domain,
            periods=periods,
        )
        sizes = (self.features.width + codes, width, width, width)
        self.bend = MLP(sizes, activation="tanh", activate_last=True)
        self.move = nn.Linear(width, self.rank)
        with torch.no_grad():
            for parameter in self.move.parameters():
                parameter.mul_(START)

    def forward(
        self, x: Float[Tensor, "B1 N D"], codes: Float[Tensor, "B P"] | None = None
    ) -> Float[Tensor, "B2 N R"]:
        """Places on the torus; full precision, since high modes multiply them."""
        x = at_least_single(x)
        with torch.autocast(x.device.type, enabled=False):
            seen = self.features(x)
            if codes is not None:
                wide = codes.to(seen.dtype).unsqueeze(1).expand(-1, x.shape[1], -1)
                seen = torch.cat([seen.expand(len(wide), -1, -1), wide], -1)
            return self.still(x) + self.move(self.bend(seen))

    def still(self, x: Float[Tensor, "B1 N D"]) -> Float[Tensor, "B1 N R"]:
        """The places before they are moved."""
        if self.sphere:
            a, b, c = x.unbind(-1)
            # The small number keeps the slope finite at the poles.
            across = (a.square() + b.square() + 1e-12).sqrt()
            x = torch.stack([torch.atan2(across, c), torch.atan2(b, a)], -1)
        place = (x - self.low) / self.length
        return nn.functional.pad(place, (0, self.rank - place.shape[-1]))
