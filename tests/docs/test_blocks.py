"""Every code block of README.md and docs runs, from top to bottom of its page, on smaller sizes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipot
from ipot.formats import Case, read_cases, write_case
from ipot.recipes import default
from ipot.recipes.experiment import Data
from tests.docs.pages import FENCE, ROOT, Walk, blocks, pages, parse_command, run_command, smaller
from tests.docs.small import shrunk, use_small_models

LONG = "minutes or hours; its flags alone are checked here"
WHOLE = "sets an environment up, and runs everything"
ELSEWHERE = {
    "docs/extend.md": ["python", "bash"] * 2,
    "docs/own-loop.md": ["python"] * 2,
    "docs/serve.md": ["bash", "bash", "python", "bash", "bash", "python", "bash", "bash"],
}
"""Pages of modules and models, and the blocks that a test with the page's name runs."""

OF_THEIR_DAY = ("docs/log.md", "docs/results.md", "docs/old-names.md")
"""Pages that name commands as they were."""
FRAGMENTS = {"fit --out", "predict --interval 0.9"}
"""What sentences call by a verb and one of its flags."""


@dataclass(frozen=True)
class Plan:
    """How a page is run.

    `sizes` replace parts of its text, `given` are the files that a reader has, and `check` looks
    at what has come of it.
    """

    sizes: dict[str, str] = field(default_factory=dict)
    given: Callable[[], None] = lambda: None
    parsed: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    check: Callable[[dict[str, Any]], None] = lambda names: None


