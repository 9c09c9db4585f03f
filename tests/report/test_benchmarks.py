"""None"""

from dataclasses import replace

import pytest

from ipot.bench.measuring import Ceilings
from ipot.bench.rows import Report, Row
from ipot.errors import DataError
from ipot.report import benchmarks
from ipot.report.benchmarks import scaling
from ipot.report.tables import markdown

TOP = Ceilings(flops=7.9e14, bytes=4.1e12, dtype="bfloat16")
OURS = Row(
    problem="darcy",
    version="ours",
    batch=10,
    points=7225,
    queries=7225,
    ms=0.5,
    low_ms=0.49,
    high_ms=0.52,
    calls=900,
    ratio=1.0,
    peak_gib=0.3456,
    above_gib=0.1,
    flops_per_second=9e13,
    bytes_per_second=1e10,
    of_flops=0.114,
    of_bytes=0.0024,
    setup_seconds=21.4,
    epoch_seconds=0.05,
    ns_per_point=0.07,
    samples_per_second=1234.5,
    kind="graph",
    precision="bf16",
    first_loss=1.01,
    difference=2e-4,
)
PLAIN = Row(problem="darcy", version="plain", batch=10, ms=7.5, low_ms=7.4, high_ms=7.6, ratio=15.0)
LOST = Row(problem="darcy", version="fno", points=10**8, reason="out of memory")


def report(task, *rows, **more):
    return Report(task=task, command="c", device="H200", ceilings=TOP, rows=list(rows), **more)


def cells(made):
    columns, rows = benchmarks.cells(made)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_a_table_of_training():
    ours, plain = cells(report("train", OURS, PLAIN))
    assert ours["ms a step"] == "0.500 ± 0.015"
    assert ours["s an epoch"] == "0.0500"
    assert ours["set-up s"] == "21.4"
    assert ours["GiB"] == "0.346"
    assert ours["TFLOP/s"] == "90.0"
    assert plain["÷ ours"] == "15.0x"
    assert plain["GB/s"] is None
    assert "problem" not in ours


@pytest.mark.parametrize("task", ["train", "infer", "scale", "generate"])
def test_every_task_has_its_columns(task):
    other = Row(problem="burgers", version="ours", ms=1e4, low_ms=9e3, high_ms=1.1e4)
    made = report(task, OURS, PLAIN, other, LOST)
    columns, rows = benchmarks.cells(made)
    assert columns[:2] == ["problem", "version"]
    assert len(rows) == 3  # what has no numbers is told below
    text = markdown(columns, rows)
    assert "10,000 ± 1e+03" in text
    assert ("1,234" in text) == (task == "generate")
    assert ("0.0700" in text) == (task in ("infer", "scale"))


def test_the_share_of_each_ceiling_stands_behind_its_rate():
    columns, (row, *_) = benchmarks.cells(report("train", OURS))
    assert columns[-4:] == ["TFLOP/s", "of top", "GB/s", "of top"]
    assert row[-4:] == ["90.0", "11.4 %", "10.0", "0.24 %"]


def test_a_heading():
    text = benchmarks.heading(report("train", OURS, PLAIN))
    assert text == "train darcy on H200; at best 790 TFLOP/s in bfloat16, 4,100 GB/s"


def test_the_difference_of_a_gradient_is_told():
    row = replace(OURS, gradient_difference=0.0123)
    (line,) = [x for x in benchmarks.remarks(report("train", row)) if "gradient" in x]
    assert line == (
        "darcy, 7,225 points: ours differs from the plain version's first loss by 2.00e-04 and "
        "from its first gradient by 1.23e-02, relative"
    )


def test_remarks_on_what_has_no_column():
    noted = Row(problem="darcy", version="plain", ms=1.0, notes=("plain at batch 25",))
    lines = benchmarks.remarks(
        report("train", OURS, noted, LOST, summary={"geometric_mean": 15.25})
    )
    assert lines == [
        "ours: graph, bf16",
        "darcy, plain: plain at batch 25",
        "darcy, 100,000,000 points, fno: out of memory",
        "darcy, 7,225 points: ours differs from the plain version's first loss by 2.00e-04, "
        "relative",
        "geometric mean of the plain version's times over ours: 15.2",
    ]


@pytest.mark.parametrize(
    ("drift", "last"),
    [
        (-0.034, "ours: time per point changes by -3.4 % from 1e+06 on"),
        (None, "fewer than two sizes from 1e+06 points on: nothing to say of linearity"),
    ],
)
def test_remarks_on_growth(drift, last):
    summary = {
        "time_slope": {"ours": 1.0, "plain": None},
        "memory_slope": {"ours": 0.02, "plain": None},
        "drift": drift,
    }
    lines = benchmarks.remarks(report("scale", PLAIN, summary=summary))
    assert lines == [
        "ours grows, over its largest sizes: time as n^1.00, memory as n^0.02",
        last,
    ]


def test_whether_there_is_anything_to_draw():
    assert benchmarks.drawn([LOST, OURS])
    assert not benchmarks.drawn([LOST])


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
