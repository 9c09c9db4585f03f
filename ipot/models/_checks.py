"""What the settings of several models must hold to."""

from __future__ import annotations

import math
from typing import Any

from ipot.errors import Unsupported


def positive(config: Any, *names: str) -> None:
    """Refuse settings that are not positive."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise Unsupported(f"model.{name} must be positive, got {getattr(config, name)}")


def frequencies(config: Any) -> None:
    """Refuse position features without bins, or with a highest frequency below one."""
    if not config.bins or min(config.bins) < 1:
        raise Unsupported(f"model.bins must be positive, got {config.bins}")
    if not config.max_frequency or not min(config.max_frequency) >= 2:
        raise Unsupported(f"model.max_frequency must be 2 at least, got {config.max_frequency}")


def divided(config: Any, heads: str = "heads") -> None:
    """Refuse a width that does not divide among the heads."""
    count = getattr(config, heads)
    if config.width % count:
        raise Unsupported(
            f"model.width must be a multiple of model.{heads}, got {config.width} and {count}"
        )
