"""The factorised Fourier neural operator, on grids and on any points.

    z₀ = P(a(x), x)
    z_{l+1} = z_l + W₂ σ(W₁ Σ_axis F⁻¹(R_axis · F_axis z_l))
    u = Q(z_L)

The transform is taken along one axis at a time and the results are added, so that a layer has a
matrix for each mode of each axis, and these may be the same in all layers. The residual goes around
the feed-forward network. Tran, Mathews, Xie and Ong, "Factorized Fourier neural operators",
ICLR 2023.

Points that are no grid, or a grid asked elsewhere, are mapped to the unit torus by a learnt map
that starts close to the identity. Their low modes, by a direct sum, give fields on a latent grid;
the layers act there, and the low modes of what comes out are summed at the places of the queries.
Li, Huang, Liu and Anandkumar, "Fourier neural operator with learned deformations for PDEs on
general geometries", JMLR 2023, who end with a dense Fourier layer: here all layers are factorised.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ipot.errors import Unsupported
from ipot.models._fourier import Fourier, Settings
from ipot.models._settings import positive
from ipot.nn.grid import Pointwise, for_axes, to_grid, unit_grid
from ipot.nn.mlp import Precise
from ipot.nn.nonuniform import Chart, analysis, synthesis
from ipot.nn.points import UnitBox
from ipot.nn.spectral import FactorizedConv, at_least_single, block, from_modes, to_modes
from ipot.samples import Batch
from ipot.spec import Bounds, Need, Spec

ON_A_GRID = frozenset({Need.GRID, Need.SAME_POINTS})


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes of an F-FNO."""

    modes: tuple[int, ...] = (16,)
    """Fourier modes that are kept, for each axis or one number for all."""
    width: int = 64
    """Channels between lifting and projection."""
    feed_forward: int = 4
    """Multiplier of the hidden layer in the feed-forward networks."""
    shared: bool = True
    """One set of Fourier weights for all layers; the feed-forward networks always differ."""
    mapped: bool = False
    """Map the points to a latent grid also where they are a grid that is asked at its points."""
    latent: tuple[int, ...] = (40,)
    """Points of the latent grid, for each axis or one number for all."""
    map_width: int = 128
    """Channels of the network that moves the points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "feed_forward", "map_width")
        if not self.latent or min(self.latent) < 2:
            raise Unsupported(f"model.latent must be 2 at least, got {self.latent}")


def feed_forward(width: int, multiplier: int) -> nn.Sequential:
    """Two layers at every point of a grid, their weights given by direction and size."""
    hidden = multiplier * width
    return nn.Sequential(
        weight_norm(Pointwise(width, hidden)), nn.ReLU(), weight_norm(Pointwise(hidden, width))
    )


class FFNO(Fourier):
    """A grid in and fields on it out, or any points in and fields at any queries out."""

    needs = frozenset({Need.POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        mapped = config.mapped or not spec.provides >= ON_A_GRID
        super().__init__(config, spec, rank=_torus_axes(spec) if mapped else len(spec.wraps))
        self.mapped = mapped
        if not mapped:
            self.needs = self.needs | ON_A_GRID
        self.lift = weight_norm(Precise(self.inputs, config.width))
        self.kernels = nn.ModuleList(
            FactorizedConv(config.width, config.width, self.modes)
            for _ in range(1 if config.shared else config.layers)
        )
        self.feed_forwards = nn.ModuleList(
            feed_forward(config.width, config.feed_forward) for _ in range(config.layers)
        )
        self.project = nn.Sequential(
            weight_norm(nn.Linear(config.width, config.projection)),
            nn.GELU() if mapped else nn.Identity(),
            weight_norm(nn.Linear(config.projection, len(spec.outputs))),
        )
        if mapped:
            self._make_map(config, spec)

    def _make_map(self, config: Config, spec: Spec) -> None:
        self.latent = for_axes("latent", config.latent, len(self.modes))
        self.charts = nn.ModuleList(
            Chart(
                domain,
                periods,
                padding=self.padding,
                codes=len(spec.parameters),
                width=config.map_width,
                sphere=spec.sphere and domain == spec.domain,
            )
            for domain, periods in _spaces(spec)
        )
        self.latent_place = Precise(len(self.latent), config.width)
        self.query_box = UnitBox(spec.query_domain)
        self.query_place = Precise(spec.query_dimension, config.width)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """Lift, convolve along every axis, project."""
        lifted = self.lift(self.seen(batch))
        if self.mapped:
            return self.project(self._through_latent_grid(lifted, batch))
        return self.project(self.on_grid(lifted, batch.grid, self._convolve))

    def _through_latent_grid(self, lifted: Tensor, batch: Batch) -> Tensor:
        """Points to a latent grid on the torus, and from there to the queries."""
        places = self.charts[0](batch.points, batch.parameters)
        asked = self.charts[-1](batch.queries, batch.parameters)
        low = analysis(lifted, places, block(self.latent, self.modes), batch.point_mask)
        grid = to_grid(self.latent_place(unit_grid(self.latent, lifted)), self.latent)
        x = self._convolve(from_modes(low, self.latent) + grid)
        out = synthesis(to_modes(at_least_single(x), self.modes), asked)
        return out + self.query_place(self.query_box(batch.queries))

    def _convolve(self, x: Tensor) -> Tensor:
        for number, update in enumerate(self.feed_forwards):
            kernel = self.kernels[0 if self.config.shared else number]
            x = x + update(kernel(x))
        return x


def _spaces(spec: Spec) -> list[tuple[Bounds, tuple[float | None, ...]]]:
    """The space of the points and the space of the queries; one where they are the same."""
    points, queries = (spec.domain, spec.periods), (spec.query_domain, spec.query_periods)
    return [points] if points == queries else [points, queries]


def _torus_axes(spec: Spec) -> int:
    """The number of axes of the larger of the two spaces; a sphere has two."""
    return max(2 if spec.sphere and d == spec.domain else len(d) for d, _ in _spaces(spec))


MODEL = FFNO
