"""What IPOT and a transformer without inducing points share: all but the state between them.

tokens of the inputs -> state -> blocks of self-attention, at every step -> queries attend to it
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot import kernels
from ipot.models._processor import Processor
from ipot.models._settings import Settings
from ipot.models.base import Latent, LatentOperator
from ipot.nn import absorbed, fused
from ipot.nn.absorbed import Folded
from ipot.nn.attention import AttentionBlock
from ipot.nn.chunks import Chunks
from ipot.nn.folded import Known, aligned, called, fold, product_dtype
from ipot.nn.fourier import FourierFeatures, for_all
from ipot.nn.paths import by_the_book, goes_by_kernel
from ipot.nn.points import Lift, ParameterTokens
from ipot.nn.ready import Ready, project_points
from ipot.nn.split import Split, sums_of
from ipot.samples import Batch
from ipot.spec import Spec

MOST_KEPT = 1 << 27
"""Bytes that may be kept of the points of a fixed mesh, and as many of its queries."""


Prepare = Callable[
    [Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None, Tensor | None]
]
"""From points, values and mask of some inputs, as they are stored, to what an encoder's `forward`
takes, parameters among it. It has no weights of its own."""


class Encoder(ParameterTokens):
    """Inputs as tokens, parameters as tokens of their own behind them, and a state from these."""

    def __init__(self, config: Settings, spec: Spec) -> None:
        super().__init__()
        self.position = features(config, spec.domain, spec.periods)
        self.width = config.width if config.lifted else self.position.width + spec.channels
        self.lift = None
        if config.lifted:
            self.lift = Lift(self.position.width, spec.channels, config.width)
        self.start_parameters(len(spec.parameters), self.width)

    def attention(self, config: Settings, context: int | None = None) -> AttentionBlock:
        """The block that a state comes from; without `context` tokens attend to each other."""
        return AttentionBlock(
            config.width,
            context=context,
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            multiplier=config.encoder_feed_forward,
            gain=config.cross_gain,
        )

    @abstractmethod
    def state(
        self, tokens: Float[Tensor, "B N d"] | Split | Ready, mask: Bool[Tensor, "B N"] | None
    ) -> Latent:
        """The state that the tokens make; in two parts where a mesh is shared."""

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Latent:
        """The latent state of the inputs."""
        ready = self.ready(points, values) if parameters is None else None
        if ready is not None:
            return self.state(ready, mask)
        tokens = self._embed(points, values)
        if isinstance(tokens, Split):
            if tokens.shared and parameters is None and not by_the_book():
                return self.state(tokens, mask)
            tokens = tokens.joined()
        return self.state(*self.join(tokens, parameters, mask))

    def chunks(
        self,
        inputs: tuple[Tensor, Tensor, Tensor | None],
        parameters: Tensor | None,
        prepare: Prepare,
        size: int,
    ) -> Chunks:
        """The tokens of points, values and their mask, made from so many points at a time."""

        def tokens(
            points: Tensor, values: Tensor, mask: Tensor | None
        ) -> tuple[Tensor | Split | Ready, Tensor | None]:
            points, values, _, mask = prepare(points, values, mask)
            ready = self.ready(points, values)
            if ready is not None:
                return ready, mask
            found = self._embed(points, values)
            if isinstance(found, Split) and (not found.shared or by_the_book()):
                found = found.joined()
            return found, mask

        def last() -> Tensor:
            points, values, scalars, _ = prepare(inputs[0][:, :0], inputs[1][:, :0], None)
            none = self._embed(points, values)
            none = none.joined() if isinstance(none, Split) else none
            return self.join(none, scalars, None)[0]

        weights = [] if self.lift is None else list(self.lift.parameters())
        if parameters is not None:
            weights += [parameters, self.parameter_offset, self.parameter_slope]
        return Chunks(
            rows=inputs,
            tokens=tokens,
            size=size,
            last=None if parameters is None else last,
            weights=tuple(weights),
        )

    def ready(self, points: Tensor, values: Tensor) -> Ready | None:
        """Keys and values straight from the inputs, where a kernel makes them."""
        return None

    def keep(self, points: Float[Tensor, "1 N D"]) -> None:
        """Keep what these points give, which stay the same."""
        self.position.keep(points, self._given)

    def _given(self, points: Tensor) -> Known:
        """Features as the lift takes them, or with their sums as `split.project` does."""
        features = self.position(points)
        if self.lift is not None:
            return Known(points, _for_product(features))
        return Known(points, _for_product(aligned(features)), features, sums_of(features))

    def _embed(self, points: Tensor, values: Tensor) -> Tensor | Split:
        known = self.position.known(points)
        if self.lift is not None:
            position = self.position(points) if known is None else known.operand
            return self.lift(position, values).expand(values.shape[0], -1, -1)
        return Split(self.position(points), values, known)


class Decoder(nn.Module):
    """Queries attend to the latent state."""

    def __init__(self, config: Settings, spec: Spec) -> None:
        super().__init__()
        self.position = features(config, spec.query_domain, spec.query_periods)
        self.scale = config.output_scale
        outputs = len(spec.outputs)
        full = config.decoder == "full"
        self.lift = Lift(self.position.width, 0, config.width) if config.lifted else None
        queries = config.width if config.lifted else self.position.width
        self.block = AttentionBlock(
            queries,
            context=config.width,
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            out=config.width if full else outputs,
            multiplier=config.feed_forward,
            residual=full,
            gain=config.cross_gain,
        )
        self.head = None
        if full:
            self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, outputs))

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        queries: Float[Tensor, "B1 M E"],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B M K"]:
        """The fields at the queries; queries with a leading 1 are embedded once."""
        part = self.block.attend
        asked = project_points(
            *(self.position, self.lift, part.norm, part.to_query, queries), keep=self.block.residual
        )
        if asked is None:
            asked = self._asked(queries, state)
        out = self.block(asked, state, mask)
        if self.head is not None:
            out = self.head(out)
        return out * self.scale

    def keep(self, queries: Float[Tensor, "1 M E"]) -> None:
        """Keep what these queries give, which stay the same."""
        self.position.keep(queries, self._given)

    def _given(self, queries: Tensor) -> Known:
        """Features as the lift takes them, or behind the norm of the queries but for its affine
        part."""
        features = self.position(queries)
        if self.lift is not None:
            return Known(queries, _for_product(features))
        part, width = self.block.attend, None
        if kernels.available(queries.device) and absorbed.fits(part, self.position.width):
            width = absorbed.columns(self.position.width)
        return Known(queries, _for_product(fold(features, part.norm.eps, width)))

    def _asked(self, queries: Tensor, state: Tensor) -> Tensor | Folded:
        """Queries as the block takes them; those that are kept, and those that keys can absorb the
        projection of, behind their norm but for its affine part."""
        known, part = self.position.known(queries), self.block.attend
        if self.lift is not None:
            return self.lift(self.position(queries) if known is None else known.operand)
        if known is not None and not called(part.norm, part.to_query):
            return Folded(known.operand)
        features = self.position(queries)
        if features.requires_grad or not part.absorbs(features, state):
            return features
        return absorbed.folded(part, features)


class Attentive(LatentOperator):
    """An encoder of its own, a processor that steps, a decoder for any queries."""

    replayable = True

    def __init__(self, config: Settings, spec: Spec, encoder: nn.Module) -> None:
        super().__init__(config, spec)
        self.encoder: Any = encoder
        self.processor = Processor(config)
        self._packed: list[fused.Packed] | None = None
        self.decoder = Decoder(config, spec)

    def keep_mesh(
        self, points: Float[Tensor, "1 N D"] | None, queries: Float[Tensor, "1 M E"] | None
    ) -> None:
        """Compute once what these points and queries give, and use it wherever the very same
        tensors come back with gradients wanted; `FourierFeatures.forget` ends it."""
        for part, places in ((self.encoder, points), (self.decoder, queries)):
            if places is not None and _keepable(places, part.position):
                part.keep(places)

    def encode(self, batch: Batch) -> Latent:
        """The encoder's state."""
        self.encoder.position.renew()
        return self.encoder(batch.points, batch.values, batch.parameters, batch.point_mask)

    def step(self, latent: Latent) -> Latent:
        """One pass through the processor advances the state by one `dt`."""
        state = self.processor(latent.state, latent.mask, self._packed)
        return Latent(state, latent.mask)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """The states at some times, as one function or by a processor that is packed once for all
        steps."""
        states = self._rolled(latent, times)
        if states is not None:
            return [Latent(state) for state in states.unbind()]
        self._packed = self.processor.pack(latent.state)
        try:
            return super().roll_on(latent, times)
        finally:
            self._packed = None

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Encode once, step to every time, decode there; states that lie side by side and that
        nobody sees are decoded as they lie."""
        if batch.queries.ndim == 4 or not self._is_own("rollout", "roll_on", "decode_all"):
            return super().forward(batch)
        latent = self.encode(batch)
        rows = latent.state.shape[0] * batch.queries.shape[-2] * len(batch.times)
        if rows <= self.rows_at_once(latent):
            states = self._rolled(latent, batch.times)
            if states is not None:
                return self._decode_stacked(states, latent.mask, batch.queries)
        return self.decode_all(self.roll_on(latent, batch.times), batch.queries)

    def _rolled(self, latent: Latent, times: tuple[float, ...]) -> Float[Tensor, "T B Z d"] | None:
        """The states at some times, where one function gives all of them."""
        return self.processor.roll(latent, self.steps(times)) if self._is_own("step") else None

    def _is_own(self, *names: str) -> bool:
        """Whether methods are as they are here, in no subclass and on no instance another."""
        return all(
            getattr(type(self), name) is getattr(Attentive, name) and name not in vars(self)
            for name in names
        )

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """Queries attend to the state."""
        self.decoder.position.renew()
        return self.decoder(latent.state, queries, latent.mask)

    def rows_at_once(self, latent: Latent) -> int:
        """Far more where a row leaves only its few outputs behind."""
        lean = self.config.decoder == "narrow" and goes_by_kernel(latent.state)
        return super().rows_at_once(latent) << (5 if lean else 0)

    def regions(self) -> Iterator[nn.Module]:
        """Encoder, processor and decoder: a rollout repeats the processor, compiled once."""
        yield self.encoder
        yield from self.processor.regions()
        yield self.decoder


def features(config: Settings, domain, periods) -> FourierFeatures:
    """Position features of a space, one number of the config serving all dimensions if alone."""
    bins, highest = for_all(len(domain), config.bins, config.max_frequency)
    if config.coordinates == "raw":
        return FourierFeatures(bins, highest)
    return FourierFeatures(bins, highest, domain=domain, periods=periods)


def _keepable(places: Tensor, position: FourierFeatures) -> bool:
    """Whether features of these places are few enough to be kept, in full and rounded; those of
    another dimension are refused where they are used."""
    rows, each = places.shape[:-1].numel(), places.element_size() + 2
    fits = places.shape[-1] == len(position.centre)
    return fits and rows * position.width * each <= MOST_KEPT


def _for_product(features: Tensor) -> Tensor:
    """Features in the precision that products are computed in now."""
    return features.to(product_dtype(features.dtype, features.device))
