"""The folder of a fit: the model that is saved at the end, and beside it the run that trains it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ipot import files, lock
from ipot.data.argument_checks import path_given
from ipot.errors import RunError
from ipot.lock import locked
from ipot.run_folder import TRAINING, Run, left_as_found
from ipot.saved.disk import recover_run
from ipot.saved.folder import is_saved, read_saved, refuse_current, refuse_target


@contextlib.contextmanager
def working_folder(
    out: Path | str | None, resume: Path | str | None, *, or_resume: bool = False
) -> Iterator[tuple[Path, bool]]:
    """The folder to work in, the user's or a temporary one, and whether it holds a run to resume.

    A folder that is taken, or cannot be written to, is refused at once; where nothing came of the
    fit, none is left behind. With `or_resume` a run that is in `out` goes on.
    """
    out = None if out is None else path_given("out", out)
    resume = None if resume is None else path_given("resume", resume)
    if out is not None and resume is not None and out != resume:
        raise RunError(f"out={out} and resume={resume} are two folders: give one")
    if or_resume and resume is None and out is not None:
        recover_run(out, (TRAINING,))
        resume = out if Run(out / TRAINING).config_file.is_file() else None
    if resume is not None:
        recover_run(resume, (TRAINING,))  # a save that was killed may have left it elsewhere
        if not Run(resume / TRAINING).config_file.is_file():
            raise RunError(f"resume={resume}: there is no run to go on with. {_instead(resume)}")
        # Now, and not when the model is to be saved at the end.
        refuse_target(resume, overwrite=True)
        with locked(resume / TRAINING, "training"):
            yield resume, True
        return
    if out is None:
        with tempfile.TemporaryDirectory(prefix="ipot-") as name:
            yield Path(name), False
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
            yield out, False


def _instead(folder: Path) -> str:
    """Advice on a folder that does not hold the run of a fit."""
    if is_saved(folder) or not Run(folder).config_file.is_file():
        return "Start one by out=..."
    if folder.name == TRAINING:
        return f"It is the run inside of a fit: give the folder around it, {folder.parent}."
    return f"It is one of a built-in problem: `ipot train --resume {folder}` goes on with it."


def refuse_another(folder: Path, fingerprint: str) -> None:
    """Refuse to go on with a run beside which another model was saved: it would be replaced."""
    if not is_saved(folder):
        return
    data = read_saved(folder).about.get("data")
    if data is not None and data != fingerprint:
        raise RunError(
            f"resume={folder}: the model that is saved there is not of the run that lies beside it "
            f"as {TRAINING}, and would be replaced. Move one of them to another folder."
        )


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
    """True if a folder is missing or empty, or holds only what a fit that was killed at its start
    has left."""
    training = folder / TRAINING
    begun = training.is_dir() and not lock.is_blank(training)
    return not begun and all(path == training and path.is_dir() for path in folder.iterdir())
