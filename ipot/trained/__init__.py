"""Trained models that come with the package: each a folder here, by the name that is asked for.

    config.json, model.safetensors, README.md    a saved model, as `model.save` writes it
    samples.npz                                  a few test samples, to try it with

`tools/train_shipped.py` trains them and writes these folders. Nothing here imports torch, so that a
list of the models, or a page about them, is there at once.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Any

from ipot import safe_read
from ipot.errors import UnknownName, shown

CONFIG, WEIGHTS, CARD, SAMPLES = "config.json", "model.safetensors", "README.md", "samples.npz"
_HERE = Path(__file__).parent


@cache
def names() -> tuple[str, ...]:
    """The models that there are: only these words name one, so a word never becomes a path."""
    return tuple(sorted(path.parent.name for path in _HERE.glob(f"*/{CONFIG}")))


def folder(name: str) -> Path:
    """The saved model of a name."""
    if name not in names():
        raise UnknownName(unknown(name))
    return _HERE / name


def samples(name: str) -> Path:
    """The archive of a model's test samples: points, values, queries, targets, parameters, times as
    far as it has them, with an axis for samples in front where these differ."""
    return folder(name) / SAMPLES


def facts(name: str) -> dict[str, Any]:
    """What a list says of a model, read from its config.json."""
    place = folder(name)
    content = safe_read.read_json(place / CONFIG)
    scores, about, spec = content["scores"], content["about"], content["spec"]
    samples_kept = about.get("samples", {})
    return {
        "name": name,
        "problem": spec["name"],
        "title": about.get("title", name),
        "model": content["model"]["name"],
        "error": scores.get("held_out"),
        "simple": _best_of(scores.get("baselines") or {}),
        "scores": scores,
        "test_samples": samples_kept.get("held out"),
        "seconds": about.get("seconds"),
        "machine": about.get("machine"),
        "command": about.get("command"),
        "commit": about.get("commit"),
        "license": content["license"],
        "parameters": about.get("parameters"),
        "points": spec["shape"],
        "steps": spec["steps"],
        "bytes": (place / WEIGHTS).stat().st_size,
        "folder_bytes": sum(p.stat().st_size for p in place.iterdir() if p.is_file()),
    }


def _best_of(baselines: dict[str, float]) -> dict[str, Any] | None:
    """The simple answer with the lowest error on the same samples, where some were scored."""
    if not baselines:
        return None
    name = min(baselines, key=baselines.__getitem__)
    return {"name": name, "error": baselines[name]}


def unknown(name: Any) -> str:
    """The sentence that refuses a name that there is no model of."""
    there = ", ".join(names()) or "none in this copy of ipot"
    near = difflib.get_close_matches(str(name)[:100], names(), n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"there is no trained model {shown(name)} in the package.{meant} There are: {there}."
