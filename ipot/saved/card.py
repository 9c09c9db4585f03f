"""What a saved model says of itself to people: a model card in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ipot.data.layout import CHANNELS, Layout
from ipot.data.ranges import UNUSUAL
from ipot.models._wrappers import Normalized
from ipot.models.base import Operator

YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that mean something else where they are not quoted."""
LONG = 8
"""Entries beyond which a group of settings is not shown."""
Scales = dict[str, tuple[list[float], list[float]]]
"""Mean and deviation of every channel in the training data: of input, output and parameter."""


def scales_of(model: Operator) -> Scales:
    """The scales that a model carries."""
    found = next((m for m in model.modules() if isinstance(m, Normalized)), None)
    if found is None:
        return {}
    kinds = {kind: found.of_channels(kind) for kind in ("input", "output", "parameter")}
    return {kind: (mean.tolist(), scale.tolist()) for kind, (mean, scale) in kinds.items()}


def card(content: Mapping[str, Any], scales: Scales, *, bounded: bool = False) -> str:
    """The card of a model from the content of its config.json, and the scales of its data.

    `bounded` says that it has been calibrated, and so can give intervals.
    """
    spec = content["spec"]
    parts = [
        _front(content),
        f"# {_text(spec['name'])}",
        _summary(content),
        "## What goes in and out",
        _places(spec, content["layout"]),
        _channels(spec, scales, content["layout"]),
        "## How good it is",
        _scores(content["scores"]),
        "## How to use it",
        _usage(spec, bounded=bounded),
        "## What it cannot do",
        _limits(spec),
        "## Where it comes from",
        _about(content),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front(content: Mapping[str, Any]) -> str:
    """What a hub of models reads. Quoted where it is not ours: YAML has many special words."""
    tags = ("ipot", "operator-learning", "neural-operator", "surrogate-model")
    lines = [f"- {tag}" for tag in dict.fromkeys((*tags, _quoted(content["model"]["name"])))]
    license = _quoted(content["license"])
    return "\n".join(["---", "library_name: ipot", f"license: {license}", "tags:", *lines, "---"])


def _summary(content: Mapping[str, Any]) -> str:
    spec, model = content["spec"], content["model"]["name"]
    source = "parameters" if _parameters_alone(spec) else "values at any points"
    when = ""
    if spec["steps"] > 1:
        when = f", at {spec['steps']} times {spec['dt']:g} apart"
    return (
        f"A surrogate made with ipot (model `{_text(model)}`): "
        f"{source} in, {_listed(spec['outputs'])} at any places out{when}."
    )


def _places(spec: Mapping[str, Any], layout: Mapping[str, Any]) -> str:
    """Where inputs and queries lie, with what was taken off their coordinates put back."""
    rows = []
    units = Layout.from_dict(layout)
    same = (spec["domain"], spec["periods"]) == (spec["query_domain"], spec["query_periods"])
    for who, box, periods in (
        ("points and queries" if same else "points", spec["domain"], spec["periods"]),
        ("queries", spec["query_domain"], spec["query_periods"]),
    ):
        if (who == "queries" and same) or (who == "points" and _parameters_alone(spec)):
            continue
        for axis, ((low, high), period) in enumerate(zip(box, periods, strict=True)):
            start, scale = _unit(units, who, axis)
            wraps = "" if period is None else f"{period * scale:g}"
            ends = [
                f"{start + end * scale:.10g}" if start else f"{end * scale:g}"
                for end in (low, high)
            ]
            rows.append([who, _axis(spec, axis), *ends, wraps])
    return _table(["coordinates of", "axis", "from", "to", "period"], rows)


def _unit(layout: Layout, what: str, channel: int) -> tuple[float, float]:
    """The offset and the scale that numbers of a model are in."""
    scaling = layout.scaling("points" if what == "points and queries" else what)
    if scaling is None or channel >= len(scaling.offset):
        return 0.0, 1.0
    return scaling.offset[channel], scaling.scale[channel]


def _axis(spec: Mapping[str, Any], axis: int) -> str:
    if spec.get("geographic") and axis < 2:
        return ("longitude, degrees", "latitude, degrees")[axis]
    return str(axis)


def _channels(spec: Mapping[str, Any], scales: Scales, layout: Mapping[str, Any]) -> str:
    """Every channel with its unit and what it was in the training data."""
    rows = []
    held = Layout.from_dict(layout)
    known = any(held.span(column)[0] for column in CHANNELS)
    for key, kind in (("inputs", "input"), ("parameters", "parameter"), ("outputs", "output")):
        column = {"inputs": "values", "outputs": "targets"}.get(key, key)
        means, spreads = scales.get(kind, ([], []))
        units = spec.get("units" if kind == "output" else f"{kind}_units", [])
        for i, name in enumerate(spec[key]):
            offset, scale = _unit(held, column, i)
            digits = 12 if offset else 4
            seen = ""
            if i < len(means):
                seen = f"{offset + means[i] * scale:.{digits}g} ± {spreads[i] * scale:.3g}"
            row = [kind, name, units[i] if i < len(units) else "", seen]
            for low, high in (held.usual(column), held.span(column)) if known else ():
                ends = [offset + end[i] * scale for end in (low, high) if i < len(end)]
                row.append(" to ".join(f"{end:.{digits}g}" for end in ends))
            rows.append(row)
    heads = ["", "name", "unit", "in training, mean ± deviation"]
    ranges = [f"all but {UNUSUAL:.1%} at either end".replace("%", " %"), "smallest to largest"]
    return _table(heads + (ranges if known else []), rows)


def _scores(scores: Mapping[str, Any]) -> str:
    """All numbers that are known, nested ones by their path."""
    rows = [[name.replace("_", " "), _number(value)] for name, value in _flat(scores)]
    if not rows:
        return "It has not been scored on samples that it was not trained on."
    note = (
        "An error means little by itself. Compare it with what simple guesses score on the same "
        "samples, where the table has them."
    )
    return f"{_table(['', 'value'], rows)}\n\n{note}"


def _usage(spec: Mapping[str, Any], *, bounded: bool) -> str:
    given = []
    if not _parameters_alone(spec):
        given += ["points=x", *(["values=a"] if spec["inputs"] else [])]
    given += ["queries=y", *(["parameters=p"] if spec["parameters"] else [])]
    lines = [
        "import ipot",
        "",
        'model = ipot.load("path/to/this/folder")',
        f"u = model.predict({', '.join(given)})  # numpy in, numpy out",
    ]
    if bounded:
        lines.append(f"low, high = model.predict({', '.join(given)}, interval=0.9)[1:]")
    return "\n".join(["```python", *lines, "```"])


def _limits(spec: Mapping[str, Any]) -> str:
    lines = [
        "It has learnt from examples. Inputs unlike those it was trained on (other scales, other "
        "geometries, other physics) give answers that look as sure as any, and are not.",
        "Coordinates outside the ranges above are extrapolation, in space as in time.",
    ]
    if spec["steps"] > 1:
        lines.append(f"It was trained on {spec['steps']} steps; errors grow beyond them.")
    lines.append("It keeps to no conservation law or bound unless the data taught it to.")
    return "\n".join(f"- {line}" for line in lines)


def _about(content: Mapping[str, Any]) -> str:
    """What is known of its making; long lists of settings are left to config.json."""
    about = {
        name: value
        for name, value in content["about"].items()
        if not (isinstance(value, Mapping) and len(value) > LONG)
    }
    rows = [[name.replace("_", " "), _number(value)] for name, value in _flat(about)]
    rows.append(["saved by", f"ipot {content['ipot']}"])
    return _table(["", ""], rows)


def _parameters_alone(spec: Mapping[str, Any]) -> bool:
    return "POINTS" not in spec["provides"] and not spec["shape"]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested names in one row, lists of numbers cut short."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}, ")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = ", ".join(_number(v) for v in value[:6])
        return f"{shown}, ..." if len(value) > 6 else shown
    return "unknown" if value is None else str(value)


def _listed(names: Sequence[str]) -> str:
    shown = [f"`{_text(name)}`" for name in names[:8]]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(words: str) -> str:
    """Somebody's words in a line of Markdown: no new line, cell, tag or code can come of them."""
    words = re.sub(r"\s+", " ", str(words)).strip()
    return re.sub(r"([\\`|<>\[\]])", r"\\\1", words)


def _quoted(words: str) -> str:
    """Somebody's words as a plain word of YAML, or in quotes."""
    words = re.sub(r"\s+", " ", str(words)).strip()
    if re.fullmatch(r"[A-Za-z][\w.+-]*", words) and words.lower() not in YAML_WORDS:
        return words
    escaped = words.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
