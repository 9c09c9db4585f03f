"""Names: which are places, which number cases, and how odd ones are written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote

from ipot.errors import UnknownName, shown

WHOLE = ("points", "coords", "coordinates", "pos", "positions", "nodes", "vertices", "xyz", "xy")
"""What one array with all coordinates is called."""
AXES = (("x", "y", "z"), ("longitude", "latitude"), ("lon", "lat"))
"""What arrays or columns with one coordinate each are called; the first of a row must be there."""
CASES = ("case", "sample", "case_id", "sample_id", "id")
"""What the column is called that says which case a row belongs to."""


def axes_in(names: Iterable[str]) -> tuple[str, ...]:
    """The names among these that are coordinates, in their order, or none."""
    by_lower: dict[str, str] = {}
    for name in names:
        by_lower.setdefault(name.strip().lower(), name)
    for axes in AXES:
        found = tuple(by_lower[axis] for axis in axes if axis in by_lower)
        if axes[0] in by_lower and (axes == AXES[0] or len(found) == 2):
            # An x and a z without a y is a plane; the order stays.
            return found
    return ()


def whole_in(names: Iterable[str]) -> str | None:
    """The name among these that holds all coordinates."""
    by_lower = {name.strip().lower(): name for name in names}
    return next((by_lower[name] for name in WHOLE if name in by_lower), None)


def joined(names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Columns that are the components of one field (`u:0`, `u:1`, ...), as ParaView writes them."""
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        stem, colon, number = name.rpartition(":")
        if colon and stem and number.isascii() and number.isdigit() and len(number) < 4:
            groups.setdefault(stem, {}).setdefault(int(number), name)
    whole = {
        stem: tuple(parts[i] for i in range(len(parts)))
        for stem, parts in groups.items()
        if len(parts) > 1 and sorted(parts) == list(range(len(parts))) and stem not in names
    }
    out: list[tuple[str, tuple[str, ...]]] = []
    for name in names:
        stem = name.rpartition(":")[0]
        if name not in whole.get(stem, ()):
            out.append((name, (name,)))
        elif name == whole[stem][0]:
            out.append((stem, whole[stem]))
    return out


def components(name: str, count: int) -> tuple[str, ...]:
    """What the components of a field are called as channels."""
    if count == 1:
        return (name,)
    letters = "xyz" if count <= 3 else ""
    return tuple(f"{name}_{letters[i] if letters else i}" for i in range(count))


def written(name: str) -> str:
    """A name as a part of a path inside a file: any name comes back as it was."""
    # A dot alone means a place in HDF5, and an empty name nothing at all.
    return quote(name, safe=" ()[]+-=,:", errors="surrogatepass").replace(".", "%2E") or "%"


def read_back(name: str) -> str:
    """What `written` was given."""
    return "" if name == "%" else unquote(name, errors="surrogatepass")


def unknown(name: str, what: str, source: str, there: Iterable[str]) -> UnknownName:
    """The refusal of a name that is not there, with those that are."""
    found = list(there)
    some = ", ".join(found[:30]) + (f" and {len(found) - 30} more" if len(found) > 30 else "")
    return UnknownName(f"{source} has no {what} {shown(name)}; it has {some or 'none'}")
