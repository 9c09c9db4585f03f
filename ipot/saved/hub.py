"""Saved models to and from a hub, where huggingface_hub is installed."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from ipot.errors import IpotError, RunError, Unsupported
from ipot.saved.folder import FILES, WEIGHTS, is_saved
from ipot.saved.samples import SAMPLES

COMMIT = re.compile(r"[0-9a-f]{40}")
_log = logging.getLogger("ipot")


def push_to_hub(
    folder: Path | str,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str = "A surrogate made with ipot",
    token: str | None = None,
    samples: bool = False,
) -> str:
    """Upload a saved model to `user/name`, which is made if it is not there; returns its address.

    Only the files of a saved model go up, whatever else lies in the folder. Without a `token` the
    one of `hf auth login` is used. With `samples` the few samples beside the model go up too: they
    are a part of the data, which need not be for everybody.
    """
    if not is_saved(folder) or not (Path(folder) / WEIGHTS).is_file():
        raise RunError(f"{folder} is not a saved model: save one first, with model.save(...)")
    hub = _hub()
    try:
        made = hub.create_repo(repo_id, private=private, exist_ok=True, token=token)
        hub.upload_folder(
            repo_id=repo_id,
            folder_path=str(folder),
            allow_patterns=[name for name in FILES if samples or name != SAMPLES],
            revision=revision,
            commit_message=message,
            token=token,
        )
    except Exception as error:  # every version has errors of its own
        raise _told(f"cannot upload {folder} to {repo_id}", error) from error
    return str(made)


def fetch_from_hub(repo_id: str, revision: str | None = None, *, token: str | None = None) -> Path:
    """Download a saved model, or find it in the cache, and return its folder.

    Nothing is downloaded but weights, settings, the card and samples: no code is among them.
    """
    hub = _hub()
    try:
        path = hub.snapshot_download(
            repo_id, revision=revision, allow_patterns=list(FILES), token=token
        )
    except Exception as error:  # every version has errors of its own
        raise _told(f"cannot download {repo_id}", error) from error
    if not is_saved(path):
        raise RunError(f"{repo_id} is not a model saved by ipot: its config.json says otherwise")
    return Path(path)


def commit_of(folder: Path, repo_id: str, revision: str | None) -> str | None:
    """The commit that a downloaded folder is of, as the cache of the hub names it.

    Where no commit was asked for, a line in the log says which one was taken and how to pin it: a
    branch or a tag may be another model tomorrow.
    """
    commit = folder.name if COMMIT.fullmatch(folder.name) else None
    if commit is None:
        _log.warning("%s: the hub does not say which commit was downloaded", repo_id)
    elif revision is None or not COMMIT.fullmatch(revision):
        _log.warning(
            "%s: took %s, which is commit %s now; pin it with revision=%r",
            repo_id,
            "the main branch" if revision is None else f"revision {revision}",
            commit,
            commit,
        )
    return commit


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise Unsupported("huggingface_hub is not installed: pip install 'ipot[hub]'") from error
    return huggingface_hub


def _told(what: str, error: Exception) -> IpotError:
    """The first line of an error, which are long and end in advice for programmers."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return RunError(f"{what}: {lines[0]}. Check the name, the connection and `hf auth whoami`.")
