"""Fine-tuning: start training from the best weights of another run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipot import registry
from ipot.data.layout import CHANNELS, UNITS
from ipot.data.quantities import Agreement
from ipot.errors import RunError
from ipot.models.base import Operator
from ipot.recipes.experiment import Experiment, read_settings
from ipot.recipes.own_data import OwnData
from ipot.run_folder import Run, run_at
from ipot.spec import Spec
from ipot.training import checkpoint

FACTS = (
    *("inputs", "history", "outputs", "parameters", "sphere", "latlon", "geographic"),
    *("domain", "periods", "query_domain", "query_periods"),
)
"""What two problems must share for weights of one to be a start for the other."""
BOUNDS = ("domain", "query_domain")


@dataclass(frozen=True)
class Start:
    """Another run, from whose weights training starts."""

    folder: Run
    settings: Experiment

    @classmethod
    def read(cls, path: Path | str, *, trusted: bool = False) -> Start:
        """Its folder and settings; the same trust is needed as for loading it."""
        folder = Run.open(run_at(path).path)
        return cls(folder, read_settings(folder, trusted=trusted))


def refuse_start(settings: Experiment, source: Start) -> None:
    """Refuse to start from a run of another model, or of a problem with other facts."""
    other = source.settings
    ours, theirs = settings.spec, other.spec
    kinds = [registry.find("models", e.model_name) for e in (settings, other)]
    apart = [name for name in FACTS if getattr(ours, name) != getattr(theirs, name)]
    own = [e.problem for e in (settings, other) if isinstance(e.problem, OwnData)]
    if own:
        # Where other samples of the same kind lie is never quite the same, and is scaled anyway.
        apart = [name for name in apart if name not in BOUNDS or _axes(ours) != _axes(theirs)]
        units = [p.layout.scalings() for p in own] + [{}] * (2 - len(own))
        apart += ["units"] if units[0] != units[1] else []
    elsewhere = (ours.name != theirs.name or bool(own)) and bool(apart)
    if kinds[0] is kinds[1] and not elsewhere:
        _refuse_other_units(ours, theirs, source)
        return
    mine, found = settings.model_name, other.model_name
    if elsewhere:
        mine, found = f"{mine} for {ours.name}", f"{found} for {theirs.name}"
    differ = f" (other {', '.join(apart)})" if elsewhere else ""
    raise RunError(
        f"--start-from {source.folder.path}: it holds {found}, and {mine} cannot start from "
        f"that{differ}. Choose a run of the same model and problem."
    )


def _refuse_other_units(ours: Spec, theirs: Spec, source: Start) -> None:
    """Refuse numbers that would have to be converted for the weights to mean what they meant."""
    held = Agreement(str(source.folder.path))
    for column, key in UNITS.items():
        labels, given = getattr(ours, CHANNELS[column]), getattr(ours, key)
        wanted = getattr(theirs, key)
        if not len(labels) == len(given) == len(wanted):
            continue  # where one of them declares none
        for label, own, other in zip(labels, given, wanted, strict=True):
            if held.change(label, own, other, source="the data") is not None:
                raise RunError(
                    f"--start-from {source.folder.path}: it learned {label} in {other}, and here "
                    f"it is in {own}. Give the data in {other}, or start anew."
                )
    held.say()


def _axes(spec: Spec) -> tuple[int, int]:
    return spec.dimension, spec.query_dimension


def load_start(model: Operator, source: Start) -> None:
    """Give a model the best weights of another run, with its scales."""
    file = source.folder.best
    weights, state = checkpoint.load(file)
    problem = source.settings.problem.spec.name
    checkpoint.refuse_other(state, {"model": model.name, "problem": problem}, file)
    checkpoint.load_weights(model, weights, file)
