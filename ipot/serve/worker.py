"""The one thread that models answer in, one question after another, and its bounded queue.

One at a time, because a model takes all cores for an answer: two at once take as long as one after
the other, and twice the memory. What is asked while the queue is full is refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipot.serve.refused import Refused, busy
from ipot.stopping import Stopped, stoppable

USUAL = 0.8
"""How much of the usual time for an answer is of those before the last."""


@dataclass(eq=False)
class Job:
    """Something to do, and who waits for it."""

    function: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]
    begun: float | None = None
    """When it was begun."""
    left: bool = False
    """Nobody waits for it any longer: one at work stops at its next step."""


class Worker:
    """Questions in their order; where there is none, what was put off until then."""

    def __init__(self, waiting: int) -> None:
        self.most = waiting
        self.jobs: deque[Job] = deque()
        self.later: deque[Callable[[], Any]] = deque()
        self.changed = threading.Condition()
        self.running = False
        self.usual = 0.1
        """Seconds that a question took, lately."""
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="ipot-answers", daemon=True)

    @property
    def waiting(self) -> int:
        """Questions that wait."""
        return len(self.jobs)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """End after the question at work, if it ends by then; says whether it has."""
        with self.changed:
            self._ends = True
            self.jobs.clear()
            self.later.clear()
            self.changed.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def put_off(self, function: Callable[[], Any]) -> None:
        """Do something when there is nothing else to do."""
        with self.changed:
            self.later.append(function)
            self.changed.notify()

    async def run(self, function: Callable[[], Any], *, seconds: float, gone: Any = None) -> Any:
        """The result of a function that the thread calls; refused where the queue is full, where it
        waits for longer than some seconds or takes as long again, and left where `gone` says that
        the client hung up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def done(result: Any, error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(settle, result, error)

        job = Job(function, done)
        with self.changed:
            wait = self.usual * (1 + len(self.jobs))
            # One that would be given up in the end is refused now. Where nobody waits, it is tried.
            hopeless = len(self.jobs) > 0 and wait > seconds
            if self._ends or hopeless or len(self.jobs) >= self.most:
                raise busy(f"{len(self.jobs)} questions wait already", wait)
            self.jobs.append(job)
            self.changed.notify()
        watch = None if gone is None else asyncio.ensure_future(gone())
        waited = {future} if watch is None else {future, watch}
        try:
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if job.begun is not None and not any(one.done() for one in waited):
                left = job.begun + seconds - time.monotonic()
                await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if watch is not None and watch.done():
                raise Refused(499, "the client hung up", close=True)
            if job.begun is None:
                raise busy(f"this question waited for {seconds:g} s", self.usual * self.waiting)
            raise Refused(
                504, f"no answer within {seconds:g} s: ask for fewer points, queries or steps"
            )
        finally:
            self._leave(job)
            if watch is not None:
                watch.cancel()
            future.cancel()

    def _leave(self, job: Job) -> None:
        """Nobody waits for a job any more: it is not begun, or ends at its next step."""
        with self.changed:
            job.left = True
            if job.begun is None and job in self.jobs:
                self.jobs.remove(job)

    def _work(self) -> None:
        while True:
            with self.changed:
                while not (self.jobs or self.later or self._ends):
                    self.changed.wait()
                if self._ends:
                    return
                job = self.jobs.popleft() if self.jobs else None
                chore = self.later.popleft() if job is None else None
                if job is not None:
                    job.begun = time.monotonic()
                self.running = True
            if job is not None:
                self._answer(job)
                del job  # with all that it holds, which may be much
            elif chore is not None:
                with contextlib.suppress(Exception):  # nobody waits for it, and others come next
                    chore()
                del chore
            self.running = False

    def _answer(self, job: Job) -> None:
        began = time.monotonic()
        try:
            with stoppable(lambda: job.left):
                result = job.function()
        except Stopped:
            return  # nobody hears of it, and it says nothing of what questions take
        except BaseException as error:
            # Its frames hold the arrays of the question.
            job.done(None, error.with_traceback(None))
        else:
            job.done(result, None)
        self.usual = USUAL * self.usual + (1 - USUAL) * (time.monotonic() - began)


def with_remarks(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a function of the worker's thread gives, and what it warned of: that is for the client,
    and not for this terminal."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        result = function()
    return result, list(dict.fromkeys(str(warning.message) for warning in caught))
