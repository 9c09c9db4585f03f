"""A run folder: what is in it, and how it is created, locked, checked and resumed.

`ipot train`, `ipot.fit` and `ipot compare` all leave such folders.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ipot import files, safe_read
from ipot.errors import RunError
from ipot.version import __version__

LARGEST = 1 << 24
"""Bytes of a run's config.json beyond which it is not read."""
TRAINING = "training"
"""The run of a fit, inside the folder of its model."""
FORMAT = 1
"""Version of the run folder's layout; a folder of another version is refused by name."""


def environment() -> dict[str, Any]:
    """What a result may depend on besides its settings."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "ipot": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
        "gpu": gpu,
        "threads": torch.get_num_threads(),
    }


@dataclass(frozen=True)
class Run:
    """A run folder.

    config.json          all settings: with the weights, enough to rebuild the model
    metrics.jsonl        a line for each epoch
    last.safetensors     weights, optimiser and counters, to continue from
    best.safetensors     the weights with the lowest validation error
    result.json          how training ended
    loss.png             the loss curve
    """

    path: Path

    @classmethod
    def create(cls, path: Path | str, config: dict[str, Any]) -> Run:
        """A new folder; one that already holds a run is refused."""
        path = Path(path)
        run = cls(path)
        run.refuse_existing()
        try:
            files.write_json(run.config_file, {"format": FORMAT, **config})
        except OSError as error:
            raise RunError(
                f"cannot write to {path}: {error.strerror or error}. Choose another --out."
            ) from error
        return run

    def refuse_existing(self) -> None:
        """Refuse a folder that already holds a run, or that cannot be made."""
        try:
            files.make_folder(self.path)
        except OSError as error:
            raise RunError(
                f"cannot write to {self.path}: {error.strerror or error}. Choose another --out."
            ) from error
        if self.config_file.exists() or self.last.exists() or self.best.exists():
            raise RunError(
                f"{self.path} already holds a run. Continue it with `ipot train --resume "
                f"{self.path}`, or choose another --out."
            )

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """An existing folder."""
        run = cls(Path(path))
        run.config()
        return run

    def config(self) -> dict[str, Any]:
        """The settings, checked for their version."""
        advice = "Put back what was written, or train again."
        try:
            content = safe_read.read_json(self.config_file, most=LARGEST, advice=advice)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is not a run folder: it has no config.json") from error
        found = content.get("format") if isinstance(content, dict) else None
        if type(found) is not int or found != FORMAT:
            raise RunError(
                f"{self.path} has layout version {str(found)[:60]}; this ipot "
                f"({__version__}) reads version {FORMAT}. Use the release that wrote it, or train "
                "again."
            )
        return content

    @property
    def home(self) -> Path:
        """The folder that users know it by: of a fit, that of the model around it."""
        return self.path.parent if self.path.name == TRAINING else self.path

    @property
    def config_file(self) -> Path:
        """The settings."""
        return self.path / "config.json"

    @property
    def last(self) -> Path:
        """The checkpoint to continue from."""
        return self.path / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights to use."""
        return self.path / "best.safetensors"

    @property
    def metrics(self) -> Path:
        """A line for each epoch."""
        return self.path / "metrics.jsonl"

    @property
    def result(self) -> Path:
        """The scores."""
        return self.path / "result.json"


def run_at(path: Path | str) -> Run:
    """The run of a folder: the folder itself, or inside the folder of a fit the run beside it."""
    inside = Run(Path(path) / TRAINING)
    return inside if inside.config_file.is_file() else Run(Path(path))


@contextmanager
def left_as_found(path: Path) -> Iterator[None]:
    """Remove the folders that were made for nothing: a run that was refused leaves none behind.

    Folders in which something was written stay, since a run has begun there.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def differences(
    found: Mapping[str, Any], asked: Mapping[str, Any], groups: Sequence[str]
) -> list[str]:
    """The settings by their names, like training.epochs, in which a run is not the one asked for.

    `groups` are the entries that hold settings by name; what is not asked for may be anything.
    """
    other = []
    for name, wanted in asked.items():
        there = found.get(name)
        if name not in groups:
            other += [] if there == wanted else [name]
        elif not isinstance(there, dict):
            other.append(name)
        else:
            unlike = [key for key, v in wanted.items() if key not in there or there[key] != v]
            other += [f"{name}.{key}" for key in unlike]
    return other
