"""Settings that several models share, and the checks of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ipot.errors import Unsupported
from ipot.nn.points import FourierFeatures, for_all
from ipot.spec import Bounds


def positive(config: Any, *names: str) -> None:
    """Refuse settings that are not positive."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise Unsupported(f"model.{name} must be positive, got {getattr(config, name)}")


def frequencies(config: Any) -> None:
    """Refuse position features without bins, or with a highest frequency below one."""
    if not config.bins or min(config.bins) < 1:
        raise Unsupported(f"model.bins must be positive, got {config.bins}")
    if not config.max_frequency or not min(config.max_frequency) >= 2:
        raise Unsupported(f"model.max_frequency must be 2 at least, got {config.max_frequency}")


def divided(config: Any, heads: str = "heads") -> None:
    """Refuse a width that is not a multiple of the number of heads."""
    count = getattr(config, heads)
    if config.width % count:
        raise Unsupported(
            f"model.width must be a multiple of model.{heads}, got {config.width} and {count}"
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that IPOT and the transformer share."""

    width: int = 128
    """Channels of the latent state."""
    blocks: int = 4
    """Self-attention blocks of the processor, applied at every step."""
    heads: int = 8
    """Heads of the processor."""
    cross_heads: int = 4
    """Heads of encoder and decoder."""
    cross_head_width: int | None = None
    """Channels of a head in encoder and decoder; None divides the width among the heads."""
    cross_gain: float = 2.0
    """Factor on the initial query and key projections of encoder and decoder: the larger, the
    fewer points they attend to at first. At 1 they attend to almost all alike."""
    bins: tuple[int, ...] = (16,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (32.0,)
    """Twice the highest frequency, for each dimension or one number for all."""
    coordinates: Literal["unit", "raw"] = "unit"
    """unit: map the domain to [-1, 1] and honour periods; raw: take coordinates as they come."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards in processor and decoder."""
    encoder_feed_forward: int = 2
    """Multiplier of the feed-forward in the encoder; 0 leaves it out."""
    raw_keys: bool = False
    """Keys and values of the processor come from the latent state as it is, and not from its norm,
    as in the authors' code."""
    tied: bool = False
    """One block applied `blocks` times, instead of as many different ones."""
    lifted: bool = True
    """Lift inputs and queries to the width by a small network before they are attended to."""
    decoder: Literal["full", "narrow"] = "full"
    """full: residual at full width, then a head; narrow: straight to the output channels."""
    local: bool = True
    """Start with attention to what is near, instead of to everything alike; needs lifted."""
    output_scale: float = 1.0
    """A fixed factor on the output."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "cross_heads", "feed_forward")
        positive(self, "cross_gain")
        if self.encoder_feed_forward < 0 or (self.local and not self.encoder_feed_forward):
            raise Unsupported(
                "model.encoder_feed_forward must be positive, or 0 with --model.no-local, got "
                f"{self.encoder_feed_forward}"
            )
        frequencies(self)
        divided(self)
        if self.cross_head_width is not None and self.cross_head_width < 1:
            raise Unsupported(f"model.cross_head_width must be positive: {self.cross_head_width}")
        if self.local and not self.lifted:
            raise Unsupported("model.local starts from lifted inputs: add --model.no-local")
        if self.decoder == "full" and not self.lifted:
            raise Unsupported(
                "model.decoder full adds lifted queries to their update: add --model.decoder narrow"
            )


def features(config: Any, domain: Bounds, periods: Sequence[float | None]) -> FourierFeatures:
    """The position features of a space; a single number in the config serves all dimensions."""
    bins, highest = for_all(len(domain), config.bins, config.max_frequency)
    if config.coordinates == "raw":
        return FourierFeatures(bins, highest)
    return FourierFeatures(bins, highest, domain=domain, periods=periods)
