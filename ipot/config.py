"""Settings: frozen dataclasses to JSON and back, and the run folder that keeps them."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from ipot import files, safe_read
from ipot.errors import IpotError, RunError, shown
from ipot.typed_json import from_value, hints_of
from ipot.version import __version__

LARGEST = 1 << 22
"""Bytes of a run's config.json beyond which it is not read."""
FORMAT = 1
"""Version of the run folder's layout; a folder of another version is refused by name."""


def to_dict(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(kind: type, content: Any, where: str, part: str = "") -> Any:
    """The dataclass again; a name that it does not have is an error and not silently dropped.

    `where` is the file, and `part` the entry in it: a value of another type is refused by both.
    """
    inside = f"{part}." if part else ""
    if not isinstance(content, dict):
        raise RunError(f"{where}: {part} must be an object with names, got {shown(content)}")
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise RunError(f"{where}: unknown settings {', '.join(unknown)}; known: {', '.join(known)}")
    hints = hints_of(kind)
    given = {
        name: _setting(hints.get(name, Any), value, f"{where}: {inside}{name}")
        for name, value in content.items()
    }
    try:
        return kind(**given)
    except IpotError as error:
        raise RunError(f"{where}: {error}") from error
    except Exception as error:  # what looks at settings has many ways to say that they do not fit
        raise RunError(f"{where}: {part or 'settings'}: {error!r}") from error


def _setting(hint: Any, value: Any, where: str) -> Any:
    """A value as its type says. Infinity is a number here: no limit at all, in some settings."""
    if isinstance(value, float) and math.isinf(value) and float in (hint, *get_args(hint)):
        return value
    return from_value(hint, value, where)


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
