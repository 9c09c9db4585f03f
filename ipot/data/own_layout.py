"""How somebody's arrays were given, so that answers are given back alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ipot.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the arrays were given, so that answers are given back alike."""

    flat_values: bool = False
    """Values had no axis for channels."""
    flat_targets: bool = False
    """Targets had no axis for channels."""
    flat_parameters: bool = False
    timed: bool = False
    """Targets had an axis for times."""
    origin: tuple[float, ...] = ()
    """Taken off the coordinates, which would be rounded too much so far from zero."""
    curved: bool = False
    """Places had the axes of a grid whose lines are not straight."""
    own_points: bool = False
    """Points were an array (S, N, D), rows for every sample: such arrays are no grid later."""
    own_queries: bool = False
    """The same of the queries."""
    alone: bool = False
    """Samples had no points: their parameters alone tell them apart."""
    times: tuple[float, ...] = ()
    """Those of the targets, where they had any."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Layout:
        """The same from JSON, which somebody may have edited."""
        kinds = {f.name: bool if f.type == "bool" else tuple for f in fields(cls)}
        if unknown := sorted(set(content) - set(kinds)):
            raise DataError(f"layout: unknown {', '.join(unknown)}; known: {', '.join(kinds)}")
        settings: dict[str, Any] = {}
        for name, value in content.items():
            if kinds[name] is bool and isinstance(value, bool):
                settings[name] = value
            elif kinds[name] is tuple and _numbers(value):
                settings[name] = tuple(float(v) for v in value)
            else:
                wanted = "true or false" if kinds[name] is bool else "a list of numbers"
                raise DataError(f"layout: {name} must be {wanted}, got {value!r}")
        return cls(**settings)


def _numbers(value: Any) -> bool:
    """Whether a value from JSON is a list of numbers."""
    return isinstance(value, list | tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    )
