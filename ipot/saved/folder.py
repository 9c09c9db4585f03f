"""A saved model is a folder, whole or absent, that loads without its data and without a trainer.

model.safetensors     all weights, and the scales of the data among them
config.json           which model, its settings, the facts of its problem, where it comes from
README.md             the same for people: a model card
bounds.safetensors    what intervals are made from, where the model was calibrated

Nothing in it is ever unpickled, and nothing that it names is imported unless it is trusted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ipot import files, registry
from ipot.errors import IpotError, RunError
from ipot.models.base import Operator
from ipot.recipes.experiment import build_model
from ipot.saved import weights
from ipot.saved.card import card, scales_of
from ipot.saved.disk import whole_folder
from ipot.saved.facts_json import from_dict, plain, spec_from_dict, spec_to_dict, to_dict
from ipot.spec import Spec
from ipot.version import __version__

KIND = "ipot-surrogate"
VERSION = 1
"""Version of the folder's layout."""
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a version of config.json to the next one: what is read is brought up to date step by step.
Version 1 is the first, so there is none yet."""

WEIGHTS, CONFIG, CARD, BOUNDS = (
    "model.safetensors",
    "config.json",
    "README.md",
    "bounds.safetensors",
)
FILES = (WEIGHTS, CONFIG, CARD, BOUNDS)
KEPT = ("training",)
"""What may lie in the folder besides, and stays: the run that the model comes from."""
LARGEST_CONFIG = 1 << 24
"""Bytes of config.json beyond which it is not read."""
KEYS = (
    *("kind", "version", "model", "spec", "layout", "about", "scores", "license", "ipot"),
    "series",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Saved:
    """What a folder holds besides the weights."""

    model_name: str
    """What the registry knows the model by."""
    model: Any
    """Its settings, the `Config` of its module."""
    spec: Spec
    layout: dict[str, Any] = field(default_factory=dict)
    """How arrays were given, so that answers are given back alike."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was trained on, for how long, on what, when, by which versions."""
    scores: dict[str, Any] = field(default_factory=dict)
    """Its errors on held-out samples, and those of simple baselines."""
    bounds: dict[str, Tensor] | None = None
    """What intervals are made from."""
    series: dict[str, Any] | None = None
    """How labelled arrays become samples and answers, for a model that was trained on such."""
    license: str = "unknown"

    def as_dict(self) -> dict[str, Any]:
        """The content of config.json."""
        return {
            "kind": KIND,
            "version": VERSION,
            "ipot": __version__,
            "model": {"name": self.model_name, "config": to_dict(self.model)},
            "spec": spec_to_dict(self.spec),
            "layout": plain(self.layout, "layout", exact=True),
            "about": plain(self.about, "about"),
            "scores": plain(self.scores, "scores"),
            "series": None if self.series is None else plain(self.series, "series"),
            "license": self.license,
        }


def is_saved(path: Path | str) -> bool:
    """Whether a folder says of itself that it is a saved model, of whatever version."""
    try:
        return _json(Path(path) / CONFIG).get("kind") == KIND
    except RunError:
        return False


def write_folder(
    path: Path | str, model: Operator, saved: Saved, *, overwrite: bool = False
) -> Path:
    """Save a model; the folder appears under its name when all of it is there.

    With `overwrite` a saved model that is there already makes room, and nothing else ever does. A
    run that lies in the folder as `training` stays there.
    """
    target = Path(os.path.realpath(path))
    refuse_target(target, overwrite=overwrite)
    tensors = model.state_dict()
    found = weights.shapes_of(tensors)
    wanted = weights.wanted_shapes(saved.model_name, saved.model, saved.spec, found, "this model")
    weights.refuse_unlike(found, wanted, "this model")
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"{name} is not finite, so the model is not saved: training diverged")
    content = saved.as_dict()
    text = card(content, scales_of(model), bounded=saved.bounds is not None)
    try:
        with whole_folder(target, keep=KEPT) as folder:
            weights.write_tensors(folder / WEIGHTS, tensors)
            files.write_json(folder / CONFIG, content)
            files.write_text(folder / CARD, text)
            if saved.bounds is not None:
                weights.write_tensors(folder / BOUNDS, saved.bounds)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {target}: {reason}. What was there is as before.") from error
    return target


