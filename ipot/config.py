"""Settings: frozen dataclasses to JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

from ipot.errors import IpotError, RunError
from ipot.typed_json import from_value, hints_of, shown


def to_dict(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(kind: type, content: Any, where: str, part: str = "") -> Any:
    """The dataclass again; a name that it does not have is an error and not silently dropped.

    `where` is the file, and `part` the entry in it: a value of another type is refused by both.
    """
    inside = f"{part}." if part else ""
    if not isinstance(content, dict):
        raise RunError(f"{where}: {part} must be an object with names, got {shown(content)}")
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise RunError(f"{where}: unknown settings {', '.join(unknown)}; known: {', '.join(known)}")
    hints = hints_of(kind)
    given = {
        name: _setting(hints.get(name, Any), value, f"{where}: {inside}{name}")
        for name, value in content.items()
    }
    try:
        return kind(**given)
    except IpotError as error:
        raise RunError(f"{where}: {error}") from error
    except Exception as error:  # what looks at settings has many ways to say that they do not fit
        raise RunError(f"{where}: {part or 'settings'}: {error!r}") from error


def _setting(hint: Any, value: Any, where: str) -> Any:
    """A value as its type says. Infinity is a number here: no limit at all, in some settings."""
    if isinstance(value, float) and math.isinf(value) and float in (hint, *get_args(hint)):
        return value
    return from_value(hint, value, where)
