"""`ipot.load`: a trained model, of the package, from a folder or from the Hugging Face Hub."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import torch

from ipot import trained
from ipot.data.argument_checks import flag, near, path_given
from ipot.data.own import Layout
from ipot.device import choose
from ipot.errors import DataError, RunError, UnknownName, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.formats.series.description import Series
from ipot.recipes.experiment import Experiment
from ipot.recipes.own_data import OwnData
from ipot.recipes.running import RANGES, ended, restore
from ipot.run_folder import Run, run_at
from ipot.saved.config_file import CONFIG, check_layout
from ipot.saved.folder import FILES, WEIGHTS, looks_saved, read_folder
from ipot.saved.hub import commit_of, fetch_from_hub
from ipot.surrogate.surrogate import Surrogate
from ipot.typed_json import to_dict

RANGE = re.compile(r"(value|target|parameter)_(usual_)?(low|high)")
WEIGHTS_OF_A_RUN = ("best", "last")
_log = logging.getLogger("ipot")


def load(
    path: Path | str,
    *,
    device: str = "auto",
    weights: str = "best",
    trusted: bool = False,
    edited: bool = False,
) -> Surrogate:
    """A trained model: one that comes with the package, by its name (`ipot models --trained` lists
    them), or from the folder of a run (`ipot train`, or an `ipot fit` that was stopped) or of a
    saved model (`ipot fit`, `model.save`).

    A folder that names code outside this package is loaded only where it is `trusted`. A saved
    model whose files were changed after it was saved is loaded only as `edited`.
    """
    place, path = choose(device), folder_of(path)
    trusted, edited = flag("trusted", trusted), flag("edited", edited)
    if weights not in WEIGHTS_OF_A_RUN:
        raise UnknownName(f"unknown weights {shown(weights)}. Known: {', '.join(WEIGHTS_OF_A_RUN)}")
    if not looks_saved(path):
        run = run_at(path)
        _refuse_no_model(run.path)
        _refuse_damaged(path, run.path)
        model, settings = restore(run.path, place, weights, trusted=trusted)
        return Surrogate.of_experiment(model, settings, **facts_of_run(run, settings))
    if weights != "best":
        raise Unsupported(
            f"weights={shown(weights)} is for the folder of a run, and {path} is a saved model, "
            "which has its best weights alone: leave it out"
        )
    return _from_saved(path, place, trusted=trusted, edited=edited)


def folder_of(model: Path | str) -> Path:
    """The folder of a model given by name or path: one that comes with the package, a run, or a
    saved model. Everything that takes a model calls this.

    The name of a model in the package takes precedence over a folder of that name, which can be
    given as ./NAME. A `Path` always is a folder.
    """
    if isinstance(model, str) and model in trained.names():
        if Path(model).is_dir():
            _log.warning(
                "%s is the trained model of that name in the package; the folder here is ./%s",
                model,
                model,
            )
        return trained.folder(model)
    path = path_given("path", model)
    try:
        path.is_dir()
    except (OSError, ValueError) as error:  # too long, or with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{shown(os.fspath(model))} is no folder: {reason}.{_shipped()}") from error
    return path


def from_pretrained(
    repo_id: str, *, revision: str | None = None, device: str = "auto", edited: bool = False
) -> Surrogate:
    """A saved model from the Hugging Face Hub; `ipot.saved.hub.push_to_hub` puts one there.

    `revision` is a commit, a branch or a tag. The commit that was taken is kept as `revision` in
    `model.about`; without one asked for, the log says which it was. Code is never fetched.
    """
    folder = fetch_from_hub(repo_id, revision)
    model = load(folder, device=device, edited=edited)
    if commit := commit_of(folder, repo_id, revision):
        model.about |= {"repository": repo_id, "revision": commit}
    return model


def _from_saved(path: Path, place: torch.device, *, trusted: bool, edited: bool) -> Surrogate:
    model, saved = read_folder(path, place, trusted=trusted, edited=edited)
    settings = None
    if saved.experiment is not None:
        where = f"{path / CONFIG}: experiment"
        content = saved.experiment | {"code": saved.about.get("code")}
        settings = Experiment.from_dict(content, where, trusted=trusted)
    return Surrogate(
        model,
        saved.model,
        saved.spec,
        Layout.from_dict(saved.layout),
        scores=saved.scores,
        about=saved.about,
        bounds=None if saved.bounds is None else Conformal.from_state(saved.bounds),
        series=None if saved.series is None else Series.from_dict(saved.series),
        settings=settings,
        samples=saved.samples,
    )


def facts_of_run(folder: Run, settings: Experiment) -> dict[str, Any]:
    """How a run was trained and how it ended, from its folder."""
    data, counts = settings.problem, settings.data
    samples = {"train": counts.train, "validation": counts.validation}
    about: dict[str, Any] = {"samples": samples}
    if isinstance(data, OwnData):
        samples["held out"] = counts.test
        about |= {"columns": dict(data.columns), "data": data.fingerprints[0]}
    else:
        about["run"] = settings.problem_name
    about |= {"training": to_dict(settings.training, infinite=True), "preset": settings.preset}
    scores: dict[str, Any] = {}
    try:
        result = ended(folder)
    except RunError:  # damaged, and no weights depend on it
        result = None
    if result is not None:
        scores["validation"] = result.best_validation
        about |= {"epochs": result.epochs, "stopped early": result.out_of_patience}
        about |= {"steps": result.steps, "seconds": round(result.seconds, 1)}
    config = folder.config()
    if isinstance(code := config.get("code"), dict):
        # Without folders: a saved model goes to other people.
        about["code"] = {
            what: {**known, "file": Path(str(known.get("file"))).name}
            for what, known in code.items()
            if isinstance(known, dict)
        }
    made = config.get("environment")
    if isinstance(made, dict):
        about["environment"] = made
    return {"scores": scores, "about": about, "ranges": _ranges(folder, settings)}


def _ranges(folder: Run, settings: Experiment) -> dict[str, Any]:
    """The ranges of the training data, as a run wrote them down; earlier releases did not."""
    content = folder.config().get(RANGES)
    if content is None:
        return {}
    where = f"{folder.config_file}: {RANGES}"
    if not isinstance(content, dict) or not all(RANGE.fullmatch(str(name)) for name in content):
        raise RunError(f"{where} must hold ranges by name. Put back what was written.")
    try:
        layout = Layout.from_dict(content)
        check_layout(layout.as_dict(), settings.spec)
    except (DataError, RunError) as error:
        raise RunError(f"{where}: {error}. Put back what was written.") from error
    return {name: getattr(layout, name) for name in content}


def _shipped() -> str:
    """The models that a name alone would load, as the end of a sentence."""
    return f" Models in the package: {', '.join(trained.names())}." if trained.names() else ""


def _refuse_damaged(path: Path, run: Path) -> None:
    """Refuse a saved model whose config.json is damaged, rather than load the run inside it."""
    if run != path and any((path / name).exists() for name in (CONFIG, WEIGHTS)):
        raise RunError(
            f"{path / CONFIG} is missing or damaged, so the saved model beside it cannot be "
            f"checked. Fetch the folder again, or load the run that it was trained by: {run}"
        )


def _refuse_no_model(path: Path) -> None:
    """Refuse a path that is no folder of a model or a run, and say what a folder needs."""
    if (path / CONFIG).is_file():
        return
    wanted = (
        f"A saved model is a folder with {CONFIG} and {WEIGHTS}, as model.save(...) writes it; the "
        f"folder of a run has {CONFIG} and its own weights."
    )
    if path.is_file():
        where = f" Give the folder, {path.parent}." if path.name in FILES else ""
        raise RunError(f"{path} is a file. {wanted}{where}")
    if not path.is_dir():
        raise RunError(f"{path}: there is no such folder. {wanted}{near(path)}{_shipped()}")
    inside = sorted(str(p.parent) for p in path.glob(f"*/{CONFIG}"))[:5]
    where = f" There is one at {', '.join(inside)}." if inside else ""
    raise RunError(f"{path} holds no {CONFIG}. {wanted}{where}")