def cases_and_weather() -> None:
    """The files of the README's reader: meshes that differ, a new one, and a reanalysis."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    rng = np.random.default_rng(0)
    for i in range(12):
        points = rng.random((rng.integers(20, 30), 2))
        fields = {"speed": np.sin(3 * points[:, 0] + i), "pressure": points[:, 1] + i % 3}
        folder = "cases" if i < 10 else "new_cases"
        write_case(f"{folder}/{i}.vtu", Case(points=points, fields=fields))
    write_case("new.vtu", Case(points=rng.random((25, 2)), fields={"speed": rng.random(25)}))
    time = np.datetime64("2024-01-01") + np.arange(60)
    where = {"lat": np.arange(30.0, 61, 10), "lon": np.arange(-20.0, 21, 10)}
    maps = np.sin(rng.random(20) + 0.3 * np.arange(60)[:, None]).reshape(60, 4, 5)
    about = {"units": "K"}
    xr.Dataset({"t2m": (("time", *where), maps, about)}, {"time": time, **where}).to_netcdf(
        "era5.nc"
    )


def published(problem: str, more: str = "") -> Plan:
    """A page whose reader has the files of a benchmark: small ones, which we write."""

    def given() -> None:
        how = "--format original --out FOLDER"
        run_command(smaller(["generate", problem, *how.split(), *more.split()]))

    return Plan(given=given, sizes={"original --out FOLDER": "original --out WRITTEN"})


def readme_holds(names: dict[str, Any]) -> None:
    assert names["u_hat"].shape == names["low"].shape == (100,)
    assert names["u"].shape == (1, 100, 1)
    assert names["surrogate"].settings.data.train == 32
    assert "pressure" in read_cases("answer.vtu")[0].fields


def start_holds(names: dict[str, Any]) -> None:
    assert names["u"].shape == (1, 1000, 1)
    assert names["surrogate"].settings.data.train == 32
    assert names["surrogate"].settings.training.augment


def trained_holds(names: dict[str, Any]) -> None:
    assert names["u"].shape == (1, 1000, 1)
    assert names["error"] < 0.1


def own_data_holds(names: dict[str, Any]) -> None:
    assert names["u_there"].shape == names["some"].shape == (100,)
    assert names["prediction"].shape == (5, 12, 12)
    assert (names["low"] <= names["high"]).all()
    assert Path("fields.png").stat().st_size > 10_000
    assert np.load("answer.npz")["prediction"].shape == (100,)
    assert len(read_cases("answers.h5")) == 40
    assert set(read_cases("answer.vtu")[0].fields) == {"load", "bend", "bend_predicted"}
    assert names["finer"].sizes == {"time": 2, "lat": 31, "lon": 41}
    saved = (ROOT / "docs" / "own-data.md").read_text().split("\n## Saved models\n", 1)[1]
    files = re.findall(r"^\| `([\w.]+)` \|", saved.split("\n## ", 1)[0], re.MULTILINE)
    assert {path.name for path in Path("surrogate").iterdir()} == set(files)


PLANS = {
    "README.md": Plan(
        sizes={"minutes=5": "epochs=1", "10_000": "100"},
        given=cases_and_weather,
        parsed={
            "ipot demo": "three minutes; tests/commands runs it on smaller sizes",
            "ipot bench infer": "counts seconds; tests/bench runs it on smaller sizes",
            "ipot export": "ten seconds; tests/saved runs it on smaller models",
        },
        left={
            "make demo": WHOLE,
            "make test": WHOLE,
            "python3.11 -m venv": WHOLE,
            "source .venv/bin/activate": WHOLE,
        },
        check=readme_holds,
    ),
    "docs/start.md": Plan(
        parsed={
            "ipot demo": "three minutes; tests/commands runs it on smaller sizes",
            "torchrun": "two processes; tests/distributed runs them on smaller sizes",
        },
        left={
            "make demo": WHOLE,
            "python3.11 -m venv": WHOLE,
            "source": WHOLE,
            "pip install": WHOLE,
        },
        check=start_holds,
    ),
    "docs/own-data.md": Plan(
        sizes={
            "n = 24\n": "n = 12\n",
            "(500, n, n)": "(50, n, n)",
            "10_000": "100",
            "minutes=5": "epochs=1",
        },
        parsed={"ipot export": "ten seconds; tests/saved runs it on smaller models"},
        check=own_data_holds,
    ),
    "docs/systems.md": Plan(),
    "docs/trained.md": Plan(
        parsed={"ipot export": "ten seconds; tests/saved runs it on smaller models"},
        left={"python tools/train_shipped.py": "minutes; tests/trained runs it on smaller sizes"},
        check=trained_holds,
    ),
    "docs/static-page.md": Plan(
        parsed={"ipot serve": "half a minute; tests/browser exports small models and asks them"},
        left={"pip install": WHOLE, "python -m http.server": "tests/browser serves a page so"},
    ),
    "docs/accuracy.md": Plan(
        parsed={"ipot": "minutes, into the ledger of the repository; its flags alone are checked"},
        left={"python tools/accuracy_tables.py": "writes a page of the repository: `make docs`"},
    ),
    "docs/reproduction.md": Plan(
        parsed={"ipot reproduce": "tests/reproduce runs them; their flags alone are checked here"},
        left={"python tools/reproduction_page.py": "writes a page of the repository: `make docs`"},
    ),
    "docs/results.md": Plan(parsed={"ipot": LONG}),
    "docs/speed.md": Plan(
        parsed={"ipot bench": "counts seconds; tests/bench runs it on smaller sizes"}
    ),
    "docs/problems/index.md": Plan(
        parsed={"ipot problems --gallery": "six seconds; tests/commands runs it for one problem"}
    ),
    "docs/problems/era5.md": Plan(
        parsed={
            "ipot era5 FOLDER": "needs 4 GB; tests/commands runs it on a part of such files",
            "ipot train era5": "needs 4 GB; tests/problems runs it on a part of such files",
        },
        left={"python download.py": "needs an account, and fetches 4 GB"},
    ),
} | {
    f"docs/problems/{name}.md": published(name, more)
    for name, more in {
        "airfoil": "",
        "burgers": "",
        "darcy": "",
        "elasticity": "",
        "navier_stokes": "--problem.viscosity 1e-5",
        "plasticity": "",
        "shallow_water": "",
    }.items()
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """One folder of generated data for all pages."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def reader(monkeypatch, tmp_path, generated):
    """An empty folder, small models, and `ipot.experiment` with few samples and one epoch."""
    whole = ipot.experiment

    def tiny(*names, **options):
        settings = whole(*names, **options)
        return replace(
            settings,
            problem=replace(settings.problem, size=29, resolution=15),
            data=Data(train=8, validation=4, test=4),
            model=replace(settings.model, width=16, blocks=1),
            training=replace(settings.training, epochs=1, batch=4),
        )

    assert default.recipe("darcy").training.epochs > 1
    monkeypatch.setattr("ipot.api.experiment", tiny)
    use_small_models(monkeypatch)
    monkeypatch.setenv("IPOT_DATA", str(generated))
    monkeypatch.chdir(tmp_path)


def test_every_block_has_a_plan():
    with_blocks = {page for page in pages() if blocks(page)}
    assert with_blocks == {*PLANS, *ELSEWHERE}
    for page, languages in ELSEWHERE.items():
        assert [block.language for block in blocks(page)] == languages


@pytest.mark.parametrize("page", pages())
def test_no_command_hides_outside_of_blocks(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    assert "~~~" not in text
    assert not re.findall(r"^(?: {4}|\t).*?\b(?:ipot|python|torchrun|make) .*", text, re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in pages() if page not in OF_THEIR_DAY])
def test_the_flags_of_commands_within_sentences(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    for span in set(re.findall(r"`ipot ([^`]*--[^`]*)`", text)) - FRAGMENTS:
        if "..." not in span and "--help" not in span:
            words = shlex.split(span)
            parse_command(["darcy" if word in ("P", "PROBLEM") else word for word in words])


@pytest.mark.usefixtures("reader", "traced_only")
@pytest.mark.parametrize("page", PLANS)
def test_a_page_runs(page, capsys):
    plan = PLANS[page]
    plan.given()
    names = Walk(page, plan.parsed, plan.left)(shrunk((ROOT / page).read_text(), plan.sizes))
    plan.check(names)


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/own-data.md"])
def test_what_a_page_draws_is_the_same_every_time(page):
    text = (ROOT / page).read_text()
    assert not re.findall(r"np\.random\.(?!default_rng\(\w)\w+\(", text)
