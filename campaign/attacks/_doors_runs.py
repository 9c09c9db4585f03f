"""Ways into the package for runs, saved models and stores; some of them write into the folder."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from campaign.attack import Lost
from campaign.attacks._doors import Door, Named, _finite
from campaign.attacks._seeds import Seed
from campaign.attacks._seeds_runs import COMPARED, RECIPE, asked, fit_data, made, settings

ENOUGH = 2.0
"""Seconds after which a run that goes on is left alone: its settings may say that it is long."""


class _Enough(BaseException):
    """So that nobody but the door catches it."""


@contextlib.contextmanager
def _for_a_while() -> Iterator[None]:
    """Work that is as long as a settings file says is no fault of the reader's."""

    def stop(*_: Any) -> None:
        raise _Enough

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, ENOUGH)
    try:
        with contextlib.suppress(_Enough):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _run(path: Path, weights: str) -> Named:
    import ipot

    model = ipot.load(path / "run", device="cpu", weights=weights)
    line = np.linspace(0, 1, 16, endpoint=False, dtype=np.float32)[:, None]
    yield _finite("answer", model.predict(line, np.sin(6 * line), line))


def _load(folder: Path) -> Named:
    import ipot

    model = ipot.load(folder, device="cpu")
    found = model.predict(**asked())
    yield _finite("answer", np.asarray(found))
    if getattr(model, "bounds", None) is not None:
        low, high = model.predict(**asked(), interval=0.8)[1:]
        yield _finite("low", np.asarray(low))
        yield _finite("high", np.asarray(high))


def load(path: Path, seed: Seed) -> Named:
    """A saved model answers."""
    yield from _load(path)


def hub(path: Path, seed: Seed) -> Named:
    """A saved model as it comes from a hub."""
    from ipot.saved import hub as module

    local = SimpleNamespace(snapshot_download=lambda *given, **options: str(path))
    with mock.patch.object(module, "_hub", return_value=local):
        yield from _load(module.fetch_from_hub("somebody/model"))


def read_saved(path: Path, seed: Seed) -> Named:
    """What a saved model says of itself."""
    from ipot.saved import folder

    found = folder.read_saved(path)
    yield "said", np.array([repr(found.spec), repr(found.model), repr(found.layout)])


def journal(path: Path, seed: Seed) -> Named:
    """The lines that a run wrote, and how it ended."""
    from ipot.recipes.running import ended
    from ipot.run_folder import Run
    from ipot.training.journal import read

    run = Run.open(path / "run")
    yield "rows", np.array([repr(read(run.metrics)), repr(ended(run))])


def resume(path: Path, seed: Seed) -> Named:
    """A run that has ended goes on, to its end."""
    import ipot
    from ipot.data.store import Store

    found = None
    with _for_a_while():
        found = ipot.resume(path / "run", device="cpu", store=Store(path / "store"), quiet=True)
    if found is not None:
        yield "result", np.array([found.epochs, found.steps, found.best_validation])


def evaluate(path: Path, seed: Seed) -> Named:
    """A run is asked for its error."""
    import ipot
    from ipot.data.store import Store

    found, question = None, ipot.Question(samples=2)
    with _for_a_while():
        found = ipot.ask(path / "run", question, store=Store(path / "store"), device="cpu")
    if found is not None:
        yield _finite("scores", np.array([found.scores.relative_l2, *found.scores.per_sample]))


def run_seeds(path: Path, seed: Seed) -> Named:
    """Runs that have ended are read and not trained again."""
    from ipot.data.store import Store
    from ipot.recipes.several_seeds import run_seeds

    found, store = None, Store(path / "store")
    with _for_a_while():
        found = run_seeds(settings(), path / "runs", [0, 1], device="cpu", store=store, quiet=True)
    if found is not None:
        yield _finite("errors", np.array([found["mean"], found["spread"]]))


def compare(path: Path, seed: Seed) -> Named:
    """Systems that were compared are put into the table again."""
    from ipot.data.store import Store
    from ipot.recipes import compare as module

    found, store = None, Store(path / "store")
    with _for_a_while():
        found = module.compare(settings(), out=path / "compared", store=store, **COMPARED)
    if found is not None:
        errors = [row.error for row in found.rows if row.error is not None]
        yield _finite("errors", np.array(errors, dtype=float))


def resume_fit(path: Path, seed: Seed) -> Named:
    """A fit goes on."""
    import ipot

    found = None
    with _for_a_while():
        found = ipot.fit(fit_data(), resume=path, device="cpu", quiet=True)
    if found is not None:
        yield _finite("answer", np.asarray(found.predict(**asked())))


def count(path: Path, seed: Seed) -> Named:
    """How much of a recipe is there."""
    from ipot.data.store import Store

    found = Store(path).count(RECIPE)
    if not 0 <= found <= 10:
        raise Lost(f"{found} samples are there")
    yield "count", np.array([found])


def fetch(path: Path, seed: Seed) -> Named:
    """Samples of a recipe, of which damaged ones are made again."""
    from ipot.data.store import Store

    found = Store(path).fetch(RECIPE, 12, made, piece=4)
    for name, wanted in made(range(12)).items():
        if name not in found or found[name].shape != wanted.shape:
            shapes = {n: tuple(t.shape) for n, t in found.items()}
            raise Lost(f"{name} must have the shape {tuple(wanted.shape)}, got {shapes}")
        yield _finite(name, found[name].numpy())


def ledger(path: Path, seed: Seed) -> Named:
    """Records of runs; written again they are the same."""
    from ipot.recipes import ledger as module

    found = module.read(path)
    module.add(path, found)
    wanted = {record["id"]: module.sealed(record) for record in found}
    if module.read(path) != list(wanted.values()):
        raise Lost("a ledger that was read and written is another one")
    yield "records", np.array([repr(found)])


RUN_DOORS: dict[str, Door] = {
    "load run": lambda path, seed: _run(path, "best"),
    "load last": lambda path, seed: _run(path, "last"),
    "load": load,
    "hub": hub,
    "read saved": read_saved,
    "journal": journal,
    "resume": resume,
    "evaluate": evaluate,
    "run seeds": run_seeds,
    "compare": compare,
    "resume fit": resume_fit,
    "ledger": ledger,
    "count": count,
    "fetch": fetch,
}
