"""One channel at one time of a sample and its prediction, as arrays that can be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ipot.errors import DataError
from ipot.report.style import (
    COLOURS,
    ERROR,
    FAINT,
    INK,
    PREDICTION,
    TRUTH,
    Axes,
    ScalarMappable,
    Scale,
)
from ipot.report.views import Extent, View, view
from ipot.samples import Sample
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """What a row of panels shows; `relative` is the error over all times and channels."""

    source: View
    values: np.ndarray | None
    value_label: str
    parameters: str
    target: View
    truth: np.ndarray | None
    prediction: np.ndarray
    label: str
    unit: str
    when: str
    relative: float | None
    inputs: int

    @property
    def error(self) -> np.ndarray:
        """The absolute error at the queries."""
        assert self.truth is not None
        return np.abs(self.prediction - self.truth)

    @property
    def error_label(self) -> str:
        """What the axis of an error says."""
        return f"|error| ({self.unit})" if self.unit else "|error|"

    @property
    def extent(self) -> Extent:
        """The part of the plane that queries cover, and inputs too where they share it."""
        return union([v.extent for v in (self.target, *self._alike)])

    @property
    def source_extent(self) -> Extent:
        """The extent of the input panel."""
        return self.extent if self._alike else self.source.extent

    @property
    def _alike(self) -> tuple[View, ...]:
        same = self.source.plane and self.target.plane and self.source.labels == self.target.labels
        return (self.source,) if same else ()


def case(
    sample: Sample,
    prediction: Float[Tensor, "T M K"],
    *,
    spec: Spec,
    channel: int = 0,
    time: int = -1,
) -> Case:
    """Pick one output channel at one time, with the input that belongs to it."""
    check(sample, prediction, spec=spec, channel=channel)
    steps = len(sample.times)
    if not -steps <= time < steps:
        raise DataError(f"there is no time {time} among {steps}: give 0 to {steps - 1}, or -1")
    queries = sample.queries if sample.queries.ndim == 2 else sample.queries[time]
    row = input_channel(spec, channel, sample.values.shape[1])
    truth = None if sample.targets is None else array(sample.targets[time, :, channel])
    unit = spec.units[channel] if channel < len(spec.units) else ""
    return Case(
        source=view(array(sample.points), sample.grid, latlon=spec.latlon),
        values=None if row is None else array(sample.values[:, row]),
        value_label="" if row is None else _with_unit(spec.inputs[row], _input_unit(spec, row)),
        parameters=_parameters(sample, spec),
        target=view(array(queries), sample.query_grid, latlon=spec.latlon),
        truth=truth,
        prediction=array(prediction[time, :, channel]),
        label=_with_unit(spec.outputs[channel], unit),
        unit=unit,
        when=f"t = {sample.times[time]:g}" if steps > 1 else "",
        relative=relative_l2(sample, prediction),
        inputs=len(sample.points),
    )


def check(sample: Sample, prediction: Tensor, *, spec: Spec, channel: int) -> None:
    """Refuse a prediction that does not belong to the sample."""
    outputs = len(spec.outputs)
    expected = (len(sample.times), sample.queries.shape[-2], outputs)
    if tuple(prediction.shape) != expected:
        raise DataError(
            f"a prediction for this sample of {spec.name} must be (T, M, K) = {expected}, "
            f"got {tuple(prediction.shape)}"
        )
    if not 0 <= channel < outputs:
        raise DataError(
            f"{spec.name} has no output channel {channel}: give 0 to {outputs - 1} "
            f"({', '.join(spec.outputs)})"
        )


def relative_l2(sample: Sample, prediction: Tensor, time: int | None = None) -> float | None:
    """||prediction - truth|| / ||truth|| over everything, or at one time."""
    if sample.targets is None:
        return None
    truth, answer = array(sample.targets), array(prediction)
    if time is not None:
        truth, answer = truth[time], answer[time]
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(answer - truth)) / size if size else float("nan")


def input_channel(spec: Spec, channel: int, available: int) -> int | None:
    """The input to show beside an output: its latest past frame, or the channel of its rank."""
    if available == 0:
        return None
    if spec.history:
        return (spec.history - 1) * len(spec.outputs) + channel
    return channel if channel < available else 0


def array(tensor: Tensor) -> np.ndarray:
    """A tensor from anywhere as float64."""
    return tensor.detach().to("cpu", torch.float64).numpy()


def frame(axes: Axes, extent: Extent, labels: tuple[str, str], *, x: bool, y: bool) -> None:
    """Limits and sparse ticks of a panel in the plane, labelled where asked."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    globe = labels[0].startswith("longitude")
    for axis, shown, label in ((axes.xaxis, x, labels[0]), (axes.yaxis, y, labels[1])):
        nice = MaxNLocator(3, steps=[1, 2, 5, 10])
        axis.set_major_locator(MultipleLocator(90) if globe else nice)
        axis.set_major_formatter(plain())
        if shown:
            axis.set_label_text(label)
        else:
            axis.set_ticklabels([])


