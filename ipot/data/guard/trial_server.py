"""The process that forks for every file that is tried; see `trial`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

WAIT = 3
"""The clock's time that is allowed for the processor's, where others use the processor too."""


def main() -> None:
    """Answer questions from the standard input, one line each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    for line in sys.stdin:
        question = json.loads(line)
        _preload(question["module"])
        answers.write(json.dumps(_answer(question)) + "\n")
        answers.flush()


def _preload(module: str) -> None:
    """Import here what every child would import again."""
    for name in getattr(importlib.import_module(module), "PRELOAD", ()):
        # The reader says what is missing; some libraries raise other errors than ImportError where
        # a part of theirs is, and another file may not need them.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _try(question, writing)
    os.close(writing)
    said, late = b"", False
    end = time.monotonic() + WAIT * question["seconds"]
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            late = True
            os.kill(child, signal.SIGKILL)
            break
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        said += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return {"status": "time"}
    if os.WIFSIGNALED(status):
        return {"status": "signal", "number": os.WTERMSIG(status)}
    # A library that ends the process by itself has nothing to say.
    return json.loads(said) if said else {"status": "signal", "number": 0}


def _try(question: dict[str, Any], writing: int) -> None:
    """In the child: the limits, the call, and what came of it."""
    from ipot.errors import IpotError

    answer: dict[str, Any] = {"status": "fine"}
    try:
        _limit(question)
        function = getattr(importlib.import_module(question["module"]), question["name"])
        function(*question["arguments"])
    except IpotError as error:
        answer = {"status": "refused", "said": str(error)}
    except MemoryError:
        answer = {"status": "memory"}
    except BaseException:  # the caller will meet it again
        pass
    finally:
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)


def _limit(question: dict[str, Any]) -> None:
    seconds = int(question["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        most = taken + question["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (OSError, ValueError):  # not Linux: no such limit
        pass
