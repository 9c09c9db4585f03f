"""Which device to use, what was meant by its name, and how much of it was used."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from pathlib import Path

import torch

from ipot.errors import Unsupported, shown


def choose(name: str | torch.device = "auto") -> torch.device:
    """`auto` is a GPU where there is one; a GPU asked for where there is none is an error."""
    if isinstance(name, torch.device):
        name = str(name)
    if not isinstance(name, str):
        raise Unsupported(f"device must be auto, cpu or cuda, got {shown(name)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(f"device {name}: torch sees no GPU here; use cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise Unsupported(f"unknown device {shown(name)}; use auto, cpu or cuda") from error


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release_memory() -> None:
    """Give back what is held for later use: it would count as the next model's peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak_memory(device: torch.device) -> None:
    """Start counting `peak_memory` anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> float | None:
    """GiB: the most that tensors took on a GPU, or that the process held where there is none.

    None where the system does not tell (only Linux does).
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 2**20 if found else None


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is about memory; not every library says so by
    type."""
    signs = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")
    while error is not None:
        told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
        if told or isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        error = error.__cause__
    return False
