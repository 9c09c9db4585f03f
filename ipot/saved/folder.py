"""A saved model is a folder, whole or absent, that loads without its data and without a trainer.

model.safetensors     all weights, and the scales of the data among them
config.json           which model, its settings, the facts of its problem, where it comes from
README.md             the same for people: a model card
bounds.safetensors    what intervals are made from, where the model was calibrated
samples.npz           a few samples to try it with, where some were small enough (samples.py)

Nothing in it is ever unpickled, and nothing that it names is imported unless it is trusted.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ipot import files, registry, trust
from ipot.data.argument_checks import flag
from ipot.errors import RunError, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.models import _shapes as shapes
from ipot.models.base import Operator
from ipot.safe_read import read_bytes
from ipot.saved import checksums, weights
from ipot.saved.card import card, scales_of
from ipot.saved.config_file import (
    CONFIG,
    KIND,
    NO_LICENSE,
    STORED,
    VERSION,
    check_layout,
    checked,
    current_config,
    read_json,
    spec_from_dict,
    told,
)
from ipot.saved.disk import whole_folder
from ipot.saved.samples import SAMPLES
from ipot.spec import Spec
from ipot.typed_json import from_dict, plain, to_dict
from ipot.version import __version__

WEIGHTS, CARD, BOUNDS = "model.safetensors", "README.md", "bounds.safetensors"
FILES = (WEIGHTS, CONFIG, CARD, BOUNDS, SAMPLES)
KEPT = ("training",)
"""What may lie in the folder besides, and stays: the run that the model comes from."""
_log = logging.getLogger("ipot")


@dataclass(frozen=True, kw_only=True, eq=False)
class Saved:
    """What a folder holds besides the weights."""

    model_name: str
    """What the registry knows the model by."""
    model: Any
    """Its settings, the `Config` of its module."""
    spec: Spec
    layout: dict[str, Any] = field(default_factory=dict)
    """How arrays were given, so that answers are given back alike."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was trained on, for how long, on what, when, by which versions; and its `license`,
    where somebody gave it one."""
    scores: dict[str, Any] = field(default_factory=dict)
    """Its errors on held-out samples, and those of simple baselines."""
    bounds: dict[str, Tensor] | None = None
    """What intervals are made from."""
    series: dict[str, Any] | None = None
    """How labelled arrays become samples and answers, for a model that was trained on such."""
    experiment: dict[str, Any] | None = None
    """The settings of its run, where it was trained on a built-in problem."""
    samples: bytes | None = None
    """The archive of a few samples, as it stands: no answer depends on it."""

    @property
    def license(self) -> str:
        """On what terms others may use it."""
        return str(self.about.get("license") or NO_LICENSE)

    def as_dict(self) -> dict[str, Any]:
        """The content of config.json."""
        about = {name: value for name, value in self.about.items() if name != "license"}
        return {
            "kind": KIND,
            "version": VERSION,
            "ipot": __version__,
            "model": {"name": self.model_name, "config": to_dict(self.model)},
            "spec": to_dict(self.spec),
            "layout": plain(self.layout, "layout", exact=True),
            "about": plain(about, "about"),
            "scores": plain(self.scores, "scores"),
            "series": None if self.series is None else plain(self.series, "series"),
            **({} if self.experiment is None else {"experiment": self.experiment}),
            "license": self.license,
        }


def is_saved(path: Path | str) -> bool:
    """Whether a folder says of itself that it is a saved model, of whatever version."""
    try:
        return read_json(Path(path) / CONFIG).get("kind") == KIND
    except RunError:
        return False


def looks_saved(path: Path | str) -> bool:
    """Like `is_saved`, but true of a damaged config.json too, so that errors speak of a model."""
    if is_saved(path):
        return True
    try:
        return json.dumps(KIND).encode() in read_bytes(Path(path) / CONFIG)
    except (RunError, FileNotFoundError):
        return False


def write_folder(
    path: Path | str,
    model: Operator,
    saved: Saved,
    *,
    overwrite: bool = False,
    precision: str = STORED[0],
) -> Path:
    """Save a model; the folder appears under its name when all of it is there.

    With the precision "float16" its weights are rounded, which config.json says as `stored`.

    With `overwrite` a saved model that is there already makes room, and nothing else ever does. A
    run that lies in the folder as `training` stays there.
    """
    target = Path(os.path.realpath(path))
    refuse_target(target, overwrite=flag("overwrite", overwrite))
    tensors = model.state_dict()
    found = shapes.shapes_of(tensors)
    wanted = shapes.wanted_shapes(saved.model_name, saved.model, saved.spec, found, "this model")
    shapes.refuse_unlike(found, wanted, "this model")
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"{name} is not finite, so the model is not saved: training diverged")
    content = saved.as_dict()
    if precision not in STORED:
        raise Unsupported(f"precision must be {' or '.join(STORED)}, got {shown(precision)}")
    if precision != STORED[0]:
        tensors = weights.rounded(tensors, dict(model.named_parameters()))
        content["stored"] = precision
    checked(content)
    check_layout(content["layout"], saved.spec)
    text = card(content, scales_of(model), bounded=saved.bounds is not None)
    try:
        again = partial(refuse_target, target, overwrite=overwrite)  # others may have been quicker
        with whole_folder(target, keep=KEPT, check=again) as folder:
            weights.write_tensors(folder / WEIGHTS, tensors)
            if saved.bounds is not None:
                weights.write_tensors(folder / BOUNDS, saved.bounds)
            if saved.samples is not None:
                (folder / SAMPLES).write_bytes(saved.samples)
            content[checksums.KEY] = checksums.checksums(content, _with_checksums(folder))
            # In its own order, which is that of the card: loaded and saved again, both are alike.
            files.write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")
            files.write_text(folder / CARD, text)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {target}: {reason}. What was there is as before.") from error
    return target


def read_saved(path: Path | str, *, trusted: bool = False) -> Saved:
    """What a folder says, as it stands: edits are noticed where the weights are read too.

    A model that lives outside this package is code, which loading would run: it is refused unless
    the folder is `trusted`.
    """
    return _saved(Path(path), _content(Path(path)), trusted=trusted)


def _content(folder: Path) -> dict[str, Any]:
    """The config.json of a folder as it stands."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise RunError(f"{folder} {what}; a saved model is a folder")
    return read_json(folder / CONFIG)


