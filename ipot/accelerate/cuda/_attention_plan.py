"""How attention divides its work: the tiles of its kernels and who takes which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

FEW_CHANNELS = 4
"""Values of so many channels a head are multiplied number by number, unrounded."""


@dataclass(frozen=True)
class Blocks:
    """The sides of the tiles, and how a program runs on a GPU."""

    short: int
    long: int
    warps: int
    stages: int

    def options(self) -> dict[str, Any]:
        """As a launch takes them."""
        return {"num_warps": self.warps, "num_stages": self.stages}


UNASKED = {
    16: Blocks(64, 64, 4, 3),
    32: Blocks(128, 32, 4, 1),
    64: Blocks(64, 64, 4, 2),
    128: Blocks(64, 32, 4, 2),
    256: Blocks(64, 32, 4, 2),
}
"""For the backward pass of few keys and narrow values where queries want no gradient, by the padded
width of a head; 32 by measurement."""


def forward_blocks(sizes: Sizes) -> Blocks:
    """For the forward pass, by the (padded) width of a head. Measured on an H200."""
    if sizes.pad_e > 64:
        return Blocks(64, 64, 4, 2)
    if sizes.near:
        return Blocks(64, 64, 4, 3)
    return Blocks(128, 64, 4, 3) if sizes.gather else Blocks(64, 128, 4, 3)


def backward_blocks(sizes: Sizes, *, wanted: bool) -> Blocks:
    """For the backward pass, also by the lengths of the two sides."""
    width = sizes.pad_e
    if sizes.narrow and not sizes.gather and not wanted:
        # One channel is no product, and leaves registers for larger tiles.
        return Blocks(128, 128, 4, 3) if (width, sizes.f) == (64, 1) else UNASKED[width]
    if width > 64:
        return Blocks(64, 32, 4, 2)
    if sizes.near:
        return Blocks(64, 64, 4, 2 if width > 16 else 3)
    if sizes.gather:
        return Blocks(256, 64, 8, 1)
    return Blocks(128, 64, 4, 1) if width > 32 else Blocks(64, 64, 4, 3)


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


class Plan:
    """How the backward pass of a call is divided, and in how many parts its gradients come."""

    def __init__(self, sizes: Sizes, device: torch.device, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self.blocks = backward_blocks(sizes, wanted=wanted)
        self.still = min(self.blocks.short, padded(sizes.short))
        self.moving = min(self.blocks.long, padded(sizes.long))
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


def padded(count: int) -> int:
    """The matrix units work on sides of 16 and more, powers of two."""
    return max(16, triton.next_power_of_2(count))


def enough(device: torch.device) -> int:
    """Programs that fill a device twice."""
    if device.type == "cuda":
        return 2 * torch.cuda.get_device_properties(device).multi_processor_count
    return 4


def few_enough(most: int, rows: int, tables: int, device: torch.device, least: int = 8) -> int:
    """How many of some rows a program takes, a power of two, so that there is enough to do for all:
    from `most` down to `least`, of each of as many tables."""
    while most > least and triton.cdiv(rows, most) * tables < enough(device):
        most //= 2
    return most


def shares(length: int, block: int, programs: int, device: torch.device) -> tuple[int, int]:
    """How many programs share the long side, and how much of it each takes.

    Enough to fill the GPU twice, while each has a few blocks to itself.
    """
    blocks = triton.cdiv(length, block)
    splits = max(1, min(enough(device) // programs, triton.cdiv(blocks, 2)))
    share = triton.cdiv(blocks, splits) * block
    return triton.cdiv(length, share), share
