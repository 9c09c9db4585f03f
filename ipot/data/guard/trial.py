"""A file is read in a child process first, with limits on time and memory.

The libraries for HDF5, netCDF, GRIB, Parquet, MATLAB and VTK are in C and C++; a damaged file can
make them crash, loop, or take all memory, and Python cannot stop them. A child that does the same
reading first meets that fate in our place, and the file is refused by name.

One server for each process is started at the first such file; it imports what is needed once and
forks for every file, which takes tens of milliseconds. Where there is no `fork`, checks are made in
this process and the first reading is left out.

Between the trial and the use of a file it could be exchanged: whoever can write to the folder at
that moment is trusted.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from ipot.data.guard.paths import shown
from ipot.errors import DataError
from ipot.memory import SQUEEZED, allowed

SPARE = 2**28
"""Bytes that a reader may take besides its data."""
SECONDS = 3
"""Of processor time, for any file; and one more for each megabyte."""
LONGEST = 900

_lock = threading.Lock()
_server: subprocess.Popen[str] | None = None
_owner = 0


def tried(
    function: str, path: Path, *arguments: Any, size: int | None = None, anew: bool = False
) -> None:
    """Refuse a file on which `module:function(path, *arguments)` fails to come back.

    A `DataError` that the function raises is raised here; any other exception means nothing, since
    the caller will meet it again. Arguments must be plain values. `size` is that of all the files
    that belong to it. A file is tried once as long as it stays the same, unless it must be `anew`,
    for what the function leaves behind.
    """
    if in_trial():
        return
    path = Path(os.path.abspath(path))
    at = path.stat()
    size = at.st_size if size is None else size
    facts = (at.st_dev, at.st_ino, at.st_mtime_ns)
    ask = _tried.__wrapped__ if anew else _tried
    memory = SPARE + SQUEEZED * size
    if (most := allowed()) is not None:
        memory = min(memory, SPARE + most)
    if said := ask(function, str(path), arguments, size, memory, facts):
        raise DataError(said)


def in_trial() -> bool:
    """Whether this is the child process, where nothing is tried again."""
    return os.environ.get("IPOT_TRIAL") == "1"


@lru_cache(maxsize=4096)
def _tried(
    function: str,
    path: str,
    arguments: tuple[Any, ...],
    size: int,
    memory: int,
    facts: tuple[int, ...],
) -> str:
    """Why the file is refused; nothing where it is not."""
    module, _, name = function.partition(":")
    if not hasattr(os, "fork") or not sys.executable:
        try:
            importlib.import_module(module).check(Path(path))
        except AttributeError:
            pass  # nothing but a first reading, which is left out
        except DataError as error:
            return str(error)
        return ""
    question = {
        "module": module,
        "name": name,
        "arguments": [path, *arguments],
        "memory": memory,
        "seconds": min(LONGEST, SECONDS + size / 1e6),
    }
    answer = _ask(question)
    why = {
        "fine": "",
        "refused": answer.get("said", ""),
        "signal": f"{shown(path)} makes the library that reads it fail "
        f"({_signal(answer.get('number', 0))}): it is damaged or made to do so. Write or fetch it "
        "again.",
        "time": f"{shown(path)} was not read within {question['seconds']:.0f} s of processor time, "
        f"for {size} bytes: it is damaged or made to take forever. Write or fetch it again.",
        "memory": f"{shown(path)} takes more memory than its {size} bytes explain: it is "
        "damaged or made to exhaust memory. Write or fetch it again.",
    }
    return why[answer["status"]]


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    """The server's answer; it is started where there is none, and once more where it died."""
    with _lock:
        for _ in range(2):
            server = _started()
            assert server.stdin is not None
            assert server.stdout is not None
            try:
                server.stdin.write(json.dumps(question) + "\n")
                server.stdin.flush()
                if line := server.stdout.readline():
                    return json.loads(line)
            except (OSError, ValueError):
                pass
            _stop()
    raise DataError(
        f"{shown(question['arguments'][0])} cannot be checked: the process that reads files first "
        "does not start. Is there memory left, and may this program start others?"
    )


def _started() -> subprocess.Popen[str]:
    global _server, _owner
    if _server is None or _owner != os.getpid() or _server.poll() is not None:
        program = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "from ipot.data.guard.trial_server import main; main()"
        )
        threads = {f"{n}_NUM_THREADS": "1" for n in ("OMP", "OPENBLAS", "MKL")}
        _server = subprocess.Popen(
            [sys.executable, "-I", "-c", program, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **threads, "IPOT_TRIAL": "1"},
            text=True,
            start_new_session=True,  # an interrupt from the keyboard is for us alone
        )
        _owner = os.getpid()
        atexit.register(_stop)
    return _server


def _stop() -> None:
    """End the server: it does when nobody can ask it any more."""
    global _server
    server, _server = _server, None
    if server is None or _owner != os.getpid():
        return
    for stream in (server.stdin, server.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
