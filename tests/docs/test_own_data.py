"""docs/own-data.md runs from top to bottom, Python and commands, on smaller sizes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

import ipot
from ipot import cli
from ipot.commands.common import parse
from ipot.commands.export import Export
from ipot.errors import IpotError
from ipot.formats import read_cases
from tests.docs.small import shrunk, use_small_models

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()
SIZES = {"n = 24\n": "n = 12\n", "(500, n, n)": "(50, n, n)", "10_000": "100"}
TIMES = {"minutes=5": "epochs=1", "--minutes 5": "--epochs 1"}
COMMANDS = ("data", "fit", "predict", "evaluate", "plot", "export")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the test's own, and small models."""
    use_small_models(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.plain  # the page is for users, who may write 10 for 10.0
def test_the_page_runs(here, capsys):
    pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    blocks = re.findall(r"```(python|bash)\n(.*?)```", shrunk(PAGE, SIZES | TIMES), re.DOTALL)
    names: dict = {}
    ran = []
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "docs/own-data.md", "exec"), names)
            continue
        for line in block.splitlines():
            program, command, *rest = shlex.split(line, comments=True)
            assert program == "ipot"
            ran.append(command)
            if command == "export":  # takes long, and has tests of its own: are the flags right?
                flags = parse(Export, rest, "export")
                assert (flags.folder / "config.json").is_file()
            else:
                assert cli.main([command, *rest]) == 0, capsys.readouterr().err
    assert set(ran) == set(COMMANDS)

    assert names["u_there"].shape == names["some"].shape == (100,)
    assert names["prediction"].shape == (5, 12, 12)
    assert (names["low"] <= names["high"]).all()
    assert Path("fields.png").stat().st_size > 10_000
    assert np.load("answer.npz")["prediction"].shape == (100,)
    assert len(read_cases("answers.h5")) == 40
    assert set(read_cases("answer.vtu")[0].fields) == {"load", "bend", "bend_predicted"}
    assert names["finer"].sizes == {"time": 2, "lat": 31, "lon": 41}
    files = re.findall(r"^\| `([\w.]+)` \|", section("Saved models"), re.MULTILINE)
    assert {path.name for path in Path("surrogate").iterdir()} == set(files)


def section(title: str) -> str:
    """A section of the page."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def mistakes(folder: Path):
    """What a user may do wrong, one for each row of the page."""
    rng = np.random.default_rng(0)
    x, a, u = rng.random((50, 2)), rng.random((40, 50)), rng.random((40, 50))
    arrays, broken = ipot.Dataset.from_arrays, a.copy()
    broken[3, 4] = np.nan
    data = arrays(points=x, values=a, targets=u, inputs=["a"], outputs=["u"])
    few = ipot.fit(data.select(range(10)), epochs=1, quiet=True)
    many = ipot.fit(data, epochs=1, quiet=True)
    many.save("there")
    Path("a.pkl").write_bytes(b"\x80\x04]\x94.")
    np.savez("cases.npz", points=x, a=a, u=u)
    yield lambda: arrays(points=x, values=broken, targets=u)
    yield lambda: arrays(points=x, values=a.T, targets=u)
    yield lambda: arrays(points=x[:40], values=a, targets=u)
    yield lambda: arrays(values=a, targets=u)
    yield lambda: ipot.fit((a, u))
    yield lambda: ipot.fit(data.select([0]))
    yield lambda: ipot.fit(data, out="there")
    yield lambda: many.save("there")
    yield lambda: many.predict(points=x)
    yield lambda: few.predict(points=x, values=a[0], interval=0.9)
    yield lambda: many.predict(points=x, values=a[0], interval=0.999)
    yield lambda: arrays(points=x, values=np.where(a == a[3, 4], 1e300, a), targets=u)
    yield lambda: arrays(points=x, values=a, targets=np.vstack([u[:39], 1e-200 * u[39:]]))
    yield lambda: many.predict(points=x, values=a[0], queries=x + 5)
    yield lambda: ipot.fit("cases.npz", inputs="b", targets="u")
    yield lambda: ipot.fit("a.pkl")
    yield from mistakes_in_files(x, u)

    def worse():
        many.scores["held_out"] = 2 * max(many.scores["baselines"].values())
        raise IpotError("; ".join(many.summary()))

    yield worse


def mistakes_in_files(x, u):
    """Files from elsewhere that are not read, one for each row of the page."""
    names = ("linked", "pieces", "stored", "elsewhere")
    linked, pieces, stored, elsewhere = folders = [Path(name) for name in names]
    for folder in folders:
        folder.mkdir()
    (linked / "link.npz").symlink_to(Path("cases.npz").absolute())
    (pieces / "all.vtm").write_text(
        '<VTKFile type="vtkMultiBlockDataSet" version="1.0"><vtkMultiBlockDataSet>'
        '<DataSet index="0" file="../a.vtu"/></vtkMultiBlockDataSet></VTKFile>'
    )
    for folder in (stored, elsewhere):
        with h5py.File(folder / "a.h5", "w") as file:
            file["points"] = x
            if folder == stored:
                file.create_dataset("u", u.shape, "f8", external=[("cases.npz", 0, u.nbytes)])
            else:
                file["u"] = h5py.ExternalLink("other.h5", "/u")
    mesh = pytest.importorskip("pyvista").Sphere(theta_resolution=5, phi_resolution=5)
    mesh.save("a.ply")
    text = Path("a.ply").read_bytes()
    Path("a.ply").write_bytes(text.replace(b"element vertex 17", b"element vertex 3"))
    yield lambda: ipot.fit(linked, inputs="a", targets="u")
    yield lambda: ipot.fit(pieces / "all.vtm", inputs="a", targets="u")
    yield lambda: ipot.fit(stored / "a.h5", inputs="a", targets="u")
    yield lambda: ipot.fit(elsewhere / "a.h5", inputs="a", targets="u")
    yield lambda: ipot.fit("a.ply", inputs="a", targets="u")


@pytest.mark.plain
def test_the_messages_are_those_of_the_page(here):
    rows = re.findall(r"^\| `(.+?)`(?: \(a warning\))? \|", section("Messages you may meet"), re.M)
    wrong = list(mistakes(here))
    assert len(rows) == len(wrong) > 10
    for row, mistake in zip(rows, wrong, strict=True):
        with pytest.raises((IpotError, UserWarning)) as caught:
            mistake()
        assert row in str(caught.value)
