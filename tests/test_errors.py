"""What a message quotes is short, whatever it is."""

from pathlib import Path

import numpy as np
import pytest

import ipot
from ipot.data.argument_checks import bytes_of, flag, listed, refuse_dimensions, whole
from ipot.errors import SHORT, DataError, shown

WORD = "x" * 10_000


class NoWords:
    def __repr__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "None"),
        ("a\nb", r"'a\nb'"),
        (0.5, "0.5"),
        ([1, 2], "[1, 2]"),
        (WORD, f"'{'x' * 76}..."),
        ([1.5] * 10_000, "a list of 10000 entries"),
        (dict.fromkeys(range(99)), "a dict of 99 entries"),
        (np.zeros(50), "a ndarray"),
        (NoWords(), "a NoWords"),
    ],
)
def test_a_value_is_quoted_in_a_line(given, said):
    assert shown(given) == said
    assert len(said) <= SHORT


def test_a_number_that_python_does_not_write_is_named():
    assert shown(10**5000) == "a int"


@pytest.mark.parametrize(
    "refused",
    [
        lambda: whole("max_samples", WORD),
        lambda: flag("season", WORD),
        lambda: bytes_of("memory", WORD),
        lambda: listed("inputs", [[WORD]]),
        lambda: refuse_dimensions(7, [WORD]),
        lambda: refuse_dimensions(WORD, WORD),
    ],
)
def test_arguments_of_labelled_arrays_are_refused_in_a_line_or_two(refused):
    with pytest.raises(DataError) as found:
        refused()
    assert len(str(found.value)) < 400


def test_no_other_file_quotes_a_value_at_length():
    """`{name!r}` quotes all of it. What these files quote so is short by itself: the beginning of
    a file, a name of our own, a folder, an error."""
    short = "compare sizes fit experiment running __init__ detect vtk/library registry guard/paths"
    short += " guard/zarr gridded config_file"
    root = Path(ipot.__file__).parent
    found = [
        f"{file.relative_to(root)}: {line.strip()}"
        for file in root.rglob("*.py")
        for line in file.read_text().splitlines()
        if "!r}" in line and not any(str(file).endswith(f"/{name}.py") for name in short.split())
    ]
    assert found == []
