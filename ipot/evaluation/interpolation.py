"""Interpolation from scattered places to others, and common places for many meshes.

Coordinates are first laid out so that near places get near coordinates: longitude and latitude
become unit vectors, others are counted in lengths of their domain, and periodic ones go around.
Values are then fitted by a parabola through the nearest places, in any number of dimensions and on
surfaces, and clipped to the range of those neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from ipot.data.latlon import unit_vectors
from ipot.errors import DataError
from ipot.spec import Bounds, Spec

POOL = 32_768
"""Points of all samples together that common places are chosen among."""
DAMPING = 1e-3
"""Of slopes and curvatures, as a share of how far the neighbours spread: along directions in which
they hardly do, as across a surface, nothing is known of them."""


@dataclass(frozen=True)
class Space:
    """Coordinates and distances of places: of input points, or of queries."""

    domain: Bounds
    periods: tuple[float | None, ...]
    globe: str = ""
    """"vectors", "latlon" (in units of 180 degrees) or "geographic" (longitude first, degrees)."""

    @classmethod
    def of_points(cls, spec: Spec) -> Space:
        """Where the input points lie."""
        return cls(spec.domain, spec.periods, _globe(spec))

    @classmethod
    def of_queries(cls, spec: Spec) -> Space:
        """Where the queries lie."""
        return cls(spec.query_domain, spec.query_periods, _globe(spec))

    def flat(self, places: Tensor) -> np.ndarray:
        """Coordinates (n, e) in which straight lines are shortest paths."""
        x = places.detach().cpu().double().numpy()
        if x.shape[-1] != len(self.domain):
            raise DataError(
                f"places have {x.shape[-1]} coordinates, expected {len(self.domain)} as in training"
            )
        if self.globe == "vectors":
            return x
        lows, lengths = self._scales
        flat = (x - lows) / lengths
        first = self._round
        if first:
            return np.concatenate([_on_sphere(x[:, :first], self.globe), flat[:, first:]], 1)
        return flat - np.floor(_shares(flat, self.box)) * self.box

    @cached_property
    def box(self) -> np.ndarray:
        """The period of every coordinate (e), 0 if it has none."""
        if self.globe == "vectors":
            return np.zeros(len(self.domain))
        _, lengths = self._scales
        box = np.array([period or 0.0 for period in self.periods]) / lengths
        return np.concatenate([np.zeros(3), 0 * box[2:]]) if self._round else box

    def difference(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The shortest vector from one place to another, with periodic coordinates wrapped."""
        step, box = end - start, self.box
        return step - np.rint(_shares(step, box)) * box if box.any() else step

    @property
    def _round(self) -> int:
        """The number of leading coordinates that are latitude and longitude."""
        return 2 if self.globe and len(self.domain) >= 2 else 0

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        lows, highs = np.array(self.domain, dtype=float).reshape(-1, 2).T
        return lows, np.where(highs > lows, highs - lows, 1.0)


