"""How a set of points is looked at: a line, a grid, a cloud, a map of the globe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ipot.report.style import INK, Axes, ScalarMappable, Scale

Extent = tuple[float, float, float, float]
# Up to so many scattered points are drawn as separate, outlined dots.
FEW = 500


@dataclass(frozen=True, eq=False)
class View:
    """Points in the plane of the paper.

    `keep` picks the points that are shown, None for all. A grid keeps its two-dimensional `shape`.
    `note` says in words what the reader must know of a projection.
    """

    kind: Literal["empty", "line", "grid", "mesh", "cloud"]
    x: np.ndarray
    y: np.ndarray
    shape: tuple[int, int] | None = None
    keep: np.ndarray | slice | None = None
    labels: tuple[str, str] = ("x", "y")
    note: str = ""

    @property
    def plane(self) -> bool:
        """True if positions fill a plane; a line has values on its second axis."""
        return self.kind in ("grid", "mesh", "cloud")

    @property
    def extent(self) -> Extent:
        """Left, right, bottom, top of the positions."""
        x, y = self.x, self.y
        return float(x.min()), float(x.max()), float(y.min()), float(y.max())

    def pick(self, values: np.ndarray) -> np.ndarray:
        """The values at the points that are shown."""
        return values if self.keep is None else values[self.keep]

    def paint(
        self, axes: Axes, values: np.ndarray, scale: Scale, *, dots: bool = False
    ) -> ScalarMappable:
        """Draw values into a panel whose size and limits are already set.

        Scattered points fill the panel, each its surroundings, as long as they are dense. As `dots`
        they stay apart: what is known at some places only should look so.
        """
        limits = {"cmap": scale.cmap, "vmin": scale.low, "vmax": scale.high}
        values = self.pick(values)
        if self.kind == "grid":
            return _paint_grid(axes, self.x, self.y, values, limits)
        if self.kind == "mesh" and self.shape is not None:
            x, y, c = (a.reshape(self.shape) for a in (self.x, self.y, values))
            return axes.pcolormesh(x, y, c, shading="gouraud", rasterized=True, **limits)
        # A projection has points on top of each other: surroundings would mean nothing there.
        if not dots and not self.note and len(values) > FEW:
            return _paint_nearest(axes, self.x, self.y, values, limits)
        size = self._sizes(axes)
        # Large markers first, so that a refined region stays visible on top of a coarse one.
        order = np.argsort(-size, kind="stable")
        outline = len(values) <= FEW
        return axes.scatter(
            self.x[order],
            self.y[order],
            s=size[order],
            c=values[order],
            linewidths=0.3 if outline else 0.0,
            edgecolors=INK if outline else "none",
            rasterized=len(values) > 2000,
            clip_on=not _all_within(axes, self.x, self.y),
            **limits,
        )

    def paint_places(self, axes: Axes) -> None:
        """Draw the points alone, where they carry no values."""
        x, y = self.x, self.y
        if self.kind == "grid":
            x, y = (a.ravel() for a in np.meshgrid(x, y))
        size = replace(self, kind="cloud", x=x, y=y)._sizes(axes)
        clipped = not _all_within(axes, x, y)
        axes.scatter(x, y, s=size, color="#555555", linewidths=0, clip_on=clipped)

    def _sizes(self, axes: Axes) -> np.ndarray:
        """Marker areas in points squared: a little less than the distance to the neighbours."""
        from scipy.spatial import KDTree

        count = len(self.x)
        if count < 2:
            return np.full(count, 30.0)
        paper = _on_paper(axes, self.x, self.y) * 72
        distance, _ = KDTree(paper).query(paper, k=min(5, count))
        spacing = distance[:, 1:].mean(axis=1)
        fine, coarse = np.quantile(spacing, (0.1, 0.9))
        # Chance alone makes spacings differ; only a graded mesh deserves graded markers.
        if coarse < 4 * fine:
            spacing = np.full(count, np.median(spacing))
        return np.clip(0.85 * spacing, 0.6, 5.5) ** 2


def _all_within(axes: Axes, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a panel shows all points: then one at its frame is drawn whole."""
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    inside = (x >= left) & (x <= right) & (y >= bottom) & (y <= top)
    return bool(inside.all())


def view(points: np.ndarray, grid: tuple[int, ...] | None = None, *, latlon: bool = False) -> View:
    """Choose how to look at points (n, d); latitude and longitude become a map."""
    if latlon and len(points):
        seen = view(180 * points[:, ::-1], grid)
        return replace(seen, labels=("longitude (°)", "latitude (°)"))
    count, dimension = points.shape
    nothing = np.empty(0)
    if count == 0:
        return View("empty", nothing, nothing)
    if dimension == 1:
        return View("line", points[:, 0], np.zeros(count), labels=("x", ""))
    if dimension == 2:
        return _plane(points[:, 0], points[:, 1], grid)
    if dimension == 3 and np.allclose((points**2).sum(axis=1), 1.0, atol=1e-3):
        return _globe(points, grid)
    if grid is not None and len(grid) == 3 and dimension == 3:
        # One slice of a block; a projection would paint the slices over each other.
        keep = np.arange(count).reshape(grid)[:, :, -1].ravel()
        x, y, z = points[keep].T
        note = f"slice z = {z.mean():.3g}"
        return _plane(x, y, grid[:2], keep=keep, note=note)
    order = np.argsort(points[:, 2], kind="stable")
    x, y = points[order, 0], points[order, 1]
    return View("cloud", x, y, keep=order, note=f"first 2 of {dimension} coordinates")


