"""How often the blocks of `ipot.accelerate.cuda.tower` are applied, and which states it returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """How often blocks are applied, and which states are asked for."""

    heads: int
    inner: int
    """Channels of the attention, of all heads together."""
    repeats: int
    """Times that all blocks are applied in a step."""
    wanted: tuple[int, ...]
    """Steps whose states are asked for, counted from 1, increasing."""

    def applications(self, blocks: int) -> int:
        """Of all of so many blocks together."""
        return self.wanted[-1] * self.repeats * blocks

    def place(self, application: int, blocks: int) -> int | None:
        """Where among the states asked for an application's answer is, counted from 0."""
        step, rest = divmod(application + 1, self.repeats * blocks)
        return self.wanted.index(step) if rest == 0 and step in self.wanted else None
