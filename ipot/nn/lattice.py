"""Layers on lattices. Features of the places are images: (batch, channels, places of each axis).

    x + conv(GELU(conv(LN(x))))       a block: 3^D weights for every pair of channels
    V-cycle                           blocks on a lattice and on coarser ones, down and up again;
                                      on the coarsest all places attend to each other

Neighbouring places are always the same distance apart, whatever points came in. So the weights of a
convolution belong to distances, and serve input points of any density.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ipot.nn.latent import Processor
from ipot.nn.slices import CONVOLUTIONS


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels, which are this axis: the second of images, the last of rows."""

    def __init__(self, width: int, axis: int = 1) -> None:
        super().__init__(width)
        self.axis = axis

    def forward(self, input: Float[Tensor, "B first *rest"]) -> Float[Tensor, "B first *rest"]:
        """Each place is normalised by itself."""
        return super().forward(input.movedim(self.axis, -1)).movedim(-1, self.axis)


class Convolution(nn.Module):
    """A convolution with 3^D weights for every pair of channels. Periodic axes wrap; others have
    zeros beyond their ends."""

    def __init__(self, into: int, out: int, wraps: Sequence[bool]) -> None:
        super().__init__()
        self.wraps = tuple(wraps)
        padding = tuple(0 if wrap else 1 for wrap in wraps)
        convolution: Any = CONVOLUTIONS[len(wraps)]
        self.layer = convolution(into, out, 3, padding=padding)

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B O *grid"]:
        """An image of the same places."""
        for axis, wrap in enumerate(self.wraps, start=2):
            if wrap:
                last = x.shape[axis] - 1
                x = torch.cat([x.narrow(axis, last, 1), x, x.narrow(axis, 0, 1)], axis)
        return self.layer(x)


class LatticeBlock(nn.Module):
    """x + conv(GELU(conv(norm(x))))."""

    def __init__(self, width: int, wraps: Sequence[bool]) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.into = Convolution(width, width, wraps)
        self.out = Convolution(width, width, wraps)
        with torch.no_grad():  # start near x itself, however many blocks follow
            self.out.layer.weight.mul_(0.2)

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B C *grid"]:
        """An image of the same places."""
        return x + self.out(F.gelu(self.into(self.norm(x))))


class Coarser(nn.Module):
    """Makes one place of the next coarser lattice from 2^D neighbours."""

    def __init__(self, into: int, out: int, wraps: Sequence[bool]) -> None:
        super().__init__()
        self.wraps = tuple(wraps)
        self.layer = CONVOLUTIONS[len(wraps)](into, out, 2, stride=2)

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B O *coarser"]:
        """Half as many places along each axis, rounded up. An odd axis is continued by its last
        place, or by its first where it is periodic."""
        for axis, wrap in enumerate(self.wraps, start=2):
            size = x.shape[axis]
            if size % 2:
                x = torch.cat([x, x.narrow(axis, 0 if wrap else size - 1, 1)], axis)
        return self.layer(x)


class Finer(nn.Module):
    """Makes 2^D places of the next finer lattice from one."""

    def __init__(self, into: int, out: int, axes: int) -> None:
        super().__init__()
        self.axes = axes
        self.layer = nn.Linear(into, out * 2**axes)

    def forward(
        self, x: Float[Tensor, "B C *coarser"], onto: Float[Tensor, "B O *grid"]
    ) -> Float[Tensor, "B O *grid"]:
        """An image of the finer lattice, added to another; places beyond odd axes are left out."""
        parts = self.layer(x.movedim(1, -1)).unflatten(-1, (*(2,) * self.axes, -1))
        # Each axis of the coarse lattice is followed by that of its two children.
        order = [0]
        for axis in range(self.axes):
            order += [1 + axis, 1 + self.axes + axis]
        fine = parts.permute(*order, -1)
        for axis in range(self.axes):
            fine = fine.flatten(1 + axis, 2 + axis)
        return onto + fine[(slice(None), *(slice(n) for n in onto.shape[2:]))].movedim(-1, 1)


class VCycle(nn.Module):
    """Blocks on every lattice from the finest to the coarsest, attention among all places of that,
    and blocks on every lattice back to the finest, where features from before are added."""

    def __init__(
        self,
        widths: Sequence[int],
        wraps: Sequence[bool],
        *,
        blocks: Sequence[int],
        attention: int,
        heads: int,
        multiplier: int,
    ) -> None:
        super().__init__()
        pairs = list(pairwise(widths))

        def stage(width: int, count: int) -> nn.Sequential:
            return nn.Sequential(*(LatticeBlock(width, wraps) for _ in range(count)))

        stages = list(zip(widths, blocks, strict=True))
        self.down = nn.ModuleList(stage(*sizes) for sizes in stages[:-1])
        self.coarser = nn.ModuleList(Coarser(a, b, wraps) for a, b in pairs)
        self.bottom = stage(*stages[-1])
        self.processor = Processor(widths[-1], blocks=attention, heads=heads, multiplier=multiplier)
        self.finer = nn.ModuleList(Finer(b, a, len(wraps)) for a, b in pairs)
        self.up = nn.ModuleList(stage(*sizes) for sizes in stages[:-1])

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B C *grid"]:
        """An image of the finest lattice again."""
        skips = []
        for stage, coarser in zip(self.down, self.coarser, strict=True):
            x = stage(x)
            skips.append(x)
            x = coarser(x)
        x = self.bottom(x)
        rows = self.processor(x.flatten(2).transpose(1, 2))
        x = rows.transpose(1, 2).unflatten(2, x.shape[2:])
        for stage, finer, skip in zip(
            reversed(self.up), reversed(self.finer), reversed(skips), strict=True
        ):
            x = stage(finer(x, skip))
        return x


def coarser_counts(counts: Sequence[int], levels: int) -> tuple[int, ...]:
    """Places along each axis after so many halvings."""
    return tuple(-(-n // 2**levels) for n in counts)
