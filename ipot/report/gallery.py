"""A few samples of a problem, as they are: inputs beside outputs, a row for each sample.

What is shown follows from the sample: curves on a line, images on a grid, dots at scattered points,
maps on a sphere. Where the places themselves are part of the data (a mesh around a wing, a body
that deforms) a problem has a way of its own, found by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ipot.errors import DataError
from ipot.report.cases import array, box_size, frame, input_channel, paint_line
from ipot.report.style import COLOURS, Axes, Figure, ScalarMappable, Scale, Sheet, look, scale_of
from ipot.report.views import Extent, View, view
from ipot.samples import Sample
from ipot.spec import Spec

LINE = (2.3, 1.35)
WING = (-0.4, 1.6, -0.75, 0.75)
"""The part of the plane around a wing, in chords."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """A panel: places and values; tiles of one label share their colours. No values: the mesh."""

    title: str
    view: View
    values: np.ndarray | None
    label: str = ""
    window: Extent | None = None

    @property
    def extent(self) -> Extent:
        """The part of the plane that is shown."""
        return self.window or self.view.extent

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        wide = box_size(self.extent, 1.0, 9.0)[1] < 0.6
        return box_size(self.extent, 2.2 if wide else 1.7, 1.7) if self.view.plane else LINE


def gallery(samples: Sequence[Sample], spec: Spec, title: str | None = None) -> Figure:
    """A row of tiles for each sample."""
    if not samples:
        raise DataError("a gallery needs at least one sample, got none")
    show = WAYS.get(spec.name, tiles)
    rows = [show(sample, spec) for sample in samples]
    labels = {tile.label for row in rows for tile in row}
    scales = {
        label: scale_of(
            [
                tile.view.pick(tile.values)
                for row in rows
                for tile in row
                if tile.label == label and tile.values is not None
            ]
        )
        for label in labels
    }
    with look():
        return _draw(rows, scales, title)


def tiles(sample: Sample, spec: Spec) -> list[Tile]:
    """Inputs and outputs where the sample says they are."""
    source, target = (_view(sample, spec, inputs=inputs) for inputs in (True, False))
    shown = [
        Tile(title=spec.inputs[c], view=source, values=array(sample.values[:, c]), label=name)
        for c, name in _inputs(spec, sample.values.shape[1])
    ]
    return shown + [
        Tile(title=title, view=target, values=values, label=name)
        for title, values, name in _outputs(sample, spec)
    ]


def _wing(sample: Sample, spec: Spec) -> list[Tile]:
    """The mesh and the flow near the wing; the inputs are the positions of the nodes."""
    place = view(array(sample.values[:, :2]), sample.grid)
    shown = [Tile(title="mesh", view=place, values=None, window=WING)]
    return shown + [
        Tile(title=title, view=place, values=values, label=name, window=WING)
        for title, values, name in _outputs(sample, spec)
    ]


def _forging(sample: Sample, spec: Spec) -> list[Tile]:
    """The die, then the body as it deforms, coloured by the length of its displacement."""
    grid = sample.query_grid
    if grid is None or len(grid) != 3:
        raise DataError(f"frames of {spec.name} need a grid of (x, y, time), got {grid}")
    state = array(sample.truth[0]).reshape(*grid, -1)
    # The die lies over the body as it was: the nodes count from one end, x perhaps from the other.
    across = (state[..., 0] - state[..., 2])[:, 0, 0]
    nodes = np.unique(array(sample.points[:, 0]), return_index=True)[1]
    die = array(sample.values[:, 0])[nodes]
    name = spec.inputs[0]
    shown = [Tile(title=name, view=view(across[:, None]), values=die, label=name)]
    frames = [grid[2] // 3, 2 * grid[2] // 3, grid[2] - 1]
    bodies = [state[:, :, n].reshape(grid[0] * grid[1], -1) for n in frames]
    window = _around([body[:, :2] for body in bodies])
    for n, body in zip(frames, bodies, strict=True):
        moved = np.linalg.norm(body[:, 2:4], axis=1)
        place = view(body[:, :2], grid[:2])
        name = f"frame {n + 1} of {grid[2]}"
        shown.append(
            Tile(title=name, view=place, values=moved, label="|displacement|", window=window)
        )
    return shown


WAYS: dict[str, Callable[[Sample, Spec], list[Tile]]] = {"airfoil": _wing, "plasticity": _forging}
"""Problems that are shown in a way of their own."""


def _view(sample: Sample, spec: Spec, *, inputs: bool) -> View:
    """Places on the paper; latitude and longitude as a map."""
    places, grid = sample.points, sample.grid
    if not inputs:
        places = sample.queries if sample.queries.ndim == 2 else sample.queries[-1]
        grid = sample.query_grid
    return view(array(places), grid, latlon=spec.latlon)


def _inputs(spec: Spec, channels: int) -> list[tuple[int, str]]:
    """The channels to show and what they share their colours with.

    The latest frame of every output (two at most); of static channels the last where they are many.
    """
    if spec.history:
        names = spec.outputs[:2]
        chosen = [input_channel(spec, n, channels) for n in range(len(names))]
        return [(c, name) for c, name in zip(chosen, names, strict=True) if c is not None]
    first = 0 if channels <= 2 else channels - 1
    return [(c, spec.inputs[c]) for c in range(first, channels)]


def _outputs(sample: Sample, spec: Spec) -> list[tuple[str, np.ndarray, str]]:
    """Title, values and name: first, middle and last time of one output, the ends of two."""
    steps, names = len(sample.times), spec.outputs[:2]
    times = sorted({0, steps // 2, steps - 1} if len(names) == 1 else {0, steps - 1})
    found = []
    for channel, name in enumerate(names):
        unit = f" ({spec.units[channel]})" if channel < len(spec.units) else ""
        for n in times:
            when = f", t = {sample.times[n]:g}" if steps > 1 else ""
            values = array(sample.truth[n, :, channel])
            found.append((f"{name}{unit}{when}", values, name))
    return found


def _around(places: Sequence[np.ndarray]) -> Extent:
    """A window around all positions, with a little air."""
    low, high = np.concatenate(places).min(0), np.concatenate(places).max(0)
    air = 0.03 * (high - low).max()
    return low[0] - air, high[0] + air, low[1] - air, high[1] + air


def _draw(rows: list[list[Tile]], scales: dict[str, Scale], title: str | None) -> Figure:
    """Columns by tile, rows by sample; a bar after the last column of each label."""
    first = rows[0]
    starts = [_starts(rows, column) for column in range(len(first))]
    lefts, left = [], 0.0
    for column, tile in enumerate(first):
        left += 0.55 if starts[column] else 0.12
        lefts.append(left)
        bar = tile.view.plane and _last_of_label(first, column)
        left += tile.size[0] + (0.62 if bar else 0.05)
    height = max(tile.size[1] for tile in first)
    lines = not all(tile.view.plane for tile in first)
    gap, head, foot = (0.42 if lines else 0.14), (0.5 if title else 0.26), 0.42
    sheet = Sheet(left + 0.1, head + len(rows) * (height + gap) - gap + foot)
    sheet.title(title, lefts[0])
    for n, row in enumerate(rows):
        for column, tile in enumerate(row):
            top = head + n * (height + gap) + (height - tile.size[1]) / 2
            axes = sheet.axes(lefts[column], top, *tile.size)
            if n == 0:
                axes.set_title(tile.title)
            last = n == len(rows) - 1
            painted = _paint(axes, tile, scales[tile.label], x=last, y=starts[column])
            if painted is not None and n == 0 and _last_of_label(row, column):
                tall = tile.size[1] + (len(rows) - 1) * (height + gap)
                box = (lefts[column] + tile.size[0] + 0.07, top, 0.09, tall)
                sheet.bar(painted, box, tile.label)
    return sheet.figure


def _starts(rows: list[list[Tile]], column: int) -> bool:
    """True if a column needs a labelled axis of its own: the one before shows another region."""
    if column == 0:
        return True

    def alike(before: Tile, tile: Tile) -> bool:
        if not (before.view.plane and tile.view.plane) or before.view.labels != tile.view.labels:
            return False
        return np.allclose(before.extent, tile.extent, rtol=0.02, atol=0.02)

    return not all(alike(row[column - 1], row[column]) for row in rows)


def _last_of_label(row: list[Tile], column: int) -> bool:
    """True if no later tile has the same colours."""
    tile = row[column]
    return tile.values is not None and all(t.label != tile.label for t in row[column + 1 :])


def _paint(axes: Axes, tile: Tile, scale: Scale, *, x: bool, y: bool) -> ScalarMappable | None:
    if not tile.view.plane:
        if tile.values is not None:
            paint_line(axes, tile.view, tile.values, COLOURS[0])
            air = 0.05 * (scale.high - scale.low)
            axes.set_ylim(scale.low - air, scale.high + air)
        axes.set_xlabel(tile.view.labels[0] if x else "")
        return None
    frame(axes, tile.extent, tile.view.labels, x=x, y=y)
    if tile.values is None:
        _paint_mesh(axes, tile.view)
        return None
    return tile.view.paint(axes, tile.values, scale, dots=tile.view.kind == "cloud")


def _paint_mesh(axes: Axes, places: View) -> None:
    """The lines of a structured mesh, or the points where it has none."""
    if places.shape is None or places.kind != "mesh":
        places.paint_places(axes)
        return
    from matplotlib.collections import LineCollection

    nodes = np.stack([places.x, places.y], axis=-1).reshape(*places.shape, 2)
    lines = [*nodes, *nodes.transpose(1, 0, 2)]
    axes.add_collection(LineCollection(lines, colors="#555555", linewidths=0.25))
