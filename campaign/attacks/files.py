"""Attacks by files: every format, changed in its bytes and in what they mean, at every door."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from campaign import libraries
from campaign.attack import Attack, Case, Lost, Place
from campaign.attacks import (
    _mutate_binary,  # noqa: F401 (each registers its changes)
    _mutate_folder,  # noqa: F401
    _mutate_hdf5,  # noqa: F401
    _mutate_text,
    _mutate_zip,  # noqa: F401
    _seeds,
    _seeds_labelled,
    _seeds_runs,
    _seeds_vtk,
)
from campaign.attacks._doors import DOORS, digest
from campaign.attacks._doors_runs import RUN_DOORS
from campaign.attacks._mutate import GENERIC, NEUTRAL, Around, Tree, mutated, read_tree, write_tree
from campaign.attacks._secrets import BOMB, make_secrets
from campaign.attacks._trial import fork_server
from campaign.libraries import missing

CHECKED = ("load", "hub")
"""Doors that compare a saved model with its checksums: a change is refused or has no effect. The
checkpoints of a run, which others read, have no checksums."""
ALL_SEEDS = (*_seeds.SEEDS, *_seeds_labelled.SEEDS, *_seeds_vtk.SEEDS, *_seeds_runs.SEEDS)
ALL_DOORS = {**DOORS, **RUN_DOORS}
PACKAGE = _mutate_text.CANARY.partition(".")[0]
GROUPS: dict[str, tuple[float, tuple[str, ...]]] = {
    "arrays": (3.0, ()),  # NumPy's files
    "tables": (2.5, ("pyarrow", "pyarrow.parquet", "pandas")),  # text and Parquet
    "hdf5": (3.0, ()),  # in all layouts
    "meshes": (3.0, ()),  # VTK's files in XML
    "vtk": (1.0, ("pyvista",)),  # what goes through VTK's own library
    "labelled": (3.0, ("xarray", "netCDF4", "zarr", "cfgrib", "eccodes", "dask.array")),
    "published": (1.5, ("scipy.io", "scipy.io.matlab", "xarray")),  # MATLAB's and other layouts
    "runs": (3.0, ("ipot.api",)),  # runs, saved models and the store
}
"""Groups of formats: their share of the time, and what reads them as far as it is installed."""
CASE = "case"
"""Where a case lies in its scratch folder."""


class FilesAttack(Attack):
    """Changed files of one group of formats."""

    counted = "mutated files"
    seconds = 30.0
    """The package gives up on a file after three of the processor's, or nine where it is busy."""

    def __init__(self, group: str) -> None:
        self.name, self.group = f"files: {group}", group
        self.share, self.imports = GROUPS[group]
        ours = [s for s in ALL_SEEDS if s.group == self.group]
        self.seeds = {s.name: s for s in ours if libraries.installed(s.needs)}
        self._left_out = {s.name: str(missing(s.needs)) for s in ours if s.name not in self.seeds}
        self._trees: dict[str, Tree] = {}
        self._references: dict[str, list] = {}

    def possible(self) -> str | None:
        """Some format must be readable here."""
        self.warm()
        return None if self.seeds else "no library is installed that reads these formats"

    def left_out(self) -> dict[str, str]:
        """Formats whose libraries are not installed or cannot be imported."""
        return self._left_out

    def warm(self) -> None:
        """Import the libraries that read, before processes are forked; without one of them its
        formats are left out."""
        # Arrow's allocator would start a thread of its own, and a fork might wait for its lock.
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        for name in ("ipot.formats.open_data", "ipot.formats.vtk"):
            importlib.import_module(name)
        for name in self.imports:
            missing([name])
        for seed in list(self.seeds.values()):
            if why := missing(seed.needs):
                self._left_out[seed.name] = why
                del self.seeds[seed.name]
        if "xarray" in sys.modules:  # looks for what it can read with, once for each process
            importlib.import_module("xarray.backends.plugins").list_engines()

    def prepare(self, shared: Path) -> None:
        """Write the seeds and the secrets, and what every door says of a seed as it is."""
        make_secrets(shared / "secrets")
        references: dict[str, list] = {}
        for seed in self.seeds.values():
            folder = shared / "seeds" / seed.name
            folder.mkdir(parents=True)
            path = seed.make(folder)
            (shared / f"{seed.name}.json").write_text(json.dumps(path.name))
            for door in seed.doors:
                copy = shared / "copy" / "scratch" / CASE
                shutil.copytree(folder, copy)
                with self._guarded(copy, shared, writes=door in RUN_DOORS):
                    found = digest(ALL_DOORS[door](copy / path.name, seed))
                references[f"{seed.name}/{door}"] = [found[0], found[2]]
                shutil.rmtree(shared / "copy")
        (shared / "references.json").write_text(json.dumps(references))

    def load(self, shared: Path) -> None:
        """Read the seeds, for splices between them."""
        for seed in sorted(self.seeds):
            root = json.loads((shared / f"{seed}.json").read_text())
            self._trees[seed] = read_tree(shared / "seeds" / seed / root)

    def start(self) -> None:
        """Have files tried by a server that need not import all libraries again."""
        fork_server()

    def draw(self, random: Random) -> Case:
        """A seed, a door, and a few changes: first those that know the format, then of bytes."""
        seed = self.seeds[random.choice(sorted(self.seeds))]
        door = random.choice(seed.doors)
        if random.random() < 0.03:
            names = [random.choice(seed.neutral)]
        else:
            count = random.choice((1, 1, 1, 2, 2, 3, 5))
            knowing = sum(random.random() < 0.55 for _ in range(count)) if seed.changes else 0
            names = [random.choice(seed.changes) for _ in range(knowing)]
            names += [random.choice(GENERIC) for _ in range(count - knowing)]
        changes = [[name, random.randrange(1 << 32)] for name in names]
        return {"seed_file": seed.name, "door": door, "changes": changes}

    def run(self, case: Case, place: Place) -> int:
        """Write the changed files, open them, and look at what came out."""
        seed = self.seeds[case["seed_file"]]
        folder = place.scratch / CASE
        folder.mkdir()
        original = self._tree(place.shared, seed.name)
        secrets = place.shared / "secrets"
        others = {n: t for n, t in self._trees.items() if n != seed.name} or {seed.name: original}
        around = Around(secrets, os.path.relpath(secrets, folder), others)
        tree = mutated(original, case["changes"], around)
        write_tree(tree, folder)
        name = json.loads((place.shared / f"{seed.name}.json").read_text())
        linked = any(change == "folder links" for change, _ in case["changes"])
        with self._guarded(folder, place.shared, writes=case["door"] in RUN_DOORS):
            opened = ALL_DOORS[case["door"]](folder / name, seed)
            said, size, each = digest(opened, linked=linked)
        if each:  # a run that goes on for long is left alone, and says nothing
            self._compare(case, tree == original, said, each, place.shared)
        return 2 * size

    def needs(self, case: Case) -> int:
        """A bomb within what deflate can do is an array like others: its bytes are read, and each
        becomes a number in float32 before shapes are compared."""
        bombs = sum(name == "zip bomb" for name, _ in case["changes"])
        return bombs * BOMB * (1 + 4)

    def _compare(self, case: Case, same: bool, said: str, each: list[str], shared: Path) -> None:
        """Where a change cannot matter the answer is the old one; arrays of a zip are checked."""
        if not self._references:
            self._references = json.loads((shared / "references.json").read_text())
        key = f"{case['seed_file']}/{case['door']}"
        names = {name for name, _ in case["changes"]}
        if (same or names <= NEUTRAL) and said != self._references[key][0]:
            raise Lost("another answer than to the same content before")
        # Bounds, which come last, may be removed.
        if case["door"] in CHECKED and each != self._references[key][1][: len(each)]:
            raise Lost("changed weights or settings were taken for those that were saved")
        if case["seed_file"].startswith("npz") and case["door"] == "read" and names <= set(GENERIC):
            known = {
                d for k, (_, ds) in self._references.items() if k.endswith("/read") for d in ds
            }
            if not set(each) <= known:
                raise Lost("an array of an archive is another one, and its checksum says so")

    def _tree(self, shared: Path, name: str) -> Tree:
        """The files of a seed; all seeds of the group are read, for splices."""
        if not self._trees:
            self.load(shared)
        return self._trees[name]

    @contextlib.contextmanager
    def _guarded(self, folder: Path, shared: Path, *, writes: bool) -> Iterator[None]:
        """Refuse that code is run, and that anything is written where it does not belong."""
        before = _listing(folder.parent, folder if writes else None)
        sys.path.insert(0, str(shared / "secrets" / "modules"))
        try:
            yield
        finally:
            sys.path.remove(str(shared / "secrets" / "modules"))
            ran = [n for n in sys.modules if n.partition(".")[0] == PACKAGE]
            for name in ran:
                del sys.modules[name]
            if ran:
                raise Lost("it imported code that a file named")
            if more := sorted(_listing(folder.parent, folder if writes else None) - before):
                raise Lost(f"it wrote {', '.join(more[:3])}")


def _listing(parent: Path, without: Path | None) -> set[str]:
    """All files around a case, and in it where it is only read; with what is beside the scratch."""
    found = {str(p) for p in parent.parent.iterdir()}
    for root, folders, files in os.walk(parent):
        if without is not None and Path(root) == without:
            folders.clear()
            continue
        found.update(os.path.join(root, name) for name in (*folders, *files))
    return found


ATTACKS = [FilesAttack(group) for group in GROUPS]
