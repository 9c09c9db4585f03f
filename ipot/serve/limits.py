"""How large a question may be, and the memory that the requests of a moment share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ipot.memory import in_words, machine_memory
from ipot.serve.refused import busy, too_large

if TYPE_CHECKING:
    from ipot.samples import Sample
    from ipot.spec import Spec

MIB = 1 << 20
WORKING = 12
"""Copies of its inputs and answers that a question takes on its way, in float32: as they came, as
the model takes them, in its units, as they go."""
BASIS = 256 * MIB
"""What a model takes for a chunk of queries, whatever is asked."""


@dataclass(frozen=True)
class Limits:
    """What the server takes at the most. A client reads it in the facts of every model."""

    body: int = 64 * MIB
    """Bytes of a body."""
    rows: int = 1 << 20
    """Queries, times samples, times steps; and points times samples."""
    numbers: int = 1 << 20
    """Numbers of a question or an answer in JSON; npz has no such limit."""
    samples: int = 256
    steps: int = 1000
    waiting: int = 32
    """Questions that wait for the model; the next one is refused."""
    seconds: float = 30.0
    """For an answer; and as long to wait for its turn."""
    solve_seconds: float = 120.0
    """For a solver; one runs at a time, and two wait."""
    solves: int = 3
    body_seconds: float = 30.0
    """For a body to arrive."""
    head_seconds: float = 10.0
    """For a request to begin and its head to arrive."""
    connections: int = 256
    """Requests at once, whatever they ask; twice as many connections may be open."""
    held: int = 512 * MIB
    """Bytes of bodies and answers that are held at a time, of all requests."""

    @property
    def unpacked(self) -> int:
        """Bytes that a body may unpack to."""
        return 4 * self.body

    def as_dict(self) -> dict[str, Any]:
        """What a client is told."""
        told = asdict(self)
        return {name: told[name] for name in TOLD}

    def refuse_steps(self, steps: int) -> None:
        """Refuse more steps than are taken."""
        if steps > self.steps:
            asked = _counted(steps)
            raise too_large(f"{asked} steps are asked for, and this server takes {self.steps}")

    def refuse_samples(self, samples: Sequence[Sample], spec: Spec) -> None:
        """Refuse a question that is too large, before any memory is taken for its answer."""
        if len(samples) > self.samples:
            raise too_large(
                f"{len(samples)} samples are asked for, and this server takes {self.samples} at "
                "once: send them in several requests"
            )
        points = sum(len(s.points) for s in samples)
        queries = sum(s.queries.shape[-2] for s in samples)
        steps = len(samples[0].times)
        taken = round(samples[0].times[-1] / spec.dt)
        self.refuse_steps(taken)
        # A model may go over all points in each step that it takes, asked for or not.
        self.refuse_rows("points", points, taken)
        self.refuse_rows("queries", queries, steps)
        self.refuse_memory(points, queries, steps, spec)

    def refuse_rows(self, what: str, count: int, steps: int = 1) -> None:
        """Refuse too many points or queries."""
        if count * steps > self.rows:
            times = f" in {steps} steps" if steps > 1 else ""
            raise too_large(
                f"{_counted(count)} {what}{times} are asked for, and this server takes {self.rows} "
                "at once (samples and steps multiplied in): ask for fewer, or in several requests"
            )

    def refuse_memory(self, points: int, queries: int, steps: int, spec: Spec) -> None:
        """Refuse what does not fit into the memory that is free now."""
        numbers = points * (spec.dimension + spec.channels)
        numbers += queries * (spec.query_dimension + steps * len(spec.outputs))
        needed, free = BASIS + 4 * WORKING * numbers, machine_memory()
        if free is not None and needed > free:
            raise busy(f"this question takes {in_words(needed)} and {in_words(free)} are free", 10)


def _counted(count: int) -> str:
    """A number for a reader; one of thousands of digits cannot even be written."""
    return str(count) if abs(count) < 10**15 else "far too many"


TOLD = ("body", "rows", "numbers", "samples", "steps", "waiting", "seconds", "solve_seconds")


class Room:
    """Bytes of bodies and answers, counted before they are held."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0

    def take(self, size: int) -> None:
        """Count some bytes, or refuse the request that wants them."""
        if self.taken + size > self.most:
            raise busy(f"requests of {in_words(self.taken)} are being answered", 5)
        self.taken += size

    def give(self, size: int) -> None:
        """They are gone."""
        self.taken -= size
