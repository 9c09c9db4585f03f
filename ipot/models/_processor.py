"""What steps a latent state: blocks of self-attention, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._settings import Settings
from ipot.models.base import Latent
from ipot.nn import fused
from ipot.nn.attention import AttentionBlock
from ipot.nn.folded import untouched


class Processor(nn.ModuleList):
    """Blocks of self-attention, one behind the other; tied, one of them again and again."""

    def __init__(self, config: Settings) -> None:
        super().__init__(
            AttentionBlock(config.width, heads=config.heads, multiplier=config.feed_forward)
            for _ in range(1 if config.tied else config.blocks)
        )
        self.repeats = config.blocks if config.tied else 1

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        mask: Bool[Tensor, "B Z"] | None = None,
        packed: list[fused.Packed] | None = None,
    ) -> Float[Tensor, "B Z d"]:
        """The state one step on, by blocks that may have been packed for several steps."""
        for _ in range(self.repeats):
            for index, block in enumerate(self):
                state = block(state, None, mask, packed[index] if packed else None)
        return state

    def roll(self, latent: Latent, wanted: Sequence[int]) -> Float[Tensor, "T B Z d"] | None:
        """The states after some numbers of steps, where one function gives all of them."""
        if not untouched(self, Processor) or not fused.rolls(list(self), *latent):
            return None
        return fused.roll(list(self), self.repeats, latent.state, wanted)

    def pack(self, state: Float[Tensor, "B Z d"]) -> list[fused.Packed] | None:
        """The parameters as kernels take them, where kernels step this state."""
        if not all(fused.fits_itself(block, state) for block in self):
            return None
        return [fused.pack(block) for block in self]

    def regions(self) -> Iterator[nn.Module]:
        """Itself where it is tied, so that gradients add up within; else its blocks, which share
        what is compiled for the first of them."""
        if self.repeats > 1:
            yield self
        else:
            yield from self
