"""Curves: errors against what was varied, losses against time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipot.errors import DataError, shown
from ipot.report.style import COLOURS, FAINT, RULE, Axes, Figure, Sheet, look
from ipot.report.tables import Number

Bars = Mapping[str, Sequence[tuple[Number, Number] | list[Number]]]
Series = Mapping[str, tuple[Sequence[Number], Sequence[Number]]]
MARKERS = "osD^vP"


def curve(
    series: Series,
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = True,
    title: str | None = None,
    reference: Mapping[str, Number] | None = None,
    bars: Bars | None = None,
) -> Figure:
    """Errors against a fraction, a resolution or a time; references are dashed lines, and bars go
    from a lower to an upper value at each position of a series."""
    with look():
        sheet = Sheet(4.2, 3.0)
        axes = sheet.axes(0.65, 0.3 if title else 0.1, 3.45, 2.25 if title else 2.45)
        draw_curve(
            axes,
            series,
            xlabel=xlabel,
            ylabel=ylabel,
            logx=logx,
            logy=logy,
            title=title,
            reference=reference,
            bars=bars,
        )
        return sheet.figure


def draw_curve(
    axes: Axes,
    series: Series,
    *,
    xlabel: str = "",
    ylabel: str = "",
    logx: bool = False,
    logy: bool = True,
    title: str | None = None,
    reference: Mapping[str, Number] | None = None,
    bars: Bars | None = None,
) -> None:
    """Draw curves into axes that exist; `curve` says what the arguments mean."""
    if not series:
        raise DataError("a curve needs at least one series, got none")
    for i, (name, (x, y)) in enumerate(series.items()):
        if len(x) != len(y):
            raise DataError(f"series {shown(name)} has {len(x)} positions and {len(y)} values")
        order = np.argsort(np.asarray(x, float), kind="stable")
        x, y = np.asarray(x, float)[order], np.asarray(y, float)[order]
        colour, axis_has = COLOURS[i % len(COLOURS)], _shown(x, logx) & _shown(y, logy)
        # Markers at the edge are seen whole; what a log axis has no place for is not drawn at all.
        axes.plot(
            x,
            np.where(axis_has, y, np.nan),
            color=colour,
            marker=MARKERS[i % len(MARKERS)] if len(x) <= 60 else None,
            markersize=4,
            markeredgecolor="white",
            markeredgewidth=0.5,
            label=name,
            zorder=3,
            clip_on=False,
        )
        if bars and name in bars:
            low, high = np.asarray(bars[name], float)[order].T
            axes.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.55, zorder=2.5)
            for ends in (low, high):
                axes.plot(x, ends, linestyle="none", marker="_", markersize=5, color=colour)
    for name, value in (reference or {}).items():
        axes.axhline(value, color=FAINT, linewidth=0.9, linestyle=(0, (5, 3)), zorder=2)
        axes.annotate(
            name,
            (0.985, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=7,
            color="#5a5a5a",
        )
    values = [*(v for _, y in series.values() for v in y), *(reference or {}).values()]
    values += [v for pairs in (bars or {}).values() for pair in pairs for v in pair]
    places = [v for x, _ in series.values() for v in x]
    scale_axis(axes, "x", places, logx, room=0.06)
    scale_axis(axes, "y", values, logy, room=0.1)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    tidy(axes)
    if title:
        axes.set_title(title)
    if len(series) > 1:
        axes.legend(loc="best", handlelength=1.6, borderaxespad=0.4)


def _shown(values: Any, log: bool) -> Any:
    """Which values an axis has a place for."""
    return (values > 0) | (not log)


def training(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss and validation error on a log axis, the learning rate faintly behind them."""
    if not metrics:
        raise DataError("there are no metrics to draw: train for at least one epoch")
    from matplotlib.ticker import MaxNLocator

    metrics = _one_a_step(metrics)
    key = _position(metrics)
    with look():
        sheet = Sheet(5.2, 3.0)
        axes = sheet.axes(0.65, 0.1, 3.85, 2.45)
        x, y = _column(metrics, key, "loss")
        many = len(x) > 40
        axes.plot(x, y, color=COLOURS[0], linewidth=0.9 if many else 1.3, label="training loss")
        x, y = _column(metrics, key, "validation")
        if x:
            best = int(np.nanargmin(y))
            axes.plot(x, y, color=COLOURS[1], linewidth=1.3, label="validation")
            axes.plot(
                x[best],
                y[best],
                "o",
                color=COLOURS[1],
                markeredgecolor="white",
                markersize=5.5,
                label=f"best validation {y[best]:.3g}, {key} {x[best]:g}",
            )
        losses = [v for name in ("loss", "validation") for v in _column(metrics, key, name)[1]]
        scale_axis(axes, "y", losses, log=True, room=0.06)
        axes.set(xlabel=key, ylabel="loss")
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        tidy(axes)
        _rate(axes, *_column(metrics, key, "learning_rate"))
        veil = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "facecolor": "white"}
        axes.legend(loc="best", handlelength=1.6, borderaxespad=0.4, **veil)
        return sheet.figure


