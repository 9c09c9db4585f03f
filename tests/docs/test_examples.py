"""Every guide runs from top to bottom, on fewer samples and for a second."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot

import ipot
from ipot.formats import read_cases
from tests.docs.small import shrunk, use_small_models

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "examples").glob("*.py"))
SIZES = {
    "own_arrays": {"500, 50\n": "60, 10\n"},
    "stations_to_grid": {"STATIONS = 80,": "STATIONS = 12,"},
    "folder_of_meshes": {"range(300)": "range(40)"},
    "scalar_parameters": {"24, 800, 200,": "16, 60, 20,"},
    "forecast": {"FRAMES, x, dt = 2000,": "FRAMES, x, dt = 150,"},
    "in_a_loop": {"(300, 2)": "(40, 2)", "range(40)": "range(5)"},
}
EXTRAS = {"xarray": "weather", "pyvista": "mesh", "pyarrow": "table", "onnxruntime": "export"}
"""What brings a package that a plain install does not."""


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys):
    """A guide's printed lines, the names that it leaves, and the folder that it wrote to."""
    pyplot.switch_backend("agg")
    use_small_models(monkeypatch)

    def run(name: str):
        if "xarray" in (text := (ROOT / "examples" / f"{name}.py").read_text()):
            pytest.importorskip("xarray")
        script = tmp_path / f"{name}.py"
        script.write_text(shrunk(text, SIZES[name]))
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", [str(script), "--minutes", "0.01", "--out", str(out)])
        names = runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out, names, out

    yield run
    pyplot.close("all")


def percent(printed: str, pattern: str) -> float:
    """The number that a line ends in."""
    found = re.search(pattern + r" ([\d.]+) %", printed)
    assert found, f"no {pattern!r} in {printed!r}"
    return float(found[1])


@pytest.mark.parametrize("path", GUIDES, ids=lambda p: p.stem)
def test_guides_are_short_and_name_what_they_need(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    tree = ast.parse(text)
    said = ast.get_docstring(tree) or ""
    assert f"python examples/{path.name} [--minutes " in said
    imported = {
        n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names
    }
    extras = {EXTRAS[name] for name in imported if name in EXTRAS}
    wanted = f"'ipot[{','.join(sorted(extras))}]'" if extras else "ipot"
    assert f"pip install {wanted}\n" in said
    default = re.search(r"\[--minutes ([\d.]+)\]", said)
    assert default
    assert float(default[1]) == float(re.findall(r'"--minutes".*default=([\d.]+)', text)[0]) <= 2
    assert f"`{path.name}`" in (ROOT / "docs" / "own-data.md").read_text()


def test_every_guide_is_run_here():
    assert {p.stem for p in GUIDES} == set(SIZES)


@pytest.mark.plain
def test_own_arrays(ran):
    printed, names, out = ran("own_arrays")
    assert names["found"].shape == (10, 48, 48)
    truth = names["separated"](names["a_fine"][-10:])
    error = np.linalg.norm(names["found"] - truth) / np.linalg.norm(truth)
    assert percent(printed, "48 x 48 places:") == pytest.approx(100 * error, abs=0.06)
    assert (out / "fields.png").stat().st_size > 10_000
    assert ipot.load(out / "model").spec.periods == (1.0, 1.0)
    # A wave that is small grows as its linear equation says, and a state of one phase stays put.
    wave = 1e-6 * np.cos(2 * np.pi * names["places"](32)[..., 0])[None]
    rate = 1 - (0.06 * 2 * np.pi) ** 2
    grown = names["separated"](wave, steps=2000, dt=1e-3)
    np.testing.assert_allclose(grown, np.exp(2 * rate) * wave, rtol=2e-3, atol=1e-12)
    np.testing.assert_allclose(names["separated"](np.ones((1, 8, 8))), 1, rtol=1e-12)


@pytest.mark.plain
def test_stations_to_grid(ran):
    printed, names, out = ran("stations_to_grid")
    assert names["found"].dims == ("time", "lat", "lon")
    assert names["found"].shape == (50, 21, 31)
    assert names["found"].attrs["units"] == "m s-1"
    assert float(names["stations"].p.isnull().mean()) == pytest.approx(0.2, abs=0.05)
    assert 0 < percent(printed, "error") < 1000
    assert (out / "map.png").stat().st_size > 10_000


@pytest.mark.plain
def test_folder_of_meshes(ran):
    printed, _, out = ran("folder_of_meshes")
    files = read_cases(out / "plates")
    assert len({len(case.points) for case in files}) > 5
    new, answer = (read_cases(out / f"{name}.vtu")[0] for name in ("new", "answer"))
    np.testing.assert_array_equal(answer.points, new.points)
    np.testing.assert_array_equal(answer.mesh.connectivity, new.mesh.connectivity)
    wrong = answer.fields["u_predicted"] - new.fields["u"]
    error = np.linalg.norm(wrong) / np.linalg.norm(new.fields["u"])
    assert error > 1e-3
    assert f"{100 * error:.1f} % on {len(new.points)} new nodes" in printed
    assert 0 <= new.points.min() <= new.points.max() <= 1


@pytest.mark.plain
def test_scalar_parameters(ran):
    printed, names, out = ran("scalar_parameters")
    found, truth = names["found"], names["u"][-20:]
    assert found.prediction.shape == truth.shape == (20, 256)
    inside = np.mean((found.low <= truth) & (truth <= found.high))
    assert percent(printed, "of the truth hold") == pytest.approx(100 * inside, abs=0.06)
    assert 0.5 < inside <= 1
    assert (out / "bounds.png").stat().st_size > 10_000


@pytest.mark.plain
def test_forecast(ran):
    xr = pytest.importorskip("xarray")
    printed, names, out = ran("forecast")
    forecast = names["forecast"]
    assert forecast.shape == (4, 201)
    np.testing.assert_array_equal(forecast.time, names["new"].time[3:])
    assert forecast.attrs["units"] == "rad"
    with xr.open_dataset(out / "forecast.nc") as kept:
        np.testing.assert_array_equal(kept.u, forecast)
    assert 0 < percent(printed, "error") < 1000
    assert (out / "forecast.png").stat().st_size > 10_000


@pytest.mark.plain
def test_in_a_loop(ran):
    printed, names, _ = ran("in_a_loop")
    eddy, places = names["eddies"][0], names["places"]
    asked = names["loaded"].predict(parameters=eddy, queries=places)
    with torch.inference_mode():
        np.testing.assert_allclose(names["learned"](eddy)(places), asked, rtol=1e-4, atol=1e-5)
    assert re.search(r"passes [\d.]+ from its goal, and [\d.]+ in the exact flow", printed)
    # The flow goes around the eddy as its vorticity says, and not through the coast.
    exact, eddy = names["exact"], np.array([0.4, 0.6])
    middle, h = np.random.default_rng(0).uniform(0.2, 0.8, (5, 2)), 1e-4
    east, north = np.array([h, 0]), np.array([0, h])
    slope_x = (exact(eddy, middle + east) - exact(eddy, middle - east)) / (2 * h)
    slope_y = (exact(eddy, middle + north) - exact(eddy, middle - north)) / (2 * h)
    round_one = 2.5 * 60 / (2 * np.pi) * np.exp(-30 * ((middle - eddy) ** 2).sum(1))
    np.testing.assert_allclose(slope_x[:, 0] + slope_y[:, 1], 0, atol=1e-4)
    np.testing.assert_allclose(slope_x[:, 1] - slope_y[:, 0], round_one, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(exact(eddy, np.array([[0, 0.3], [1, 0.7]]))[:, 0], 0, atol=1e-9)
