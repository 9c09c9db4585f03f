from __future__ import annotations

import io

import pytest

from ipot.report.tables import bytes_, count, markdown, percent, scientific, seconds, table


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0071, "0.71 %"),
        (0.123, "12.3 %"),
        (1.5, "150 %"),
        (0.00012, "0.012 %"),
        (0.0, "0.00 %"),
        (float("nan"), "nan"),
    ],
)
def test_percent(x: float, text: str) -> None:
    assert percent(x) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0 s"),
        (2.5e-9, "2.5 ns"),
        (1.2e-5, "12 µs"),
        (0.0123, "12.3 ms"),
        (42.0, "42 s"),
        (200.0, "3 min 20 s"),
        (3599.9, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
    ],
)
def test_seconds(x: float, text: str) -> None:
    assert seconds(x) == text


def test_other_numbers() -> None:
    assert scientific(0.0071) == "7.10e-03"
    assert count(1234567) == "1,234,567"
    assert [bytes_(x) for x in (512, 1536, 3 * 2**20, 2**41)] == [
        "512 B",
        "1.5 KiB",
        "3 MiB",
        "2 TiB",
    ]


def render(*arguments: object, **options: object) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(table(*arguments, **options))
    return console.file.getvalue()


def test_table_says_everything_and_aligns_numbers() -> None:
    rows = [["ipot [small]", 0.00712345, 12345], ["mean", None, 7]]
    built = table("Darcy", ["model", "error", "points"], rows)
    assert [column.justify for column in built.columns] == ["left", "right", "right"]
    text = render("Darcy", ["model", "error", "points"], rows, caption="lower is better")
    for part in ("Darcy", "ipot [small]", "0.007123", "12,345", "\N{EN DASH}", "lower is better"):
        assert part in text


@pytest.mark.parametrize(
    "cell", ["0.71 %", "7.10e-03", "3 min 20 s", "1.5 KiB", "1,234", "-2", "0.71 ± 0.02 %", "1.8x"]
)
def test_written_numbers_are_numbers(cell: str) -> None:
    assert table("", ["a"], [[cell], [None]]).columns[0].justify == "right"


@pytest.mark.parametrize("cell", ["3d model", "fno", "2 layers", "64 x 64"])
def test_words_are_not_numbers(cell: str) -> None:
    assert table("", ["a"], [[cell], ["1"]]).columns[0].justify == "left"


def test_markdown_is_a_github_table() -> None:
    text = markdown(["model", "error"], [["a|b\nc", percent(0.0071)], ["mean", None]])
    assert text.splitlines() == [
        "| model  |  error |",
        "| ------ | -----: |",
        "| a\\|b c | 0.71 % |",
        "| mean   |      \N{EN DASH} |",
    ]


def test_rows_must_fit_the_columns() -> None:
    for build in (
        lambda rows: markdown(["a", "b"], rows),
        lambda rows: table("", ["a", "b"], rows),
    ):
        with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
            build([["only one"]])
