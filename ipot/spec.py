"""The facts of a problem that models are sized from, and what a model may need of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ipot.errors import DataError, Unsupported


class Need(Enum):
    """Structure that some systems need and some problems have; the value says it in words."""

    GRID = "points that form a regular grid"
    EDGES = "mesh edges between the points"
    SAME_POINTS = "queries at the input points"
    FIXED_POINTS = "the same input points in every sample"
    POINTS = "an input function on points"
    HISTORY = "past frames of its outputs among the inputs"


ALL_POINTS = frozenset({Need.GRID, Need.EDGES, Need.SAME_POINTS, Need.FIXED_POINTS})
"""Needs that are met by all input points together, and not by some of them."""


def frame_name(name: str, back: int) -> str:
    """What a channel is called in a frame some steps before the last one, which is at t."""
    return f"{name}(t-{back})" if back else f"{name}(t)"


Bounds = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a model must know of a problem before it sees a sample.

    `history` past frames of every output lead the input channels, oldest first; the channels behind
    them are static. On a `sphere` points are unit vectors; `latlon` says that they are latitude
    and longitude in units of 180 degrees. `geographic` says that the first two coordinates are
    longitude and latitude in degrees, which a model is shown as unit vectors (`on_globe`). `dt` is
    the time that one step of a processor advances. A steady problem has one step and `dt` 1.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: Bounds
    periods: tuple[float | None, ...] = ()
    sphere: bool = False
    latlon: bool = False
    geographic: bool = False
    region: Bounds = ()
    """Longitudes and latitudes in degrees that unit vectors come from, and what lies after them;
    on a part of the globe, inducing points start there."""
    query_domain: Bounds = ()
    query_periods: tuple[float | None, ...] = ()
    parameters: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    """Of the outputs, where any is known."""
    input_units: tuple[str, ...] = ()
    parameter_units: tuple[str, ...] = ()
    dt: float = 1.0
    steps: int = 1
    history: int = 0
    symmetries: tuple[str, ...] = ()
    provides: frozenset[Need] = frozenset()
    """What models may need; points and history follow from the other fields."""
    shape: tuple[int, ...] = ()
    """Input points along every axis of their grid, or their number alone, where the same points
    serve all samples: a system that is bound to its sensors is sized from it."""
    change: bool = False
    """True if models answer with the change since the last past frame, which a wrapper adds."""
    each_point: bool = False
    """True if answers are scaled by a mean and a deviation at each point of the training grid."""
    simple: tuple[int, ...] = ()
    """Sizes of the simple predictor that a trained model's answers are blended with, if they are:
    its places of inputs and of answers, components, samples of its kernel, and its fields."""

    def __post_init__(self) -> None:
        # Inputs and queries share a space unless the problem says otherwise.
        object.__setattr__(self, "periods", self.periods or (None,) * len(self.domain))
        if not self.query_domain:
            object.__setattr__(self, "query_domain", self.domain)
            object.__setattr__(self, "query_periods", self.periods)
        if not self.query_periods:
            object.__setattr__(self, "query_periods", (None,) * len(self.query_domain))
        if len(self.periods) != len(self.domain):
            raise ValueError(f"{len(self.periods)} periods for {len(self.domain)} coordinates")
        if len(self.query_periods) != len(self.query_domain):
            raise ValueError("one period (or None) is needed for every query coordinate")
        if self.change and not self.history:
            raise Unsupported(
                f"--training.change answers with the change since the last input frame, and "
                f"{self.name} has no past frames among its inputs: leave it out"
            )
        if self.change and len(self.query_domain) != len(self.domain):
            raise Unsupported(
                f"--training.change takes the last input frame at the queries, and {self.name} has "
                f"points of {len(self.domain)} and queries of {len(self.query_domain)} "
                "coordinates: leave it out"
            )
        on_grid = {Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS} <= self.provides
        if self.each_point and (not on_grid or self.steps > 1):
            lacks = "is a rollout" if on_grid else "has no grid that all of its samples share"
            raise Unsupported(
                f"--training.each-point scales the answer at each point of a grid, for steady "
                f"problems that are asked where they are seen, and {self.name} {lacks}: leave it "
                "out"
            )
        if self.simple and (len(self.simple) != 5 or min(self.simple) < 0):
            raise Unsupported(
                f"simple must be five sizes that are not negative, or none, got {self.simple}"
            )
        known = {Need.HISTORY} if self.history else set()
        if self.inputs or not self.parameters:
            known.add(Need.POINTS)
        given = self.provides - {Need.HISTORY, Need.POINTS}
        object.__setattr__(self, "provides", given | known)

    @property
    def dimension(self) -> int:
        """D, the number of coordinates of an input point."""
        return len(self.domain)

    @property
    def query_dimension(self) -> int:
        """E, the number of coordinates of a query."""
        return len(self.query_domain)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """For each axis of a grid of points, whether its end is next to its start.

        A grid on a sphere, or on a part of one, has two axes, latitude and longitude, for three
        coordinates.
        """
        if self.sphere:
            return (False, True)
        wraps = tuple(period is not None for period in self.periods)
        return wraps[1:] if self.region else wraps

    @property
    def channels(self) -> int:
        """C, the number of input channels."""
        return len(self.inputs)

    def check(self, batch) -> None:
        """Raise `DataError` where a batch has other sizes: broadcasting would hide it."""
        found = batch.parameters
        for name, size, expected in (
            ("coordinates of an input point", batch.points.shape[-1], self.dimension),
            ("coordinates of a query", batch.queries.shape[-1], self.query_dimension),
            ("input channels", batch.values.shape[-1], self.channels),
            ("parameters", 0 if found is None else found.shape[-1], len(self.parameters)),
        ):
            if size != expected:
                raise DataError(f"{self.name} has {expected} {name}, this batch has {size}")

    def require(self, model: str, needs: frozenset[Need]) -> None:
        """Raise `Unsupported`, with the reason, where this problem lacks what a model needs."""
        missing = sorted(need.value for need in needs - self.provides)
        if missing:
            raise Unsupported(
                f"{model} needs {' and '.join(missing)}; {self.name} has none of that. "
                "Choose another model (`ipot models` lists what each needs)."
            )
