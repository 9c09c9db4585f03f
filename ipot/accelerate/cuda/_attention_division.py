"""How attention divides its work: the tiles of its kernels and who takes which.

Rows of a tile are of the short side, columns of the long one.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ipot.accelerate.cuda.programs import Tile, padded, shares

FEW_CHANNELS = 4
"""Values of so many channels a head are multiplied number by number, unrounded."""


UNASKED = {
    16: Tile(64, 64, 4, 3),
    32: Tile(128, 32, 4, 1),
    64: Tile(64, 64, 4, 2),
    128: Tile(64, 32, 4, 2),
    256: Tile(64, 32, 4, 2),
}
"""For the backward pass of few keys and narrow values where queries want no gradient, by the padded
width of a head; 32 by measurement."""


def forward_tile(sizes: Sizes) -> Tile:
    """For the forward pass, by the (padded) width of a head. Measured on an H200."""
    if sizes.pad_e > 64:
        return Tile(64, 64, 4, 2)
    if sizes.near:
        return Tile(64, 64, 4, 3)
    return Tile(128, 64, 4, 3) if sizes.gather else Tile(64, 128, 4, 3)


def backward_tile(sizes: Sizes, *, wanted: bool) -> Tile:
    """For the backward pass, also by the lengths of the two sides."""
    width = sizes.pad_e
    if sizes.narrow and not sizes.gather and not wanted:
        # One channel is no product, and leaves registers for larger tiles.
        return Tile(128, 128, 4, 3) if (width, sizes.f) == (64, 1) else UNASKED[width]
    if width > 64:
        return Tile(64, 32, 4, 2)
    if sizes.near:
        return Tile(64, 64, 4, 2 if width > 16 else 3)
    if sizes.gather:
        return Tile(256, 64, 8, 1)
    return Tile(128, 64, 4, 1) if width > 32 else Tile(64, 64, 4, 3)


class Sizes:
    """The sizes of a call, and which side is the long one."""

    def __init__(self, query: Tensor, pairs: Tensor, value: Tensor | None, heads: int) -> None:
        inner = query.shape[-1]
        outer = pairs.shape[-1] - inner if value is None else value.shape[-1]
        self.b, self.h, self.m, self.n = pairs.shape[0], heads, query.shape[1], pairs.shape[1]
        self.e, self.f = inner // heads, outer // heads
        self.pad_e = padded(self.e)
        self.scale = self.e**-0.5
        self.gather = self.m < self.n
        self.short, self.long = (self.m, self.n) if self.gather else (self.n, self.m)
        self.narrow = self.f <= FEW_CHANNELS
        self.near = self.long <= 2 * self.short  # as where a few hundred attend to themselves

    def constants(self, *, products: bool) -> dict[str, int]:
        """What a kernel is compiled for; `products` says that values go through matrix units."""
        pad_f = padded(self.f) if products else triton.next_power_of_2(self.f)
        return {"H": self.h, "E": self.e, "F": self.f, "PAD_E": self.pad_e, "PAD_F": pad_f}


class Division:
    """How the backward pass of a call is divided, and in how many parts its gradients come."""

    def __init__(self, sizes: Sizes, device: torch.device, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self.tile = backward_tile(sizes, wanted=wanted)
        self.still = min(self.tile.rows, padded(sizes.short))
        self.moving = min(self.tile.columns, padded(sizes.long))
        still_blocks = triton.cdiv(sizes.short, self.still)
        programs = still_blocks * sizes.b * sizes.h
        self.splits, self.share = shares(sizes.long, self.moving, programs, device)
        self.programs = programs * self.splits
        self.gather = sizes.gather
        self.parts_q = self.splits if sizes.gather else still_blocks
        self.parts_kv = still_blocks if sizes.gather else self.splits

    def kind_q(self, kind: torch.dtype) -> torch.dtype:
        """Sums over a long side keep their precision until they are put together."""
        return torch.float32 if self.gather and self.parts_q > 1 else kind

    def kind_kv(self, kind: torch.dtype) -> torch.dtype:
        """Gradients of keys and values are summed over many queries in float32."""
        return torch.float32 if not self.gather and self.parts_kv > 1 else kind
