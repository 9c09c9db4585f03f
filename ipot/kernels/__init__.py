"""Kernels in Triton, where a compiler stops short. Each has its plain version in `ipot.nn`.

This package imports without Triton; its modules do not. Ask `available` first.
"""

from __future__ import annotations

import functools
import importlib.util
import os

import torch


@functools.cache
def installed() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU, as the tests have it do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def capable(index: int) -> bool:
    """Whether a GPU has the matrix units for bf16 that the kernels are written for."""
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= (8, 0)


def available(device: torch.device) -> bool:
    """Whether kernels run on a device; where not, the plain versions do the same."""
    if not installed():
        return False
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return capable(index)
    return interpreted()
