"""The Fourier neural operator on regular grids.

    z₀ = P(a(x), x)                        lifting
    z_{l+1} = σ(W z_l + F⁻¹(R_l · F z_l))    Fourier layers: R_l is a matrix for each low mode
    u = Q(z_L)                             projection, through a hidden layer

No nonlinearity follows the last Fourier layer. Grids of one, two or three axes; periodic axes are
taken as they are, the others are padded after their end. Li, Kovachki, Azizzadenesheli, Liu,
Bhattacharya, Stuart and Anandkumar, "Fourier neural operator for parametric partial differential
equations", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from ipot.models._fourier import Fourier, Settings
from ipot.nn.grid import Pointwise
from ipot.nn.mlp import MLP, Precise
from ipot.nn.spectral import SpectralConv
from ipot.samples import Batch
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes of an FNO; the defaults are those of Darcy flow."""


class FourierLayer(nn.Module):
    """A convolution by its low modes, and a linear map at every point beside it."""

    def __init__(self, width: int, modes: Sequence[int]) -> None:
        super().__init__()
        self.convolve = SpectralConv(width, width, modes)
        self.linear = Pointwise(width, width)

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B C *grid"]:
        """Their sum."""
        return self.convolve(x) + self.linear(x)


class FNO(Fourier):
    """A grid in, fields on the same grid out."""

    needs = frozenset({Need.GRID, Need.SAME_POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, rank=len(spec.wraps))
        self.lift = Precise(self.inputs, config.width)
        self.layers = nn.ModuleList(
            FourierLayer(config.width, self.modes) for _ in range(config.layers)
        )
        self.project = MLP((config.width, config.projection, len(spec.outputs)))

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """Lift, convolve, project."""
        lifted = self.lift(self.seen(batch))
        return self.project(self.on_grid(lifted, batch.grid, self._convolve))

    def _convolve(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x if number == 0 else nn.functional.gelu(x))
        return x


MODEL = FNO
