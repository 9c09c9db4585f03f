"""The models that are served: by names that are never paths, loaded when the page is there already.

What is found of a folder before torch is imported is told at once; the model itself is loaded in
the worker's thread, at the first question or when there is nothing else to do.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipot import safe_read, trained
from ipot.errors import IpotError, RunError
from ipot.serve.refused import UNEXPECTED, Refused, as_refused

if TYPE_CHECKING:
    from ipot.surrogate.surrogate import Surrogate

CONFIG = "config.json"
SAMPLES = "samples.npz"
"""Test samples to try a model with, where somebody put them into its folder."""


@dataclass(eq=False)
class Served:
    """One model: where it lies, and itself once it is loaded."""

    name: str
    folder: Path
    problem: str | None = None
    title: str = ""
    shipped: bool = False
    samples: Path | None = None
    """An archive of samples, where some came with the model."""
    how: dict[str, Any] = field(default_factory=dict)
    """Arguments of `ipot.load`: device, trusted, edited."""
    state: str = "waiting"
    """waiting, ready or failed."""
    why: Refused | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    """What was worked out once: the facts, the samples."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    _model: Surrogate | None = None

    def model(self) -> Surrogate:
        """The model, loaded where it is not yet; in the worker's thread, since it takes time."""
        with self.lock:
            if self._model is None:
                if self.why is not None:
                    raise self.why
                self._model = self._loaded()
                self.state = "ready"
            return self._model

    def _loaded(self) -> Surrogate:
        from ipot.surrogate.loading import load

        try:
            return load(self.folder, **self.how)
        except Exception as error:
            said = as_refused(error, (self.folder, self.folder.parent))
            if said.status == 503:  # of memory, which may suffice later
                raise said from error
            sentence = UNEXPECTED if not isinstance(error, IpotError) else str(said)
            self.why = Refused(500, f"the model {self.name} cannot be loaded: {sentence}")
            self.state = "failed"
            raise self.why from error

    def line(self) -> dict[str, Any]:
        """What the list of models says of it."""
        return {
            "name": self.name,
            "problem": self.problem,
            "title": self.title or self.name,
            "shipped": self.shipped,
            "state": self.state,
        }


class Models:
    """The models of a server, by name."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.by_name = {model.name: model for model in served}

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def find(self, name: str) -> Served:
        """The model of a name, or the refusal of one that there is not."""
        if name in self.by_name:
            return self.by_name[name]
        raise Refused(404, f"there is no model of that name here: {', '.join(self.by_name)}")

    @property
    def state(self) -> str:
        """ready once all that can be loaded are."""
        return "starting" if any(model.state == "waiting" for model in self) else "ready"

    @property
    def private(self) -> list[Path]:
        """Folders whose place a client does not learn."""
        return [path for model in self for path in (model.folder, model.folder.parent)]


def served(words: Sequence[str], **how: Any) -> list[Served]:
    """The models that some words mean: names of those in the package, or folders. Without a word,
    all those in the package."""
    shipped = shipped_models()
    if not words:
        if not shipped:
            raise RunError(
                "this copy of ipot holds no trained models. Give the folder of a model of yours: "
                "ipot fit cases.npz --inputs a --targets u --out model, and then ipot serve model"
            )
        return [Served(**model, how=how) for model in shipped.values()]
    found: dict[str, Served] = {}
    for word in words:
        known = shipped.get(word)
        # A folder of that name in the current folder is meant by ./NAME.
        model = Served(**known, how=how) if known else _of_folder(Path(word), how, shipped)
        stem, number = model.name, 2
        while model.name in found:
            if found[model.name].folder.resolve() == model.folder.resolve():
                break
            model.name, number = f"{stem}-{number}", number + 1
        found.setdefault(model.name, model)
    return list(found.values())


def shipped_models() -> dict[str, dict[str, Any]]:
    """What is known of the models in the package, without loading any."""
    known = {name: trained.facts(name) for name in trained.names()}
    return {
        name: {
            "name": name,
            "folder": trained.folder(name),
            "problem": facts["problem"],
            "title": facts["title"],
            "shipped": True,
            "samples": trained.samples(name),
        }
        for name, facts in known.items()
    }


def _of_folder(folder: Path, how: dict[str, Any], shipped: Any) -> Served:
    """A saved model or a run in a folder, which is looked at and not yet loaded."""
    known = f" Models in the package: {', '.join(shipped)}." if shipped else ""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise RunError(
            f"{folder} {what}: give the folder of a saved model or of a run of ipot train.{known}"
        )
    inner = next((f for f in (folder, folder / "training") if (f / CONFIG).is_file()), None)
    if inner is None:
        near = sorted(p.parent for p in folder.glob(f"*/{CONFIG}"))[:5]
        hint = f" There is one at {', '.join(map(str, near))}." if near else ""
        raise RunError(f"{folder} holds no {CONFIG}: it is no saved model and no run.{hint}{known}")
    problem, title = None, folder.resolve().name
    with contextlib.suppress(IpotError, FileNotFoundError):
        content = safe_read.read_json(inner / CONFIG)
        problem, title = _told(content, title)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.resolve().name).strip(".-") or "model"
    archive = inner / SAMPLES
    samples = archive if archive.is_file() else None
    return Served(name, folder, problem, title, samples=samples, how=how)


def _told(content: Any, title: str) -> tuple[str | None, str]:
    """The problem and the title of a model, as far as its config.json says."""
    if not isinstance(content, dict):
        return None, title
    told = content.get("experiment") if "spec" in content else content
    problem = told.get("problem") if isinstance(told, dict) else None
    name = problem.get("name") if isinstance(problem, dict) else problem
    name = name if isinstance(name, str) and re.fullmatch(r"[\w ]{1,40}", name) else None
    return None if name == "own data" else name, title
