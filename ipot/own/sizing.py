"""Sizes of a model and its training for data that nobody has tuned for.

What is affordable decides: a step must be quick enough for some thousands of them in the time
there is. So a model on a CPU is small and looks at a part of the points at a time, and features
are as fine as the points can tell. `docs/log.md` has the measurements behind the numbers.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, get_type_hints

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from ipot import registry
from ipot.data.own import Dataset
from ipot.errors import RunError, UnknownName, Unsupported, shown
from ipot.models.ipot import Config
from ipot.recipes import paper, systems
from ipot.spec import ALL_POINTS, Bounds
from ipot.training.settings import Training
from ipot.typed_json import from_value, plain

MODEL = "ipot"
"""What a fit trains by default."""
PRESETS = ("default", "paper")
MEASURED = 1000
"""Points of a sample whose neighbours are looked for."""
MINUTES = 5.0
"""How long it trains by default."""
PATIENCE = 0.5
"""Of a run. The rate falls to the end, and most errors with it: a shorter wait would be a guess."""
MOST_EPOCHS = 100_000
"""A limit that is not meant to be met, where time is."""


@dataclass(frozen=True)
class Budget:
    """What a step may cost on a type of device."""

    width: int
    latents: int
    blocks: int
    heads: int
    cross_heads: int
    points: int
    """Points of a sample in a step; the more there are, the smaller a share is drawn."""
    queries: int
    """Queries times times of a sample in a step."""
    batch: int
    learning_rate: float


BUDGETS = {
    "cpu": Budget(64, 64, 2, 4, 4, 1024, 512, 10, 3e-3),
    "cuda": Budget(128, 256, 4, 8, 4, 4096, 4096, 10, 1e-3),
}


@dataclass(frozen=True)
class Plan:
    """Model and training for a data set, and why."""

    model: Any
    training: Training
    normalize: bool
    lines: tuple[str, ...]
    name: str = MODEL


def plan(
    data: Dataset,
    *,
    device: torch.device,
    name: str = MODEL,
    minutes: float | None = None,
    epochs: int | None = None,
    preset: str = "default",
    seed: int = 0,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    start: Any = None,
) -> Plan:
    """Sizes for a data set; `model` and `training` change single settings of the result.

    `name` is what the registry knows the model by, and `start` are the sizes of one whose weights
    this one is to start from.
    """
    told: dict[str, Any] = {"model": model, "training": training}
    refuse_settings(name, preset=preset, seed=seed, minutes=minutes, epochs=epochs, **told)
    budget = BUDGETS["cuda" if device.type == "cuda" else "cpu"]
    points, queries, steps = typical_sizes(data)
    if minutes is None and epochs is None:
        minutes = MINUTES
    # Numbers of numpy are written down as Python's, or not at all.
    minutes = None if minutes is None else float(minutes)
    epochs = None if epochs is None else int(epochs)
    chosen, how = _sizes(name, preset, budget, _frequency(data), device)
    whole = bool(ALL_POINTS & registry.find("models", name).needs)
    how = replace(
        how,
        epochs=MOST_EPOCHS if epochs is None else epochs,
        minutes=minutes,
        batch=min(how.batch, max(1, len(data) // 4)),
        patience=PATIENCE,
        points=1.0 if whole else _share(budget.points, points),
        queries=1.0 if whole else _share(budget.queries, queries * steps),
        seed=seed,
    )
    chosen = _changed("model", start or chosen, model)
    how = _changed("training", how, training)
    return Plan(chosen, how, True, _said(name, chosen, how, device), name)


def _sizes(
    name: str, preset: str, budget: Budget, frequency: int, device: torch.device
) -> tuple[Any, Training]:
    """Model and training as far as they follow from the device and from how dense points are."""
    features = {"bins": (max(2, frequency // 2),), "max_frequency": (float(frequency),)}
    if name == MODEL:
        chosen = Config(
            width=budget.width,
            latents=budget.latents,
            blocks=budget.blocks,
            heads=budget.heads,
            cross_heads=budget.cross_heads,
            **features,
        )
        rate = 1e-3 if preset == "paper" else budget.learning_rate
        how = Training(batch=budget.batch, learning_rate=rate)
        return (_paper() if preset == "paper" else chosen), how
    config = registry.default_config(name)
    # Batch, rate and schedule as its authors, or we, train it on problems.
    found = systems.recipe(name, "", "default", config)[0]
    chosen = found.model if device.type == "cuda" else systems.small(name, found.model)
    known = {f.name for f in fields(chosen)}
    return replace(chosen, **features if known >= set(features) else {}), found.training


def named_model(given: Any) -> tuple[str | None, dict[str, Any] | None]:
    """The name of a model and its settings, of what `model=` was given: a name, a dictionary of
    settings, or one with the name among them."""
    name, told = (given, None) if isinstance(given, str) else (None, given)
    if isinstance(told, Mapping) and "name" in told:
        name, told = told["name"], {k: v for k, v in told.items() if k != "name"}
        if not isinstance(name, str):
            raise Unsupported(f"model.name must be the name of a model, got {shown(name)}")
    if name is not None:
        name = name if "." in name else name.replace("-", "_").lower()
        registry.find("models", name)  # one that is not known is refused, with those that are
    return name, told


def refuse_settings(
    name: str | None,
    *,
    preset: str,
    seed: int,
    minutes: float | None,
    epochs: int | None,
    model: dict[str, Any] | None,
    training: dict[str, Any] | None,
) -> None:
    """Refuse impossible settings before any data are read; settings of the model only if the model
    is known."""
    if preset not in PRESETS:
        raise Unsupported(f"unknown preset {shown(preset)}. Known: {', '.join(PRESETS)}")
    if not (_whole(seed) and 0 <= seed < 2**63):
        raise Unsupported(f"seed must be a whole number from 0 to 2^63 - 1, got {shown(seed)}")
    if epochs is not None and not (_whole(epochs) and epochs > 0):
        raise Unsupported(f"epochs must be a whole number of at least 1, got {shown(epochs)}")
    if minutes is not None and not (_real(minutes) and 0 < minutes < math.inf):
        raise Unsupported(f"minutes must be a positive number, got {shown(minutes)}")
    if preset == "paper" and name not in (MODEL, None):
        raise Unsupported(
            f"preset='paper' has the sizes of {MODEL}, and the model is {name}: leave one of them "
            "out"
        )
    if name is not None:
        _given("model", type(registry.default_config(name)), model)
    _given("training", Training, training)


def refuse_misspelt(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse misspelt arguments, and name those that are probably meant."""
    known = sorted(known)
    for name in given:
        if name not in known and (alike := difflib.get_close_matches(name, known, n=1)):
            raise UnknownName(f"ipot.fit has no argument {shown(name)}. Did you mean {alike[0]}?")


