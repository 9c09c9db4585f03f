"""How somebody's arrays were given, so that answers are given back alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ipot.data.scaling import Scaling
from ipot.errors import DataError, shown


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
    """Queries were an array (S, M, E), rows for every sample."""
    alone: bool = False
    """Samples had no points: their parameters alone tell them apart."""
    times: tuple[float, ...] = ()
    """Those of the targets, where they had any."""
    origin_scale: tuple[float, ...] = ()
    """What coordinates, less their origin, are divided by where float32 has no such numbers."""
    query_origin: tuple[float, ...] = ()
    """The origin of queries that have other coordinates than the points."""
    query_scale: tuple[float, ...] = ()
    value_offset: tuple[float, ...] = ()
    """Taken off every channel of the values in float64; then they are divided by the scale.
    Nothing is where these are empty."""
    value_scale: tuple[float, ...] = ()
    target_offset: tuple[float, ...] = ()
    target_scale: tuple[float, ...] = ()
    parameter_offset: tuple[float, ...] = ()
    parameter_scale: tuple[float, ...] = ()
    value_low: tuple[float, ...] = ()
    """The smallest and the largest number of every channel in training, less their offset."""
    value_high: tuple[float, ...] = ()
    target_low: tuple[float, ...] = ()
    target_high: tuple[float, ...] = ()
    parameter_low: tuple[float, ...] = ()
    parameter_high: tuple[float, ...] = ()

    def scaling(self, what: str) -> Scaling | None:
        """The change of units that points, queries, values, targets or parameters are held in."""
        if what == "queries" and not (self.query_origin or self.query_scale):
            what = "points"
        names = ("origin", "origin_scale") if what == "points" else _FIELDS[what]
        offset, scale = (getattr(self, name) for name in names)
        if not offset and not scale:
            return None
        return Scaling(offset or (0.0,) * len(scale), scale or (1.0,) * len(offset))

    def scalings(self) -> dict[str, Scaling]:
        """All changes of units that there are."""
        return {n: s for n in ("points", *_FIELDS) if (s := self.scaling(n)) is not None}

    def with_scaling(self, what: str, scaling: Scaling | None) -> Layout:
        """This layout with a change of units for one of them."""
        offset, scale = ((), ()) if scaling is None else (scaling.offset, scaling.scale)
        if what == "points":
            # Origins alone are what models had before there were scales.
            scale = () if all(s == 1 for s in scale) else scale
        names = ("origin", "origin_scale") if what == "points" else _FIELDS[what]
        return replace(self, **dict(zip(names, (offset, scale), strict=True)))

    def span(self, what: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The smallest and largest numbers of training, as they are held; empty where unknown."""
        name = what.removesuffix("s")
        return getattr(self, f"{name}_low"), getattr(self, f"{name}_high")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what there is no need to say is left out, as it was before."""
        return {k: v for k, v in asdict(self).items() if v != () or k in _ALWAYS}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Layout:
        """A layout from JSON, which somebody may have edited."""
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
                raise DataError(f"layout: {name} must be {wanted}, got {shown(value)}")
        return cls(**settings)


_ALWAYS = ("origin", "times")
_FIELDS = {
    "queries": ("query_origin", "query_scale"),
    **{f"{n}s": (f"{n}_offset", f"{n}_scale") for n in ("value", "target", "parameter")},
}


def _numbers(value: Any) -> bool:
    """Whether a value from JSON is a list of numbers."""
    return isinstance(value, list | tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    )
