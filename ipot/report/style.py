"""The look that all pictures share: fonts, frames, colours, bars, files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ipot import files
from ipot.errors import RunError, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
else:  # matplotlib loads on first use; checkers at run time still find the names.
    Axes = Figure = ScalarMappable = Any

DPI = 150
SUFFIXES = (".png", ".pdf", ".svg")
INK, FAINT, RULE = "#222222", "#8a8a8a", "#d9d9d9"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
TRUTH, PREDICTION, ERROR = "#222222", "#d55e00", "#b63679"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 4.5,
    "axes.labelsize": 8.0,
    "axes.labelpad": 2.5,
    "axes.linewidth": 0.5,
    "axes.edgecolor": "#555555",
    "axes.labelcolor": INK,
    "axes.unicode_minus": True,
    "text.color": INK,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "lines.linewidth": 1.3,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ipot",
    "savefig.facecolor": "white",
}


@contextmanager
def look() -> Iterator[None]:
    """The shared style, for the time of a block."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


class Sheet:
    """A figure laid out in inches from its top left corner.

    Sizes are known before anything is drawn, so colour bars match their panels exactly and no
    layout engine has to guess.
    """

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure as MatplotlibFigure

        self.width, self.height = width, height
        self.figure: Figure = MatplotlibFigure(figsize=(width, height), dpi=DPI)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """An empty panel."""
        box = (
            left / self.width,
            1 - (top + height) / self.height,
            width / self.width,
            height / self.height,
        )
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, text: str, **options: Any) -> None:
        """Words on the sheet itself."""
        self.figure.text(left / self.width, 1 - top / self.height, text, **options)

    def title(self, text: str | None, left: float, top: float = 0.1) -> None:
        """The heading, flush with the first panel."""
        if text:
            self.text(left, top, text, fontsize=10, fontweight="bold", va="top", ha="left")

    def bar(
        self,
        mappable: ScalarMappable,
        box: tuple[float, float, float, float],
        label: str,
        *,
        extend: str = "neither",
        horizontal: bool = False,
    ) -> None:
        """A colour bar that fills a box given as left, top, width, height."""
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        axes = self.axes(*box)
        axes.set_label("<colorbar>")
        formatter = ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-2, 3))
        bar = self.figure.colorbar(
            mappable,
            cax=axes,
            orientation="horizontal" if horizontal else "vertical",
            ticks=MaxNLocator(4 if horizontal else 5, steps=[1, 2, 2.5, 5, 10]),
            format=formatter,
            extend=extend,
            extendfrac=0.04,
        )
        bar.outline.set_linewidth(0.5)
        bar.outline.set_edgecolor("#555555")
        bar.ax.tick_params(width=0.5, length=2.0, pad=1.5)
        bar.set_label(label, labelpad=2.5)
        if not horizontal:
            # Left-aligned over the bar, clear of the panel's title.
            bar.ax.yaxis.set_offset_position("left")
            bar.ax.yaxis.get_offset_text().set(fontsize=6.5, ha="left")


@dataclass(frozen=True)
class Scale:
    """A colour map and its range."""

    cmap: str
    low: float
    high: float

    def extend(self, values: np.ndarray) -> str:
        """Which ends of a bar deserve an arrow, because values lie beyond them."""
        slack = 0.02 * (self.high - self.low)
        below = bool(np.nanmin(values) < self.low - slack)
        above = bool(np.nanmax(values) > self.high + slack)
        return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def scale_of(arrays: Sequence[np.ndarray]) -> Scale:
    """Viridis, or a diverging map centred at zero where both signs carry weight."""
    finite = _finite(arrays)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if min(-low, high) > 0.25 * max(-low, high):
        bound = max(-low, high)
        return Scale("RdBu_r", -bound, bound)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        pad = 0.5 * abs(low) or 1.0
        return Scale("viridis", low - pad, high + pad)
    return Scale("viridis", low, high)


def error_scale(arrays: Sequence[np.ndarray]) -> Scale:
    """Magma from zero; a handful of extreme points may saturate so that the rest can be read."""
    finite = _finite(arrays)
    high = float(np.quantile(finite, 0.999)) if finite.size else 0.0
    return Scale("magma", 0.0, high or float(finite.max(initial=0.0)) or 1.0)


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    flat = np.concatenate([np.ravel(array) for array in arrays]) if arrays else np.empty(0)
    return flat[np.isfinite(flat)]


def badge(axes: Axes, text: str) -> None:
    """A small note in the upper left of a panel, readable on any colour."""
    axes.text(
        0.04,
        0.96,
        text,
        transform=axes.transAxes,
        ha="left",
        va="top",
        fontsize=7,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0},
        zorder=10,
    )


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, PDF or SVG, by the suffix; the file appears whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RunError(
            f"cannot save a picture as {shown(path.name)}: the name must end in "
            f"{', '.join(SUFFIXES)}"
        )
    # Without a date the same picture is the same file.
    metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix)
    try:
        with look(), files.atomic(path) as temporary:
            figure.savefig(
                temporary,
                format=suffix[1:],
                dpi=DPI,
                bbox_inches="tight",
                pad_inches=0.06,
                metadata=metadata,
            )
    except OSError as error:
        raise RunError(
            f"cannot write the picture {path}: {error.strerror or error}. "
            "Choose a folder that can be written."
        ) from error
    return path
