"""What flags say of data of one's own, in the words of `ipot.fit` and `ipot.compare`."""

from __future__ import annotations

from typing import Any

from ipot.commands.flags.own_data import OwnData
from ipot.errors import DataError
from ipot.formats.xarray_files import open_series


def data_said(flags: OwnData) -> dict[str, Any]:
    """Columns and options; those that were left out are, as for a caller in Python."""
    targets: Any = flags.targets
    if flags.targets_from is not None:
        targets = open_series(flags.targets_from)
        if flags.targets:
            targets = targets[list(flags.targets)]
    said: dict[str, Any] = {"inputs": flags.inputs, "targets": targets}
    said["parameters"] = flags.parameters
    for name in ("history", "lead", "every", "stride"):
        if getattr(flags, name) is not None:
            said[name] = getattr(flags, name)
    if flags.season:
        said["season"] = True
    if flags.periodic:
        said["periods"] = _periods(flags.periodic)
    if flags.geographic:
        said["geographic"] = True
    if flags.where != "points":
        said["where"] = flags.where
    return said


def _periods(words: tuple[str, ...]) -> dict[int, float]:
    found = {}
    for word in words:
        axis, _, period = word.partition("=")
        try:
            found[int(axis)] = float(period)
        except ValueError:
            raise DataError(f"--periodic {word}: expected AXIS=PERIOD, like 0=1.0") from None
    return found
