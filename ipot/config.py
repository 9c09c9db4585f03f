"""Settings: frozen dataclasses to JSON and back, and the run folder that keeps them."""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ipot import files
from ipot.errors import RunError
from ipot.version import __version__

FORMAT = 1
"""Version of the run folder's layout; a folder of another version is refused by name."""


def to_dict(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(kind: type, content: dict[str, Any], where: str) -> Any:
    """The dataclass again; a name that it does not have is an error and not silently dropped."""
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise RunError(f"{where}: unknown settings {', '.join(unknown)}; known: {', '.join(known)}")
    as_tuple = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    return kind(**as_tuple)


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
        if not run.config_file.is_file():
            raise RunError(f"{path} is not a run folder: it has no config.json")
        run.config()
        return run

    def config(self) -> dict[str, Any]:
        """The settings, checked for their version."""
        try:
            content = json.loads(self.config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {self.config_file}: {error}") from error
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise RunError(
                f"{self.path} has layout version {found}; this ipot ({__version__}) reads "
                f"version {FORMAT}. Use the release that wrote it, or train again."
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
