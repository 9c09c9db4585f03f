"""A picture of how time and memory grow with the number of points."""

from __future__ import annotations

from collections.abc import Sequence

from ipot.bench.rows import Row
from ipot.bench.scale import series, slope
from ipot.errors import DataError
from ipot.report.curves import draw_curve
from ipot.report.style import Figure, Sheet, look

PANELS = (
    ("ms", "time", "milliseconds for one sample"),
    ("above_gib", "memory", "GiB above the inputs"),
)


def scaling(rows: Sequence[Row], *, title: str | None = None) -> Figure:
    """Two panels, time and memory against points, with the slope of every version."""
    versions = list(dict.fromkeys(row.version for row in rows if row.ms is not None))
    if not versions:
        raise DataError("there is nothing to draw: no version of the measurement has a time")
    with look():
        sheet = Sheet(8.6, 3.5)
        sheet.title(title, 0.65)
        for left, (name, what, label) in zip((0.65, 5.0), PANELS, strict=True):
            axes = sheet.axes(left, 0.6, 3.4, 2.4)
            lines = {version: series(rows, version, name) for version in versions}
            drawn = {
                f"{version}{_words(pairs)}": ([x for x, _ in pairs], [y for _, y in pairs])
                for version, pairs in lines.items()
                if pairs
            }
            if not drawn:  # a system that does not tell how much memory is used
                axes.set_axis_off()
                axes.text(0.5, 0.5, f"{what}: not known here", ha="center", va="center")
                continue
            draw_curve(axes, drawn, xlabel="points $n$", ylabel=label, logx=True, title=what)
        return sheet.figure


def _words(pairs: Sequence[tuple[int, float]]) -> str:
    found = slope(pairs)
    return "" if found is None else f" $\\propto n^{{{found:.2f}}}$"
