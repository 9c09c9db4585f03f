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
from serve.small import PROBLEMS, samples, untrained
from visit import Visit

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
