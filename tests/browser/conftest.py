"""A browser, a server with small models, and pages of it.

`web/README.md` says how tests use these. Without Chromium or playwright they are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own import tiny
from serve.small import PROBLEMS, samples, untrained
from visit import Visit

from ipot.cli import main
from ipot.data.own import Dataset

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")
ROOT = Path(__file__).parents[2]
SAMPLED = (*("airfoil", "burgers", "elasticity", "navier_stokes", "plasticity", "shallow_water"),)
"""Problems whose small models come with samples."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; skips what needs it where it or playwright is missing."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    pytest.importorskip(
        "playwright", reason="playwright is not installed: pip install 'ipot[browser]'"
    )
    return program


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Chromium without a window, one for each file of tests: while playwright runs, nothing else in
    this process may run an event loop, and tests of the server do."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        started = running.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of small models by the names of their problems; all are served."""
    folder = tmp_path_factory.mktemp("models")
    for name in PROBLEMS:
        untrained(name).save(folder / name)
    for name in SAMPLED:
        np.savez(folder / name / "samples.npz", **samples(name))
    return {name: folder / name for name in PROBLEMS}


ALL = tiny.arrays("all", 40)


def _far() -> Any:
    """A model of numbers that float32 cannot hold, with parameters, at times of its own."""
    targets = 1e9 + ALL["targets"]
    given = {
        "points": 5e6 + 10 * ALL["points"],
        "queries": 5e6 + 10 * ALL["queries"],
        "values": 1e9 + ALL["values"],
        "parameters": 1e-35 * ALL["parameters"],
        "targets": np.stack([targets, targets + 1, targets + 2], 1),
        "times": [0.5, 1.0, 2.0],
    }
    return tiny.quick(Dataset.from_arrays(**given), epochs=1, blend=False)


ALONE: dict[str, Callable[[], Any]] = {
    "darcy": lambda: untrained("darcy"),
    "navier_stokes": lambda: untrained("navier_stokes", "lattice"),
    "burgers": lambda: untrained("burgers", "lno"),
    "shallow_water": lambda: untrained("shallow_water", "lno"),
    "sst": lambda: untrained("sst"),
    "parameters": lambda: tiny.quick(tiny.data("parameters", 120), epochs=1),
    "far": _far,
}
"""Models that answer in the browser: in parts and in one graph, of problems and of data of one's
own. Their graphs take most of a minute, so there are few, and all tests share them."""


@pytest.fixture(scope="session")
def alone(made_once: Callable[..., Path]) -> dict[str, Path]:
    """Folders of the models of the page without a server, by their names."""

    def make(folder: Path) -> None:
        for name, fitted in ALONE.items():
            fitted().save(folder / name)
        for name in ("navier_stokes", "burgers", "shallow_water"):
            np.savez(folder / name / "samples.npz", **samples(name))
        (folder / "parameters" / "samples.npz").unlink()

    folder = made_once("models of a page", make)
    return {name: folder / name for name in ALONE}


@pytest.fixture(scope="session")
def exported(chromium: str, alone: dict[str, Path], made_once: Callable[..., Path]) -> Path:
    """The page without a server, with all of these models. It needs no browser, and is not made
    without one."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    def make(folder: Path) -> None:
        words = ["serve", *map(str, alone.values()), "--export", str(folder), "--quiet"]
        assert main(words) == 0

    return made_once("page", make)


@dataclass
class Running:
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.log.read_text()


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Running]]:
    """Start `ipot serve` with any words and flags; all are ended when the tests are."""
    running = []

    def start(*words: str | Path) -> Running:
        log = tmp_path_factory.mktemp("server") / "said.txt"
        command = [sys.executable, "-m", "ipot", "serve", *map(str, words), "--port", "0"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with log.open("w") as said:
            process = subprocess.Popen(
                command, stderr=said, stdout=said, text=True, env=environment
            )
        running.append(process)
        return Running(_address(process, log), process, log)

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(20)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    for _ in range(600):
        if found := re.search(r"http://[\w.:\[\]]+/", log.read_text()):
            return found[0]
        assert process.poll() is None, log.read_text()
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"the server does not say where it is: {log.read_text()}")


@pytest.fixture(scope="session")
def server(serve: Callable[..., Running], models: dict[str, Path], chromium: str) -> Running:
    """`ipot serve` with all small models. It needs no browser, and is not started without one."""
    return serve(*models.values())


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open an address; at the end of the test nothing may have gone wrong in any page: no error in
    the console, nothing that the content-security policy forbids, no request to another host."""
    made = []

    def start(address: str, **options: Any) -> Visit:
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        context = browser.new_context(**options)
        visit = Visit(context.new_page(), address)
        made.append((context, visit))
        visit.go()
        return visit

    yield start
    wrong = [line for _, visit in made for line in visit.wrong]
    for context, _ in made:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def visit(open_page: Callable[..., Visit], server: Running) -> Callable[..., Visit]:
    """Open the scene of a problem on the server."""

    def start(problem: str, **options: Any) -> Visit:
        found = open_page(f"{server.address}?model={problem}", **options)
        found.settle()
        return found

    return start


@pytest.fixture
def phone(visit: Callable[..., Visit]) -> Callable[[str], Visit]:
    """Open the scene of a problem on a phone that is dark at first and then light: nothing may be
    wider than the phone."""

    def start(problem: str) -> Visit:
        size = {"width": 360, "height": 740}
        found = visit(problem, viewport=size, color_scheme="dark", has_touch=True)
        for theme in ("dark", "light"):
            found.page.emulate_media(color_scheme=theme)
            assert found.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            paper = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (int(paper.split("(")[1].split(",")[0]) < 100) == (theme == "dark")
        return found

    return start


@pytest.fixture
def same(models: dict[str, Path]) -> Callable[..., dict[str, np.ndarray]]:
    """Compare the last answer of a page with Python's answer to the same inputs; gives the inputs
    and the answers as arrays."""
    import ipot

    loaded: dict[str, Any] = {}

    def compare(visit: Visit, problem: str, tolerance: float = 1e-4) -> dict[str, np.ndarray]:
        if problem not in loaded:
            loaded[problem] = ipot.load(models[problem], device="cpu")
        last = visit.last()
        inputs = {name: _plain(value) for name, value in last["inputs"].items()}
        found = loaded[problem].predict(**inputs)
        wanted = (
            dict(zip(("prediction", "low", "high"), found, strict=True))
            if "interval" in inputs
            else {"prediction": found}
        )
        scale = np.abs(wanted["prediction"]).max()
        for name, array in wanted.items():
            assert last["answer"][name].shape == array.shape
            np.testing.assert_allclose(
                last["answer"][name], array, rtol=tolerance, atol=tolerance * scale, err_msg=name
            )
        return last["inputs"] | last["answer"]

    return compare


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and not value.ndim else value
