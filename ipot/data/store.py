"""Generated arrays, kept under a hash of their recipe.

    <root>/<problem>/<hash>/recipe.json
    <root>/<problem>/<hash>/00000000-00000064.safetensors     samples 0 to 63
    <root>/<problem>/<hash>/00000064-00000128.safetensors     ...

The number of samples is not part of the recipe: asking for more continues where the last call, or
the last crash, left off. A piece appears under its name only when it is whole, and one that cannot
be read is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ipot import files, lock
from ipot.errors import StoreError, shown
from ipot.safe_read import regular_file

Fields = dict[str, Tensor]
Make = Callable[[range], Fields]
Report = Callable[[int, int, int], None]


def default_root() -> Path:
    """`$IPOT_DATA`, or the user's cache folder."""
    if root := os.environ.get("IPOT_DATA"):
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ipot"


def fingerprint(recipe: Mapping[str, Any]) -> str:
    """A short name for a recipe; any change of a setting gives another."""
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """A folder of generated data."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()

    def folder(self, recipe: Mapping[str, Any]) -> Path:
        """Where the data of a recipe lie."""
        return self.root / str(recipe["problem"]) / fingerprint(recipe)

    def count(self, recipe: Mapping[str, Any]) -> int:
        """How many samples of a recipe are there without a gap, from the first on."""
        pieces = _pieces(self.folder(recipe))
        return pieces[-1][1] if pieces else 0

    def fetch(
        self,
        recipe: Mapping[str, Any],
        count: int,
        make: Make,
        *,
        piece: int = 64,
        bytes_each: int = 0,
        report: Report | None = None,
    ) -> Fields:
        """The first `count` samples of a recipe; `make(range)` is asked for those missing.

        `report(done, count, bytes_each)` is called before the first piece that has to be made and
        after every one. A disk that is too small for `bytes_each` is refused before the work.

        Where another process makes samples of the same recipe, this one waits for it, and then
        makes those that are still missing.
        """
        folder = self.folder(recipe)
        if self.count(recipe) < count:
            self._prepare(folder, recipe)
            with lock.locked(folder, "generating data", wait=True):
                self._fill(recipe, count, make, piece, bytes_each, report)
        else:
            lock.sweep(folder)
        return _read(folder, count)

    def _fill(
        self,
        recipe: Mapping[str, Any],
        count: int,
        make: Make,
        piece: int,
        bytes_each: int,
        report: Report | None,
    ) -> None:
        """Make what is missing, as the only process that does."""
        folder, have = self.folder(recipe), self.count(recipe)
        self._refuse_little_room(folder, (count - have) * bytes_each)
        if report and have < count:
            report(have, count, bytes_each)
        while have < count:
            stop = min(have + piece, count)
            arrays = make(range(have, stop))
            if any(len(array) != stop - have for array in arrays.values()):
                sizes = {name: tuple(array.shape) for name, array in arrays.items()}
                raise StoreError(
                    f"asked for {stop - have} samples of {recipe['problem']}, got {sizes}"
                )
            for name, array in arrays.items():
                if not torch.isfinite(array).all():
                    raise StoreError(
                        f"the solver gave values of {name} that are not finite for samples {have} "
                        f"to {stop - 1} of {recipe['problem']}; they are not kept. Check --problem."
                    )
            self._write(folder / _name(have, stop), arrays)
            have = stop
            if report:
                report(have, count, bytes_each)

    def _prepare(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        try:
            files.write_json(folder / "recipe.json", dict(recipe))
        except OSError as error:
            raise StoreError(
                f"cannot write to the data folder {self.root}: {error.strerror or error}. "
                "Choose another with --data or the variable IPOT_DATA."
            ) from error

    def _refuse_little_room(self, folder: Path, needed: int) -> None:
        free = files.free_bytes(folder)
        if needed > free:
            raise StoreError(
                f"{needed / 1e9:.2f} GB are needed in {self.root} and {free / 1e9:.2f} GB are "
                "free. Make room, or choose another folder with --data or IPOT_DATA."
            )

    def _write(self, path: Path, arrays: Fields) -> None:
        try:
            with files.atomic(path) as temporary:
                ready = {k: v.detach().cpu().contiguous() for k, v in arrays.items()}
                # Bytes, since `save_file` has a temporary file of its own, which a kill leaves.
                temporary.write_bytes(save(ready))
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"cannot write {path}: {reason}. What was made before it is kept; make room or "
                "choose another folder with --data, and run the same command to go on."
            ) from error


def _name(start: int, stop: int) -> str:
    return f"{start:08d}-{stop:08d}.safetensors"


def _pieces(folder: Path) -> list[tuple[int, int, Path]]:
    """Readable pieces that cover the samples from the first on; the longest where they overlap."""
    found = []
    for path in folder.glob("*.safetensors"):
        if match := re.fullmatch(r"(\d+)-(\d+)", path.stem):
            found.append((int(match[1]), -int(match[2]), path))
    chain, have, first = [], 0, None
    for start, minus_stop, path in sorted(found):
        if start != have or -minus_stop <= have:
            continue
        fields = _fields(path, -minus_stop - start)
        first = fields if first is None else first
        if fields is not None and fields == first:
            chain.append((start, -minus_stop, path))
            have = -minus_stop
    return chain


def _fields(path: Path, samples: int) -> dict[str, tuple[str, list[int]]] | None:
    """Type and shape of one sample of every field, from the header of a piece.

    None where the file is not whole, or has another number of samples than its name says.
    """
    try:
        regular_file(path, error=StoreError)  # opening a pipe would wait for ever
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: s.get_shape() for name, s in slices.items()}
            if not shapes or any(shape[:1] != [samples] for shape in shapes.values()):
                return None
            return {name: (slices[name].get_dtype(), shapes[name][1:]) for name in sorted(slices)}
    except (SafetensorError, OSError, StoreError):
        return None


def _read(folder: Path, count: int) -> Fields:
    pieces = []
    for start, stop, path in _pieces(folder):
        if start < count:
            arrays = load_file(path)
            for name, array in arrays.items():
                if not torch.isfinite(array).all():
                    raise StoreError(
                        f"{path}: {name} holds numbers that are not finite, which were never "
                        "written: the file is damaged. Remove it, and it is made again."
                    )
            pieces.append(
                {k: v[: count - start] for k, v in arrays.items()} if stop > count else arrays
            )
    if sum(len(next(iter(p.values()))) for p in pieces) < count:
        raise StoreError(
            f"the pieces in {folder} do not go together: the first or a later one is damaged, with "
            "fields of other shapes. Remove that folder, and the data are made again."
        )
    return StoredFields(folder, {n: torch.cat([p[n] for p in pieces]) for n in pieces[0]})


class StoredFields(dict[str, Tensor]):
    """Fields by name, as they lie in a folder: one that is missing was lost there."""

    def __init__(self, folder: Path, fields: Fields) -> None:
        super().__init__(fields)
        self.folder = folder

    def __missing__(self, name: str) -> Tensor:
        raise StoreError(
            f"the data in {self.folder} have no field {shown(name)}, only "
            f"{', '.join(shown(n) for n in self)}: they are damaged. Remove that folder, and the "
            "data are made again."
        )
