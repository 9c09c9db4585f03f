"""The notebooks run from top to bottom on smaller sizes, and are kept with their outputs."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

import ipot
from ipot.formats import read_cases
from tests.docs.small import shrunk, use_small_models

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
TIME = {"minutes=4": "epochs=1"}
SIZES = {
    "own_data": TIME | {"SAMPLES, n = 500, 48": "SAMPLES, n = 100, 16"},
    "forecast": TIME
    | {"1240, 20, 40, 0.05": "110, 8, 16, 0.05", "+ 400": "+ 4", "[400:]": "[4:]"}
    | {"range(35)": "range(3)"},
    "mesh": TIME | {"range(300)": "range(40)", "0.045, 0.075": "0.1, 0.2", "h=0.045": "h=0.1"},
}
SMALL_ENOUGH = 1_000_000


def cells(path: Path) -> list[dict]:
    """The cells of a notebook with code in them."""
    found = json.loads(path.read_text())
    assert found["nbformat"] == 4
    return [cell for cell in found["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The names that a notebook leaves, in a folder of the test; each of its pictures is drawn."""
    pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    pyplot.switch_backend("agg")
    use_small_models(monkeypatch)
    monkeypatch.chdir(tmp_path)
    drawn = []

    def show() -> None:
        (number,) = pyplot.get_fignums()
        drawn.append(f"{number}.png")
        pyplot.savefig(drawn[-1])
        pyplot.close()

    monkeypatch.setattr(pyplot, "show", show)

    def run(name: str) -> dict:
        path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
        mark = "\n#%%\n"
        code = shrunk(mark.join("".join(cell["source"]) for cell in cells(path)), SIZES[name])
        names: dict = {}
        for number, cell in enumerate(code.split(mark)):
            exec(compile(cell, f"{path} [{number + 1}]", "exec"), names)
        assert len(drawn) == sum("plt.show()" in "".join(c["source"]) for c in cells(path)) > 0
        return names

    yield run
    pyplot.close("all")


def test_own_data(ran, capsys):
    names = ran("own_data")
    truth, answer = names["truth"], names["answer"]
    assert answer.shape == truth.shape == (50, 16, 16)
    error = np.linalg.norm(answer[0] - truth[0]) / np.linalg.norm(truth[0])
    assert names["error"][0] == pytest.approx(error)
    assert 0.5 < names["inside"].mean() <= 1
    assert ipot.load("alloy").spec.periods == (1.0, 1.0)
    assert "error on new samples" in capsys.readouterr().out


def test_forecast(ran, capsys):
    names = ran("forecast")
    forecast, new = names["forecast"], names["new"]
    np.testing.assert_array_equal(forecast.time, new.time[2:6])
    assert forecast.shape == (4, 8, 16)
    assert np.std(new.psi.values[1] - new.psi.values[5]) > 0.1
    known = names["errors"][0][3][1]
    area = np.cos(np.radians(new.lat))
    wrong = new.psi[1].drop_vars("time") - new.psi[5].drop_vars("time")
    assert known == pytest.approx(float((wrong**2).weighted(area).mean()) ** 0.5)
    assert capsys.readouterr().out.count("h ahead: forecast") == 4


def test_mesh(ran, capsys):
    ran("mesh")
    assert len({len(case.points) for case in read_cases("plates")}) > 5
    for i in range(3):
        answer, new = (read_cases(f"{f}/{i}.vtu")[0] for f in ("answers", "new_plates"))
        np.testing.assert_array_equal(answer.mesh.connectivity, new.mesh.connectivity)
        wrong = answer.fields["u_predicted"] - new.fields["u"]
        error = 100 * np.linalg.norm(wrong) / np.linalg.norm(new.fields["u"])
    assert f"{len(new.points)} nodes, error {error:.1f} %" in capsys.readouterr().out


def test_every_notebook_is_run_here_and_linked():
    assert {path.stem for path in NOTEBOOKS} == set(SIZES)
    for page, start in (("README.md", ""), ("docs/own-data.md", "../")):
        for path in NOTEBOOKS:
            assert f"]({start}examples/notebooks/{path.name})" in (ROOT / page).read_text()
    assert sum(path.stat().st_size for path in NOTEBOOKS) < SMALL_ENOUGH


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path):
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    outputs = [output for cell in found for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    text = "".join("".join(output.get("text", "")) for output in outputs)
    held_out = re.search(r"error on \d+ samples held out:\n((?: .*\n)+)", text)
    assert held_out
    errors = [float(e) for e in re.findall(r"([\d.]+) %", held_out[1])]
    assert errors[0] == min(errors) < 30  # it convinces
    (picture,) = (o["data"]["image/png"] for o in found[-1]["outputs"] if "data" in o)
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert not re.search(r"/(work|tmp|home|root)/", json.dumps(found))
