"""Compiling at first use, with a compiler that takes its time: it copies a library in halves."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign.attack import Lost
from campaign.attacks._victim import finish
from ipot.accelerate.cpu import build
from ipot.errors import RunError

STUB = """#!/bin/sh
# Stands for a compiler: `-c` makes an object, anything else links, and --version is all it says.
for word in "$@"; do
  [ "$word" = --version ] && { echo "stub 1.0"; exit 0; }
  [ "$last" = -o ] && out="$word"
  last="$word"
done
head -c 9000 "LIBRARY" > "$out"
sleep 0.02
tail -c +9001 "LIBRARY" >> "$out"
"""


def make(folder: Path) -> None:
    """The library and the stub, and how long an undisturbed build takes with it."""
    names = (*build.KERNELS, *build.HALF_KERNELS)
    source = "".join(f"int {name}(void) {{ return 0; }}\n" for name in names)
    (folder / "kernels.c").write_text(source)
    made = folder / "kernels.so"
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", "-o", str(made), str(folder / "kernels.c")]
    subprocess.run(command, check=True)
    stub = folder / "compiler"
    # The folder gets its lasting name when it is whole: the stub looks beside itself.
    stub.write_text(STUB.replace("LIBRARY", "$(dirname $0)/kernels.so"))
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    measure(folder, stub)


def measure(folder: Path, compiler: Path | None = None) -> None:
    """How long an undisturbed build takes, by the stub or by the compiler of this machine."""
    ended = finish(work(compiler, folder / "cache"), folder)
    if ended.how != "done":
        raise RuntimeError(f"a build fails undisturbed: {ended.said}")
    found = {"events": ended.events, "seconds": ended.seconds, "names": names_in(folder / "cache")}
    (folder / "measured.json").write_text(json.dumps(found))


def measured(folder: Path) -> dict[str, Any]:
    """How an undisturbed build went."""
    return json.loads((folder / "measured.json").read_text())


def work(compiler: Path | None, cache: Path) -> Callable[[], None]:
    """A first use, with its cache in a folder of its own."""

    def first_use() -> None:
        os.environ["XDG_CACHE_HOME"] = str(cache)
        if compiler is not None:
            os.environ["CXX"] = str(compiler)
        os.environ.pop(build.OFF, None)
        build._tried.cache_clear()
        if build.library() is None:
            raise RunError(str(build.why_not()))

    return first_use


def names_in(cache: Path) -> int:
    """How many files and folders a build leaves."""
    return sum(1 for _ in cache.rglob("*"))


def left_behind(cache: Path, expected: int) -> None:
    """Nothing may remain of builds that were killed."""
    if (found := names_in(cache)) > expected:
        names = sorted(str(p.relative_to(cache)) for p in cache.rglob("*"))
        raise Lost(f"left behind by builds: {found - expected} files or folders of {names[:6]}")