def _plane(
    x: np.ndarray,
    y: np.ndarray,
    grid: tuple[int, ...] | None,
    *,
    keep: np.ndarray | None = None,
    labels: tuple[str, str] = ("x", "y"),
    note: str = "",
) -> View:
    if grid is None or len(grid) != 2 or min(grid) < 2:
        return View("cloud", x, y, keep=keep, labels=labels, note=note)
    shape = (grid[0], grid[1])
    axes = _rectangle(x.reshape(shape), y.reshape(shape))
    if axes is None:
        return View("mesh", x, y, shape=shape, keep=keep, labels=labels, note=note)
    # Rows of y, columns of x, both rising: what images want, whatever the order of the grid.
    xs, ys, swap = axes
    index = np.arange(len(x)).reshape(shape)
    index = (index.T if swap else index)[np.ix_(np.argsort(ys), np.argsort(xs))].ravel()
    keep = index if keep is None else keep[index]
    return View("grid", np.sort(xs), np.sort(ys), shape, keep, labels, note)


def _globe(points: np.ndarray, grid: tuple[int, ...] | None) -> View:
    """Unit vectors as longitude and latitude in degrees."""
    # The small shift keeps a meridian whole that rounding scatters to both sides of zero.
    longitude = (np.degrees(np.arctan2(points[:, 1], points[:, 0])) + 1e-3) % 360 - 1e-3
    latitude = np.degrees(np.arcsin(np.clip(points[:, 2], -1, 1)))
    labels = ("longitude (°)", "latitude (°)")
    if grid is not None and len(grid) == 2:
        # A pole has every longitude: let it follow the rest of its meridian.
        table = np.ma.masked_array(longitude, np.abs(latitude) > 89.99).reshape(grid)
        for axis in (0, 1):
            line = table.mean(axis=axis, keepdims=True)
            if np.abs(table - line).max() < 1e-2:
                longitude = np.broadcast_to(line.filled(0.0), grid).ravel()
    return _plane(longitude, latitude, grid, labels=labels)


def _rectangle(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """The two coordinate lines of a rectilinear grid, and whether x runs along the first axis."""
    tolerance = 1e-4 * max(np.ptp(x), np.ptp(y))
    for swap, (a, b) in ((False, (x, y)), (True, (x.T, y.T))):
        straight = np.ptp(a, axis=0).max() < tolerance and np.ptp(b, axis=1).max() < tolerance
        if straight and np.ptp(a[0]) > 0 and np.ptp(b[:, 0]) > 0:
            return a[0], b[:, 0], swap
    return None


def _edges(nodes: np.ndarray) -> np.ndarray:
    """Cell borders halfway between nodes, the outer ones by reflection."""
    inner = (nodes[1:] + nodes[:-1]) / 2
    return np.concatenate([[2 * nodes[0] - inner[0]], inner, [2 * nodes[-1] - inner[-1]]])


def _paint_grid(
    axes: Axes, x: np.ndarray, y: np.ndarray, values: np.ndarray, limits: dict
) -> ScalarMappable:
    x, y = _edges(x), _edges(y)
    values = values.reshape(len(y) - 1, len(x) - 1)
    if all(np.allclose(np.diff(e), np.diff(e).mean(), rtol=1e-2) for e in (x, y)):
        extent = (x[0], x[-1], y[0], y[-1])
        # Aspect belongs to the layout; imshow would take it over.
        return axes.imshow(values, origin="lower", extent=extent, aspect="auto", **limits)
    return axes.pcolormesh(x, y, values, shading="flat", rasterized=True, **limits)


def _paint_nearest(
    axes: Axes, x: np.ndarray, y: np.ndarray, values: np.ndarray, limits: dict
) -> ScalarMappable:
    """Every pixel takes the value of the nearest point; holes of the domain stay open.

    Triangles would bridge holes and concave borders. Here a gap is filled only while it is small
    against the spacing of the points around it.
    """
    from scipy.ndimage import distance_transform_edt, label, maximum
    from scipy.spatial import KDTree

    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    tree = KDTree(_on_paper(axes, x, y))
    near, neighbours = tree.query(tree.data, k=7)
    # The side of the square that each point has to itself, from the sixth neighbour's distance;
    # averaged, for a chance cluster does not make its surroundings a hole.
    spacing = np.maximum(near[:, 6] * np.sqrt(np.pi / 6), 1e-9)[neighbours].mean(axis=1)
    box = axes.get_window_extent()
    across, up = (max(2, round(1.5 * side)) for side in (box.width, box.height))
    xs = x0 + (np.arange(across) + 0.5) / across * (x1 - x0)
    ys = y0 + (np.arange(up) + 0.5) / up * (y1 - y0)
    grid_x, grid_y = (a.ravel() for a in np.meshgrid(xs, ys))
    distance, index = tree.query(_on_paper(axes, grid_x, grid_y))
    gap = (distance / spacing[index]).reshape(up, across)
    # A hole is far from every point somewhere; its rim is then traced close to the points, while
    # thin gaps that chance has left between them are closed.
    parts, count = label(gap > 1.2)
    widest = maximum(gap, parts, np.arange(count + 1))
    widest[0] = 0.0
    steps = np.asarray(distance_transform_edt(widest[parts] <= 2.5))
    reach = steps * box.width / axes.figure.dpi / across
    hole = (gap > 0.8) & (reach < 0.6 * spacing[index].reshape(up, across)) & (widest.max() > 2.5)
    image = np.where(hole, np.nan, values[index].reshape(up, across))
    extent = (x0, x1, y0, y1)
    return axes.imshow(image, origin="lower", extent=extent, aspect="auto", **limits)


def _on_paper(axes: Axes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Positions in inches, where distances are what the reader sees."""
    box = axes.get_window_extent()
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    wide, tall = box.width / axes.figure.dpi, box.height / axes.figure.dpi
    return np.stack([(x - x0) * wide / (x1 - x0), (y - y0) * tall / (y1 - y0)], axis=1)
