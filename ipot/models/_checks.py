"""What the settings of several models must hold to."""

from __future__ import annotations

from typing import Any

from ipot.errors import Unsupported


def positive(config: Any, *names: str) -> None:
    """Refuse settings that are not positive."""
    for name in names:
        if not getattr(config, name) > 0:
            raise Unsupported(f"model.{name} must be positive, got {getattr(config, name)}")


def divided(config: Any, heads: str = "heads") -> None:
    """Refuse a width that does not divide among the heads."""
    count = getattr(config, heads)
    if config.width % count:
        raise Unsupported(
            f"model.width must be a multiple of model.{heads}, got {config.width} and {count}"
        )
