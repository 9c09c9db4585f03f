"""Data of somebody's own, of every kind, and fits of a fraction of a second."""

from functools import cache

import numpy as np

from ipot.data.own import Dataset
from ipot.own.fit import fit

TINY = {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1}
X = np.random.default_rng(7).random((12, 2))
LINES = np.linspace(0, 1, 4), np.linspace(0, 1, 5)
GRID = np.stack(np.meshgrid(*LINES, indexing="ij"), -1)
CURVED = 0.1 + 0.7 * GRID + 0.1 * np.sin(3 * GRID[..., ::-1])
"""A grid whose lines are not straight."""
GLOBE = np.stack(np.meshgrid(np.arange(0.0, 360, 45), (-60.0, 0.0, 60.0), indexing="ij"), -1)


def random(seed=0):
    return np.random.default_rng(seed)


def waves(count, places, seed=0):
    """A number of waves for each sample (S, N), and something smooth made of them."""
    c = random(seed).standard_normal((count, 3))
    phases = 2 * np.pi * (0.1 + 0.8 * places.sum(-1))
    a = sum(c[:, k, None] * np.cos((k + 1) * phases.ravel()) for k in range(3))
    u = sum(c[:, k, None] * np.sin((k + 1) * phases.ravel()) / (k + 1) for k in range(3))
    return a.reshape(count, *phases.shape), u.reshape(count, *phases.shape)


def uneven(count, seed=0):
    """Points of other number and place in every sample, with queries of their own."""
    draw = random(seed)
    points = [draw.random((n, 2)) for n in draw.integers(5, 12, count)]
    queries = [draw.random((n, 2)) for n in draw.integers(4, 9, count)]
    values = [waves(1, p, seed=i)[0][0] for i, p in enumerate(points)]
    targets = [waves(1, q, seed=i)[1][0] for i, q in enumerate(queries)]
    return {"points": points, "values": values, "queries": queries, "targets": targets}


def _two(a, u):
    return {"values": np.stack([a, a**2], -1), "targets": np.stack([u, 1e4 * u**2, -u], -1)}


def arrays(kind, count=10):
    """Arguments of `Dataset.from_arrays`."""
    a, u = waves(count, X)
    numbers = random(1).random((count, 3))
    return {
        "mesh": lambda: {"points": X, "values": a, "targets": u},
        "channels": lambda: {"points": X, **_two(a, u)},
        "grid": lambda: dict(
            zip(("values", "targets"), waves(count, GRID), strict=True), points=GRID
        ),
        "curved": lambda: dict(
            zip(("values", "targets"), waves(count, CURVED), strict=True), points=CURVED
        ),
        "uneven": lambda: uneven(count),
        "own meshes": lambda: {
            "points": random(2).random((count, 12, 2)),
            "values": a,
            "targets": u,
        },
        "parameters": lambda: {"queries": X, "parameters": numbers, "targets": u},
        "one number": lambda: {"queries": X, "parameters": numbers[:, 0], "targets": u},
        "geometry": lambda: {"points": random(3).random((count, 12, 2)), "targets": u},
        "geometry and numbers": lambda: {
            "points": random(3).random((count, 12, 2)),
            "parameters": numbers,
            "targets": u,
        },
        "all": lambda: {
            "points": X,
            "values": a,
            "queries": X[:5],
            "parameters": numbers,
            "targets": u[:, :5],
        },
        "times": lambda: {
            "points": X,
            "values": a,
            "targets": np.stack([u, 2 * u, 3 * u], 1),
            "times": [0.5, 1.0, 2.0],
        },
        "line": lambda: {"points": X[:, 0], "values": a, "targets": u},
        "space": lambda: {"points": random(4).random((12, 3)), "values": a, "targets": u},
        "globe": lambda: dict(
            zip(("values", "targets"), waves(count, GLOBE / 360), strict=True),
            points=GLOBE,
            geographic=True,
        ),
        "far away": lambda: {"points": 5e6 + 10 * X, "values": a, "targets": u},
    }[kind]()


KINDS = (
    *("mesh", "channels", "grid", "curved", "uneven", "own meshes", "parameters", "one number"),
    *("geometry", "geometry and numbers", "all", "times", "line", "space", "globe", "far away"),
)


def data(kind, count=10, **changes):
    return Dataset.from_arrays(**arrays(kind, count) | changes)


def quick(source, **settings):
    """A fit of two epochs."""
    settings = {"epochs": 2, "model": TINY, "device": "cpu", "quiet": True, **settings}
    return fit(source, **settings)


@cache
def fitted(kind, count=10):
    """A fit that tests share and leave as it is."""
    return quick(data(kind, count))
