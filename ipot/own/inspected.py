"""What is in a file, whichever room knows its format."""

from __future__ import annotations

from pathlib import Path

from ipot.formats import Inventory, inspect, kind_of
from ipot.formats.limits import is_pattern, is_there
from ipot.labelled.looked import inspect_series
from ipot.own.sources import LABELLED, holds_labelled


def inspected(path: Path | str) -> Inventory:
    """What a file, a folder or a pattern like `data/*.nc` holds."""
    path = Path(path)
    if not is_there(path) and is_pattern(path):
        return inspect_series(path)  # a pattern
    kind = kind_of(path)
    if kind in LABELLED or (kind == "folder" and holds_labelled(path)):
        return inspect_series(path)
    return inspect(path)
