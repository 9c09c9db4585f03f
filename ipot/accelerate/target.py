"""What a model is made quicker for. It is decided once, before the first call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from ipot.accelerate import cuda
from ipot.accelerate.cpu.build import why_not_bf16
from ipot.accelerate.cpu.interface import available

ATTENTION = ("auto", "plain", "fused", "native", "halves", "blocks", "kernel")
"""Ways to compute attention; see `ipot.accelerate.attention`."""


@dataclass(frozen=True)
class Target:
    """A device, the precision of products, and whether gradients are wanted."""

    device: torch.device
    products: torch.dtype
    """What products of matrices are computed in: the model's own precision, or that of autocast."""
    training: bool
    attention: str = "auto"
    """One of `ATTENTION`: "auto" leaves it to device and sizes; others are for measurements."""

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise ValueError(f"unknown attention {self.attention!r}; known: {', '.join(ATTENTION)}")

    @property
    def free(self) -> bool:
        """True if device and sizes decide how attention is computed."""
        return self.attention == "auto"

    @cached_property
    def triton(self) -> bool:
        """True if our Triton kernels compute what they can: bf16 on a GPU that has it."""
        if not self.free:
            return self.attention == "kernel"
        bf16 = self.device.type == "cuda" and self.products == torch.bfloat16
        return bf16 and cuda.available(self.device)

    @cached_property
    def cpp(self) -> bool:
        """True if our C++ kernels compute what they can without gradients: float32 on a CPU, or
        bf16 on one that has the instructions. The first question compiles them."""
        if not self.free or self.device.type != "cpu" or self.training:
            return False
        if self.products == torch.float32:
            return available()
        return self.products == torch.bfloat16 and why_not_bf16() is None
