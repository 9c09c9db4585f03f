"""What a message quotes is short, whatever it is."""

import os
import subprocess
import sys
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


SCRIPT = """
import sys, warnings
import numpy as np
import ipot
from own import tiny

model, x = tiny.fitted("mesh"), np.random.default_rng(0).random((30, 2))
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    far = 1e6 * x[:, 0]
    model.predict(x, far)  # LINE predict
    model.encode(x, far).at(x)  # LINE encode
    model.predict(x + 50.0, x[:, 0])  # LINE outside
    degrees = np.linspace(-0.5, 0.5, 40)
    ipot.Dataset.from_arrays(  # LINE arrays
        points=np.stack([degrees, degrees], -1),
        values=np.ones((3, 40)),
        targets=np.ones((3, 40)),
        geographic=True,
    )
for one in caught:
    print(one.filename, one.lineno, one.category.__name__, str(one.message)[:30], sep="|")
"""


def test_a_warning_is_at_the_users_own_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(ipot.__file__).parents[1]), str(Path(__file__).parent)])
    run = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = [line.split("|") for line in run.stdout.splitlines()]
    assert {line[0] for line in found} == {str(script)}, found
    assert {line[2] for line in found} == {"IpotWarning"}
    lines = SCRIPT.splitlines()
    at = {lines[int(line[1]) - 1].partition("# LINE ")[2] for line in found}
    assert at == {"predict", "encode", "outside", "arrays"}, found


def test_nothing_warns_in_another_way():
    """`warnings.warn` would count lines, which differ by the way that was taken."""
    package = Path(ipot.__file__).parent
    others = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "warnings.warn(" in path.read_text() or "= warnings.warn\n" in path.read_text()
    ]
    assert not others


def test_where_there_is_no_user_the_warning_is_there_all_the_same():
    code = "from ipot.errors import warn_user; warn_user('said')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "IpotWarning: said" in run.stderr
