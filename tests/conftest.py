"""What all tests share."""

import gc
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
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

CHECKED = (
    "accelerate",
    *(f"contracts/test_{name}.py" for name in ("models", "symmetries")),
    *(f"data/test_{name}.py" for name in ("dataset", "fill", "packed", "statistics", "views")),
    *(f"evaluation/test_{name}.py" for name in ("conformal", "evaluate", "interpolation")),
    *(f"evaluation/test_{name}.py" for name in ("metrics", "predict")),
    *("models", "nn", "problems", "solvers", "surrogate/test_encoded.py"),
    *("test_samples.py", "test_spec.py", "test_symmetry.py"),
    *(f"training/test_{name}.py" for name in ("checkpoint", "draws", "execution")),
    *(f"training/test_{name}.py" for name in ("joined_parameters", "objective", "optimizer")),
    *(f"training/test_{name}.py" for name in ("settings", "step", "unroll", "waiting")),
)
"""Folders and files whose tests run with the check of shapes: those that hand tensors to what says
of what shape they must be. The others come to the same functions through files and commands, and a
run of the whole road under the check takes three times as long and finds no shape that is new."""

UNCHECKED = (
    # The hook would wrap Triton's kernels themselves.
    *(f"accelerate/{name}" for name in ("cuda", "test_contract.py", "test_parity.py")),
    *(f"accelerate/{name}" for name in ("test_operators.py", "test_absorbed.py")),
    *(f"accelerate/cpu/test_{name}.py" for name in ("build", "library_cache")),
    # Tests of the problems airfoil, plasticity and shallow_water check the shapes in these.
    *(f"solvers/test_{name}.py" for name in ("euler", "forging", "shallow_water")),
)
"""Those among them that run without: the check more than doubles their time, and quicker tests
show it the same functions."""

HERE = Path(__file__).parent
APART = re.compile(r"mark\.(compile|plain)")


@cache
def _checked(path: Path) -> bool:
    """Whether tests of a file run with the check, as far as they have no mark of their own."""

    def among(names: tuple[str, ...]) -> bool:
        return any(path.is_relative_to(HERE / name) for name in names)

    return among(CHECKED) and not among(UNCHECKED)


def pytest_configure(config: pytest.Config) -> None:
    """What a user would be warned of is an error of a test that does not expect it; and a file that
    has moved would change its session without a word."""
    # Not in pyproject.toml, which would import the package before the check of shapes is there.
    config.addinivalue_line("filterwarnings", "error::ipot.errors.IpotWarning")
    gone = [name for name in (*CHECKED, *UNCHECKED) if not (HERE / name).exists()]
    if gone:
        raise pytest.UsageError(f"tests/conftest.py names {gone}, which are not there any more")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a session has nothing to do with a file: importing all of them in both sessions, and
    on each core, takes a minute."""
    if not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    if config.getoption("jaxtyping_packages"):
        return not _checked(collection_path) or None
    if config.getoption("markexpr").startswith("(compile or plain)"):
        return (_checked(collection_path) and not APART.search(collection_path.read_text())) or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave some folders and files to the session without the check, and begin with the campaign
    and the compiled tests. The campaign forks the process that it is in, which hangs where other
    tests have left threads behind; a minute of compiling in one process at the end would leave the
    other one without work."""
    for item in items:
        if not _checked(item.path):
            item.add_marker(pytest.mark.plain)
    items.sort(key=lambda item: item.get_closest_marker("compile") is None)
    items.sort(key=lambda item: not item.path.is_relative_to(HERE / "campaign"))


def pytest_collection() -> None:
    """While tests are collected there is no garbage, and looking for it takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay to the end: looking for garbage among them takes half
    a second each time that memory is released."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Modules in C++ complain of what they find at the end of the process."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _only_what_is_new_is_searched() -> None:
    """What tests before have imported (a compiler, say) stays, too: with it a search for garbage
    takes a third of a second, and measurements search before each of their calls."""
    gc.collect()
    gc.freeze()


HEED_THE_DISK = ("campaign", "test_files.py")
"""Whose tests are about what a disk holds, and when."""


@pytest.fixture(autouse=True, scope="module")
def _disks_are_not_waited_for(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has written need not outlive the power, and there are ten thousand such waits of
    some milliseconds. A file that is not open is an error as ever."""
    with pytest.MonkeyPatch.context() as patch:
        if not any(request.path.is_relative_to(HERE / name) for name in HEED_THE_DISK):
            patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder by its name, filled by the first process that asks for it, while others wait."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # of all processes

    def found(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        try:
            folder.mkdir()
        except FileExistsError:
            for _ in range(3000):
                if done.exists():
                    return folder
                time.sleep(0.1)
            pytest.fail(f"another process has not filled {folder}")
        try:
            make(folder)
        finally:  # a failure is told by the files that are not there
            done.touch()
        return folder

    return found


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
    made of a graph with an operator of ours in `tests/accelerate/cpu/test_attention.py`."""
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
