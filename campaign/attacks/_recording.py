"""Operations with all that they ask of the disk written down, in a process made for it.

The library that listens must be loaded before all others, so this is a command of its own:
`LD_PRELOAD=recorder.so python -m campaign.attacks._recording FOLDER`.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from campaign.attacks import _prepared
from campaign.attacks._disk import Record
from campaign.attacks._victim import finish

SOURCE = Path(__file__).with_name("_recorder.c")
RECORDED = ("train", "fit", "save", "generate", "predict npy", "predict h5")


def make(folder: Path) -> None:
    """Record the operations into a folder."""
    library = compile_recorder(folder)
    command = [sys.executable, "-m", "campaign.attacks._recording", str(folder)]
    here = Path(__file__).parents[2]
    paths = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    added = {"LD_PRELOAD": str(library), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=os.environ | added, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"operations cannot be recorded: {done.stderr[-1000:]}")


def compile_recorder(folder: Path) -> Path:
    """The library that listens."""
    library = folder / "recorder.so"
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True, capture_output=True)
    return library


def record(folder: Path) -> None:
    """In the process that was made for it: each operation once."""
    call = ctypes.CDLL(None).ipot_record
    for name, operation in _prepared.operations().items():
        if name not in RECORDED:
            continue
        place = folder / name
        place.mkdir()
        work = place / "work"
        work.mkdir()
        home = _prepared.home(_prepared.made(folder, operation), operation)
        operation.start(work, home)
        shutil.copytree(work, place / "before")
        inodes = {str(p.relative_to(work)): p.stat().st_ino for p in work.rglob("*")}

        def act(work=work, place=place, operation=operation, home=home) -> None:
            if call(os.fsencode(work), os.fsencode(place / "log")) < 0:
                raise OSError("no record can be written")
            operation.act(work, home)

        ended = finish(act, work)
        if ended.how != "done":
            raise RuntimeError(f"{name} fails while it is recorded: {ended.said}")
        about = {"inodes": inodes, "root": str(work)}
        (place / "about.json").write_text(json.dumps(about))
        _check(place, work)
        shutil.rmtree(work)


def _check(place: Path, work: Path) -> None:
    """The record must lead to what is there, or a change has escaped it."""
    load(place).final(place / "final")
    for path in sorted(work.rglob("*")):
        other = place / "final" / path.relative_to(work)
        if not path.is_file() or "tensorboard" in str(path):
            continue
        if not other.is_file() or other.read_bytes() != path.read_bytes():
            raise RuntimeError(f"{path.name} is not what was recorded")
    shutil.rmtree(place / "final")


@cache
def load(place: Path) -> Record:
    """The record of an operation."""
    about = json.loads((place / "about.json").read_text())
    return Record(place / "before", about["inodes"], place / "log", about["root"])


if __name__ == "__main__":
    record(Path(sys.argv[1]))