def _saved(folder: Path, content: dict[str, Any], *, trusted: bool) -> Saved:
    file = folder / CONFIG
    content = current_config(content, file)
    code = content["about"].get("code")
    name = trust.named_in_file(
        *("models", content["model"]["name"], file),
        trusted=trusted,
        recorded=code.get("model") if isinstance(code, dict) else None,
    )
    with told(file):
        kind = registry.config_of(name)
        if not is_dataclass(kind):
            raise RunError(f"model.name: {name} has no Config; see docs/extend.md")
        settings = from_dict(kind, content["model"]["config"], "model")
        spec = spec_from_dict(content["spec"], "spec")
        check_layout(content["layout"], spec)
    license = {} if content["license"] == NO_LICENSE else {"license": content["license"]}
    return Saved(
        model_name=name,
        model=settings,
        spec=spec,
        layout=content["layout"],
        about=content["about"] | license,
        scores=content["scores"],
        bounds=_bounds(folder / BOUNDS, spec),
        series=content["series"],
        experiment=content.get("experiment"),
        samples=_samples(folder / SAMPLES),
    )


def read_folder(
    path: Path | str,
    device: torch.device | str = "cpu",
    *,
    trusted: bool = False,
    edited: bool = False,
) -> tuple[Operator, Saved]:
    """A saved model on a device, ready to answer, and what its folder says of it.

    Settings, weights and bounds must be those that were saved, unless they may be `edited`.
    """
    folder, file = Path(path), Path(path) / WEIGHTS
    content = _content(folder)
    saved = _saved(folder, content, trusted=trusted)
    found = weights.read_shapes(file)
    wanted = shapes.wanted_shapes(saved.model_name, saved.model, saved.spec, found, path)
    if content.get("stored", STORED[0]) != STORED[0]:
        found = weights.widened(found)
    shapes.refuse_unlike(found, wanted, file)
    tensors = weights.read_tensors(file)  # those that were rounded are widened as they are copied
    if not edited:
        checksums.refuse_changed(content, _with_checksums(folder), folder / CONFIG)
    model = shapes.built(saved.model_name, saved.model, saved.spec, path)
    model.load_state_dict(tensors)
    return model.to(device).eval(), saved


def _with_checksums(folder: Path) -> dict[str, Path]:
    """The files that checksums are kept of, as far as they are there."""
    return {name: folder / name for name in (WEIGHTS, BOUNDS) if os.path.lexists(folder / name)}


def _samples(file: Path) -> bytes | None:
    """The samples beside a model as they stand. A model without them answers as well, so that what
    cannot be read is left out with a remark."""
    try:
        return read_bytes(file)
    except FileNotFoundError:
        return None
    except RunError as error:
        _log.warning("the samples beside the model are left out: %s", error)
        return None


def _bounds(file: Path, spec: Spec) -> dict[str, Tensor] | None:
    """What intervals are made from, refused where they are of another model."""
    if not os.path.lexists(file):  # a link that leads nowhere is no absence
        return None
    state = weights.read_tensors(file)
    try:
        if other := [name for name, tensor in state.items() if not tensor.is_floating_point()]:
            raise RunError(f"{', '.join(other[:4])} must be of real numbers")
        found = Conformal.from_state(state)
        channels = found.everywhere.quantiles.shape[2]
    except Exception as error:  # tensors of other ranks and types fail in as many ways
        raise RunError(
            f"{file} holds no bounds ({error}). Copy it again, or remove it and make others by "
            "model.calibrate(data)."
        ) from error
    if channels != len(spec.outputs):
        raise RunError(
            f"{file} bounds {channels} channels, and the model answers {len(spec.outputs)}: it is "
            "of another model. Remove it, and make others by model.calibrate(data)."
        )
    return state


def refuse_current(target: Path, argument: str = "") -> None:
    """Refuse the folder that the process is in, and those around it.

    A new folder takes the place of the target: the process would be left in one that is gone, and
    every relative path with it.
    """
    try:
        here = Path(os.path.realpath(os.curdir))
    except FileNotFoundError:  # it is gone already
        return
    if Path(os.path.realpath(target)) in (here, *here.parents):
        raise RunError(
            f"{argument}{target} is the current folder or one around it, and would be replaced: "
            "choose a folder inside it, or change to another one first"
        )


def refuse_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds something, unless it is a saved model that is to be replaced."""
    refuse_current(target)
    if not target.exists():
        return
    if not target.is_dir():
        raise RunError(f"{target} is a file: choose another place for the folder")
    there = sorted(p.name for p in target.iterdir() if p.name not in KEPT)
    if not there:
        return
    if not is_saved(target):
        raise RunError(
            f"{target} holds other things ({', '.join(there[:4])}): choose another place"
        )
    if not overwrite:
        raise RunError(f"{target} holds a saved model: choose another place, or overwrite=True")
    if others := [name for name in there if name not in FILES]:
        raise RunError(
            f"{target} holds {', '.join(others[:4])} besides a saved model, which would be lost: "
            "move it away, or choose another place"
        )
