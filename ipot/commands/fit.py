"""`ipot fit`: train on your own file or folder."""

from __future__ import annotations

from typing import Any

from ipot import registry
from ipot.commands.flags.fit import Fit
from ipot.commands.output import emit, say
from ipot.commands.parsing import flag_value, parse, settings_said
from ipot.errors import DataError
from ipot.own.fit import Interrupted, fit
from ipot.own.sizing import MODEL
from ipot.recipes.starting import Start
from ipot.run_folder import run_at
from ipot.training.settings import Training


def main(arguments: list[str]) -> int:
    """Run the command."""
    owner = _model_of(arguments)
    kinds = {"model": type(registry.default_config(owner)), "training": Training}
    said, rest = settings_said(arguments, kinds, "fit", owner)
    flags = parse(Fit, rest, "fit")
    try:
        return _fit(flags, said)
    except Interrupted as stop:
        say(f"ipot fit: stopped; the same command with --resume {stop.folder} goes on")
        return 128 + stop.signal


def _model_of(arguments: list[str]) -> str:
    """The model that settings are of: the one that is named, or that of the run to begin with."""
    if named := flag_value(arguments, "--model", ""):
        registry.find("models", named)
        return named
    if not any(word.startswith("--model.") for word in arguments):
        return MODEL
    before = flag_value(arguments, "--resume", "") or flag_value(arguments, "--start-from", "")
    if not before and "--resume-or-start" in arguments:
        out = flag_value(arguments, "--out", "")
        before = out if out and run_at(out).config_file.is_file() else ""
    if not before:
        return MODEL
    return Start.read(before, trusted="--trust" in arguments).settings.model_name


def _fit(flags: Fit, said: dict[str, dict[str, Any]]) -> int:
    if flags.out is None and flags.resume is None:
        raise DataError("--out is needed: a folder for the model")
    model = fit(
        flags.path,
        minutes=flags.minutes,
        epochs=flags.epochs,
        model=_model(flags.model, said["model"]),
        training=said["training"] or None,
        blend=None if flags.blend else False,
        preset=flags.preset,
        device=flags.device,
        seed=flags.seed,
        out=flags.out,
        resume=flags.resume,
        or_resume=flags.resume_or_start,
        start_from=flags.start_from,
        trusted=flags.trust,
        quiet=flags.quiet,
        **flags.options(),
    )
    if flags.json:
        emit({"out": str(flags.out or flags.resume), **model.scores})
    return 0


def _model(name: str | None, settings: dict[str, Any]) -> str | dict[str, Any] | None:
    """What `ipot.fit` is told of the model."""
    named = {} if name is None else {"name": name}
    return (named | settings) if settings else name
