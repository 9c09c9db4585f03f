"""Calls that are right: small data of every kind, and the tiny models that were fitted to them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = 6
TINY = {"width": 16, "latents": 4, "heads": 2, "cross_heads": 2, "blocks": 1}
BASES = ("mesh", "channels", "grid", "uneven", "own", "timed", "parameters", "globe")
ARRAYS = ("points", "values", "queries", "targets", "parameters", "times", "weights")
ASKED = ("points", "values", "queries", "parameters")
FACTS = ("inputs", "outputs", "parameter_names", "units", "periods", "geographic", "name")


@cache
def arrays(base: str) -> dict[str, Any]:
    """Arguments of `Dataset.from_arrays`; nobody may write to them."""
    draw = np.random.default_rng(0)
    x, y = draw.random((10, 2)), draw.random((7, 2))
    a, u = (draw.standard_normal((SAMPLES, 10)) for _ in range(2))
    sizes = [5, 8, 4, 5, 6, 7]
    match base:
        case "mesh":
            return {"points": x, "values": a, "targets": u}
        case "channels":
            return {
                "points": x,
                "values": np.stack([a, 100 * a**2], -1),
                "queries": y,
                "targets": np.stack([u[:, :7], 1e4 * u[:, 3:]], -1),
                "weights": 0.5 + draw.random(7),
            }
        case "grid":
            lines = np.meshgrid(np.linspace(0, 1, 3), np.linspace(0, 1, 4), indexing="ij")
            fields = draw.standard_normal((2, SAMPLES, 3, 4))
            return {"points": np.stack(lines, -1), "values": fields[0], "targets": fields[1]}
        case "uneven":
            return {
                "points": [draw.random((n, 2)) for n in sizes],
                "values": [draw.standard_normal(n) for n in sizes],
                "queries": [draw.random((n, 2)) for n in sizes[::-1]],
                "targets": [draw.standard_normal((n, 2)) for n in sizes[::-1]],
            }
        case "own":
            return {"points": draw.random((SAMPLES, 10, 2)), "targets": u}
        case "timed":
            times = np.array([1.0, 2.0, 3.0])
            still = draw.standard_normal((SAMPLES, 3, 10))
            return {"points": x, "values": a, "targets": still, "times": times}
        case "parameters":
            return {"queries": y, "parameters": draw.random((SAMPLES, 3)), "targets": u[:, :7]}
        case _:
            lines = np.meshgrid(np.arange(0.0, 360, 60), (-60.0, 0.0, 60.0), indexing="ij")
            globe = np.stack(lines, -1).reshape(-1, 2)
            fields = draw.standard_normal((2, SAMPLES, 18))
            given = {"points": globe, "values": fields[0], "targets": fields[1]}
            return given | {"geographic": True}


def question(base: str, *, one: bool = False) -> dict[str, Any]:
    """Arguments of `predict` for a model of that base: three samples, or one."""
    whole = arrays(base)
    asked = {n: whole[n] for n in ASKED if n in whole}
    shared = {"mesh": ("points",), "channels": ("points", "queries"), "parameters": ("queries",)}
    kept = shared.get(base, ("points",) if base in ("grid", "timed", "globe") else ())
    return {n: a if n in kept else a[0] if one else a[:3] for n, a in asked.items()}


def series(frames: int = 8) -> dict[str, np.ndarray]:
    """A field in time on a grid in degrees, as the parts of an xarray object."""
    draw = np.random.default_rng(1)
    return {
        "field": draw.standard_normal((frames, 3, 4)),
        "lat": np.array([10.0, 20.0, 30.0]),
        "lon": np.array([0.0, 5.0, 10.0, 15.0]),
        "time": np.datetime64("2020-01-01", "ns") + np.arange(frames) * np.timedelta64(1, "D"),
    }


def labelled(parts: dict[str, Any]) -> Any:
    """The parts as an object of xarray."""
    import xarray as xr

    field = (("time", "lat", "lon"), parts["field"])
    return xr.Dataset({"t": field}, {n: (n, parts[n]) for n in ("time", "lat", "lon")})


def fit_all(folder: Path, only: tuple[str, ...] = BASES) -> None:
    """Fit a model to every base, or to some, and one to a series; and save them."""
    import ipot

    for base in only:
        data = ipot.Dataset.from_arrays(**arrays(base))
        model = fitted(data)
        model.calibrate(data)
        model.save(folder / base)
    named = {"inputs": "t", "targets": "t", "history": 2, "lead": 1}
    fitted(labelled(series()), **named).save(folder / "series")


def fitted(data: Any, **options: Any) -> Any:
    """A model of one epoch."""
    import ipot

    return ipot.fit(data, epochs=1, device="cpu", quiet=True, model=TINY, **options)


_LOADED: dict[Path, Any] = {}


def model(folder: Path, base: str) -> Any:
    """A fitted model, loaded once for each process."""
    if folder / base not in _LOADED:
        import ipot

        _LOADED[folder / base] = ipot.load(folder / base, device="cpu")
    return _LOADED[folder / base]


@cache
def surrogate(problem: str) -> Any:
    """What a run of a problem would give, with weights as they were drawn."""
    from dataclasses import replace

    import ipot
    from ipot.recipes.experiment import build

    settings = ipot.experiment(problem, "ipot")
    settings = replace(settings, model=replace(settings.model, **TINY))
    return ipot.Surrogate.of_experiment(build(settings), settings)
