"""`ipot fit`: train on a file or a folder of one's own."""

from __future__ import annotations

from typing import Any

from ipot.commands.common import emit, parse, say
from ipot.commands.flags.fit import Fit
from ipot.errors import DataError
from ipot.formats.xarray_files import open_series
from ipot.own.fit import Interrupted, fit


def main(arguments: list[str]) -> int:
    """Run the command."""
    flags = parse(Fit, arguments, "fit")
    try:
        return _fit(flags)
    except Interrupted as stop:
        say(f"ipot fit: stopped; the same command with --resume {stop.folder} goes on")
        return 128 + stop.signal


def _fit(flags: Fit) -> int:
    if flags.out is None and flags.resume is None:
        raise DataError("--out is needed: a folder for the model")
    targets: Any = flags.targets
    options: dict[str, Any] = {}
    if flags.targets_from is not None:
        targets = open_series(flags.targets_from)
        if flags.targets:
            targets = targets[list(flags.targets)]
    for name in ("history", "lead", "every", "stride"):
        if getattr(flags, name) is not None:
            options[name] = getattr(flags, name)
    if flags.season:
        options["season"] = True
    if flags.periodic:
        options["periods"] = _periods(flags.periodic)
    if flags.geographic:
        options["geographic"] = True
    if flags.where != "points":
        options["where"] = flags.where
    model = fit(
        flags.path,
        inputs=flags.inputs,
        targets=targets,
        parameters=flags.parameters,
        minutes=flags.minutes,
        epochs=flags.epochs,
        model=flags.model,
        preset=flags.preset,
        device=flags.device,
        seed=flags.seed,
        out=flags.out,
        resume=flags.resume,
        or_resume=flags.resume_or_start,
        start_from=flags.start_from,
        trusted=flags.trust,
        quiet=flags.quiet,
        **options,
    )
    if flags.json:
        emit({"out": str(flags.out or flags.resume), **model.scores})
    return 0


def _periods(words: tuple[str, ...]) -> dict[int, float]:
    found = {}
    for word in words:
        axis, _, period = word.partition("=")
        try:
            found[int(axis)] = float(period)
        except ValueError:
            raise DataError(f"--periodic {word}: expected AXIS=PERIOD, like 0=1.0") from None
    return found
