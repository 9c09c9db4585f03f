"""What all attacks on operations share: their data, and how each ends when nobody disturbs it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

import ipot
from campaign import libraries
from campaign.attack import Lost
from campaign.attacks import _contents
from campaign.attacks._operations import (
    Command,
    Compare,
    Generate,
    Operation,
    Records,
    Seeds,
    Train,
)
from campaign.attacks._own import Fit, Forecast, Predict, Save
from campaign.attacks._victim import Ended, Foreign, Hurt, Victim, finish

KEPT = "measured.json"
ALL: tuple[Operation, ...] = (
    *(Train(), Command(), Seeds(), Compare(), Generate(), Records(), Fit(), Save()),
    *(Predict(kind) for kind in ("npz", "npy", "csv", "h5", "vtu", "vtp")),
    *(Predict("parquet", "pyarrow"), Forecast()),
)
LAZY = (
    *("torch.utils.tensorboard", "ipot.commands.train", "ipot.commands.predict"),
    *("ipot.report.plots", "ipot.report.tables", "rich.console", "matplotlib.backends.backend_agg"),
    *("ipot.models.deeponet", "ipot.models.fno", "ipot.formats.vtk", "typeguard", "_elementtree"),
    *("xarray", "netCDF4", "ipot.formats.xarray_files"),
    *("pyarrow.parquet", "dateutil.parser", "encodings.cp437", "PIL.PngImagePlugin"),
)
"""What operations import when they come to it."""


def warm() -> None:
    """Import all of that before any fork."""
    for name in LAZY:
        libraries.missing([name])


def operations() -> dict[str, Operation]:
    """Those that this machine can do, by their names."""
    return {op.name: op for op in ALL if libraries.missing(op.needs) is None}


def left_out() -> dict[str, str]:
    """Those that it cannot, and why."""
    return {op.name: why for op in ALL if (why := libraries.missing(op.needs))}


def made(shared: Path, operation: Operation) -> Path:
    """Data of an operation, and how it ends undisturbed.

    Made by the first case that needs it, and kept for the same sources: a short campaign draws only
    some of the operations.
    """
    if (given := shared / "operations").exists():
        return given
    name = operation.name.replace(" ", "-")
    return cached(name, lambda folder: make(folder, {operation.name: operation}))


def home(made: Path, operation: Operation) -> Path:
    """Where an operation finds what it reads."""
    return made / operation.name.split()[0]


@cache
def read(file: Path) -> dict[str, Any]:
    """What was kept."""
    return json.loads(file.read_text())


def make(folder: Path, wanted: dict[str, Operation]) -> None:
    """Do every operation once, undisturbed."""
    found = {}
    for operation in wanted.values():
        place = folder / operation.name.split()[0]
        if not place.exists():
            place.mkdir()
        if not (place / "ready" / type(operation).__name__).exists():
            # In a child: where torch has a GPU, what has trained once cannot fork trainings.
            ended = finish(lambda op=operation, p=place: op.prepare(p), folder)
            if ended.how != "done":
                raise RuntimeError(f"{operation.name} cannot be prepared: {ended.said}")
            (place / "ready").mkdir(exist_ok=True)
            (place / "ready" / type(operation).__name__).touch()
        with tempfile.TemporaryDirectory(dir=folder) as name:
            work = Path(name) / "work"
            work.mkdir()
            operation.start(work, place)
            ended = finish(lambda op=operation, w=work, p=place: op.act(w, p), work)
            if ended.how != "done":
                raise RuntimeError(f"{operation.name} fails undisturbed: {ended.said}")
            found[operation.name] = facts(operation, work, ended)
    (folder / KEPT).write_text(json.dumps(found))


def facts(operation: Operation, work: Path, ended: Ended) -> dict[str, Any]:
    """How a run went: its events and seconds, what it leaves, and the names of that."""
    went = {"events": ended.events, "seconds": ended.seconds}
    return went | {"content": operation.content(work), "names": _contents.names(work)}


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills once for each state of the sources on this machine."""
    root = Path(tempfile.gettempdir()) / f"ipot-campaign-kept-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise RuntimeError(f"{root} belongs to somebody else")
    target = root / f"{name}-{_sources()}"
    if not target.exists():
        for old in root.iterdir():
            if old.stat().st_mtime < time.time() - 86400:  # of other states of the sources
                shutil.rmtree(old, ignore_errors=True)
        making = Path(tempfile.mkdtemp(dir=root, prefix=".making-"))
        try:
            make(making)
            with suppress(OSError):  # another campaign was quicker
                making.rename(target)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return target


def link(path: Path, target: Path) -> None:
    """A name for a kept folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@cache
def _sources() -> str:
    """Changes with the package, the attacks and what runs them."""
    whole = hashlib.sha256(repr((sys.version, torch.__version__)).encode())
    for folder in (Path(ipot.__file__).parent, Path(__file__).parent):
        for file in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".c")):
            whole.update(str(file).encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def look(operation: Operation, folder: Path, place: Path, reference: Any) -> None:
    """Lost where what lies there is neither old nor new, or not whole."""
    _contents.whole_files(folder)
    _contents.readable(operation.look, folder, place, reference)


def compare(operation: Operation, folder: Path, measured: dict[str, Any]) -> None:
    """Lost where the end is not that of an undisturbed run."""
    content: dict[str, Any] = {}
    _contents.readable(lambda: content.update(operation.content(folder)))
    _contents.same(content, measured["content"])
    _contents.whole_files(folder)
    _contents.left_behind(folder, measured["names"])


def removed(path: Path) -> None:
    """Remove what is there, be it a folder or a file."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def ours(ended: Ended) -> Ended:
    """How a process ended, unless that was an error that is foreign to the package."""
    if ended.how == "foreign":
        raise Foreign(ended)
    return ended


class Work:
    """An operation in a folder of its own, as one case has it."""

    def __init__(self, name: str, shared: Path, scratch: Path) -> None:
        self.operation = operations()[name]
        kept = made(shared, self.operation)
        self.shared, self.folder = home(kept, self.operation), scratch / "work"
        self.measured = read(kept / KEPT)[name]
        self.reference = self.measured["content"] if self.operation.exact else None

    def start(self) -> None:
        """Lay out what is there before."""
        self.folder.mkdir(exist_ok=True)
        self.operation.start(self.folder, self.shared)

    def victim(self, hurt: Hurt | None = None) -> Victim:
        """Begin, or go on, in a process that is hurt."""
        return Victim(self._act, self.folder, hurt, self.measured)

    def met(self, hurt: Hurt | None = None) -> Ended:
        """Run `victim` to its end; only errors of the package are allowed."""
        return ours(self.victim(hurt).wait())

    def look(self) -> None:
        """Lost where what lies there is neither old nor new, or not whole."""
        look(self.operation, self.folder, self.shared, self.reference)

    def go_on(self) -> None:
        """Repeat it undisturbed; it must end as if it had never been disturbed."""
        ended = self.met()
        if ended.how != "done":
            raise Refused(ended)
        compare(self.operation, self.folder, self.measured)

    def _act(self) -> int | None:
        return self.operation.act(self.folder, self.shared)


class Refused(Lost):
    """Going on failed where nothing stood in its way."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"going on was not possible: {ended.how}: {ended.said}")
