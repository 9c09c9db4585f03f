"""Kernels in Triton, where a compiler stops short. Each has its plain version in `ipot.nn`.

This package imports without Triton; its modules do not. Ask `available` first.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable

import torch

WIDEST_HEAD = 256
"""Channels of a head that the kernels for attention take, at most."""


@functools.cache
def _found() -> bool:
    return importlib.util.find_spec("triton") is not None


# The compiler takes the answers of these as they are: traced, they would break its graph.
@torch.compiler.assume_constant_result
def installed() -> bool:
    """Whether Triton can be imported."""
    return _found()


def interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU, as the tests have it do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _capable(index: int) -> bool:
    """Whether a GPU has the matrix units for bf16 that the kernels are written for."""
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= (8, 0)


@torch.compiler.assume_constant_result
def available(device: torch.device) -> bool:
    """Whether kernels run on a device; where not, the plain versions do the same."""
    if not _found():
        return False
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return _capable(index)
    return interpreted()


def on_its_device(function: Callable) -> Callable:
    """A function that launches kernels, on the device of its first argument: a kernel runs on the
    current device, which need not be the one that the tensors are on."""

    @functools.wraps(function)
    def guarded(first, *rest):
        with torch.cuda.device_of(first):
            return function(first, *rest)

    return guarded


def plainly() -> bool:
    """Whether operators may be called as the functions behind them: there is nothing to record, by
    gradients or a compiler, and going through the dispatcher takes longer than a small kernel."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()
