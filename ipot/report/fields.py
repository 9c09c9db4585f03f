"""One sample beside its prediction: input, truth, prediction, absolute error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ipot.report.cases import (
    Case,
    box_size,
    case,
    frame,
    paint_answer,
    paint_error,
    paint_plane_source,
    paint_source,
)
from ipot.report.style import (
    Axes,
    Figure,
    ScalarMappable,
    Scale,
    Sheet,
    error_scale,
    look,
    scale_of,
)
from ipot.report.tables import count, percent
from ipot.report.views import Extent
from ipot.samples import Sample
from ipot.spec import Spec

LINE = (2.7, 1.9)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel before it has a place: its size in inches, its margins, how to paint it."""

    title: str
    size: tuple[float, float]
    paint: Callable[[Axes], ScalarMappable | None]
    left: float = 0.12
    bar: str | None = None
    extend: str = "neither"

    @property
    def right(self) -> float:
        """Room for the colour bar and its label."""
        return 0.1 if self.bar is None else 0.64


def fields(
    sample: Sample,
    prediction: Float[Tensor, "T M K"],
    *,
    spec: Spec,
    title: str | None = None,
    channel: int = 0,
    time: int = -1,
    window: Extent | None = None,
) -> Figure:
    """Input, truth, prediction and absolute error of one channel at one time.

    Truth and prediction share their colours, whose range is the truth's. Without targets only
    input and prediction are shown. `window` (left, right, bottom, top) zooms into a plane.
    """
    item = case(sample, prediction, spec=spec, channel=channel, time=time)
    with look():
        panels = _plane_panels(item, window) if item.target.plane else _line_panels(item)
        return _place(panels, title)


def _plane_panels(item: Case, window: Extent | None) -> list[Panel]:
    extent = window or item.extent
    wide = box_size(extent, 1.0, 9.0)[1] < 0.6
    size = box_size(extent, *((3.3, 2.0) if wide else (2.1, 2.4)))
    known = [item.prediction] if item.truth is None else [item.truth]
    scale = scale_of([item.target.pick(a) for a in known])

    def panel(
        name: str, values: np.ndarray, scale: Scale, *, labelled: bool, bar: str | None
    ) -> Panel:
        def paint(axes: Axes) -> ScalarMappable | None:
            frame(axes, extent, item.target.labels, x=True, y=labelled)
            return item.target.paint(axes, values, scale)

        left = 0.5 if labelled else 0.12
        extend = scale.extend(values)
        return Panel(title=name, size=size, paint=paint, left=left, bar=bar, extend=extend)

    note = ", ".join(part for part in (item.when, item.target.note) if part)
    suffix = f" ({note})" if item.target.note else f", {note}" if note else ""
    source = _source_panel(item, window, size)
    # A labelled axis once: again only where rows break or the input lives somewhere else.
    again = wide or not item.source.plane or item.source.labels != item.target.labels
    if item.truth is None:
        one = panel(f"prediction{suffix}", item.prediction, scale, labelled=again, bar=item.label)
        return [source, one]
    relative = "" if item.relative is None else f", relative $L^2$ {percent(item.relative)}"
    bar = item.label if wide else None
    return [
        source,
        panel(f"truth{suffix}", item.truth, scale, labelled=again, bar=bar),
        panel("prediction", item.prediction, scale, labelled=wide, bar=item.label),
        panel(
            f"error{relative}",
            item.error,
            error_scale([item.target.pick(item.error)]),
            labelled=wide,
            bar=item.error_label,
        ),
    ]


def _source_panel(item: Case, window: Extent | None, size: tuple[float, float]) -> Panel:
    view = item.source
    if not view.plane:
        line = view.kind == "line"

        def paint_plain(axes: Axes) -> None:
            paint_source(axes, item)
            if line:
                axes.set_xlabel(view.labels[0])
                axes.set_ylabel(item.value_label)

        width = LINE[0] if line else 1.3
        return Panel(
            title=f"input, {count(item.inputs)} points" if line else "input",
            size=(width, size[1]),
            paint=paint_plain,
            left=0.6 if line else 0.12,
        )
    alike = view.labels == item.target.labels and item.target.plane
    extent = (window or item.source_extent) if alike else view.extent
    values = None if item.values is None else view.pick(item.values)
    scale = scale_of([] if values is None else [values])

    def paint(axes: Axes) -> ScalarMappable | None:
        frame(axes, extent, view.labels, x=True, y=True)
        return paint_plane_source(axes, item, scale)

    note = f", {view.note}" if view.note and view.note != item.target.note else ""
    return Panel(
        title=f"input{note}"
        if view.kind == "grid"
        else f"input, {count(item.inputs)} points{note}",
        size=size if alike else box_size(extent, 2.1, size[1]),
        paint=paint,
        left=0.5,
        bar=None if values is None else item.value_label,
    )


def _line_panels(item: Case) -> list[Panel]:
    view = item.target
    order = f", {item.when}" if item.when else ""

    def answer(axes: Axes) -> None:
        paint_answer(axes, item)
        axes.set(xlabel=view.labels[0], ylabel=item.label)
        if item.truth is not None:
            axes.legend(loc="best", handlelength=1.8, borderaxespad=0.3)

    def error(axes: Axes) -> None:
        paint_error(axes, item)
        axes.set(xlabel=view.labels[0], ylabel=item.error_label)

    source = _source_panel(item, None, LINE)
    if item.truth is None:
        return [source, Panel(title=f"prediction{order}", size=LINE, paint=answer, left=0.62)]
    relative = "" if item.relative is None else f", relative $L^2$ {percent(item.relative)}"
    return [
        source,
        Panel(title=f"truth and prediction{order}", size=LINE, paint=answer, left=0.62),
        Panel(title=f"error{relative}", size=LINE, paint=error, left=0.62),
    ]


def _place(panels: list[Panel], title: str | None) -> Figure:
    """Put panels side by side; wide ones go two by two."""
    columns = 2 if len(panels) == 4 and panels[1].size[1] < 0.6 * panels[1].size[0] else len(panels)
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    head, above, below = (0.3 if title else 0.05), 0.24, 0.42
    lefts = [max(p.left for p in column) for column in zip(*rows, strict=True)]
    cells = [
        max(p.size[0] + p.right for p in column) + left
        for column, left in zip(zip(*rows, strict=True), lefts, strict=True)
    ]
    heights = [max(p.size[1] for p in row) for row in rows]
    sheet = Sheet(sum(cells), head + sum(heights) + len(rows) * (above + below))
    sheet.title(title, lefts[0])
    top = head
    for row, height in zip(rows, heights, strict=True):
        top += above
        for i, panel in enumerate(row):
            left = sum(cells[:i]) + lefts[i]
            down = top + (height - panel.size[1]) / 2
            axes = sheet.axes(left, down, *panel.size)
            axes.set_title(panel.title)
            mappable = panel.paint(axes)
            if mappable is not None and panel.bar is not None:
                box = (left + panel.size[0] + 0.07, down, 0.09, panel.size[1])
                sheet.bar(mappable, box, panel.bar, extend=panel.extend)
        top += height + below
    return sheet.figure


def shared_scale(items: list[Case]) -> Scale:
    """One range for all truths (or predictions where there is no truth)."""
    return scale_of([c.target.pick(c.prediction if c.truth is None else c.truth) for c in items])


def shared_error_scale(items: list[Case]) -> Scale:
    """One range for the errors of several cases."""
    return error_scale([c.target.pick(c.error) for c in items if c.truth is not None])
