"""Fourier transforms of functions on scattered points of the unit torus, by direct sums.

    analysis     c(k) = mean over the points of u(x) exp(-2πi k·x)
    synthesis    u(x) = Re Σ_k c(k) exp(2πi k·x)

over a block of low modes as in `ipot.nn.spectral`. Points of a regular grid give its FFT. Exact, at
a cost of points times modes; the phases are built for some points at a time where they are many.
Points of other spaces are placed on the torus by a map that is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ipot.nn.mlp import MLP
from ipot.nn.points import FourierFeatures
from ipot.nn.spectral import at_least_single
from ipot.spec import Bounds

PHASES_AT_ONCE = 1 << 26
"""Numbers in a table of phases. Beyond it the points go in pieces, recomputed when training."""


def analysis(
    values: Float[Tensor, "B N C"],
    places: Float[Tensor, "B1 N D"],
    sizes: Sequence[int],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Complex[Tensor, "B C *frequencies"]:
    """The low modes of values at places; `sizes` are those of the block. No points give zeros."""
    values, places = at_least_single(values), at_least_single(places)
    if mask is None:
        weighted = values / max(1, values.shape[1])
    else:
        count = mask.sum(1).clamp(min=1)[:, None, None]
        weighted = values.masked_fill(~mask.unsqueeze(-1), 0.0) / count

    def part(values: Tensor, places: Tensor) -> Tensor:
        return values.transpose(1, 2) @ _phases(places, sizes).flatten(2)

    with torch.autocast(values.device.type, enabled=False):
        pieces = _in_pieces(part, places, sizes, weighted)
        total = sum(pieces[1:], pieces[0])
    return torch.view_as_complex(total.unflatten(-1, (*sizes, 2)))


def synthesis(
    coefficients: Complex[Tensor, "B C *frequencies"], places: Float[Tensor, "B1 M D"]
) -> Float[Tensor, "B M C"]:
    """The fields with these low modes at places."""
    sizes = coefficients.shape[2:]
    # A frequency along the last axis stands for its negative too, save for zero.
    twice = torch.ones(sizes[-1], device=coefficients.device, dtype=coefficients.real.dtype)
    twice[1:] = 2
    rows = torch.view_as_real(coefficients * twice).flatten(2).transpose(1, 2)

    def part(places: Tensor) -> Tensor:
        return _phases(places, sizes).flatten(2) @ rows

    with torch.autocast(places.device.type, enabled=False):
        return torch.cat(_in_pieces(part, at_least_single(places), sizes), 1)


def _phases(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """cos(2π k·x) and -sin(2π k·x): (B or 1, N, modes, 2).

    A product of one exponential for each axis, so that only few sines and cosines are taken.
    """
    table = None
    for axis, size in enumerate(sizes):
        positive = size if axis == len(sizes) - 1 else (size + 1) // 2
        k = torch.arange(size, device=places.device)
        k = torch.where(k < positive, k, k - size).to(places.dtype)
        angle = places[..., axis, None] * k * (-2 * math.pi)
        wave = torch.complex(angle.cos(), angle.sin())
        table = wave if table is None else (table.unsqueeze(-1) * wave.unsqueeze(-2)).flatten(-2)
    assert table is not None
    return torch.view_as_real(table)


def _in_pieces(
    part: Callable[..., Tensor], places: Tensor, sizes: Sequence[int], values: Tensor | None = None
) -> list[Tensor]:
    """A function of points in pieces, each as large as the table of phases allows."""
    size, count = places.shape[:2]
    chunk = max(1, PHASES_AT_ONCE // max(1, 2 * math.prod(sizes) * size))
    recompute = torch.is_grad_enabled() and count > chunk
    pieces = []
    for start in range(0, max(1, count), chunk):
        rows = slice(start, start + chunk)
        given = (places[:, rows],) if values is None else (values[:, rows], places[:, rows])
        if recompute:
            out = checkpoint(part, *given, use_reentrant=False, preserve_rng_state=False)
        else:
            out = part(*given)
        pieces.append(out)
    return pieces


FREQUENCIES = 8
"""Whole frequencies of the features that the map sees of every coordinate."""
START = 0.01
"""Factor on the last layer of the map: close to the identity, and not at rest."""


class Chart(nn.Module):
    """x to the torus: its coordinates in units of the domain, moved by a network.

    A periodic coordinate goes once around the torus in a period. Any other one leaves the part
    `padding` of its length free after its end, so that its two ends do not meet. On a sphere the
    coordinates are colatitude and longitude. A space with fewer axes than the torus starts at zero
    along the others. The network also takes `codes` numbers of a sample.
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
