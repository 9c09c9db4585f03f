from __future__ import annotations

import pytest

from ipot.bench.rows import Row
from ipot.errors import DataError
from ipot.report.scaling import scaling


def row(version, points, ms, gib, **more):
    return Row(problem="darcy", version=version, points=points, ms=ms, above_gib=gib, **more)


def rows(memory=True):
    sizes = [10**k for k in range(3, 7)]
    made = [row("ours", n, 1e-6 * n, 1e-3 if memory else None) for n in sizes]
    made += [row("transformer", n, 1e-9 * n**2, 1e-9 * n if memory else None) for n in sizes[:2]]
    return [*made, row("transformer", 10**6, None, None, reason="left out")]


def test_two_panels_with_slopes_and_gaps():
    figure = scaling(rows(), title="darcy")
    time, memory = figure.axes
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "log"]
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log"]
    labels = [text.get_text() for text in time.get_legend().get_texts()]
    assert labels == ["ours $\\propto n^{1.00}$", "transformer"]  # two sizes are no slope
    labels = [text.get_text() for text in memory.get_legend().get_texts()]
    assert labels == ["ours $\\propto n^{0.00}$", "transformer"]
    ours, transformer = time.get_lines()
    assert list(ours.get_xdata()) == [1e3, 1e4, 1e5, 1e6]
    assert list(ours.get_ydata()) == pytest.approx([1e-3, 1e-2, 1e-1, 1.0])
    assert list(transformer.get_xdata()) == [1e3, 1e4]
    assert time.get_xlabel() == "points $n$"
    assert "darcy" in [text.get_text() for text in figure.texts]


def test_memory_that_is_not_known():
    figure = scaling(rows(memory=False))
    _, memory = figure.axes
    assert memory.get_lines() == []
    assert "not known" in memory.texts[0].get_text()


def test_one_size_has_no_slope():
    figure = scaling(rows()[:1])
    assert figure.axes[0].get_lines()[0].get_label() == "ours"


def test_nothing_to_draw():
    with pytest.raises(DataError, match="nothing to draw"):
        scaling(rows()[-1:])
