"""From source to a library that is loaded: compiled once on a machine, and kept.

What was compiled is kept under the hash of all that it was made from, the processor among it, since
it is made for that one alone. Nothing here raises: where there is no library, `why_not` says why,
and the plain ways do the same.
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
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
SECONDS = 120
"""That a compiler may take for a part; for all of them it needs about ten."""
OFF = "IPOT_NATIVE"
"""Set to 0, this variable of the environment leaves the library out."""

_log = logging.getLogger("ipot")


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none."""
    return _tried()[0]


def loaded() -> ctypes.CDLL:
    """The same, for those who know that there are."""
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
    """The same of the kernels with products in bf16."""
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
        try:
            return _opened(_built()), None
        except OSError:  # damaged, or of a system that is no more: once again
            _target().unlink(missing_ok=True)
            return _opened(_built()), None
    except (OSError, RuntimeError, subprocess.SubprocessError, _NoCompiler) as error:
        reason = _in_words(error)
        _log.warning(
            "attention on the CPU runs without compiled kernels: %s (%s=0 for no more attempts)",
            reason,
            OFF,
        )
        return None, reason


class _NoCompiler(Exception):
    pass


def _opened(path: Path) -> ctypes.CDLL:
    """The library of a file that has all kernels in it."""
    found = ctypes.CDLL(str(path))
    lacking = [name for name in KERNELS if not hasattr(found, name)]
    if lacking:
        raise OSError(f"{path} lacks {', '.join(lacking)}")
    return found


def _built() -> Path:
    """The library of this source on this machine, compiled if it is not there yet."""
    target = _target()
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under a name of its own until it is whole: several processes may start at once.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        try:
            _compile(made)
        except subprocess.CalledProcessError:  # perhaps the compiler knows too little of bf16
            _compile(made, "-DIPOT_NO_HALVES")
        os.replace(made, target)
    return target


def _compile(target: Path, *more: str) -> None:
    """Make a library beside which there is room for its parts, which are compiled side by side."""
    command = [*_compiler(), *_flags(), *more, "-o"]
    objects = [str(target.with_name(f"{Path(source).stem}.o")) for source in SOURCES]
    parts = [
        [*command, made, "-c", str(HERE / source)]
        for source, made in zip(SOURCES, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, parts))
    _run([*command, str(target), *objects])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)


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
        return f"the compiler took more than {SECONDS} s"
    if isinstance(error, OSError):
        return f"{error} (XDG_CACHE_HOME can name another folder)"
    return str(error)
