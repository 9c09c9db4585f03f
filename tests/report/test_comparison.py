from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Annotation, Text

from ipot.errors import DataError
from ipot.recipes.compare_table import Comparison, Row
from ipot.report import plots
from ipot.report.comparison import cells, columns, heading, page, table_lines
from ipot.report.labels import Mark, name_points, spread
from ipot.report.style import Sheet
from ipot.report.tables import table

NAMES = (
    *("ipot", "transolver", "lno", "ffno", "fno", "oformer"),
    *("perceiver_io", "deeponet", "meshgraphnet", "transformer", "dino"),
)

ENVIRONMENT = {"ipot": "1.2.3", "torch": "2.13", "python": "3.11.7", "system": "Linux"}
ENVIRONMENT |= {"gpu": None, "threads": 2}


def row(name: str, error: float, **more) -> Row:
    curve = [(float(t), error * (1 + 30 / t)) for t in range(1, 61)]
    return Row(
        **{
            "model": name,
            "parameters": 1_234_567,
            "epochs": 127,
            "seconds": 60.0,
            "epoch_seconds": 0.4724,
            "setup_seconds": 12.34,
            "peak_gib": 1.239,
            "error": error,
            "curve": curve,
        }
        | more
    )


def made(*rows: Row, **more) -> Comparison:
    return Comparison(
        **{
            "problem": {"name": "darcy"},
            "data": {"train": 1000, "validation": 100, "test": 200, "seed": 0},
            "terms": {"minutes": 1.0, "seed": 7, "augment": False},
            "preset": "default",
            "device": "NVIDIA H200",
            "environment": ENVIRONMENT,
            "rows": list(rows),
            "mean_field": 0.2457,
            "references": {"persistence": 0.3},
        }
        | more
    )


def test_cells_are_what_a_person_reads() -> None:
    found = made(row("ipot", 0.0071234, published=0.0173), row("fno", 0.012))
    rows, footnotes = cells(found)
    assert rows[0] == ["ipot", 1_234_567, 127, "0.472", "12.3", "1.24", "0.00712", "0.0173"]
    assert rows[1][-1] is None
    assert rows[2] == ["persistence", *[None] * 5, "0.30000", None]
    assert rows[3] == ["the mean field", *[None] * 5, "0.24570", None]
    assert footnotes == []
    built = table("", columns(found), rows)
    assert [column.justify for column in built.columns] == ["left", *["right"] * 7]


def test_long_epochs_keep_their_digits() -> None:
    rows, _ = cells(made(row("a", 0.1, epoch_seconds=137.17), row("b", 0.2, epoch_seconds=12.0)))
    assert [r[3] for r in rows[:2]] == ["137", "12.0"]


def test_every_empty_row_has_a_reason_and_like_ones_share_it() -> None:
    rows, footnotes = cells(
        made(
            row("ipot", 0.01, notes=("its view", "late")),
            row("fno", 0.02, notes=("late",)),
            Row(model="dino", reason="needs past frames"),
        )
    )
    assert [r[0] for r in rows[:3]] == ["ipot ¹ ²", "fno ²", "dino ³"]
    assert footnotes == ["¹ its view", "² late", "³ needs past frames"]
    assert rows[2][1:] == [None] * 6
    many = made(*(Row(model=str(i), reason=f"reason {i}") for i in range(12)))
    assert cells(many)[1][-1] == "¹² reason 11"


def test_the_page_can_be_read_alone() -> None:
    found = made(
        row("ipot", 0.01, published=0.0173, source="Lee and Oh"),
        row("fno", 0.02, published=0.0109, source="Lee and Oh", notes=("its view",)),
        row("lno", 0.03, published=0.0049, source="Wang and Wang"),
    )
    text = page(found, "ipot compare darcy --minutes 1")
    for part in (
        *(heading(found), "ipot compare darcy --minutes 1", "torch 2.13", "ipot 1.2.3"),
        *("1000 training samples, not augmented", "training seed 7", "0.01000 |", "¹ its view"),
        *("- ipot, fno: Lee and Oh", "- lno: Wang and Wang", "the mean field"),
    ):
        assert part in text
    assert "not augmented" not in page(made(terms=found.terms | {"augment": True}), "")
    assert (
        heading(found)
        == "darcy: 1 min of training each on 1000 samples, preset default, NVIDIA H200"
    )


def words(axes) -> list:
    return [t for t in axes.texts if t.get_text() in (*NAMES, "persistence", "the mean field")]


def boxes(axes) -> list:
    out = []
    for text in words(axes):
        text.get_window_extent()
        out.append(Text.get_window_extent(text))
    return out


@pytest.fixture
def crowd() -> Comparison:
    """Systems whose sizes and errors lie close together."""
    random = np.random.default_rng(0)
    return made(
        *(
            row(
                name,
                0.008 * 1.15**i,
                parameters=int(1e6 * random.choice([0.4, 0.41, 1.2])),
                peak_gib=float(random.choice([0.5, 0.52, 1.9])),
            )
            for i, name in enumerate(NAMES)
        )
    )


