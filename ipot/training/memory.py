"""What is said where memory runs out."""

from __future__ import annotations

import torch

from ipot.errors import RunError


class OutOfMemory(RunError, MemoryError):
    """A run that does not fit; the message names the settings to lower."""


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is about memory."""
    signs = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")
    while error is not None:
        told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
        if told or isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        error = error.__cause__
    return False
