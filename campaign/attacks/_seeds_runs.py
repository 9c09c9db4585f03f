"""Small runs, saved models, fits and stores, to be changed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from campaign.attacks._seeds import FOLDER, Seed, given_arrays

SIZES = {"latents": 4, "width": 8, "blocks": 1, "heads": 2, "cross_heads": 2, "bins": (3,)}
SAMPLES = {"train": 6, "validation": 2, "test": 2}
RECIPE = {"problem": "made up", "viscosity": 0.1, "split": "train"}


def settings(seed: int = 0) -> Any:
    """A tiny experiment; its whole run takes a fraction of a second."""
    import ipot
    from ipot.recipes.experiment import Data

    found = ipot.experiment("burgers")
    training = replace(found.training, epochs=2, batch=3, seed=seed, minutes=None)
    return replace(
        found,
        problem=replace(found.problem, size=32, resolution=16),
        model=replace(found.model, **SIZES),
        training=training,
        data=Data(**SAMPLES),
    )


def made(indices: range) -> dict[str, torch.Tensor]:
    """What a solver gave: rows that say which they are."""
    rows = torch.arange(indices.start, indices.stop, dtype=torch.float32)
    return {"a": rows[:, None] + torch.zeros(5), "u": -rows[:, None] * torch.ones(3)}


def _run(folder: Path) -> Path:
    import ipot
    from ipot.data.store import Store

    store = Store(folder / "all" / "store")
    ipot.run(settings(), folder / "all" / "run", device="cpu", store=store, quiet=True)
    return _without(folder / "all", "tensorboard")


def _without(folder: Path, *names: str) -> Path:
    """Leave out what is never read again."""
    for path in sorted(folder.rglob("*")):
        if path.name in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def _seeds(folder: Path) -> Path:
    from ipot.data.store import Store
    from ipot.recipes.several_seeds import run_seeds

    store = Store(folder / "all" / "store")
    run_seeds(settings(), folder / "all" / "runs", [0, 1], device="cpu", store=store, quiet=True)
    return _without(folder / "all", "tensorboard")


COMPARED = {"models": ["deeponet"], "minutes": 0.002, "small": True, "device": "cpu", "quiet": True}


def _compare(folder: Path) -> Path:
    from ipot.data.store import Store
    from ipot.recipes.compare import compare

    store = Store(folder / "all" / "store")
    compare(settings(), out=folder / "all" / "compared", store=store, **COMPARED)
    # Systems that have ended are not scored again, so that their weights are not opened.
    return _without(folder / "all", "tensorboard", "best.safetensors", "last.safetensors")


def fit_data() -> Any:
    """Data of one's own."""
    import ipot

    return ipot.Dataset.from_arrays(**given_arrays(36))


def _fit(folder: Path) -> Path:
    import ipot

    model = {**SIZES, "bins": (3, 3)}
    ipot.fit(fit_data(), epochs=1, model=model, device="cpu", quiet=True, out=folder / "model")
    return _without(folder / "model", "tensorboard")


def _saved(folder: Path) -> Path:
    import ipot

    model = {**SIZES, "bins": (3, 3)}
    found = ipot.fit(fit_data(), epochs=1, model=model, device="cpu", quiet=True)
    found.save(folder / "model")
    return folder / "model"


def _store(folder: Path) -> Path:
    from ipot.data.store import Store

    Store(folder / "store").fetch(RECIPE, 10, made, piece=4)
    return folder / "store"


def _ledger(folder: Path) -> Path:
    from ipot.recipes import ledger

    runs = [{"id": name, "tests": {"filled": 0.5}, "curve": [[1.0, 0.5]]} for name in "abc"]
    ledger.add(folder / "runs.json", runs)
    return folder / "runs.json"


def asked() -> dict[str, np.ndarray]:
    """What every loaded model is asked."""
    given = given_arrays(2)
    return {"points": given["points"], "values": given["values"], "parameters": given["parameters"]}


_WEIGHTS = ("safetensors header", "safetensors header", "safetensors numbers")
_META = ("same", "json written otherwise")
_ALL = ("json", "json", "json", "json encoding", *_WEIGHTS, *FOLDER)

SEEDS = (
    Seed("run", "runs", _run, ("load run", "load last", "journal", "resume", "evaluate"), _ALL,
         _META),
    Seed("seeds", "runs", _seeds, ("run seeds",), _ALL, _META),
    Seed("compare", "runs", _compare, ("compare",), ("json", "json encoding", *FOLDER), _META),
    Seed("saved", "runs", _saved, ("load", "load", "read saved", "hub"), _ALL, _META),
    Seed("fit", "runs", _fit, ("load", "resume fit"), _ALL, _META),
    Seed("ledger", "runs", _ledger, ("ledger",), ("json", "json", "json encoding"), _META),
    Seed("store", "runs", _store, ("count", "fetch"), (*_WEIGHTS, "json", *FOLDER), _META),
)  # fmt: skip
