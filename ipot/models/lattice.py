"""IPOT on lattices: inducing points that have places, on several scales.

    V, r = what the places of the finest lattice hear of the inputs a, and how far off those are
    H_0 = lift(φ(p), V(p)) + W r(p)  [+ R H]        at every place p
    H_{l+1} = coarser(blocks(H_l))                  l = 0 ... L - 1: half as many places an axis
    H_L = G(blocks(H_L))                            self-attention among the places of the coarsest
    H_l = blocks(H_l + finer(H_{l+1}))              l = L - 1 ... 0
    U(p) = W LN(H_0(p))  [+ the last frame]         fields at the places
    u(y) = Σ_p w_p(y) U(p)                          between them by a cubic along each axis

What IPOT learns to attend to, near before far, is given here: every inducing point has a place and
knows its neighbours by convolution, far ones over coarser lattices, and all of them by the
attention of IPOT's processor on the coarsest. A rollout goes on at the places, whatever the inputs
and queries are: where inputs are past frames, answers take the place of the oldest, and each step
adds the change of one `dt` to the last; elsewhere the features H go on.

Any points in, any queries out, at a cost linear in both, plus that of the lattice, which does not
depend on them. Where training points form a regular grid they are the places. Layers are in
`ipot/nn/places.py` and `ipot/nn/lattice.py`; docs/model.md is the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._settings import features, frequencies, positive
from ipot.models.base import Latent, LatentOperator
from ipot.nn.lattice import VCycle, coarser_counts
from ipot.nn.places import Places, ToPlaces, chart
from ipot.nn.points import Lift, with_parameters
from ipot.nn.relay import Affine
from ipot.samples import Batch
from ipot.spec import Spec

MOST_AXES = 3
MOST_PLACES = 1 << 22
"""Places of the finest lattice beyond which it is refused."""
USUAL_PLACES = 1 << 14
"""The most that it has where nobody says how many."""
ATTENDING = 200
"""Places of the coarsest lattice, at most, where nobody says how often it is halved ..."""
MOST_ATTENDING = 1 << 13
"""... and beyond which it is refused: all of them attend to each other."""
START = 1e-3
"""Deviation of weights that are to do little at the start."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of an IPOT on lattices."""

    width: int = 64
    """Channels at the finest lattice; twice as many at each coarser one, up to `most_width`."""
    most_width: int = 256
    """Channels at the coarsest lattices."""
    levels: int | None = None
    """How often the lattice is halved along its axes; None: until it has 200 places at most."""
    blocks: int = 2
    """Blocks of two convolutions on each lattice, on the way down and on the way up."""
    finest: int | None = None
    """Blocks on the finest lattice; None: as many as on the others. Where fields are smooth there,
    0 leaves it as the way in and out, at a quarter of the cost."""
    processor: int = 2
    """Self-attention blocks among the places of the coarsest lattice."""
    heads: int = 8
    """Heads of the processor."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards in the processor."""
    places: tuple[int, ...] = ()
    """Places of the finest lattice along each axis, or one number for all; none takes the grid of
    the training points, or four places to each point."""
    bins: tuple[int, ...] = (8,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (16.0,)
    """Twice the highest frequency, for each dimension or one number for all."""
    coordinates: Literal["unit", "raw"] = "unit"
    """unit: map the domain to [-1, 1] and honour periods; raw: take coordinates as they come."""
    past: int = 1
    """Frames that a step hears, of those that come in; the fewer, the less can feed on itself."""
    change: bool = True
    """Each step adds a change to the last frame, where inputs are past frames."""

    def __post_init__(self) -> None:
        positive(self, "width", "most_width", "blocks", "heads", "feed_forward", "past")
        frequencies(self)
        for name in ("levels", "processor", "finest"):
            if (getattr(self, name) or 0) < 0:
                raise Unsupported(f"model.{name} must not be negative, got {getattr(self, name)}")
        if any(n < 1 for n in self.places):
            raise Unsupported(f"model.places must be positive, got {self.places}")


class Lattice(LatentOperator):
    """Any points in, any queries out, through inducing points on lattices."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        _refuse(spec)
        both = zip(spec.domain, spec.query_domain, strict=True)
        domain = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in both)
        space = chart(replace(spec, domain=domain))
        self.places = Places(space, places_of(config, spec, len(space.periods)))
        self.to_places = ToPlaces(self.places)
        self.position = features(config, domain, spec.periods)
        outputs = len(spec.outputs)
        self.frames = min(config.past, spec.history) * outputs
        self.older = spec.history * outputs - self.frames
        self.seen = spec.channels - self.older + len(spec.parameters)
        self.lift = Lift(self.position.width, self.seen, config.width)
        # Zero on the training grid: nothing is learnt of it there, and little made up elsewhere.
        self.from_way = nn.Linear(len(self.places.counts) + 1, config.width, bias=False)
        nn.init.trunc_normal_(self.from_way.weight, std=START)
        goes_on = spec.steps > 1 and not self.frames
        self.before = nn.Linear(config.width, config.width) if goes_on else None
        widths = _widths(config, self.places.counts)
        finest = config.blocks if config.finest is None or len(widths) == 1 else config.finest
        self.cycle = VCycle(
            widths,
            self.places.wraps,
            blocks=[finest] + [config.blocks] * (len(widths) - 1),
            attention=config.processor,
            heads=config.heads,
            multiplier=config.feed_forward,
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, outputs)
        if self.frames and config.change:  # begin near the last frame
            nn.init.trunc_normal_(self.head.weight, std=START)
            nn.init.zeros_(self.head.bias)
        # Frames that came in have scales of their own, and go on beside answers.
        self.kept = Affine(self.frames, learnt=False) if self.frames else None

    def encode(self, batch: Batch) -> Latent:
        """V and r at the places, and no H yet."""
        values, way = self.to_places(
            batch.points, batch.values[..., self.older :], batch.point_mask
        )
        return self.heard(values, way, batch.parameters)

    def heard(
        self,
        values: Float[Tensor, "B Z C"],
        way: Float[Tensor, "G Z A1"],
        parameters: Float[Tensor, "B P"] | None,
    ) -> Latent:
        """The state at time zero, from what the places have heard."""
        if self.kept is not None:
            past = self.kept(values[..., : self.frames])
            values = torch.cat([past, values[..., self.frames :]], -1)
        parts = [with_parameters(values, parameters), way.expand(len(values), -1, -1)]
        if not self.frames:
            hidden = self.config.width if self.before is not None else len(self.spec.outputs)
            parts.append(values.new_zeros(*values.shape[:2], hidden))
        return Latent(torch.cat(parts, -1))

    def step(self, latent: Latent) -> Latent:
        """One `dt` later: U takes the place of the oldest frame, or H is another."""
        seen, way, last = self._parts(latent)
        rows = self.lift(self.position(self.places.coordinates()), seen) + self.from_way(way)
        if self.before is not None:
            rows = rows + self.before(last)
        image = rows.transpose(1, 2).unflatten(2, self.places.counts)
        rows = self.cycle(image).flatten(2).transpose(1, 2)
        if self.before is None:
            rows = self.head(self.norm(rows)).to(seen.dtype)
        if not self.frames:
            return Latent(torch.cat([seen, way, rows.to(seen.dtype)], -1))
        fresh = len(self.spec.outputs)
        if self.config.change:
            rows = seen[..., self.frames - fresh : self.frames] + rows
        # The answer lies on the places, wherever the inputs were.
        later = (seen[..., fresh : self.frames], rows, seen[..., self.frames :], 0 * way)
        return Latent(torch.cat(later, -1))

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """u(y): between the places around every query."""
        seen, _, fields = self._parts(latent)
        if self.before is not None:
            fields = self.head(self.norm(fields)).to(fields.dtype)
        if self.frames:
            fields = seen[..., self.frames - len(self.spec.outputs) : self.frames]
        return self.places(queries).look_up(fields)

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """The first points that a new model sees are its places, if they form a grid."""
        self.places.measure(points)

    def rescale(self, statistics: Statistics) -> None:
        """Frames that came in are taken to the scales of answers, beside which they go on."""
        if self.kept is not None:
            frames = slice(self.older, self.older + self.frames)
            self.kept.start(*statistics.inputs_as_outputs(frames))

    def _parts(self, latent: Latent) -> tuple[Tensor, Tensor, Tensor]:
        """What the places see, how they came by it, and what the last step made."""
        way = len(self.places.counts) + 1
        sizes = [self.seen, way, latent.state.shape[-1] - self.seen - way]
        seen, how, last = latent.state.split(sizes, -1)
        return seen, how, last


def places_of(config: Config, spec: Spec, axes: int) -> tuple[int, ...]:
    """The places along each axis of the finest lattice."""
    counts = config.places
    if len(counts) == 1:
        counts = counts * axes
    if not counts and len(spec.shape) == axes:
        counts = spec.shape
    if not counts:
        points = torch.Size(spec.shape).numel() if spec.shape else 1000
        side = min(4 * points, USUAL_PLACES) ** (1 / axes)
        # Around the globe it is twice as far as from pole to pole.
        ways = [2**-0.5, 2**0.5] if spec.sphere or spec.region else [1.0]
        counts = tuple(max(4, round(side * way)) for way in (ways + [1.0] * axes)[:axes])
    if len(counts) != axes:
        raise Unsupported(f"model.places must be one number or {axes}, got {config.places}")
    if math.prod(counts) > MOST_PLACES:
        raise Unsupported(
            f"a lattice of {' x '.join(map(str, counts))} places is more than {MOST_PLACES:,}: "
            "set --model.places lower"
        )
    return tuple(counts)


def _widths(config: Config, counts: tuple[int, ...]) -> list[int]:
    """Channels of each lattice, the finest first."""
    levels = config.levels
    if levels is None:
        levels = 0
        while math.prod(coarser_counts(counts, levels)) > ATTENDING:
            levels += 1
    attending = math.prod(coarser_counts(counts, levels))
    if config.processor and attending > MOST_ATTENDING:
        raise Unsupported(
            f"{attending:,} places of the coarsest lattice would attend to each other, and at most "
            f"{MOST_ATTENDING:,} may: set --model.levels {levels + 1} or --model.processor 0"
        )
    most = max(config.width, config.most_width)
    widths = [min(most, config.width * 2**level) for level in range(levels + 1)]
    if widths[-1] % config.heads:
        raise Unsupported(
            f"the coarsest lattice has {widths[-1]} channels (model.width, doubled at each of "
            f"{levels} levels up to model.most_width), which do not divide among {config.heads} "
            "heads (model.heads)"
        )
    return widths


def _refuse(spec: Spec) -> None:
    """Refuse what has no lattice."""
    if spec.change:
        raise Unsupported(
            "Lattice carries frames on and adds a change in every step by itself (model.change): "
            "leave --training.change out"
        )
    if spec.dimension != spec.query_dimension or spec.periods != spec.query_periods:
        raise Unsupported(
            f"Lattice answers in the space that it sees, and inputs and queries of {spec.name} lie "
            "in different spaces: use ipot or relay"
        )
    axes = spec.dimension - 1 if spec.sphere or spec.region else spec.dimension
    if not 1 <= axes <= MOST_AXES:
        raise Unsupported(f"Lattice takes 1 to {MOST_AXES} axes, and {spec.name} has {axes}")


MODEL = Lattice
