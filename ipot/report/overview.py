"""The picture that says it all: one test case under several settings, and the error over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from torch import Tensor

from ipot.errors import DataError
from ipot.report.cases import (
    Case,
    box_size,
    case,
    frame,
    paint_answer,
    paint_error,
    paint_plane_source,
    paint_source,
    union,
)
from ipot.report.curves import draw_curve
from ipot.report.fields import shared_error_scale, shared_scale
from ipot.report.style import (
    Axes,
    Figure,
    ScalarMappable,
    Scale,
    Sheet,
    badge,
    look,
    scale_of,
)
from ipot.report.tables import count, percent
from ipot.report.views import Extent
from ipot.samples import Sample
from ipot.spec import Spec

GAP, LEFT, SIDE = 0.08, 0.42, 3.4


def overview(
    rows: Sequence[tuple[str, Sample, Tensor]],
    *,
    spec: Spec,
    curve_panel: Mapping[str, Any] | None = None,
    title: str | None = None,
    channel: int = 0,
    time: int = -1,
) -> Figure:
    """Each row a setting: its input, the truth, the prediction and the error, in shared colours.

    `rows` are (label, sample, prediction). `curve_panel` takes the arguments of `curve` and is
    drawn at the side: the error against the share of sensors, say.
    """
    if not rows:
        raise DataError("an overview needs at least one row, got none")
    labels = [label for label, _, _ in rows]
    items = [case(s, p, spec=spec, channel=channel, time=time) for _, s, p in rows]
    if len({item.target.plane for item in items}) > 1:
        raise DataError(
            "the rows of an overview must all have queries on a line, or all in a plane"
        )
    with look():
        if items[0].target.plane:
            return _planes(items, labels, curve_panel, title)
        return _lines(items, labels, curve_panel, title)


def _planes(
    items: list[Case], labels: list[str], curve_panel: Mapping[str, Any] | None, title: str | None
) -> Figure:
    known = all(item.truth is not None for item in items)
    extent = union([item.extent for item in items])
    # More rows, smaller panels: the whole must still fit a screen.
    side = {1: 2.0, 2: 1.9, 3: 1.75, 4: 1.5}.get(len(items), 1.3)
    width, height = box_size(extent, side, side)
    columns = (
        ["input", "truth", "prediction", "absolute error"] if known else ["input", "prediction"]
    )
    head = 0.55 if title else 0.26
    tops = [head + i * (height + GAP) for i in range(len(items))]
    lefts = [LEFT + i * (width + GAP) for i in range(len(columns))]
    end, bottom = lefts[-1] + width, tops[-1] + height
    sheet = Sheet(end + (SIDE + 0.78 if curve_panel else 0.1), bottom + 0.56)
    sheet.title(title, LEFT)

    values = [item.source.pick(i) for item in items if (i := item.values) is not None]
    scales = {
        "input": scale_of(values),
        "truth": shared_scale(items),
        "prediction": shared_scale(items),
        "absolute error": shared_error_scale(items),
    }
    painted: dict[str, ScalarMappable] = {}
    for row, (item, label) in enumerate(zip(items, labels, strict=True)):
        _row_label(sheet, label, tops[row], height)
        for name, left in zip(columns, lefts, strict=True):
            axes = sheet.axes(left, tops[row], width, height)
            mappable = _paint_cell(axes, name, item, scales[name], extent)
            if mappable is not None:
                painted[name] = mappable
            if row == 0:
                axes.set_title(name)

    everything = np.concatenate([item.target.pick(item.prediction) for item in items])
    bars = [("input", lefts[0], width, items[0].value_label, "neither")]
    extend = scales["prediction"].extend(everything)
    if known:
        errors = np.concatenate([item.target.pick(item.error) for item in items])
        bars.append(("truth", lefts[1], 2 * width + GAP, items[0].label, extend))
        over = scales["absolute error"].extend(errors)
        bars.append(("absolute error", lefts[3], width, items[0].error_label, over))
    else:
        bars.append(("prediction", lefts[1], width, items[0].label, extend))
    for name, left, length, label, ends in bars:
        if name in painted:
            box = (left, bottom + 0.09, length, 0.09)
            sheet.bar(painted[name], box, label, extend=ends, horizontal=True)
    if curve_panel:
        _side(sheet, curve_panel, end + 0.7, tops[0], bottom - tops[0])
    return sheet.figure


def _paint_cell(
    axes: Axes, name: str, item: Case, scale: Scale, extent: Extent
) -> ScalarMappable | None:
    if name == "input" and not item.source.plane:
        paint_source(axes, item)
        axes.set(xticks=[], yticks=[])
        return None
    same = name != "input" or item.source.labels == item.target.labels
    frame(axes, extent if same else item.source.extent, item.target.labels, x=False, y=False)
    axes.set(xticks=[], yticks=[])
    if name == "input":
        mappable = paint_plane_source(axes, item, scale)
        badge(axes, f"{count(item.inputs)} points")
        return mappable
    if name == "truth" and item.truth is not None:
        return item.target.paint(axes, item.truth, scale)
    if name == "prediction":
        mappable = item.target.paint(axes, item.prediction, scale)
        badge(axes, f"{count(len(item.prediction))} queries")
        return mappable
    mappable = item.target.paint(axes, item.error, scale)
    badge(axes, f"relative $L^2$ {percent(item.relative or 0.0)}")
    return mappable


def _lines(
    items: list[Case], labels: list[str], curve_panel: Mapping[str, Any] | None, title: str | None
) -> Figure:
    known = all(item.truth is not None for item in items)
    names = (
        ["input", "truth and prediction", "absolute error"] if known else ["input", "prediction"]
    )
    width, height, margin = 2.2, 1.35, 0.6
    head = 0.55 if title else 0.26
    tops = [head + i * (height + GAP) for i in range(len(items))]
    lefts = [LEFT + 0.45 + i * (width + margin) for i in range(len(names))]
    end, bottom = lefts[-1] + width, tops[-1] + height
    sheet = Sheet(end + (SIDE + 0.78 if curve_panel else 0.1), bottom + 0.42)
    sheet.title(title, LEFT)
    columns: list[list[Axes]] = [[] for _ in names]
    for row, (item, label) in enumerate(zip(items, labels, strict=True)):
        _row_label(sheet, label, tops[row], height)
        for i, (name, left) in enumerate(zip(names, lefts, strict=True)):
            axes = sheet.axes(left, tops[row], width, height)
            columns[i].append(axes)
            _paint_line_cell(axes, name, item, first=row == 0)
            if row == 0:
                axes.set_title(name)
            if row < len(items) - 1:
                axes.tick_params(labelbottom=False)
            elif i or item.source.kind == "line":
                axes.set_xlabel("x")
    for name, column in zip(names, columns, strict=True):
        bottom_y, top_y = zip(*(axes.get_ylim() for axes in column), strict=True)
        for axes in column:
            # Room above the curves for the note.
            floor = 0.0 if name == "absolute error" else min(bottom_y)
            axes.set_ylim(floor, max(top_y) + 0.22 * (max(top_y) - floor))
    if curve_panel:
        _side(sheet, curve_panel, end + 0.7, tops[0], bottom - tops[0])
    return sheet.figure


def _paint_line_cell(axes: Axes, name: str, item: Case, *, first: bool) -> None:
    if name == "input":
        paint_source(axes, item)
        if item.source.kind == "line":
            badge(axes, f"{count(item.inputs)} points")
    elif name == "absolute error":
        paint_error(axes, item)
        badge(axes, f"relative $L^2$ {percent(item.relative or 0.0)}")
    else:
        paint_answer(axes, item)
        badge(axes, f"{count(len(item.prediction))} queries")
        if first and item.truth is not None:
            axes.legend(loc="upper right", handlelength=1.6, borderaxespad=0.2, labelspacing=0.2)


def _row_label(sheet: Sheet, label: str, top: float, height: float) -> None:
    # About so many letters of this size fit into an inch.
    text = fill(label, max(10, int(12.5 * height)))
    sheet.text(
        LEFT - 0.12,
        top + height / 2,
        text,
        rotation=90,
        ha="right",
        va="center",
        multialignment="center",
        fontsize=8.5,
        fontweight="bold",
    )


def _side(
    sheet: Sheet, curve_panel: Mapping[str, Any], left: float, top: float, height: float
) -> None:
    """The curve, as tall as the panels it stands beside."""
    axes = sheet.axes(left, top, SIDE, height)
    draw_curve(axes, **curve_panel)