def tidy(axes: Axes) -> None:
    """A faint grid behind open axes."""
    axes.grid(True, which="major", color=RULE, linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _one_a_step(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, with those of one epoch and step as one: a run that its clock ends just behind an
    epoch's row writes another, with the validation error."""
    found: dict[Any, dict[str, Any]] = {}
    for number, row in enumerate(metrics):
        place = row.get("epoch"), row.get("step")
        known = found.setdefault(place if place[1] is not None else number, {})
        known.update({name: value for name, value in row.items() if value is not None})
    return list(found.values())


def _position(metrics: Sequence[Mapping[str, Any]]) -> str:
    """What rows are counted by: epochs, or steps where several rows share an epoch."""
    for key in ("epoch", "step"):
        places = [row.get(key) for row in metrics]
        if None not in places and len(set(places)) == len(places):
            return key
    raise DataError("every row of metrics needs its own `epoch` or `step`")


def _column(
    metrics: Sequence[Mapping[str, Any]], key: str, name: str
) -> tuple[list[float], list[float]]:
    rows = [(row[key], row[name]) for row in metrics if row.get(name) is not None]
    rows = [(float(x), float(y)) for x, y in rows if math.isfinite(y)]
    return [x for x, _ in rows], [y for _, y in rows]


def _rate(axes: Axes, x: list[float], y: list[float]) -> None:
    if not x:
        return
    twin = axes.twinx()
    twin.plot(x, y, color=FAINT, linewidth=0.8, alpha=0.7)
    twin.fill_between(x, y, color=FAINT, alpha=0.1, linewidth=0)
    twin.set_ylim(0, 1.08 * max(y) or 1.0)
    twin.set_ylabel("learning rate", color=FAINT)
    twin.tick_params(axis="y", colors=FAINT)
    twin.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    twin.yaxis.get_offset_text().set(color=FAINT, fontsize=6.5)
    twin.spines[["top", "left", "bottom"]].set_visible(False)
    twin.spines["right"].set_edgecolor(RULE)
    # The losses belong in front of the rate.
    axes.set_zorder(twin.get_zorder() + 1)
    axes.patch.set_visible(False)


def scale_axis(axes: Axes, which: str, values: Sequence[Number], log: bool, *, room: float) -> None:
    """Limits with some air; on a log axis, labels that a short range does not leave without."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    set_limits = axes.set_xlim if which == "x" else axes.set_ylim
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not finite:
        return
    low, high = min(finite), max(finite)
    if not log:
        air = room * (high - low) or 0.5 * abs(high) or 1.0
        floor = 0.0 if which == "y" and low >= 0 else low - air
        set_limits(floor, high + air)
        return
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    factor = max((high / low) ** room, 1.08)
    set_limits(low / factor, high * factor)
    if high / low < 150:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axis.set_minor_formatter(NullFormatter())
