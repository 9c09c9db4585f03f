"""Solvers run in a process of their own, one at a time: it can be ended at any moment, when the
time is up or the client hangs up, and answers of models do not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ipot.serve.limits import Limits
from ipot.serve.refused import Refused, busy, wrong

if TYPE_CHECKING:
    from ipot.serve.models import Served
    from ipot.serve.question import Question

LENGTH = struct.Struct("<Q")
TELLS = "tells"
"""The array of an archive that holds what is no array."""
PART = "part"
"""What is told on the way: which part is done."""
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ipot.serve.solvers import main; main()"
)


Progress = Callable[[float], None]


class Solving:
    """The process, started at the first question and kept for the next."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.asked = 0
        """Questions that run or wait."""
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._usual = 5.0

    async def solve(
        self, served: Served, question: Question, *, gone: Any, progress: Progress | None = None
    ) -> dict[str, Any]:
        """The solution as named arrays; refused where others wait, or where it takes too long.
        `progress` is told which part is done, where it takes a while."""
        if self.asked >= self.limits.solves:
            raise busy(f"{self.asked} solutions are being computed", self._usual * self.asked)
        self.asked += 1
        watch = asyncio.ensure_future(gone())
        work = asyncio.ensure_future(self._solved(served, question, progress))
        try:
            await asyncio.wait({watch, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Refused(499, "the client hung up", close=True)
            return work.result()
        finally:
            self.asked -= 1
            watch.cancel()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await work

    async def _solved(
        self, served: Served, question: Question, progress: Progress | None
    ) -> dict[str, Any]:
        async with self._turn:
            began, limit = time.monotonic(), self.limits.solve_seconds
            whole = False
            try:
                async with asyncio.timeout(limit):
                    asked = pack(question.arrays, self._tells(served, question))
                    arrays, tells = await self._ask(asked, progress)
                whole = True
            except TimeoutError as error:
                raise Refused(504, f"the solver had no solution within {limit:g} s") from error
            except (EOFError, OSError) as error:
                raise Refused(500, "the solver ended without an answer") from error
            finally:
                if not whole:  # whatever it is at, nobody waits for it
                    self.stop()
            if said := tells.get("error"):
                raise wrong(said)
            self._usual = time.monotonic() - began
            return arrays | {"milliseconds": tells["milliseconds"]}

    def _tells(self, served: Served, question: Question) -> dict[str, Any]:
        times = question.times
        return {
            "problem": served.problem,
            "folder": str(served.folder.resolve()),
            "steps": question.steps,
            "times": None if times is None else np.asarray(times).tolist(),
            "rows": self.limits.rows,
        }

    async def _ask(
        self, body: bytes, progress: Progress | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", PROGRAM, json.dumps(sys.path)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what a solver says may quote its inputs
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LENGTH.pack(len(body)) + body)
        await process.stdin.drain()
        while True:
            (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
            arrays, tells = unpack(await process.stdout.readexactly(size))
            if PART not in tells:
                return arrays, tells
            if progress is not None:
                progress(tells[PART])

    async def end(self) -> None:
        """End the process, and wait until it has."""
        process = self._process
        self.stop()
        if process is not None:
            await process.wait()

    def stop(self) -> None:
        """End the process, whatever it is at."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def pack(arrays: dict[str, Any], tells: dict[str, Any]) -> bytes:
    """Arrays and plain values as bytes; several samples are refused: a solver takes one case."""
    buffer, found = io.BytesIO(), {}
    for name, array in arrays.items():
        if isinstance(array, list):
            raise wrong(f"{name} holds several samples: a solver takes one at a time")
        found[name] = np.asarray(array)
    np.savez(buffer, allow_pickle=False, **found, **{TELLS: np.array(json.dumps(tells))})
    return buffer.getvalue()


def unpack(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The way back."""
    with np.load(io.BytesIO(body), allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    return arrays, json.loads(str(arrays.pop(TELLS)))