def test_three_panels_share_an_axis_of_errors(crowd) -> None:
    figure = plots.comparison(crowd)
    time, size, memory = figure.axes
    assert time.get_ylim() == size.get_ylim() == memory.get_ylim()
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "seconds of training",
        "parameters (millions)",
        "peak memory (GiB)",
    ]
    for axes in figure.axes:
        assert {t.get_text() for t in words(axes)} >= set(NAMES)
        assert axes.get_yscale() == axes.get_xscale() == "log"
        low, high = axes.get_xlim()
        assert all(low <= x <= high for line in axes.lines[:-2] for x in line.get_xdata())
        assert [line.get_ydata()[0] for line in axes.lines[-2:]] == [0.3, 0.2457]
        # A point at the edge is seen whole.
        assert not any(line.get_clip_on() for line in axes.lines if line.get_marker() != "None")
    assert {"persistence", "the mean field"} <= {t.get_text() for t in time.texts}


def test_points_stand_where_they_belong(crowd) -> None:
    _, size, memory = plots.comparison(crowd).axes
    for axes, places in (
        (size, [r.parameters / 1e6 for r in crowd.rows]),
        (memory, [r.peak_gib for r in crowd.rows]),
    ):
        drawn = [
            (line.get_xdata()[0], line.get_ydata()[0])
            for line in axes.lines
            if len(line.get_xdata()) == 1
        ]
        assert drawn == [(x, r.error) for x, r in zip(places, crowd.rows, strict=True)]
    for note in (t for t in size.texts if isinstance(t, Annotation) and t.get_text() == "lno"):
        assert note.xy == (crowd.rows[2].parameters / 1e6, crowd.rows[2].error)


@pytest.mark.parametrize("guess", [0.2457, 0.0144])
def test_names_do_not_cover_each_other(crowd, guess) -> None:
    """Those of answers without a model among them, wherever these lie."""
    found = replace(crowd, mean_field=guess, references={"persistence": guess})
    for axes in plots.comparison(found).axes:
        found = boxes(axes)
        clashes = [
            (i, j) for i in range(len(found)) for j in range(i) if found[i].overlaps(found[j])
        ]
        assert clashes == []


def test_two_systems_never_look_alike(crowd) -> None:
    _, size, _ = plots.comparison(crowd).axes
    looks = [(line.get_color(), line.get_marker()) for line in size.lines[: len(NAMES)]]
    assert len(set(looks)) == len(NAMES)


def test_one_system_or_a_wild_one_can_be_drawn(tmp_path) -> None:
    alone = made(row("ipot", 0.02, curve=[(0.5, 0.02)]), mean_field=None, references={})
    assert plots.save(plots.comparison(alone), tmp_path / "one.png").stat().st_size > 5000
    wild = made(row("ipot", 0.02), row("fno", 1e9, curve=[(1.0, 1e9)], peak_gib=None))
    time, size, memory = plots.comparison(wild).axes
    assert time.get_ylim()[1] < 5
    assert len(words(size)) == 2
    assert len(words(memory)) == 1


def test_systems_without_an_error_are_named() -> None:
    found = made(row("ipot", 0.02), Row(model="dino", reason="no"), Row(model="fno", reason="no"))
    figure = plots.comparison(found)
    assert any("dino, fno" in text.get_text() for text in figure.texts)
    with pytest.raises(DataError, match="nothing to draw"):
        plots.comparison(replace(found, rows=found.rows[1:]))


def test_names_stay_inside_their_panel() -> None:
    axes = Sheet(4.0, 3.0).axes(0.5, 0.3, 3.0, 2.0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    name_points(axes, [Mark(NAMES[i], *place, "k") for i, place in enumerate(corners)])
    frame = axes.get_window_extent()
    for box in boxes(axes):
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert frame.y0 <= box.y0
        assert box.y1 <= frame.y1


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_spread_keeps_order_and_distance(wanted) -> None:
    places = spread(np.array(wanted), gap=9.0, high=200.0)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(places[order]) >= 9.0 - 1e-9).all()
    assert places.max() <= 200.0


def test_spread_gives_way_downwards_at_the_top() -> None:
    places = spread(np.array([100.0, 100.0, 95.0]), gap=10.0, high=100.0)
    np.testing.assert_array_equal(places, [90.0, 100.0, 80.0])


def test_spread_moves_nothing_that_has_room() -> None:
    wanted = np.array([50.0, 10.0, 90.0])
    np.testing.assert_array_equal(spread(wanted, gap=9.0, high=100.0), wanted)


def test_on_a_cpu_there_is_no_memory_to_compare(crowd) -> None:
    """It is that of the whole process, with all data and whatever was trained before."""
    found = replace(crowd, device="cpu")
    labels = [axes.get_xlabel() for axes in plots.comparison(found).axes]
    assert labels == ["seconds of training", "parameters (millions)"]
    assert "peak GiB" not in columns(found)
    assert "GiB" not in page(found, "")
    assert "peak GiB" in columns(crowd)


def test_nothing_is_said_of_published_errors_where_there_are_none() -> None:
    plain, quoted = made(row("ipot", 0.02)), made(row("ipot", 0.02, published=0.01, source="Lee"))
    assert "published" in columns(quoted)
    assert "Published errors" in page(quoted, "")
    assert "published" not in columns(plain)
    assert "Published" not in page(plain, "")
    assert "first look" in heading(replace(plain, small=True))


def test_lines_of_plain_text_have_all_that_the_page_has() -> None:
    found = made(row("ipot", 0.02, notes=("late",)), remarks=("few samples",))
    lines = table_lines(found)
    assert lines[0] == heading(found)
    assert any(line.startswith("| the mean field") for line in lines)
    assert lines[-2:] == ["¹ late", "few samples"]
    assert "few samples" in page(found, "")
