"""The config.json of a saved model: read, brought up to date, and checked before it is used.

People edit such files. Whatever the rest of the package relies on is looked at here, so that a
mistake is told by the file and the entry that it is in, and not by what stumbles over it later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipot import safe_read
from ipot.data.layout import Layout
from ipot.errors import IpotError, RunError, shown
from ipot.spec import Spec
from ipot.typed_json import from_dict, from_value, to_dict, with_leaves
from ipot.version import __version__

CONFIG = "config.json"
KIND = "ipot-surrogate"
VERSION = 1
"""Version of the folder's layout."""
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a version of config.json to the next one: what is read is brought up to date step by step.
Version 1 is the first, so there is none yet."""
KEYS = (
    *("kind", "version", "model", "spec", "layout", "about", "scores", "license", "ipot"),
    *("series", "experiment", "checksums", "stored"),
)
NEEDED = ("model", "spec", "layout")
STORED = ("float32", "float16")
"""In which numbers weights may lie in their file: as they are, or rounded to half the bytes."""
LARGEST = 1 << 24
"""Bytes of config.json beyond which it is not read."""
ADVICE = "Put back what was saved, or save the model anew."
NO_LICENSE = "unknown"
MOST_STEPS = 1_000_000
"""Steps of a rollout that a file may ask for."""


def read_json(file: Path) -> dict[str, Any]:
    """An object from a file, which is looked at before it is read."""
    try:
        content = safe_read.read_json(file, most=LARGEST, advice=ADVICE)
    except FileNotFoundError as error:
        raise RunError(f"{file.parent} is not a saved model: it has no {CONFIG}") from error
    if not isinstance(content, dict):
        raise RunError(f"{file} must hold an object with names, got a {type(content).__name__}")
    return content


def current_config(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """The entries that a file holds, brought up to date and checked."""
    content = _current(content, file)
    with told(file):
        return checked(content)


def checked(content: dict[str, Any]) -> dict[str, Any]:
    """The entries, with those that were left out and may be; refused where one will not do.

    What belongs into `spec` and the model's `config` is for those who know these to say.
    """
    if odd := safe_read.what_is_odd(content):
        raise RunError(odd)
    if unknown := sorted(set(content) - set(KEYS)):
        raise RunError(f"unknown {', '.join(unknown)}; known: {', '.join(KEYS)}")
    if missing := [key for key in NEEDED if key not in content]:
        raise RunError(f"{', '.join(missing)} missing")
    model = _object(content["model"], "model")
    if set(model) != {"name", "config"}:
        raise RunError("model must have a name and a config, and nothing else")
    _text(model["name"], "model.name")
    layout = to_dict(from_dict(Layout, content["layout"], "layout"))
    series = content.get("series")
    if (stored := content.get("stored", STORED[0])) not in STORED:
        raise RunError(f"stored must be one of {', '.join(STORED)}, got {shown(stored)}")
    if content.get("experiment") is not None:
        _object(content["experiment"], "experiment")
    for name, digest in _object(content.get("checksums") or {}, "checksums").items():
        _text(digest, f"checksums.{name}")
    return content | {
        "layout": {name: layout[name] for name in content["layout"]},
        "about": _about(content.get("about", {})),
        "scores": _scores(content.get("scores", {})),
        "series": None if series is None else _with_gaps(_object(series, "series")),
        "license": _text(content.get("license", NO_LICENSE), "license"),
        "ipot": _text(content.get("ipot", "?"), "ipot"),
    }


@contextmanager
def told(file: Path) -> Iterator[None]:
    """Errors with the file that they are in, and what to do."""
    try:
        yield
    except IpotError as error:
        said = str(error).rstrip(".")
        raise RunError(f"{file}: {said}. {ADVICE}") from error


def check_layout(layout: dict[str, Any], spec: Spec) -> None:
    """Refuse an origin or times that are not those of the facts."""
    origin, times = layout.get("origin", ()), layout.get("times", ())
    _check_scalings(layout, spec)
    own = bool(layout.get("query_origin"))  # queries of other coordinates have one of their own
    if origin and not (
        len(origin) == spec.dimension and (own or len(origin) == spec.query_dimension)
    ):
        raise RunError(
            f"layout: origin has {len(origin)} numbers; points have {spec.dimension} coordinates "
            f"and queries {spec.query_dimension}"
        )
    if len(times) > spec.steps or any(b <= a for a, b in zip((0, *times), times, strict=False)):
        raise RunError(
            f"layout: times must rise from above 0 and be no more than the {spec.steps} of "
            f"spec.steps, got {shown(times)}"
        )


def _check_scalings(layout: dict[str, Any], spec: Spec) -> None:
    """Refuse changes of units of another number of channels, or that cannot be undone."""
    counts = {
        "origin": spec.dimension,
        "query": spec.query_dimension,
        "value": spec.channels,
        "target": len(spec.outputs),
        "parameter": len(spec.parameters),
    }
    parts = ("origin", "offset", "scale", "low", "high", "usual_low", "usual_high")
    for name, count in counts.items():
        for key in (f"{name}_{part}" for part in parts):
            found = layout.get(key, ())
            if found and len(found) != count:
                raise RunError(f"layout: {key} has {len(found)} numbers, and there are {count}")
            if key.endswith("scale") and any(n <= 0 for n in found):
                raise RunError(f"layout: {key} must be positive, got {shown(found)}")


def spec_from_dict(content: Any, where: str) -> Spec:
    """The facts of a problem from JSON, checked as far as a model could stumble over them."""
    spec = from_dict(Spec, content, where)
    if not spec.outputs or not spec.domain:
        raise RunError(f"{where}: outputs and domain must name at least one each")
    if not (spec.dt > 0 and 1 <= spec.steps <= MOST_STEPS):
        raise RunError(
            f"{where}: dt must be positive and steps between 1 and {MOST_STEPS}, got {spec.dt} "
            f"and {spec.steps}"
        )
    if not 0 <= spec.history * len(spec.outputs) <= len(spec.inputs):
        raise RunError(
            f"{where}: history is {spec.history} frames of {len(spec.outputs)} outputs, and there "
            f"are {len(spec.inputs)} inputs"
        )
    for name in ("domain", "query_domain"):
        for low, high in getattr(spec, name):
            if not low < high:
                raise RunError(f"{where}: {name} has a side from {low} to {high}")
    for name in ("periods", "query_periods"):
        if any(period is not None and period <= 0 for period in getattr(spec, name)):
            raise RunError(f"{where}: {name} must be positive, or null, got {getattr(spec, name)}")
    for name, kind in (
        ("units", "outputs"),
        ("input_units", "inputs"),
        ("parameter_units", "parameters"),
    ):
        count, channels = len(getattr(spec, name)), len(getattr(spec, kind))
        if count not in (0, channels):
            raise RunError(f"{where}: {name} has {count} entries for {channels} {kind}")
    return spec


def _current(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings as this version writes them, or a refusal by kind and version."""
    if (kind := content.get("kind")) != KIND:
        raise RunError(
            f"{file} is of the kind {shown(kind)}, and a saved model of ipot is {KIND!r}. Give the "
            "folder of such a one, or undo the edit."
        )
    version = content.get("version")
    if type(version) is not int or not 0 <= version <= VERSION:
        raise RunError(
            f"{file} has version {shown(version)}; this ipot ({__version__}) reads versions up to "
            f"{VERSION}. Install the release that wrote it (ipot {shown(content.get('ipot'))})."
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


def _about(about: Any) -> dict[str, Any]:
    """What it was made from: free, but for what is counted with."""
    found = {k: _finite(v) for k, v in _object(about, "about").items()}
    for name, count in _object(found.get("samples", {}), "about.samples").items():
        from_value(int, count, f"about.samples.{name}")
    _object(found.get("columns", {}), "about.columns")
    return found


def _scores(scores: Any) -> dict[str, Any]:
    """Its errors: free, but for those that are compared; null among them is NaN, not known."""
    found = {k: _finite(v) for k, v in _object(scores, "scores").items()}
    for name in found.keys() & {"validation", "held_out"}:
        found[name] = _error(found[name], f"scores.{name}")
    for name in found.keys() & {"baselines", "per_channel"}:
        found[name] = _errors(found[name], f"scores.{name}")
    if "baselines_per_channel" in found:
        name = "scores.baselines_per_channel"
        simple = _object(found["baselines_per_channel"], name)
        found["baselines_per_channel"] = {k: _errors(v, f"{name}.{k}") for k, v in simple.items()}
    return found


def _errors(values: Any, where: str) -> dict[str, float]:
    return {k: _error(v, f"{where}.{k}") for k, v in _object(values, where).items()}


def _error(value: Any, where: str) -> float:
    if value is None:
        return math.nan
    return from_value(float, value, where)


def _finite(value: Any) -> Any:
    """NaN and infinity, which Python reads and JSON has none of, as null."""
    return with_leaves(
        value, lambda x: None if isinstance(x, float) and not math.isfinite(x) else x
    )


def _with_gaps(value: Any) -> Any:
    """A series as it was: coordinates may have gaps, and JSON writes NaN in a list as null."""
    if isinstance(value, dict):
        return {key: _with_gaps(v) for key, v in value.items()}
    if isinstance(value, list):
        return [math.nan if v is None else _with_gaps(v) for v in value]
    return value


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RunError(f"{where} must be an object with names, got {shown(value)}")
    return value


def _text(value: Any, where: str) -> str:
    return from_value(str, value, where)
