"""What is said where memory runs out."""

from __future__ import annotations

from ipot.errors import RunError


class OutOfMemory(RunError, MemoryError):
    """A run that does not fit; the message names the settings to lower."""