def _given(name: str, cls: type, given: Any) -> dict[str, Any]:
    """Settings given by the user, converted to their types."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        example = '{"width": 96}' if name == "model" else '{"batch": 20}'
        or_name = "the name of a model or " if name == "model" else ""
        raise Unsupported(
            f"{name} must be {or_name}a dictionary of settings, like {example}, got {shown(given)}"
        )
    known = [f.name for f in fields(cls)]
    if unknown := [key for key in given if key not in known]:
        raise Unsupported(
            f"{name}: no such setting as {', '.join(map(shown, unknown))}. Known: "
            f"{', '.join(known)}"
        )
    hints, found = get_type_hints(cls), {}
    for key, value in given.items():
        where = f"{name}.{key}"
        try:
            found[key] = from_value(hints[key], plain(value, where, exact=True), where)
        except RunError as error:
            # The words are those of a file, which has no None.
            raise Unsupported(str(error).replace(" or null, got", " or None, got")) from error
    return found


def _changed(name: str, settings: Any, given: dict[str, Any] | None) -> Any:
    """Settings with some of them changed."""
    changes = _given(name, type(settings), given)
    try:
        return replace(settings, **changes)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"{name}={changes}: {error}") from error


def _real(number: Any) -> bool:
    return isinstance(number, Real) and not isinstance(number, bool)


def _whole(number: Any) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _paper() -> Config:
    """The sizes of the publication, for data of any extent and in any units."""
    sizes = paper.model("darcy")
    return replace(
        sizes,
        bins=sizes.bins[:1],
        max_frequency=sizes.max_frequency[:1],
        coordinates="unit",
        output_scale=1.0,
    )


def typical_sizes(data: Dataset) -> tuple[int, int, int]:
    """Points, queries and times of a sample in the middle."""
    samples = [data[0]] if data.data.stacked else [data[i] for i in range(len(data))]
    points = sorted(len(s.points) for s in samples)
    queries = sorted(s.queries.shape[-2] for s in samples)
    return points[len(points) // 2], queries[len(queries) // 2], len(samples[0].times)


def _share(wanted: int, there: int) -> float:
    return min(1.0, wanted / there) if there else 1.0


def _frequency(data: Dataset) -> int:
    """Twice the highest frequency of the position features: what the denser of inputs and queries
    resolves along an axis, but not so much that an answer between the points would be noise."""
    first = data[0]
    queries = first.queries if first.queries.ndim == 2 else first.queries[0]
    lines = max(_lines(first.points, data.spec.domain), _lines(queries, data.spec.query_domain))
    return int(min(32, max(4, 2 * (round(lines) // 4))))


def _lines(places: Tensor, domain: Bounds) -> float:
    """How many points lie along a side of the domain, by how far neighbours are apart.

    So that a surface in space counts as the surface that it is, and not as a thin volume.
    """
    if len(places) < 2:
        return 0.0
    low = np.array([a for a, _ in domain])
    size = np.array([b - a for a, b in domain])
    rows = np.unique((places.double().numpy() - low) / size, axis=0)
    # Four neighbours of a node on a grid are as far away as its spacing; on a line, two.
    nearest = min(len(rows) - 1, 2 if rows.shape[1] == 1 else 4)
    if nearest < 1:
        return 0.0
    some = rows[:: max(1, len(rows) // MEASURED)]
    apart = KDTree(rows).query(some, k=nearest + 1)[0][:, -1]
    return 1.0 + 1.0 / float(np.median(apart))


def _said(name: str, model: Any, how: Training, device: torch.device) -> tuple[str, ...]:
    """A sentence on what was chosen."""
    length = f"{how.minutes:g} minutes" if how.minutes is not None else f"{how.epochs} epochs"
    seen = ""
    if how.points < 1 or how.queries < 1:
        seen = (
            f"; a step looks at {100 * how.points:.0f} % of the points and "
            f"{100 * how.queries:.0f} % of the queries, drawn anew"
        )
    known = {f.name: getattr(model, f.name) for f in fields(model)}
    words = {"latents": "{} inducing points", "width": "width {}", "blocks": "{} blocks"}
    sizes = [words[size].format(known[size]) for size in words if size in known]
    if "max_frequency" in known:
        sizes.append(f"frequencies up to {known['max_frequency'][0] / 2:g} along an axis")
    return (
        f"model: {', '.join([name, *sizes])}",
        f"training: {length} on {device.type}, {how.batch} samples a step{seen}",
    )
