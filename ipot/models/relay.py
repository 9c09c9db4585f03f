"""The inducing point relay: points exchange features with inducing points, in every block.

    X₀ = lift(position features, values)                at the input points
    for l in 1 ... L:
        K, V = projections of LN(X)
        Z_l = softmax(Q_l Kᵀ / √e) V                    compress; Q_l is learnt, for each head
        X = X + W softmax(K Q_lᵀ / √e) Z_l              give back, the same keys as queries
        H = W₁ LN(X)
        X = X + W₂ GELU(H + Σ_o A_o H(x + δ o))         neighbours are mixed in the hidden layer
    Z = Attention(Z_q, X_L, X_L)                        the latent state, stepped in time by G
    u_t(y) = MLP(Attention(y, Z_t, Z_t) + s_t ∘ W LN(Σ_j λ_j(y) X_L(x_j)))
             [+ c ∘ Σ_j λ_j(y) a_last(x_j) + d]         where answers are changes since a frame

It is IPOT with two things added. What IPOT does once, from points to inducing points and back, is
done in every block, so that points exchange features before anything is compressed. And points know
their neighbours: by a stencil in every block, whose places are a fixed distance δ apart and take
their features from the nearest inputs, and in the answers, which use the inputs around a query. Any
points in, any queries out, at a cost linear in both; one set of weights for all densities
(`ipot/nn/neighbours.py`). Layers are in `ipot/nn/relay.py`; docs/model.md is the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._settings import divided, features, frequencies, positive
from ipot.models.base import Latent, LatentOperator, SeenPoints
from ipot.nn.latent import Processor, start_local
from ipot.nn.neighbours import Neighbours, Surroundings
from ipot.nn.relay import Affine, LocalDecoder, RelayEncoder, relay_blocks
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of a relay."""

    width: int = 128
    """Channels of points, inducing points and queries."""
    blocks: int = 8
    """Blocks at the points: compress, give back, feed-forward."""
    heads: int = 8
    """Heads of these blocks and of the processor."""
    latents: int = 128
    """Inducing points of every head of a block."""
    states: int = 256
    """Inducing points of the latent state, at full width."""
    cross_heads: int = 4
    """Heads of the attention to and from the latent state."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards."""
    mixing: bool = True
    """Mix the hidden channels of neighbours in the feed-forwards of the blocks."""
    stencil: int = 1
    """Inputs that each place of a stencil takes its features from: 1 the nearest, more a linear fit
    to as many."""
    decoder: Literal["auto", "both", "global"] = "auto"
    """global: answers hear the latent state alone; both: the inputs around a query besides; auto:
    both where inputs and queries lie in one space."""
    neighbours: int = 8
    """Inputs around a query that an answer hears."""
    processor: int | None = None
    """Self-attention blocks that step the latent state; None: four, or none in a steady problem."""
    stepping: Literal["state", "points"] = "state"
    """What goes on in time: the latent state; or the features at the points, by blocks like those
    of the encoder, from which the state is made anew."""
    step_blocks: int = 2
    """Blocks of a step at the points."""
    change: bool = False
    """Answer with the change since the last past frame, which is added as it is between the inputs
    around a query; for problems whose inputs are past frames."""
    bins: tuple[int, ...] = (16,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (32.0,)
    """Twice the highest frequency, for each dimension or one number for all."""
    coordinates: Literal["unit", "raw"] = "unit"
    """unit: map the domain to [-1, 1] and honour periods; raw: take coordinates as they come."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "latents", "states", "cross_heads")
        positive(self, "feed_forward", "stencil", "neighbours", "step_blocks")
        frequencies(self)
        divided(self)
        divided(self, "cross_heads")
        if self.processor is not None and self.processor < 0:
            raise Unsupported(f"model.processor must not be negative, got {self.processor}")


class Relay(LatentOperator):
    """Any points in, any queries out, through inducing points in every block."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        same = spec.domain == spec.query_domain and spec.periods == spec.query_periods
        if config.decoder == "both" and not same:
            raise Unsupported(
                f"model.decoder both looks at the inputs around a query, and inputs and queries of "
                f"{spec.name} lie in different spaces: use --model.decoder global"
            )
        local = same and config.decoder != "global"
        self.surroundings = Surroundings(
            spec.domain,
            spec.periods,
            shape=spec.shape,
            count=config.stencil,
            query_count=config.neighbours,
        )
        places = len(self.surroundings.offsets) if config.mixing else 0
        self.encoder = RelayEncoder(
            config.width,
            features(config, spec.domain, spec.periods),
            channels=spec.channels,
            parameters=len(spec.parameters),
            blocks=config.blocks,
            heads=config.heads,
            latents=config.latents,
            states=config.states,
            cross_heads=config.cross_heads,
            multiplier=config.feed_forward,
            places=places,
        )
        at_points = config.stepping == "points"
        blocks = config.processor
        if blocks is None:
            blocks = 0 if at_points or spec.steps == 1 else 4
        self.processor = Processor(
            config.width, blocks=blocks, heads=config.heads, multiplier=config.feed_forward
        )
        self.advance = None
        if at_points:
            sizes = (config.width, config.heads, config.latents, config.feed_forward, places)
            self.advance = relay_blocks(config.step_blocks, *sizes)
        self.decoder = LocalDecoder(
            config.width,
            len(spec.outputs),
            features(config, spec.query_domain, spec.query_periods),
            heads=config.cross_heads,
            multiplier=config.feed_forward,
            local=local,
            # Features that are stepped are never old.
            steps=1 if at_points else spec.steps,
        )
        if config.change and not (local and spec.history):
            lacks = "its answers hear no inputs around them" if spec.history else "it has none"
            raise Unsupported(
                f"model.change answers with the change since the last of past frames among the "
                f"inputs of {spec.name}, and {lacks}: use --model.no-change"
            )
        # A frame that came in has scales of its own. What counts of it is learnt besides.
        self.kept = Affine(len(spec.outputs)) if config.change else None
        self.local, self.mixes = local, config.mixing
        start_local(self, spec)

    def encode(self, batch: Batch) -> Latent:
        """X_L at the points, and Z."""
        points, mask = batch.points, batch.point_mask
        around = self.stencils(points, mask)
        x, real = self.encoder(points, batch.values, batch.parameters, mask, around)
        state = self.encoder.compress(x, real)
        if not self.local and self.advance is None:
            return Latent(state)
        frame = None
        if self.kept is not None:
            last, outputs = self.spec.history, len(self.spec.outputs)
            frame = batch.values[..., (last - 1) * outputs : last * outputs]
        seen = SeenPoints(points, x, mask, around if self.advance is not None else None, frame)
        return Latent(state, seen=seen, age=batch.values.new_zeros(batch.size))

    def step(self, latent: Latent) -> Latent:
        """Z_{t+1}: one pass through the processor, or of the points through blocks of their own."""
        state, seen = latent.state, latent.seen
        if self.advance is not None and seen is not None:
            x, real = seen.features, self._real(seen)
            for block in self.advance:
                x = block(x, seen.around, real)
            state, seen = self.encoder.compress(x, real), seen._replace(features=x)
        age = None if latent.age is None else latent.age + 1
        return Latent(self.processor(state), seen=seen, age=age)

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """u_t(y): queries attend to the state, and use the inputs around them."""
        seen = latent.seen
        if not self.local or seen is None:
            return self.decoder(latent.state, queries)
        # Several states of a sample may come with one set of features; their queries are the same.
        count = len(seen.features)
        asked = queries[:count] if len(queries) > count else queries
        found = self.surroundings(seen.points, asked, seen.mask)
        out = self.decoder(latent.state, queries, found.look_up(seen.features), latent.age)
        if self.kept is None or seen.frame is None:
            return out
        frame = self.kept(found.look_up(seen.frame))
        return frame.repeat(len(out) // len(frame), 1, 1) + out

    def stencils(self, points: Tensor, mask: Tensor | None) -> Neighbours | None:
        """The inputs that the places of each point's stencil are interpolated from."""
        return self.surroundings(points, None, mask) if self.mixes else None

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Take the distance δ of the stencils from the first training points."""
        self.surroundings.measure(points)

    def rescale(self, statistics: Statistics) -> None:
        """Take over the factors from the scales of input frames to those of answers."""
        if self.kept is not None:
            last, outputs = self.spec.history, len(self.spec.outputs)
            frames = slice((last - 1) * outputs, last * outputs)
            self.kept.start(*statistics.inputs_as_outputs(frames))

    def _real(self, seen: SeenPoints) -> Tensor | None:
        """Which rows of the features are real: those of real points and all of parameters."""
        extra = seen.features.shape[1] - seen.points.shape[1]
        if seen.mask is None or not extra:
            return seen.mask
        return nn.functional.pad(seen.mask, (0, extra), value=True)


MODEL = Relay
