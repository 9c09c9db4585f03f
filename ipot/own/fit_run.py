"""The folder of a fit: validate, create and resume it, and tell the data of runs apart."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ipot import files, lock
from ipot.data.own import Dataset
from ipot.data.own_given import path_given
from ipot.errors import RunError
from ipot.lock import locked
from ipot.models.ipot import Config
from ipot.own.sizing import Plan
from ipot.run_folder import Run, differences, environment, left_as_found
from ipot.saved.disk import recover_run
from ipot.saved.folder import is_saved, read_saved, refuse_current, refuse_target
from ipot.surrogate.loading import OWN_DATA, TRAINING
from ipot.training.settings import Training
from ipot.typed_json import from_dict, from_value, to_dict


class Interrupted(KeyboardInterrupt):
    """A signal ended a fit; `folder` is what to resume, or None where nothing was kept."""

    def __init__(self, signal: int, folder: Path | None) -> None:
        how = "nothing is kept, since no out=... was given"
        if folder is not None:
            how = f"go on with ipot.fit(data, resume={str(folder)!r})"
        super().__init__(f"stopped; {how}")
        self.signal, self.folder = signal, folder


@contextlib.contextmanager
def working_folder(out: Path | str | None, resume: Path | str | None) -> Iterator[Path]:
    """Where to work: a folder of the user's, or one that is gone afterwards.

    A folder that is taken, or cannot be written to, is refused at once; where nothing came of the
    fit, none is left behind.
    """
    out = None if out is None else path_given("out", out)
    resume = None if resume is None else path_given("resume", resume)
    if out is not None and resume is not None and out != resume:
        raise RunError(f"out={out} and resume={resume} are two folders: give one")
    if resume is not None:
        recover_run(resume, (TRAINING,))  # a save that was killed may have left it elsewhere
        if not Run(resume / TRAINING).config_file.is_file():
            raise RunError(f"resume={resume}: there is no run to go on with. Start one by out=...")
        # Now, and not when the model is to be saved at the end.
        refuse_target(resume, overwrite=True)
        with locked(resume / TRAINING, "training"):
            yield resume
        return
    if out is None:
        with tempfile.TemporaryDirectory(prefix="ipot-") as name:
            yield Path(name)
        return
    refuse_current(out, "out=")
    _refuse_taken(out)
    with left_as_found(out / TRAINING):
        try:
            # No file to try it with, which a kill might leave: the lock is the first to be written.
            files.make_folder(out / TRAINING)
        except OSError as error:
            raise RunError(
                f"out={out} cannot be written to: {error.strerror or error}. Choose another folder."
            ) from error
        with locked(out / TRAINING, "training"):
            # Another process may have begun since, and even have ended.
            Run(out / TRAINING).refuse_existing()
            yield out


def start_fit(run: Run, chosen: Plan, data: Dataset, *, preset: str, seed: int) -> None:
    """Create the run: write down what is needed to resume it."""
    content = {
        "kind": OWN_DATA,
        "model": to_dict(chosen.model, infinite=True),
        "training": to_dict(chosen.training, infinite=True),
        "normalize": chosen.normalize,
        "preset": preset,
        "seed": seed,
        "data": fingerprint(data),
        "environment": environment(),
    }
    Run.create(run.path, content)


def stored_settings(run: Run, told: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run; those that are told again must be the same."""
    content = run.config()
    if content.get("kind") != OWN_DATA:
        raise RunError(f"{run.path} is not a run of `ipot.fit`")
    _check(content, str(run.config_file))
    asked: dict[str, Any] = {n: told[n] for n in ("preset", "seed") if told.get(n) is not None}
    for part in ("model", "training"):
        given = dict(told.get(part) or {})
        if part == "training":
            given |= {n: told[n] for n in ("minutes", "epochs") if told.get(n) is not None}
        asked[part] = {n: list(v) if isinstance(v, tuple) else v for n, v in given.items()}
    changed = differences(content, asked, ("model", "training"))
    if changed:
        raise RunError(
            f"resume={run.path.parent}: {', '.join(changed)} is another than the run was started "
            "with, and a run that goes on keeps its settings. Leave it out, or start anew."
        )
    return content


def _check(content: dict[str, Any], where: str) -> None:
    """Refuse entries that are missing or of another type: the file may have been edited."""
    wanted = {"preset": str, "seed": int, "data": str, "normalize": bool}
    for name, hint in wanted.items():
        from_value(hint, content.get(name), f"{where}: {name}")
    from_dict(Config, content.get("model"), where, "model", infinite=True)
    from_dict(Training, content.get("training"), where, "training", infinite=True)
    if missing := {"minutes", "epochs"} - set(content["training"]):
        raise RunError(f"{where}: training.{min(missing)} is missing. Put it back, or start anew.")


def refuse_another(folder: Path, content: dict[str, Any]) -> None:
    """Refuse to go on with a run beside which another model was saved: it would be replaced."""
    if not is_saved(folder):
        return
    data = read_saved(folder).about.get("data")
    if data is not None and data != content["data"]:
        raise RunError(
            f"resume={folder}: the model that is saved there is not of the run that lies beside it "
            f"as {TRAINING}, and would be replaced. Move one of them to another folder."
        )


def resumed_plan(content: dict[str, Any], run: Run, data: Dataset) -> Plan:
    """The settings of a run that was stopped, if it was on these data."""
    if content["data"] not in (fingerprint(data), fingerprint(data, origins=False)):
        raise RunError(
            f"resume={run.path.parent} was trained on other data than these. Give the same data, "
            "or start anew with another out=..."
        )
    where = str(run.config_file)
    return Plan(
        from_dict(Config, content["model"], where, "model", infinite=True),
        from_dict(Training, content["training"], where, "training", infinite=True),
        content["normalize"],
        (f"going on with {run.path.parent}",),
    )


def fingerprint(data: Dataset, *, origins: bool = True) -> str:
    """Tells data sets apart: facts and sizes, the sums of all numbers, and all numbers of some
    samples spread over it. Without `origins` it is as 0.1.0 wrote it."""
    spec = data.spec
    facts = (spec.inputs, spec.outputs, spec.parameters, spec.domain, spec.query_domain)
    facts += (spec.periods, spec.geographic, spec.dt, spec.steps, len(data))
    names = ("points", "queries", "values", "targets", "parameters")
    names = names if origins else names[2:]
    if units := {n: u for n in names if (u := data.layout.scaling(n)) is not None}:
        facts += (units,)
    digest = hashlib.sha256(repr(facts).encode())
    for columns in data.data.columns():
        sums = [None if c is None else float(c.double().sum()) for c in columns]
        digest.update(repr(sums).encode())
    for index in range(0, len(data), max(1, len(data) // 16)):
        s = data[index]
        for tensor in (s.points, s.values, s.queries, s.truth, s.parameters, s.weights):
            if tensor is not None:
                digest.update(repr(tuple(tensor.shape)).encode())
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _refuse_taken(folder: Path) -> None:
    """Refuse a folder that holds something already."""
    if folder.is_dir() and not _is_blank(folder):
        raise RunError(
            f"out={folder} is not empty. Choose another folder, or go on with a run that was "
            "stopped there by resume=..."
        )
    if folder.exists() and not folder.is_dir():
        raise RunError(f"out={folder} is a file. Choose another folder.")


def _is_blank(folder: Path) -> bool:
    """True if nothing is there, or nothing but what a fit left that was killed as it began."""
    training = folder / TRAINING
    begun = training.is_dir() and not lock.is_blank(training)
    return not begun and all(path == training and path.is_dir() for path in folder.iterdir())
