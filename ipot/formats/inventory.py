"""What `ipot data inspect` says of a file: its arrays, what is odd about them, a command to go on.

A `Tally` goes through an array piece by piece. Commands work as they are printed: names are those
of the file, quoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ipot.formats.fields import Trajectories


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One array of a file, as `ipot data inspect` shows it."""

    name: str
    role: str
    """What it can be: places, input or target, parameter, time, or something that is left alone."""
    shape: str
    """In words, like `600 cases x 4096 points`."""
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    missing: int = 0
    """Values that are not finite."""
    units: str = ""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What is in a file or a folder."""

    path: str
    kind: str
    """The format, in words."""
    cases: int
    points: tuple[int, int] | None
    """Of the smallest case and of the largest."""
    variables: tuple[Variable, ...]
    notes: tuple[str, ...] = ()
    """What looks odd, and what to do about it."""
    suggestion: str = ""
    """A command that trains on it, where one can be guessed."""


AT_ONCE = 2**22
"""Numbers that are looked at together."""

FILLED = 1e20
"""A size from which a number is rather a sign for a missing one."""

FIELD, PARAMETER, PLACES = "input or target", "parameter", "places"


@dataclass
class Tally:
    """What was seen of one array so far."""

    role: str
    rows: str = "points"
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0
    missing: int = 0
    seen: int = 0
    sizes: set[int] = field(default_factory=set)
    widths: set[int] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    even: bool = True
    """True if the field has one value at all points of every case."""

    def add(self, array: np.ndarray) -> None:
        """One more array, (rows) or (rows, components)."""
        self.seen += 1
        self.sizes.add(len(array) if array.ndim else 1)
        self.widths.add(array.shape[-1] if array.ndim > 1 else 1)
        self.dtypes.add(str(array.dtype))
        if array.size:
            self.even &= bool((array == array[:1]).all()) if array.ndim else True
        flat = array.reshape(-1)
        for start in range(0, flat.size, AT_ONCE):
            piece = flat[start : start + AT_ONCE]
            finite = piece[np.isfinite(piece)] if piece.dtype.kind == "f" else piece
            self.missing += piece.size - finite.size
            if finite.size:
                self.low = min(self.low, float(finite.min()))
                self.high = max(self.high, float(finite.max()))
                with np.errstate(over="ignore"):
                    self.total += float(finite.sum(dtype=np.float64))
                self.count += finite.size

    @property
    def learnable(self) -> bool:
        """Whether it differs somewhere, is there everywhere, and as wide in all cases."""
        wide = len(self.sizes if self.role == PARAMETER else self.widths) == 1
        return wide and not self.missing and self.low < self.high

    def variable(self, name: str, shape: str, units: str, role: str | None = None) -> Variable:
        """As it is shown."""
        return Variable(
            name=name,
            role=role or self.role,
            shape=shape,
            dtype=" and ".join(sorted(self.dtypes)),
            low=self.low if self.count else None,
            high=self.high if self.count else None,
            mean=self.total / self.count if self.count else None,
            missing=self.missing,
            units=units,
        )

    def notes(self, name: str) -> Iterator[str]:
        """What is odd about it alone."""
        if self.missing:
            yield f"{name}: {self.missing} values are NaN or infinite; remove or fill these points"
        if self.count and self.low == self.high and not self.missing and self.role != PLACES:
            yield f"{name} is {self.low:g} everywhere: it tells nothing"
        if self.count and max(-self.low, self.high) >= FILLED:
            worst = self.high if self.high >= -self.low else self.low
            yield f"{name} reaches {worst:g}: is that a sign for a missing value? Remove such rows"
        if len(self.widths) > 1:
            yield f"{name} has {span(self.widths)} components: it must have as many in all cases"


def span(counts: set[int]) -> str:
    """A number, or from which to which."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


OUT = "surrogate"

FRAMES = (4, 2, 1)
"""Frames in, and as many out: the most that the data allow."""


def fit_command(
    path: Path | str,
    *,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    parameters: Sequence[str] = (),
    frames: int = 0,
) -> str:
    """The command that trains on these columns."""
    words = ["ipot", "fit", str(path)]
    told = {"--inputs": inputs, "--parameters": parameters, "--targets": targets}
    for flag, names in told.items():
        words += [flag, *names] if names else []
    words += ["--history", str(frames), "--lead", str(frames)] if frames else []
    return shlex.join([*words, "--out", OUT])


def of_cases(path: str, variables: Sequence[Variable], *, cases: int, moving: bool) -> str:
    """A field from another, or from the numbers of a case, or from its places if they differ
    (`moving`). `variables` are those that can be learned from, of all cases."""
    if cases < 2:
        return ""
    fields = [v for v in variables if v.role.startswith(FIELD)]
    points = [v.name for v in fields if v.role == FIELD]
    cells = [v.name for v in fields if v.role != FIELD]
    numbers = [v.name for v in variables if v.role.startswith(PARAMETER)]
    pool = next((p for p in (points, cells) if len(p) > 1), [*points, *cells])
    if len(set(pool)) > 1:
        return fit_command(path, inputs=pool[:1], parameters=numbers, targets=pool[-1:])
    if pool and (numbers or moving):
        return fit_command(path, parameters=numbers, targets=pool[:1])
    return ""


def of_trajectories(path: str, found: Trajectories, whole: Sequence[str]) -> str:
    """The next frames of a field from its last; `whole` are fields without missing values."""
    moving = [n for n in whole if not found.fields[n].steady]
    # Windows of one trajectory alone are cut in time, and the later share no frame with the others.
    least = 4 if len(found) == 1 else 2
    frames = next((k for k in FRAMES if len(found.times) >= least * k), 0)
    return fit_command(path, targets=moving[:1], frames=frames) if moving and frames else ""
