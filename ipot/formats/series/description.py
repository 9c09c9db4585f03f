"""What is learned from labelled arrays: which variables, how many frames in and out, and where.

A `Series` is saved with a model as JSON, so that a forecast needs the last frames and no more.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from ipot.data.own import Dataset
from ipot.errors import DataError
from ipot.formats.roles import MEMBERS
from ipot.formats.series.clock import Clock
from ipot.formats.series.cycle import Cycle
from ipot.formats.series.places import Places

MOST_KEPT = 200_000
"""Coordinates of target places that are kept with a model; of more, `on` must say where to ask."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Frames of some variables in, later frames of some out; or samples, where there is no time."""

    inputs: tuple[str, ...]
    """Variables with frames."""
    targets: tuple[str, ...]
    static: tuple[str, ...] = ()
    """Variables without time, as channels behind the frames."""
    scalars: tuple[str, ...] = ()
    """Inputs without places, as parameters."""
    history: int = 1
    lead: int = 1
    """Frames out; with 0 the targets are at the time of the last input."""
    every: int = 1
    """Steps of the file from one frame to the next."""
    time: str = ""
    """The dimension of time of the inputs; empty where samples have none."""
    target_time: str = ""
    sample: str = ""
    """The dimension of samples, where there is one."""
    columns: tuple[str, ...] = ()
    """Coordinates of the inputs in the order of the columns of points."""
    geographic: bool = False
    wraps: bool = False
    """Whether longitudes go all around."""
    west: float = 0.0
    """Longitudes run on eastward from here."""
    season: bool = False
    """Whether the time of the year is among the parameters."""
    clock: Clock | None = None
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of the targets: units, long_name, standard_name; and of their time."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Those that inputs and coordinates of training were declared in, by name."""
    target_columns: tuple[str, ...] = ()
    places: Places | None = field(default=None, compare=False)
    """Where the targets were, unless those are very many."""
    cycle: Cycle | None = field(default=None, compare=False)
    """The season of the training data, to hold forecasts against."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What was left out, and why."""
    starts: np.ndarray = field(default_factory=lambda: np.zeros(0, int), compare=False, repr=False)
    """The first frame of every window of the data set; not saved."""
    members: np.ndarray = field(default_factory=lambda: np.zeros(0, int), compare=False, repr=False)
    """The sample of every window; not saved."""

    @property
    def span(self) -> int:
        """Frames of one window."""
        return self.history + self.lead

    def lines(self) -> tuple[str, ...]:
        """What comes in at which times, and what comes out at which."""
        still = f"; at all times: {', '.join(self.static)}" if self.static else ""
        season = "; the time of the year" if self.season else ""
        told, asked = ", ".join((*self.inputs, *self.scalars)), ", ".join(self.targets)
        if self.clock is None:
            told = ", ".join((*self.inputs, *self.scalars, *self.static))
            return f"in: {told}", f"out: {asked}"

        def at(first: int, last: int) -> str:
            words = [self._at(first), *([self._at(last)] if last != first else [])]
            return " .. ".join(words)

        frames = "1 frame"
        if self.history > 1:
            frames = f"{self.history} frames, every {replace(self.clock, step=self._apart)}"
        seen = f"in: {told} at {at(1 - self.history, 0)} ({frames}){still}{season}"
        if not self.lead:
            return seen, f"out: {asked} at t, the time of the last frame in"
        ahead = "1 frame"
        if self.lead > 1:
            ahead = f"{self.lead} frames, every {replace(self.clock, step=self._apart)}"
        return seen, f"out: {asked} at {at(1, self.lead)} ({ahead})"

    @property
    def _apart(self) -> float:
        """From frame to frame, in the unit of the clock."""
        return self.every * (1.0 if self.clock is None else self.clock.step)

    def _at(self, frame: int) -> str:
        """The time of a frame in words: t is that of the last one that goes in."""
        if not frame or self.clock is None:
            return "t"
        return f"t{'-' if frame < 0 else '+'}{self.clock.offset(abs(frame) * self.every)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = [
            f.name for f in fields(self) if f.name not in ("starts", "members", "places", "cycle")
        ]
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        plain["clock"] = None if self.clock is None else asdict(self.clock)
        plain["attributes"] = {k: dict(v) for k, v in self.attributes.items()}
        plain["units"] = dict(self.units)
        plain["places"] = None if self.places is None else _places_out(self.places)
        if self.cycle is not None:
            plain["cycle"] = self.cycle.as_dict()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Series:
        """A series from what `to_dict` wrote, read from JSON."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(content) - known):
            raise DataError(
                f"series has the unknown entries {', '.join(unknown)}: it was written by a newer "
                "ipot. Update, or train again."
            )
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        try:
            if plain.get("clock") is not None:
                plain["clock"] = Clock(**plain["clock"])
            if plain.get("places") is not None:
                plain["places"] = _places_in(plain["places"])
            if plain.get("cycle") is not None:
                plain["cycle"] = Cycle.from_dict(plain["cycle"])
            return cls(**plain)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise DataError(f"series cannot be understood ({error}): the file is damaged") from None


def split_series(
    dataset: Dataset, series: Series, train: float = 0.8, *, blocks: int = 1
) -> tuple[Dataset, Dataset]:
    """Two data sets that share no frame: windows that would are left out.

    The last part of the time is the second one; with several `blocks`, the last part of each block
    of time. Independent samples (not the members of an ensemble) are split as a whole, by number.
    """
    if not 0 < train < 1 or blocks < 1:
        raise DataError(
            f"train must lie between 0 and 1 and blocks be at least 1: {train}, {blocks}"
        )
    if len(series.starts) != len(dataset):
        raise DataError(
            f"the series has {len(series.starts)} windows and the data set {len(dataset)} samples: "
            "split the data set that from_xarray returned with it"
        )
    alike = series.sample.lower() in MEMBERS and bool(series.time)
    independent = len(np.unique(series.members)) if not alike else 1
    if independent > 1:
        count = min(independent - 1, max(1, round(train * independent)))
        later = series.members >= np.unique(series.members)[count]
        return dataset.select(_rows(~later)), dataset.select(_rows(later))
    for share in (train, *np.linspace(0.9, 0.1, 9)):
        later = _held_back(series.starts, float(share), blocks)
        nearest = _distance(series.starts, np.unique(series.starts[later]))
        earlier = nearest >= series.span
        if earlier.any() and later.any():
            return dataset.select(_rows(earlier)), dataset.select(_rows(later))
    raise DataError(
        f"{len(dataset)} windows of {series.history} + {series.lead} frames share so many that "
        "none are left to validate on: give a longer series, a shorter history or lead, or data of "
        "their own for validation."
    )


def kept(places: Places) -> Places | None:
    """Places as they are saved with a model, unless they are very many."""
    numbers = sum(values.size for _, values, _ in places.coordinates.values())
    return places if numbers <= MOST_KEPT else None


def _rows(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _held_back(starts: np.ndarray, train: float, blocks: int) -> np.ndarray:
    low, high = int(starts.min()), int(starts.max()) + 1
    edges = np.linspace(low, high, blocks + 1)
    block = np.clip(np.searchsorted(edges, starts, side="right") - 1, 0, blocks - 1)
    return starts >= edges[block] + train * (edges[block + 1] - edges[block])


def _distance(starts: np.ndarray, others: np.ndarray) -> np.ndarray:
    """From each start to the nearest of the others."""
    if not len(others):
        return np.full(len(starts), np.iinfo(np.int64).max)
    right = np.searchsorted(others, starts)
    near = [np.abs(starts - others[np.clip(right + k, 0, len(others) - 1)]) for k in (-1, 0)]
    return np.minimum(*near)


def _places_out(places: Places) -> dict[str, Any]:
    coordinates = {}
    for name, (dims, values, attrs) in places.coordinates.items():
        if values.dtype.kind in "fiu":
            listed = values.astype(float).ravel().tolist()
        else:
            listed = [str(v) for v in values.ravel()]
        coordinates[name] = [list(dims), list(values.shape), listed, dict(attrs)]
    used = None
    if places.used is not None:
        packed = zlib.compress(np.packbits(places.used).tobytes())
        used = base64.b64encode(packed).decode("ascii")
    return {
        "dims": list(places.dims),
        "shape": list(places.shape),
        "names": list(places.names),
        "geographic": places.geographic,
        "coordinates": coordinates,
        "used": used,
    }


def _places_in(content: Mapping[str, Any]) -> Places:
    coordinates = {
        name: (tuple(dims), np.asarray(listed).reshape(shape), attrs)
        for name, (dims, shape, listed, attrs) in content["coordinates"].items()
    }
    places = Places(
        dims=tuple(content["dims"]),
        shape=tuple(content["shape"]),
        names=tuple(content["names"]),
        coordinates=coordinates,
        geographic=content["geographic"],
    )
    if content["used"] is None:
        return places
    # A mask says how large it unpacks, so that a damaged file cannot ask for more.
    size = (len(places) + 7) // 8
    packed = zlib.decompressobj().decompress(base64.b64decode(content["used"]), size)
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=len(places))
    return replace(places, used=bits.astype(bool))