def read_saved(path: Path | str, *, trusted: bool = False) -> Saved:
    """What a folder says, without the weights.

    A model that lives outside this package is code, which loading would run: it is refused unless
    the folder is `trusted`.
    """
    folder = Path(path)
    file = folder / CONFIG
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise RunError(f"{folder} {what}; a saved model is a folder")
    content = _current(_json(file), file)
    if unknown := sorted(set(content) - set(KEYS)):
        raise RunError(f"{file}: unknown {', '.join(unknown)}; known: {', '.join(KEYS)}")
    if missing := [key for key in ("model", "spec", "layout") if key not in content]:
        raise RunError(f"{file}: {', '.join(missing)} missing")
    model = content["model"]
    if not isinstance(model, dict) or set(model) != {"name", "config"}:
        raise RunError(f"{file}: model must have a name and a config, and nothing else")
    for key in ("layout", "about", "scores"):
        if not isinstance(content.get(key, {}), dict):
            raise RunError(f"{file}: {key} must be an object with names")
    if not isinstance(content.get("series"), dict | None):
        raise RunError(f"{file}: series must be an object with names, or null")
    name = _known(model["name"], file, trusted=trusted)
    try:
        kind = registry.module("models", name).Config
    except (IpotError, AttributeError) as error:
        raise RunError(f"{file}: {error}") from error
    bounds = folder / BOUNDS
    return Saved(
        model_name=name,
        model=from_dict(kind, model["config"], f"{file}: model"),
        spec=spec_from_dict(content["spec"], f"{file}: spec"),
        layout=content["layout"],
        about=content.get("about", {}),
        scores=content.get("scores", {}),
        bounds=weights.read_tensors(bounds, infinite=True) if bounds.exists() else None,
        series=_with_gaps(content.get("series")),
        license=str(content.get("license", "unknown")),
    )


def read_folder(
    path: Path | str, device: torch.device | str = "cpu", *, trusted: bool = False
) -> tuple[Operator, Saved]:
    """A saved model on a device, ready to answer, and what its folder says of it."""
    saved, file = read_saved(path, trusted=trusted), Path(path) / WEIGHTS
    found = weights.read_shapes(file)
    wanted = weights.wanted_shapes(saved.model_name, saved.model, saved.spec, found, path)
    weights.refuse_unlike(found, wanted, file)
    tensors = weights.read_tensors(file)
    model = build_model(saved.model_name, saved.model, saved.spec)
    model.load_state_dict(tensors)
    return model.to(device).eval(), saved


def _json(file: Path) -> dict[str, Any]:
    """An object from a file, which is looked at before it is read."""
    try:
        if file.stat().st_size > LARGEST_CONFIG:
            raise RunError(f"{file} is larger than {LARGEST_CONFIG >> 20} MiB: it is no settings")
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{file.parent} is not a saved model: it has no {CONFIG}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{file} must hold an object with names, got a {type(content).__name__}")
    return content


def _current(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings as this version writes them, or a refusal by kind and version."""
    if (kind := content.get("kind")) != KIND:
        raise RunError(f"{file} is of the kind {kind!r}, and a saved model of ipot is {KIND!r}")
    version = content.get("version")
    if type(version) is not int or not 0 <= version <= VERSION:
        raise RunError(
            f"{file} has version {version!r}; this ipot ({__version__}) reads versions up to "
            f"{VERSION}. Install the release that wrote it (ipot {content.get('ipot', '?')})."
        )
    while version < VERSION:
        if version not in MIGRATIONS:
            raise RunError(
                f"{file} has version {version}, which this ipot ({__version__}) no longer reads. "
                "Load and save it with an earlier release, or train again."
            )
        content = MIGRATIONS[version](content) | {"version": version + 1}
        version += 1
    return content


def _with_gaps(value: Any) -> Any:
    """A series as it was: coordinates may have gaps, and JSON writes NaN in a list as null."""
    if isinstance(value, dict):
        return {key: _with_gaps(v) for key, v in value.items()}
    if isinstance(value, list):
        return [math.nan if v is None else _with_gaps(v) for v in value]
    return value


def _known(name: Any, file: Path, *, trusted: bool) -> str:
    """A model's name, refused where it would import somebody's code."""
    if not isinstance(name, str):
        raise RunError(f"{file}: the model's name must be a text, got {name!r}")
    name = name.removeprefix("ipot.models.")
    if "." in name and not trusted:
        raise RunError(
            f"{file}: its model is {name!r}, a module outside ipot. Loading would run that code: "
            "pass trusted=True if you know where the folder comes from."
        )
    return name


def refuse_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds something, unless it is a saved model that is to be replaced."""
    if not target.exists():
        return
    if not target.is_dir():
        raise RunError(f"{target} is a file: choose another place for the folder")
    there = sorted(p.name for p in target.iterdir() if p.name not in KEPT)
    if not there:
        return
    if not is_saved(target):
        raise RunError(
            f"{target} holds other things ({', '.join(there[:4])}): choose another place"
        )
    if not overwrite:
        raise RunError(f"{target} holds a saved model: choose another place, or overwrite=True")
    if others := [name for name in there if name not in FILES]:
        raise RunError(
            f"{target} holds {', '.join(others[:4])} besides a saved model, which would be lost: "
            "move it away, or choose another place"
        )