def plain() -> Any:
    """Tick labels as short as they can be, without a factor that stands elsewhere."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))


def box_size(extent: Extent, width: float, height: float) -> tuple[float, float]:
    """The largest panel inside a box that keeps the domain's proportions, unless extreme."""
    across, up = extent[1] - extent[0], extent[3] - extent[2]
    ratio = up / across if across > 0 and up > 0 else 1.0
    ratio = min(max(ratio, 0.28), 2.2)
    return (width, width * ratio) if width * ratio <= height else (height / ratio, height)


def paint_line(
    axes: Axes,
    view: View,
    values: np.ndarray,
    colour: str,
    *,
    label: str | None = None,
    marked: bool = False,
    **line: Any,
) -> None:
    """A curve sorted by x; a few marked points are all that is known, and look so."""
    order = np.argsort(view.x, kind="stable")
    if marked and len(order) <= 100:
        line = {"marker": "o", "markersize": 2.8, "linewidth": 0.5, **line}
    axes.plot(view.x[order], values[order], color=colour, label=label, **line)
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter(plain())
    axes.xaxis.set_major_formatter(plain())


def paint_answer(axes: Axes, item: Case) -> None:
    """Truth and prediction over each other."""
    if item.truth is None:
        paint_line(axes, item.target, item.prediction, PREDICTION, label="prediction")
        return
    paint_line(axes, item.target, item.truth, TRUTH, label="truth", linewidth=1.7)
    paint_line(axes, item.target, item.prediction, PREDICTION, label="prediction", linestyle="--")


def paint_error(axes: Axes, item: Case) -> None:
    """The absolute error from zero on."""
    paint_line(axes, item.target, item.error, ERROR)
    axes.set_ylim(0, 1.08 * float(np.nanmax(item.error)) or 1.0)


def paint_plane_source(axes: Axes, item: Case, scale: Scale) -> ScalarMappable | None:
    """An input panel in the plane; without values it shows where the points are."""
    if item.values is None:
        item.source.paint_places(axes)
        return None
    return item.source.paint(axes, item.values, scale, dots=True)


def paint_source(axes: Axes, item: Case) -> None:
    """An input panel that has no colours: a line, bare numbers, or nothing."""
    if item.source.kind == "line" and item.values is not None:
        paint_line(axes, item.source, item.values, COLOURS[0], marked=True)
        return
    axes.set_axis_off()
    colour = INK if item.parameters else FAINT
    axes.text(
        0.02,
        0.97,
        item.parameters or "no values",
        transform=axes.transAxes,
        va="top",
        linespacing=1.5,
        color=colour,
    )


def _parameters(sample: Sample, spec: Spec) -> str:
    if sample.parameters is None:
        return ""
    values = array(sample.parameters).tolist()
    names = [*spec.parameters, *(f"p{i + 1}" for i in range(len(spec.parameters), len(values)))]
    lines = [f"{name} = {value:.6g}" for name, value in zip(names, values, strict=False)]
    return "\n".join(lines if len(lines) <= 9 else [*lines[:8], f"… {len(lines) - 8} more"])


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _input_unit(spec: Spec, row: int) -> str:
    """Units belong to outputs; an input has one where it is a past or namesake of an output."""
    name = spec.inputs[row]
    outputs = len(spec.outputs)
    if row < spec.history * outputs:
        index = row % outputs
    elif name in spec.outputs:
        index = spec.outputs.index(name)
    else:
        return ""
    return spec.units[index] if index < len(spec.units) else ""


def union(extents: list[Extent]) -> Extent:
    """The smallest frame around several."""
    lefts, rights, bottoms, tops = zip(*extents, strict=True)
    return min(lefts), max(rights), min(bottoms), max(tops)
