"""From source to a library that is loaded: compiled once on a machine, and kept.

What was compiled is kept under the hash of all that it was made from, the processor among it, since
it is made for that one alone. Nothing here raises: where there is no library, `why_not` says why,
and the plain ways do the same.

A library is code that this process will run. It is kept where nobody else can write and loaded
only as `ipot.accelerate.cpu.library_cache` allows. The environment decides which compiler runs: CXX
and PATH name it, and what GCC or Clang read besides (CPATH, LIBRARY_PATH, COMPILER_PATH and the
like) reaches it as it is. Whoever sets them runs code as this user, as with LD_PRELOAD.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from ipot import lock
from ipot.accelerate.cpu import library_cache
from ipot.errors import Busy, IpotError

HERE = Path(__file__).parent
SOURCES = (
    *("attend.cpp", "block.cpp", "mesh.cpp", "project.cpp"),
    *("half_attend.cpp", "half_block.cpp", "half_mesh.cpp", "half_project.cpp"),
)
KERNELS = (
    *("ipot_attend", "ipot_attend_backward"),
    *("ipot_mesh_attend", "ipot_mesh_backward", "ipot_mesh_groups", "ipot_mesh_shares"),
    *("ipot_features", "ipot_project", "ipot_norm_project", "ipot_finish"),
)
HALF_KERNELS = (
    *("ipot_half_attend", "ipot_half_mesh_attend", "ipot_half_project"),
    *("ipot_half_norm_project", "ipot_half_finish"),
)
"""Those with products in bf16, which are there if the processor multiplies so."""
HEADERS = (
    *("calls.h", "features.h", "gelu.h", "rows.h", "tiles.h"),
    *("half_layers.h", "half_softmax.h", "halves.h"),
)
FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp"),
    # None of the liberties that would lose what is not a number.
    *("-fno-math-errno", "-ffp-contract=fast"),
)
SECONDS = 120.0
"""That a compiler may take for a part; for all of them it needs about ten."""
PAUSE = 0.01
"""Seconds between two looks at them."""
OFF = "IPOT_NATIVE"
"""Set to 0, this variable of the environment leaves the library out."""

_log = logging.getLogger("ipot")


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none."""
    return _tried()[0]


def loaded() -> ctypes.CDLL:
    """The compiled kernels, for callers who know that there are some."""
    found = library()
    assert found is not None, f"there are no compiled kernels: {why_not()}"
    return found


def call(name: str, *given: object) -> None:
    """One of the kernels, which run out of memory as torch's operators do."""
    if getattr(loaded(), name)(*given):
        raise MemoryError(f"not enough memory for {name.removeprefix('ipot_').replace('_', ' ')}")


def why_not() -> str | None:
    """Why there is no library, in words; None where there is one."""
    return _tried()[1]


def why_not_bf16() -> str | None:
    """Why there are no kernels with products in bf16, in words; None where there are."""
    found, reason = _tried()
    if found is None or _has_halves(found):
        return reason
    return "this processor, or its compiler, has not AVX512-BF16 and AVX512-VBMI"


@functools.cache
def _has_halves(found: ctypes.CDLL) -> bool:
    return all(hasattr(found, name) for name in HALF_KERNELS)


@functools.cache
def _tried() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get(OFF) == "0":
        return None, f"{OFF}=0"
    try:
        return _loaded(_target()), None
    except (OSError, RuntimeError, subprocess.SubprocessError, IpotError, _NoCompiler) as error:
        reason = _in_words(error)
        _log.warning(
            "attention on the CPU runs without compiled kernels: %s (%s=0 for no more attempts)",
            reason,
            OFF,
        )
        return None, reason


def _loaded(target: Path) -> ctypes.CDLL:
    """The library of this source on this machine, compiled if it is not there yet."""
    library_cache.prepare(target.parent)
    try:
        found = library_cache.load(target, KERNELS)
    except OSError:  # not there, damaged, or of a system that is no more: made anew
        _build(target)
        found = library_cache.load(target, KERNELS)
    library_cache.sweep(target.parent)
    lock.sweep(target.parent)
    return found


class _NoCompiler(Exception):
    pass


