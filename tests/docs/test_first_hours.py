"""The first hours of four users: scripts of documented commands alone, run on smaller sizes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ipot
from ipot.formats import read_cases
from tests.docs.pages import ROOT, commands, pages, parse_command, run_command, smaller
from tests.docs.small import shrunk, use_small_models

SCRIPTS = sorted((ROOT / "examples" / "first_hours").glob("*.sh"))
SIZES = {
    "meshes": {"range(70)": "range(44)", "i < 60": "i < 40", "500, 700": "30, 40", "/60.": "/40."},
    "climate": {"arange(440)": "arange(60)", "slice(400": "slice(50"},
    "research": {"range(200)": "range(2)"},
    "student": {"minutes=2": "epochs=1", "(300, 2)": "(40, 2)", "(1000, 2)": "(50, 2)"},
}
PARSED = {"export": "ten seconds; tests/saved runs it on smaller models"}
HERE = re.compile(r"^(python -|cat > (\S+)) <<'EOF'\n(.*?)^EOF\n", re.MULTILINE | re.DOTALL)


def run_script(text: str) -> None:
    """Run a script: Python and files between `<<'EOF'` and `EOF`, and commands of ours."""
    end = 0
    for here in [*HERE.finditer(text), None]:
        for words in commands(text[end : here.start() if here else len(text)]):
            assert words[0] in ("ipot", "set"), words
            if words[0] == "ipot":
                (parse_command if words[1] in PARSED else run_command)(smaller(words[1:]))
        if here is None:
            return
        if here[2]:
            Path(here[2]).write_text(here[3])
        else:
            exec(compile(here[3], "<python ->", "exec"), {})
        end = here.end()


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys) -> Callable[[str], str]:
    """What a script prints, in an empty folder."""
    pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    use_small_models(monkeypatch)
    monkeypatch.setenv("IPOT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> str:
        text = (ROOT / "examples" / "first_hours" / f"{name}.sh").read_text()
        run_script(shrunk(text, SIZES[name]))
        return capsys.readouterr().out

    return run


def scores(printed: str) -> list[dict]:
    """The JSON among what was printed."""
    return [json.loads(found) for found in re.findall(r"^\{.*?^\}", printed, re.M | re.S)]


def test_meshes(ran):
    (found,) = scores(ran("meshes"))
    assert found["samples"] == 4
    assert {p.name for p in Path("answers").iterdir()} == {f"{i}.vtu" for i in range(40, 44)}
    case, one, two = (read_cases(p)[0] for p in ("new_beams/40.vtu", "answer.vtu", "bounds.vtu"))
    np.testing.assert_array_equal(one.mesh.connectivity, case.mesh.connectivity)
    bounds = [two.fields[name] for name in sorted(two.fields) if name.startswith("bend_")]
    assert len(bounds) == 3
    assert list(Path("pictures").glob("*.png"))


def test_climate(ran):
    xr = pytest.importorskip("xarray")
    assert len(scores(ran("climate"))) == 2
    with xr.open_dataset("tomorrow.nc") as forecast, xr.open_dataset("new_weather.nc") as new:
        assert forecast.t.dims[-2:] == ("lat", "lon")
        assert forecast.time.values.max() > new.time.values.max()
    with xr.open_dataset("map.nc") as found:
        assert found.t.sizes["lat"] == 7
        assert found.t.sizes["lon"] == 9
    with xr.open_dataset("all_maps.nc") as found, xr.open_dataset("new_stations.nc") as new:
        np.testing.assert_array_equal(found.time, new.time)
    assert list(Path("forecast-pictures").glob("*.png"))


def test_research(ran):
    printed = ran("research")
    assert "table1/darcy/ipot" in printed
    assert "mean square error" in printed
    assert "my_models.Nearest" in Path("runs/compare-darcy/compare.md").read_text()
    assert ipot.load("runs/nearest", trusted=True).settings.model_name == "my_models.Nearest"


def test_student(ran):
    assert "error on 20 new samples" in ran("student")
    assert Path("fields.png").stat().st_size > 10_000
    assert len(read_cases("answers.h5")) == 200
    assert ipot.load("surrogate").predict(np.zeros((1, 2)), np.zeros(1)).shape == (1,)


def test_every_script_is_run_here():
    assert {path.stem for path in SCRIPTS} == set(SIZES)
    for path in SCRIPTS:
        assert f"](../examples/first_hours/{path.name})" in (ROOT / "docs/start.md").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_only_what_is_documented_is_used(path):
    said = "\n".join((ROOT / page).read_text() for page in pages())
    text = path.read_text()
    for words in commands(HERE.sub("\n", text)):
        if words[0] == "ipot":
            assert f"ipot {words[1]}" in said, shlex.join(words)
            for flag in [word for word in words if word.startswith("--")]:
                assert flag in said, f"{flag} of `{shlex.join(words)}` is on no page"
    for name in re.findall(r"\bipot\.([\w.]+)\(|\bmodel\.(\w+)\(", text):
        assert f".{''.join(name).split('.')[-1]}(" in said