class Scattered:
    """Places at which values are known."""

    def __init__(self, places: Tensor, space: Space) -> None:
        if len(places) == 0:
            raise DataError("there is no point to carry values from, and other samples have some")
        self.places, self.space = places, space
        self._flat = space.flat(places)
        box = space.box if space.box.any() else None
        self._tree = KDTree(self._flat, balanced_tree=False, compact_nodes=False, boxsize=box)
        self._asked: Tensor | None = None
        self._fit: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, values: Tensor, places: Tensor) -> Tensor:
        """Values (n, columns) interpolated to other places (m, columns), in float64.

        Places that are those of the values, in the same order, keep them as they are.
        """
        if same(self.places, places):
            return values.detach().cpu().double()
        rows, weights = self._fitted(places)
        near = values.detach().cpu().double().numpy()[rows]
        made = np.einsum("mk,mkc->mc", weights, near)
        return torch.from_numpy(np.clip(made, near.min(1), near.max(1)))

    def offsets(self, places: Tensor) -> Tensor:
        """From each place to the nearest known one (m, e + 1): the vector there, and its length.

        It says what shape the places have: on a surface its length is the distance function.
        """
        there = self.space.flat(places)
        distance, row = self._tree.query(there)
        vector = self.space.difference(there, self._flat[row])
        return torch.from_numpy(np.concatenate([vector, distance[:, None]], 1))

    def _fitted(self, places: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The nearest rows of each place (m, k) and their weights (m, k), cached for the last
        places."""
        if self._fit is None or self._asked is not places:
            self._asked, self._fit = places, self._weights(self.space.flat(places))
        return self._fit

    def _weights(self, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count, dimensions = self._flat.shape
        nearest = min(count, (dimensions + 1) * (dimensions + 2))
        distance, rows = self._tree.query(there, np.arange(1, nearest + 1))
        reach = np.maximum(distance[:, -1:], np.finfo(float).tiny)
        trust = 1 / ((distance / reach) ** 2 + 1e-10)
        trust /= trust.sum(1, keepdims=True)
        # Parabolas a + b·x + x·c·x, by weighted least squares; a place gets a, linear in values.
        steps = self.space.difference(there[:, None], self._flat[rows]) / reach[..., None]
        one, other = np.triu_indices(dimensions)
        bends = steps[..., one] * steps[..., other]
        design = np.concatenate([np.ones_like(steps[..., :1]), steps, bends], 2)
        weighted = design * trust[..., None]
        normal = weighted.swapaxes(1, 2) @ design
        spread = np.einsum("mii->m", normal[:, 1:, 1:]) / max(1, len(normal[0]) - 1)
        rest = np.arange(1, len(normal[0]))
        normal[:, rest, rest] += (DAMPING * spread + 1e-12)[:, None]
        first = np.zeros((*normal.shape[:2], 1))
        first[:, 0] = 1
        return rows, (weighted @ np.linalg.solve(normal, first))[..., 0]


def common_places(clouds: list[Tensor], space: Space, count: int) -> Tensor:
    """About `count` places among those of all samples, close together where the samples' are.

    All that there are where they are no more than that, as where each sample has some of the nodes
    of one grid. Otherwise halved again and again along the widest direction, and of each part
    the place nearest to its middle.
    """
    share = max(1, POOL // len(clouds))
    picked = [cloud[evenly(len(cloud), share).to(cloud.device)] for cloud in clouds]
    pool = torch.unique(torch.cat(picked).detach().cpu(), dim=0)
    if len(pool) <= count:
        return pool
    flat = space.flat(pool)
    parts = [np.arange(len(pool))]
    while 2 * len(parts) <= count:
        parts = [half for part in parts for half in _halves(part, flat)]
    chosen = [part[_middle(flat[part])] for part in parts]
    return pool[torch.from_numpy(np.sort(np.array(chosen)))]


def same(places: Tensor, others: Tensor) -> bool:
    """True if places are the same, row by row."""
    return places is others or (places.shape == others.shape and torch.equal(places, others))


def _halves(part: np.ndarray, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    axis = int(np.ptp(flat[part], axis=0).argmax())
    order = part[np.argsort(flat[part, axis], kind="stable")]
    return order[: len(order) // 2], order[len(order) // 2 :]


def _middle(flat: np.ndarray) -> int:
    return int(((flat - flat.mean(0)) ** 2).sum(1).argmin())


def evenly(size: int, count: int) -> Tensor:
    """At most `count` rows of `size`, from the first to the last."""
    if size <= count:
        return torch.arange(size)
    return (torch.arange(count, dtype=torch.float64) * (size / count)).long()


def _globe(spec: Spec) -> str:
    if spec.sphere:
        return "vectors"
    return "geographic" if spec.geographic else "latlon" if spec.latlon else ""


def _on_sphere(x: np.ndarray, globe: str) -> np.ndarray:
    if globe == "geographic":
        longitude, latitude = np.radians(x).T
    else:
        latitude, longitude = np.pi * x.T
    return unit_vectors(latitude, longitude)


def _shares(steps: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Displacements in units of the period; 0 along coordinates without one."""
    return np.divide(steps, box, out=np.zeros_like(steps), where=box > 0)
