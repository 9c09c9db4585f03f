"""IPOT on lattices: inducing points with places, on several scales.

    V, r, c = to_places(x, a)                       inputs a at points x, averaged at every place p
    H_0 = lift(φ(p), V(p)) + W_r (r, 1 - c)(p)      features at every place  [+ W_h H, see below]
    H_{l+1} = coarser(blocks(H_l))                  l = 0 ... L - 1: half as many places an axis
    H_L = G(blocks(H_L))                            self-attention among the places of the coarsest
    H_l = blocks(H_l + finer(H_{l+1}))              l = L - 1 ... 0
    U(p) = W_u LN(H_0(p))  [+ the last frame]       fields at the places
    u(y) = Σ_p w_p(y) U(p)                          at queries y, by a cubic along each axis

IPOT has to learn which inducing points are near which. Here each has a place on a regular lattice:
near ones exchange features by convolutions, far ones by convolutions on coarser lattices, and on
the coarsest all of them by IPOT's processor.

A rollout goes on at the places, whatever the inputs and queries are. Where inputs are past frames,
each step adds the change of one `dt` to the last frame, and the result replaces the oldest. Where
they are not, the features of a step go on to the next (W_h H).

Inputs may be at any points and answers at any queries. The cost is linear in both, plus that of the
lattice, which depends on neither. Where training points form a regular grid, they are the places.

In the code: `to_places` is in `ipot/nn/places.py`, as is `places`, which has p and w_p(y); φ is
`position`, (r, 1 - c) the `support`, W_r `from_way`, W_h `from_state`, W_u `head`; the four
lines with H_l are `cycle`, in `ipot/nn/lattice.py`. docs/model.md is the page.
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
from ipot.nn.lattice import ChannelNorm, VCycle, coarser_counts
from ipot.nn.places import Places, ToPlaces, chart
from ipot.nn.points import Lift, with_parameters
from ipot.nn.relay import Affine
from ipot.samples import Batch
from ipot.spec import Spec

MOST_AXES = 3
MOST_PLACES = 1 << 22
"""A finest lattice with more places is refused."""
USUAL_PLACES = 1 << 14
"""Most places of the finest lattice, unless settings say how many."""
ATTENDING = 200
"""Most places of the coarsest lattice, unless settings say how often it is halved."""
MOST_ATTENDING = 1 << 13
"""A coarsest lattice with more places is refused: all of them attend to each other."""
START = 1e-3
"""Deviation of weights that have little effect at the start of training."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of an IPOT on lattices."""

    width: int = 64
    """Channels on the finest lattice; twice as many on each coarser one, up to `most_width`."""
    most_width: int = 256
    """Most channels on a coarser lattice."""
    levels: int | None = None
    """How often the lattice is halved along its axes; None: until it has 200 places at most."""
    blocks: int = 2
    """Blocks of two convolutions on each lattice, on the way down and on the way up."""
    finest: int | None = None
    """Blocks on the finest lattice; None: as many as on the others. 0 makes a step about four times
    cheaper, and suffices where fields are smooth between neighbouring places."""
    processor: int = 2
    """Self-attention blocks among the places of the coarsest lattice."""
    heads: int = 8
    """Heads of the processor."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards in the processor."""
    places: tuple[int, ...] = ()
    """Places of the finest lattice along each axis, or one number for all axes. Unless given: those
    of the training points' grid, or where these are scattered, four places for each point."""
    bins: tuple[int, ...] = (8,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (16.0,)
    """Twice the highest frequency, for each dimension or one number for all."""
    coordinates: Literal["unit", "raw"] = "unit"
    """unit: map the domain to [-1, 1] and honour periods; raw: take coordinates as they come."""
    past: int = 1
    """How many of the input frames a step uses. With fewer, errors of a long rollout grow less."""
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
        self.places = Places(space, lattice_counts(config, spec, len(space.periods)))
        self.to_places = ToPlaces(self.places)
        self.position = features(config, domain, spec.periods)
        outputs = len(spec.outputs)
        # Of the input channels: the oldest frames are dropped, the next are past frames.
        self.past = min(config.past, spec.history) * outputs
        self.dropped = spec.history * outputs - self.past
        self.channels = spec.channels - self.dropped + len(spec.parameters)
        self.lift = Lift(self.position.width, self.channels, config.width)
        # Training on a full grid, whose support is zero, teaches this nothing: so it starts small.
        # (The name is that of weights which are in use already.)
        self.from_way = nn.Linear(len(self.places.counts) + 1, config.width, bias=False)
        nn.init.trunc_normal_(self.from_way.weight, std=START)
        features_go_on = spec.steps > 1 and not self.past
        self.from_state = nn.Linear(config.width, config.width) if features_go_on else None
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
        self.norm = ChannelNorm(config.width, axis=-1)
        self.head = nn.Linear(config.width, outputs)
        if self.past and config.change:  # start near the last frame
            nn.init.trunc_normal_(self.head.weight, std=START)
            nn.init.zeros_(self.head.bias)
        # Past frames come in at the scales of inputs, and answers go out at those of outputs.
        self.frame_scale = Affine(self.past, learnt=False) if self.past else None

    def encode(self, batch: Batch) -> Latent:
        """V and its support at the places."""
        values = batch.values[..., self.dropped :]
        values, support = self.to_places(batch.points, values, batch.point_mask)
        return self.initial(values, support, batch.parameters)

    def initial(
        self,
        values: Float[Tensor, "B Z C"],
        support: Float[Tensor, "G Z A1"],
        parameters: Float[Tensor, "B P"] | None,
    ) -> Latent:
        """The state at time zero: values and parameters, support, and, without past frames, zeros
        in the place of what the first step will compute."""
        if self.frame_scale is not None:
            past = self.frame_scale(values[..., : self.past])
            values = torch.cat([past, values[..., self.past :]], -1)
        parts = [with_parameters(values, parameters), support.expand(len(values), -1, -1)]
        if not self.past:
            made = self.config.width if self.from_state is not None else len(self.spec.outputs)
            parts.append(values.new_zeros(*values.shape[:2], made))
        return Latent(torch.cat(parts, -1))

    def step(self, latent: Latent) -> Latent:
        """One `dt` later: U replaces the oldest frame, or H is stepped."""
        values, support, made = self._split(latent)
        rows = self.lift(self.position(self.places.coordinates()), values)
        rows = rows + self.from_way(support)
        if self.from_state is not None:
            rows = rows + self.from_state(made)
        image = rows.transpose(1, 2).unflatten(2, self.places.counts)
        rows = self.cycle(image).flatten(2).transpose(1, 2)
        if self.from_state is None:
            rows = self.head(self.norm(rows))
        rows = rows.to(values.dtype)
        if not self.past:
            return Latent(torch.cat([values, support, rows], -1))
        outputs = len(self.spec.outputs)
        if self.config.change:
            rows = values[..., self.past - outputs : self.past] + rows
        # The answer lies on the places, wherever the inputs were: its support is zero.
        frames = (values[..., outputs : self.past], rows, values[..., self.past :])
        return Latent(torch.cat([*frames, 0 * support], -1))

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """u(y): the field at the places, interpolated to every query."""
        values, _, fields = self._split(latent)
        if self.from_state is not None:
            fields = self.head(self.norm(fields)).to(fields.dtype)
        if self.past:
            fields = values[..., self.past - len(self.spec.outputs) : self.past]
        return self.places(queries).look_up(fields)

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Move the places onto the first training points, if these form a grid of the same size."""
        self.places.measure(points)

    def rescale(self, statistics: Statistics) -> None:
        """Take over the factors from the scales of input frames to those of answers."""
        if self.frame_scale is not None:
            frames = slice(self.dropped, self.dropped + self.past)
            self.frame_scale.start(*statistics.inputs_as_outputs(frames))

    def _split(self, latent: Latent) -> tuple[Tensor, Tensor, Tensor]:
        """Split a state: values at the places, their support, and the last step's U or H if no past
        frames are kept."""
        support = len(self.places.counts) + 1
        made = latent.state.shape[-1] - self.channels - support
        values, how, last = latent.state.split([self.channels, support, made], -1)
        return values, how, last


def lattice_counts(config: Config, spec: Spec, axes: int) -> tuple[int, ...]:
    """The places along each axis of the finest lattice."""
    counts = config.places
    if len(counts) == 1:
        counts = counts * axes
    if not counts and len(spec.shape) == axes:
        counts = spec.shape
    if not counts:
        points = torch.Size(spec.shape).numel() if spec.shape else 1000
        side = min(4 * points, USUAL_PLACES) ** (1 / axes)
        # Latitude and longitude: around the globe is twice as far as from pole to pole.
        ratios = [2**-0.5, 2**0.5] if spec.sphere or spec.region else [1.0]
        counts = tuple(max(4, round(side * ratio)) for ratio in (ratios + [1.0] * axes)[:axes])
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
    """Refuse problems that a lattice cannot be made for."""
    if spec.change:
        raise Unsupported(
            "Lattice adds the change of a step to the last frame by itself (model.change): leave "
            "--training.change out"
        )
    if spec.dimension != spec.query_dimension or spec.periods != spec.query_periods:
        raise Unsupported(
            f"Lattice needs inputs and queries in one space, and those of {spec.name} lie in "
            "different spaces: use ipot or relay"
        )
    axes = spec.dimension - 1 if spec.sphere or spec.region else spec.dimension
    if not 1 <= axes <= MOST_AXES:
        raise Unsupported(f"Lattice takes 1 to {MOST_AXES} axes, and {spec.name} has {axes}")


MODEL = Lattice
