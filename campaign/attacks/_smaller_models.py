"""Simpler cases of random models: what leaves a finding as it is was no part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from campaign.attack import Case
from campaign.attacks._random_models import GRIDDED

SIMPLEST: dict[str, dict[str, Any]] = {
    "batch": {
        "scale": 1.0,
        "offset": 0.0,
        "numbers": "normal",
        "rubbish": "zeros",
        "memory": "plain",
        "duplicates": False,
        "moving": False,
        "places": "apart",
        "layout": "own",
        "seed": 0,
    },
    "spec": {
        "parameters": 0,
        "steps": 1,
        "dimension": 1,
        "channels": 1,
        "outputs": 1,
        "periodic": False,
        "globe": False,
    },
    "model": {
        "blocks": 1,
        "norms": False,
        "gain": 1.0,
        "tied": False,
        "feed_forward": 1,
        "cross_head_width": None,
        "coordinates": "unit",
        "local": False,
        "seed": 0,
        "bins": 1,
        "cross_heads": 1,
        "heads": 1,
    },
    "": {"normalized": False, "inputs": [], "threads": 1, "steps": 1, "clipped": False},
}
"""What each setting is when nothing is special about it."""
SIZES = {
    "batch": {"size": 1, "points": 1, "queries": 1},
    "model": {"latents": 1, "width": 8},
}
"""Numbers that may be halved, and how far."""
BOUND_PLACES = ("transolver", "fno", "meshgraphnet")


def simpler(case: Case) -> Iterator[Case]:
    """A case with one thing made simple, the sizes first."""
    for part, limits in SIZES.items():
        for name, least in limits.items():
            for size in dict.fromkeys((least, case[part].get(name, 0) // 2)):
                if least <= size < case[part].get(name, 0) and _fits(case, part, name, size):
                    yield _with(case, part, name, size)
    for part, settings in SIMPLEST.items():
        own = case[part] if part else case
        for name, value in settings.items():
            if name in own and own[name] != value and _fits(case, part, name, value):
                yield _with(case, part, name, value)


def _with(case: Case, part: str, name: str, value: Any) -> Case:
    if not part:
        return case | {name: value}
    return case | {part: case[part] | {name: value}}


def _fits(case: Case, part: str, name: str, value: Any) -> bool:
    """Whether a model still makes sense with it."""
    model, batch = case["model"], case["batch"]
    if name == "points":
        return not batch["grid"] and (model["name"] != "meshgraphnet" or value >= 5)
    if name == "width":
        heads = (model["heads"], model.get("cross_heads", 1))
        return all(value % h == 0 for h in heads)
    if name == "layout":
        fixed = model["name"] in (*GRIDDED, "deeponet") or case["way"] == "fixed" or batch["grid"]
        return not fixed
    if name == "places":
        return model["name"] not in BOUND_PLACES
    if name == "parameters":
        return batch["points"] > 0
    if name == "dimension":
        return not batch["grid"] and not case["spec"]["globe"]
    if (part, name) == ("spec", "steps"):
        return case["way"] != "recompute"
    return True
