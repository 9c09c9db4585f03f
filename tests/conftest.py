"""What all tests share."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from ipot.accelerate.cpu import build
from ipot.samples import Sample

# Kernels for a GPU are interpreted where there is none. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tests are tiny: one thread each is quickest, and leaves the cores to pytest-xdist.
torch.set_num_threads(1)

# The first example pays for imports and caches, so a deadline would fail by chance.
settings.register_profile("ipot", deadline=None, max_examples=30)
settings.load_profile("ipot")

UNCHECKED = (
    *("bench", "campaign", "commands", "distributed", "docs", "kernels", "recipes"),
    *(f"native/test_{name}.py" for name in ("build", "kept")),
    *(f"own/test_{name}.py" for name in ("fit", "numbers")),
    # Tests of the problems airfoil, plasticity and shallow_water check the shapes in these.
    *(f"solvers/test_{name}.py" for name in ("euler", "forging", "shallow_water")),
    *(f"training/test_{name}.py" for name in ("diverged", "fallback", "joined_runs", "learning")),
    *(f"training/test_{name}.py" for name in ("patience", "resume", "schedule", "signals")),
    "training/test_validation.py",
)
"""Folders and files whose tests run for long what quicker ones check the shapes of. The check more
than doubles their time, so they run without it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave some folders and files to the session without the check, and begin with the compiled
    tests: a minute in one process at the end would leave the other one without work."""
    here = Path(__file__).parent
    unchecked = [here / name for name in UNCHECKED]
    for item in items:
        if any(item.path.is_relative_to(path) for path in unchecked):
            item.add_marker(pytest.mark.plain)
    items.sort(key=lambda item: item.get_closest_marker("compile") is None)


def pytest_collection_finish() -> None:
    """Ten thousand tests and all modules stay to the end: looking for garbage among them takes half
    a second each time that memory is released."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Modules in C++ complain of what they find at the end of the process."""
    gc.unfreeze()


@pytest.fixture
def data_root() -> Path:
    """The folder with public data files that IPOT_TEST_DATA names."""
    folder = os.environ.get("IPOT_TEST_DATA")
    if not folder:
        pytest.skip("IPOT_TEST_DATA names no folder with public data files")
    if not Path(folder).is_dir():
        pytest.skip(f"IPOT_TEST_DATA names {folder}, which is not a folder")
    return Path(folder)


@pytest.fixture
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions are traced and differentiated as ever, and no C++ is made of them: that takes a
    minute, and `tests/training/test_step.py` has a step that is compiled to its end."""
    known = torch.nn.Module.compile

    def traced(self: torch.nn.Module, *given: object, **options: object) -> None:
        known(self, *given, **options, backend="aot_eager")

    monkeypatch.setattr(torch.nn.Module, "compile", traced)


@pytest.fixture
def backend() -> str:
    """For `torch.compile` of single functions: on a GPU to the end, elsewhere only traced. C++ is
    made of a graph with an operator of ours in `tests/native/test_attention.py`."""
    return "inductor" if torch.cuda.is_available() else "aot_eager"


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a C++ compiler."""
    monkeypatch.setattr(build, "_tried", lambda: (None, "left out by a test"))


@pytest.fixture(scope="session")
def make_sample() -> Callable[..., Sample]:
    """A random sample of any sizes, in the letters of the legend; keywords replace its fields."""

    def make(
        n=5, m=4, *, d=2, e=2, c=1, k=1, times=(1.0,), p=0, seed=0, dtype=torch.float32, **fields
    ) -> Sample:
        random = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> torch.Tensor:
            return torch.rand(shape, generator=random, dtype=torch.float64).to(dtype)

        made = {
            "points": draw(n, d),
            "values": draw(n, c),
            "queries": draw(m, e),
            "targets": draw(len(times), m, k),
            "parameters": draw(p) if p else None,
            "times": times,
            "index": seed,
        }
        return Sample(**made | fields)

    return make
