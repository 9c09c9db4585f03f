"""Names at the things they name, placed so that they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ipot.report.style import INK, Axes

SIZE = 7.0
"""Points of a label."""
# Where a name may stand beside its point, best first: offset in points, and how it is aligned.
SIDES = (
    ((6, 0), "left", "center"),
    ((-6, 0), "right", "center"),
    ((0, 6), "center", "bottom"),
    ((0, -6), "center", "top"),
    ((5, 5), "left", "bottom"),
    ((-5, 5), "right", "bottom"),
    ((5, -5), "left", "top"),
    ((-5, -5), "right", "top"),
    ((0, 15), "center", "bottom"),
    ((0, -15), "center", "top"),
    ((14, 14), "left", "bottom"),
    ((-14, 14), "right", "bottom"),
    ((14, -14), "left", "top"),
    ((-14, -14), "right", "top"),
    ((0, 26), "center", "bottom"),
    ((0, -26), "center", "top"),
    ((26, 22), "left", "bottom"),
    ((-26, 22), "right", "bottom"),
    ((26, -22), "left", "top"),
    ((-26, -22), "right", "top"),
)


class Mark(NamedTuple):
    """Something drawn at a place, in the units of its axes."""

    name: str
    x: float
    y: float
    colour: str


def name_points(axes: Axes, marks: Sequence[Mark]) -> None:
    """A name beside each point, on the first side where it covers neither a point nor a name.

    The scales of the axes must be set before.
    """
    from matplotlib.text import Text

    points = [axes.transData.transform((mark.x, mark.y)) for mark in marks]
    taken: list[Any] = []
    for i, mark in enumerate(marks):
        others = [point for j, point in enumerate(points) if j != i]
        tries = []
        for side in SIDES:
            label = _beside(axes, mark, *side)
            # The first box is of words and line, and brings both to their place.
            label.get_window_extent()
            box = Text.get_window_extent(label)
            tries.append((_clashes(box, taken, others, axes.get_window_extent()), label, box))
            if not tries[-1][0]:
                break
        best = min(tries, key=lambda attempt: attempt[0])
        for attempt in tries:
            if attempt is not best:
                attempt[1].remove()
        taken.append(best[2])


def _beside(axes: Axes, mark: Mark, offset: tuple[int, int], ha: str, va: str) -> Any:
    far = max(map(abs, offset)) > 10
    line = {"arrowstyle": "-", "color": mark.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    return axes.annotate(
        mark.name,
        (mark.x, mark.y),
        xytext=offset,
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=SIZE,
        color=INK,
        zorder=5,
        arrowprops=line if far else None,
        path_effects=_halo(),
    )


def _halo() -> list[Any]:
    """White around words, which lines may cross."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.0, foreground="white")]


def _clashes(box: Any, taken: Sequence[Any], points: Sequence[Any], frame: Any) -> int:
    """How many names and points a name would cover, and whether it would leave the panel."""
    covered = sum(box.overlaps(other) for other in taken)
    covered += sum(box.padded(3).contains(*point) for point in points)
    inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    return int(covered) + (not inside)


def name_ends(axes: Axes, marks: Sequence[Mark]) -> None:
    """Names to the right of a panel, each tied to the end of its curve."""
    if not marks:
        return
    box, points = axes.get_window_extent(), 72 / axes.figure.dpi
    ends = axes.transData.transform([(mark.x, mark.y) for mark in marks])[:, 1]
    places = spread((ends - box.y0) * points, gap=SIZE + 2, high=box.height * points)
    for mark, place in zip(marks, places, strict=True):
        axes.annotate(
            mark.name,
            (mark.x, mark.y),
            xytext=(box.width * points + 16, float(place)),
            textcoords="axes points",
            va="center",
            fontsize=SIZE,
            color=INK,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": mark.colour,
                "linewidth": 0.5,
                "alpha": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 1,
                "shrinkB": 2,
            },
        )


def spread(wanted: Float[np.ndarray, " n"], *, gap: float, high: float) -> Float[np.ndarray, " n"]:
    """Places near the wanted ones and in their order, no two closer than a gap, none too high."""
    order = np.argsort(wanted, kind="stable")
    places = wanted[order].astype(float)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    limit = high
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - gap
    out = np.empty_like(places)
    out[order] = places
    return out
