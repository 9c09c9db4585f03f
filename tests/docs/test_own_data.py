"""The mistakes that docs/own-data.md names are met with the messages that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

import ipot
from ipot.errors import IpotError
from ipot.formats import Case, write_case
from ipot.surrogate.cases import predict_case
from tests.docs.small import use_small_models

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the test's own, and small models."""
    use_small_models(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
    for i in range(8):
        speed = np.where((np.arange(50) == 12) & (i == 7), np.nan, a[i])
        write_case(f"bad/case{i}.vtu", Case(points=x, fields={"speed": speed, "u": u[i]}))
    yield lambda: ipot.fit("bad", inputs="speed", targets="u")
    yield lambda: arrays(points=x, values=broken, targets=u)
    yield lambda: arrays(points=x, values=np.vstack([a, a[:10]]), targets=u)
    yield lambda: arrays(points=x[:40], values=a, targets=u)
    yield lambda: arrays(points=x, values=a.T, targets=u)
    yield lambda: arrays(x, a, u)
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
    yield from mistakes_in_quantities(x, a, u)
    yield lambda: ipot.fit("cases.npz", inputs="b", targets="u")
    yield lambda: ipot.fit("a.pkl")
    yield from mistakes_in_files(x, u)

    def worse():
        many.scores["held_out"] = 2 * max(many.scores["baselines"].values())
        raise IpotError("; ".join(many.summary()))

    yield worse


def mistakes_in_quantities(x, a, u):
    """Units and places that are not those of the training, one for each row of the page."""

    def warm(unit):
        names = {"inputs": ["T"], "outputs": ["u"], "units": {"T": unit}}
        return ipot.Dataset.from_arrays(points=x, values=a, targets=u, **names)

    def plane(height, i):
        points = np.pad(x, ((0, 0), (0, 1)), constant_values=height)
        return Case(points=points, fields={"T": a[i], "u": u[i]})

    for i in range(8):
        write_case(f"planes/{i}.vtu", plane(0.5, i))
    one = ipot.fit("planes", inputs="T", targets="u", epochs=1, quiet=True)
    kelvin = ipot.fit(warm("K"), epochs=1, quiet=True)
    yield lambda: kelvin.evaluate(warm("Pa"))
    yield lambda: kelvin.evaluate(warm("degC"))
    yield lambda: ipot.Dataset.from_arrays(points=x, values=a, targets=u, geographic=True)
    yield lambda: predict_case(one, plane(3.0, 0))


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
