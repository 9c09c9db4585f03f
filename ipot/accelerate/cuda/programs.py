"""Tiles of kernels, and how many programs a device is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton


@dataclass(frozen=True)
class Tile:
    """What a program has at a time, its warps, and how many loads run ahead of the arithmetic."""

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2

    def options(self) -> dict[str, Any]:
        """As a launch takes them."""
        return {"num_warps": self.warps, "num_stages": self.stages}


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
    """How many programs share a long side, in blocks, and how much of it each takes: enough to fill
    the device twice with so many `programs` for each share, while each has a few blocks."""
    blocks = triton.cdiv(length, block)
    splits = max(1, min(enough(device) // programs, triton.cdiv(blocks, 2)))
    share = triton.cdiv(blocks, splits) * block
    return triton.cdiv(length, share), share