def _build(target: Path) -> None:
    """Compile; of several processes that start at once, the others wait for the first."""
    try:
        with lock.locked(target.parent, "compiling", wait=True, patience=2 * SECONDS):
            if not library_cache.is_whole(target):
                _build_here(target)
    except Busy:  # it hangs: two that do the same do no harm
        _build_here(target)


def _build_here(target: Path) -> None:
    with library_cache.workshop(target.parent) as folder:
        made = folder / target.name
        try:
            _compile(made)
        except subprocess.CalledProcessError as error:
            if _was_killed(error):
                raise
            _compile(made, "-DIPOT_NO_HALVES")  # perhaps it knows too little of bf16
        library_cache.keep(made, target)


def _was_killed(error: subprocess.CalledProcessError) -> bool:
    """True if a signal, or want of memory, ended the compiler: it may succeed another time."""
    return error.returncode < 0 or error.returncode > 128 or b"signal" in (error.stderr or b"")


def _compile(target: Path, *more: str) -> None:
    """Make a library beside which there is room for its parts, which are compiled side by side."""
    command = [*_compiler(), *_flags(), *more, "-o"]
    objects = [str(target.with_name(f"{Path(source).stem}.o")) for source in SOURCES]
    parts = [
        [*command, made, "-c", str(HERE / source)]
        for source, made in zip(SOURCES, objects, strict=True)
    ]
    running = _Running(target.parent)
    try:
        running(parts)
        running([[*command, str(target), *objects]])
    except BaseException:  # Ctrl-C, or one of them failed: the others need not go on
        running.stop()
        raise


class _Running:
    """Compilers at work side by side, none of which outlives its caller's interest.

    No thread waits for them: an interrupt that reached Python between two steps of starting or
    joining a thread could leave this process waiting for ever.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()
        # Their temporary files lie with the parts, and are gone with them.
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        self._processes: dict[subprocess.Popen[bytes], Path] = {}

    def __call__(self, commands: list[list[str]]) -> None:
        """Run compilers to their end, as many at a time as there are processors."""
        left, end = list(commands), time.monotonic() + SECONDS
        while left or self._processes:
            while left and len(self._processes) < (os.cpu_count() or 1):
                self._start(left.pop(0))
            for process in [p for p in self._processes if p.poll() is not None]:
                words = self._processes.pop(process)
                if code := process.returncode:
                    raise subprocess.CalledProcessError(
                        code, process.args, stderr=words.read_bytes()
                    )
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(commands[0], SECONDS)
            time.sleep(PAUSE)

    def _start(self, command: list[str]) -> None:
        said = self._folder / f"{next(self._numbers)}.said"
        with open(said, "wb") as words:
            # In a group of its own: Ctrl-C reaches this process, which ends them, not half of them.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=self._environment,
                start_new_session=True,
            )
        self._processes[process] = said

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            self._kill(process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):  # it has ended by itself
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()


def _target() -> Path:
    """Where the library lies: under a name that says all that it is made from."""
    version = subprocess.run([*_compiler(), "--version"], capture_output=True, timeout=SECONDS)
    texts = [(HERE / name).read_bytes() for name in (*SOURCES, *HEADERS)]
    made_of = [*texts, repr(_flags()).encode(), version.stdout, _processor().encode()]
    name = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:20]
    return _folder() / f"native-{name}.so"


def _flags() -> tuple[str, ...]:
    arm = platform.machine() in ("aarch64", "arm64")
    return (*FLAGS, "-mcpu=native" if arm else "-march=native")


def _compiler() -> list[str]:
    """The command that compiles, as CXX has it or as it is usually called."""
    if found := _compiler_or_none():
        return found
    raise _NoCompiler(f"there is no C++ compiler ({os.environ.get('CXX') or 'g++'})")


def _compiler_or_none() -> list[str] | None:
    asked = shlex.split(os.environ.get("CXX", ""))
    for command in [asked] if asked else [["g++"], ["clang++"], ["c++"]]:
        if found := shutil.which(command[0]):
            return [found, *command[1:]]
    return None


def _processor() -> str:
    """What tells processors apart that share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ipot" / "native"


def _in_words(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return f"the compiler failed: {lines[0] if lines else error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the compiler took more than {SECONDS:g} s"
    if isinstance(error, OSError):
        return f"{error} (XDG_CACHE_HOME can name another folder)"
    return str(error)
