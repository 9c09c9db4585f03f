"""A prediction followed through time."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ipot.errors import DataError
from ipot.report.cases import array, box_size, case, check, frame, relative_l2, union
from ipot.report.fields import fields, shared_error_scale, shared_scale
from ipot.report.style import Figure, Scale, Sheet, error_scale, look, scale_of
from ipot.report.tables import percent
from ipot.samples import Sample
from ipot.spec import Spec


def rollout(
    sample: Sample,
    prediction: Float[Tensor, "T M K"],
    *,
    spec: Spec,
    frames: int = 5,
    channel: int = 0,
    title: str | None = None,
) -> Figure:
    """Truth, prediction and error over time.

    In the plane: rows of frames at evenly spread times, the last one among them. On a line: images
    of space and time. A steady case on a line has nothing to follow and is shown by `fields`.
    """
    check(sample, prediction, spec=spec, channel=channel)
    if frames < 1:
        raise DataError(f"a rollout shows at least one frame, got {frames}")
    steps = len(sample.times)
    if sample.queries.shape[-1] == 1:
        if steps == 1:
            return fields(sample, prediction, spec=spec, channel=channel, title=title)
        return _space_time(sample, prediction, spec, channel, title)
    chosen = np.unique(np.linspace(0, steps - 1, min(frames, steps)).round().astype(int))
    if frames == 1:
        chosen = np.array([steps - 1])
    return _frames(sample, prediction, spec, channel, title, chosen.tolist())


def _frames(
    sample: Sample,
    prediction: Tensor,
    spec: Spec,
    channel: int,
    title: str | None,
    chosen: list[int],
) -> Figure:
    items = [case(sample, prediction, spec=spec, channel=channel, time=t) for t in chosen]
    known = sample.targets is not None
    extent = union([item.target.extent for item in items])
    width, height = box_size(extent, 1.7, 1.9)
    scale = shared_scale(items)
    rows: list[tuple[str, Scale, list[np.ndarray]]] = []
    if known:
        rows.append(("truth", scale, [i.truth for i in items if i.truth is not None]))
    rows.append(("prediction", scale, [i.prediction for i in items]))
    if known:
        rows.append(("|error|", shared_error_scale(items), [i.error for i in items]))

    gap, left, head = 0.09, 0.62, 0.5 if title else 0.28
    below = [0.2 if known and name == "prediction" else gap for name, _, _ in rows]
    tops = [head + n * height + sum(below[:n]) for n in range(len(rows))]
    with look():
        sheet = Sheet(left + len(items) * (width + gap) + 0.8, tops[-1] + height + 0.45)
        sheet.title(title, left)
        last = {}
        for n, (name, colours, arrays) in enumerate(rows):
            sheet.text(
                0.12,
                tops[n] + height / 2,
                name,
                rotation=90,
                ha="center",
                va="center",
                fontsize=8.5,
            )
            for i, (item, values) in enumerate(zip(items, arrays, strict=True)):
                axes = sheet.axes(left + i * (width + gap), tops[n], width, height)
                # Ticks once: all panels have the same.
                corner = n == len(rows) - 1 and i == 0
                frame(axes, extent, item.target.labels, x=corner, y=corner)
                axes.set_ylabel("")
                last[n] = item.target.paint(axes, values, colours)
                if n == 0:
                    axes.set_title(item.when or item.target.note)
                if name == "|error|":
                    relative = relative_l2(sample, prediction, chosen[i])
                    text = f"relative $L^2$ {percent(relative or 0.0)}"
                    axes.set_title(text, fontsize=7, pad=2.5)
        side = left + len(items) * (width + gap) - 0.02
        fields_rows = 2 if known else 1
        tall = tops[fields_rows - 1] + height - tops[0]
        extend = scale.extend(np.concatenate([item.prediction for item in items]))
        sheet.bar(last[0], (side, tops[0], 0.09, tall), items[0].label, extend=extend)
        if known:
            errors = np.concatenate(rows[-1][2])
            box = (side, tops[-1], 0.09, height)
            extend = rows[-1][1].extend(errors)
            sheet.bar(last[len(rows) - 1], box, items[0].error_label, extend=extend)
        return sheet.figure


def _space_time(
    sample: Sample, prediction: Tensor, spec: Spec, channel: int, title: str | None
) -> Figure:
    """Position across, time upwards."""
    item = case(sample, prediction, spec=spec, channel=channel)
    times = np.asarray(sample.times)
    answer = array(prediction[:, :, channel])
    truth = None if sample.targets is None else array(sample.targets[:, :, channel])
    scale = scale_of([answer if truth is None else truth])
    panels: list[tuple[str, np.ndarray, Scale, str | None]] = []
    if truth is not None:
        panels.append(("truth", truth, scale, None))
    panels.append(("prediction", answer, scale, item.label))
    if truth is not None:
        error = np.abs(answer - truth)
        text = f"error, relative $L^2$ {percent(item.relative or 0.0)}"
        panels.append((text, error, error_scale([error]), item.error_label))

    width, height, left, head = 2.3, 2.3, 0.55, 0.54 if title else 0.28
    cells = [width + (0.12 if bar is None else 0.76) for _, _, _, bar in panels]
    with look():
        sheet = Sheet(left + sum(cells), head + height + 0.42)
        sheet.title(title, left)
        positions = _positions(sample)
        x, t = _spread(positions, times)
        for i, (name, values, colours, bar) in enumerate(panels):
            place = left + sum(cells[:i])
            axes = sheet.axes(place, head, width, height)
            extent = (float(x.min()), float(x.max()), float(t.min()), float(t.max()))
            frame(axes, extent, ("x", "t"), x=True, y=i == 0)
            order = np.argsort(positions, axis=1, kind="stable")
            mesh = axes.pcolormesh(
                x,
                t,
                np.take_along_axis(values, order, axis=1),
                cmap=colours.cmap,
                vmin=colours.low,
                vmax=colours.high,
                rasterized=True,
            )
            axes.set_title(name)
            if bar is not None:
                box = (place + width + 0.07, head, 0.09, height)
                sheet.bar(mesh, box, bar, extend=colours.extend(values))
        return sheet.figure


def _positions(sample: Sample) -> np.ndarray:
    """Positions of the queries at every time, (T, M)."""
    queries = array(sample.queries)[..., 0]
    return np.broadcast_to(queries, (len(sample.times), queries.shape[-1]))


def _spread(positions: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the cells around (position, time)."""
    x = _halfway(np.sort(positions, axis=1))
    x = np.concatenate([x[:1], (x[1:] + x[:-1]) / 2, x[-1:]])
    t = np.broadcast_to(_halfway(times[None])[0][:, None], x.shape)
    return x, t


def _halfway(nodes: np.ndarray) -> np.ndarray:
    if nodes.shape[1] == 1:
        return np.concatenate([nodes - 0.5, nodes + 0.5], axis=1)
    inner = (nodes[:, 1:] + nodes[:, :-1]) / 2
    first, last = 2 * nodes[:, :1] - inner[:, :1], 2 * nodes[:, -1:] - inner[:, -1:]
    return np.concatenate([first, inner, last], axis=1)
