"""What a device can do at best: bytes it moves and products it multiplies in a second."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ipot.bench.clock import time_calls


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Measured, not printed in a data sheet."""

    flops: float
    """Floating-point operations a second in a large matrix product."""
    bytes: float
    """Bytes a second, read and written together, in a large copy."""
    dtype: str
    """Of the matrix product: what is quickest on the device."""


# Copied bytes and the side of the matrices: large enough for the best rate, quick enough to wait.
SIZES = {"cuda": (2**31, 8192), "cpu": (2**28, 1536)}


def measure_ceilings(device: torch.device, *, seconds: float = 0.5) -> Ceilings:
    """Time a large copy and a large product, bf16 on a GPU and float32 elsewhere."""
    size, side = SIZES.get(device.type, SIZES["cpu"])
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copied = time_calls(lambda: target.copy_(source), device, seconds=seconds)
    del source, target
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    multiplied = time_calls(lambda: torch.mm(a, b, out=out), device, seconds=seconds)
    return Ceilings(
        flops=2 * side**3 / (1e-3 * multiplied.best),
        bytes=2 * size / (1e-3 * copied.best),
        dtype=str(dtype).removeprefix("torch."),
    )
