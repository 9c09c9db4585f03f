"""Optional libraries: what needs one that cannot be imported is left out, and the table says so."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterable
from functools import cache

# Arrow's allocator would start a thread of its own, and a fork might wait for its lock.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def installed(names: Iterable[str]) -> bool:
    """Whether libraries are there; importing them, which is slow, may still fail."""
    # Of the package: asked for a part of one, Python would import it.
    return all(importlib.util.find_spec(name.partition(".")[0]) is not None for name in names)


def missing(names: Iterable[str]) -> str | None:
    """Which of some libraries cannot be imported, and why; None where all can."""
    return next((f"{name}: {why}" for name in names if (why := _why_not(name))), None)


@cache
def _why_not(name: str) -> str | None:
    if not installed([name]):
        return "not installed"
    try:
        importlib.import_module(name)
    except Exception as error:  # a library that is only half there raises anything
        first = next(iter(str(error).splitlines()), "")
        return f"{type(error).__name__}: {first}"[:200]
    return None
