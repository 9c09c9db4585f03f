"""A process of its own for a batch of cases, with limits on time and memory.

The parent has imported what is slow to import and forks. The child says before each case which one
it is about to try: where it then hangs or dies, the parent knows the case.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign.attack import MIB, Attack, Case, Lost, Place, Verdict

SLACK = 2048 * MIB
"""Address space beyond an attack's bound on memory: libraries map more than they touch."""
STARTING = 120.0
"""Seconds for a child to begin, on a busy machine."""
AGAIN = 4.0
"""Times its limit that a case may take which has outlasted it once: others may have had the
processor, and what hangs does so again."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended, and what was said."""

    index: int
    verdict: Verdict
    said: str = ""
    where: str = ""
    """Tells findings apart: the kind of the error and the innermost line."""
    seconds: float = 0.0
    again: bool = False
    """Whether it was tried again, after it had outlasted its limit."""


def outcomes(
    attack: Attack, cases: Iterable[tuple[int, Case]], shared: Path, until: float = float("inf")
) -> Iterator[Outcome]:
    """Try cases one after another, in as many processes as it takes, until the clock says so."""
    waiting = list(cases)
    while waiting and time.monotonic() < until:
        done, late = 0, False
        for outcome in _one_process(attack, waiting, shared, until):
            if late := outcome.verdict is Verdict.HUNG:
                continue  # it is the last, and its process ends before the case is tried again
            done += 1
            yield outcome
        if late:
            yield _tried_again(attack, waiting[done], shared)
            done += 1
        if not done and time.monotonic() < until:
            raise RuntimeError(f"{attack.name}: a process ended before its first case")
        waiting = waiting[done:]


def _tried_again(attack: Attack, case: tuple[int, Case], shared: Path) -> Outcome:
    """How a case ends that has outlasted its limit once."""
    (outcome,) = _one_process(attack, [case], shared, float("inf"), AGAIN)
    return replace(outcome, again=True)


def _one_process(
    attack: Attack,
    cases: list[tuple[int, Case]],
    shared: Path,
    until: float,
    patience: float = 1.0,
) -> Iterator[Outcome]:
    """Cases until one of them takes the process with it."""
    context = multiprocessing.get_context("fork")
    parent, child = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="ipot-campaign-") as folder:
        process = context.Process(
            target=_work,
            args=(attack, cases, shared, Path(folder), until, patience, parent, child),
        )
        process.start()
        child.close()
        try:
            yield from _listen(attack, parent, process, Path(folder), patience * attack.seconds)
        finally:
            _end(process)
            parent.close()


def _listen(
    attack: Attack, pipe: Any, process: Any, folder: Path, limit: float
) -> Iterator[Outcome]:
    """What a child says, and what its silence or its end means."""
    trying: int | None = None
    while True:
        if not pipe.poll(limit if trying is not None else STARTING):
            if trying is None:
                raise RuntimeError(f"{attack.name}: a process did not begin in {STARTING:g} s")
            said = _last_words(folder) or "no answer"
            yield Outcome(trying, Verdict.HUNG, said, _line(said), limit)
            return
        try:
            message = pipe.recv()
        except EOFError:
            process.join()
            if trying is not None:
                said = f"ended with {process.exitcode}\n{_last_words(folder)}"
                yield Outcome(trying, Verdict.CRASHED, said, _line(said))
            return
        if isinstance(message, Outcome):
            yield message
            trying = None
        else:
            trying = message


def _work(attack, cases, shared, folder, until, patience, parent, child) -> None:
    """The child: every case, each told before and after."""
    parent.close()
    os.setpgid(0, 0)  # so that whatever it starts ends with it
    log = (folder / "traceback").open("w+")
    faulthandler.enable(log)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    _quiet()
    if attack.limited:
        most = _status("VmSize") + attack.memory + SLACK
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    attack.start()
    for index, case in cases:
        if time.monotonic() >= until:
            break
        child.send(index)
        faulthandler.dump_traceback_later(max(0.1, patience * attack.seconds * 0.9), file=log)
        child.send(_tried(attack, index, case, shared, folder / "scratch"))
        faulthandler.cancel_dump_traceback_later()
    child.close()
    os._exit(0)  # nothing of the parent's is to be tidied up here


def _tried(attack: Attack, index: int, case: Case, shared: Path, scratch: Path) -> Outcome:
    from ipot.errors import IpotError

    _removed(scratch)
    scratch.mkdir()
    began, before = time.monotonic(), _reset_peak()

    def ended(verdict: Verdict, error: BaseException | None = None, said: str = "") -> Outcome:
        text = said or ("" if error is None else f"{type(error).__name__}: {error}")
        if error is not None and not verdict.good:
            text += "\n" + "".join(traceback.format_tb(error.__traceback__)[-6:])
        where = "" if error is None else _innermost(error)
        return Outcome(index, verdict, text[:4000], where, time.monotonic() - began)

    needed = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            needed = attack.run(case, Place(shared, scratch)) or 0
    except IpotError as error:
        outcome = ended(Verdict.REFUSED, error)
    except Lost as error:
        outcome = ended(Verdict.LOST, error)
    except MemoryError as error:
        outcome = ended(Verdict.MEMORY, error)
    except Exception as error:
        outcome = ended(Verdict.FOREIGN, error)
    else:
        outcome = ended(Verdict.SURVIVED)
    finally:
        _removed(scratch)
    grown, needed = _status("VmHWM") - before, max(needed, attack.needs(case))
    if outcome.verdict.good and grown > attack.memory + needed:
        said = f"grew by {grown // MIB} MiB; {attack.memory // MIB} and {needed // MIB} are allowed"
        outcome = ended(Verdict.MEMORY, said=said)
    return outcome


def _quiet() -> None:
    """Leave the terminal to the campaign: what is attacked may print."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as it lives)


def _removed(folder: Path) -> None:
    """Remove a folder whatever permissions a case gave it."""
    if not folder.exists():
        return
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _end(process: Any) -> None:
    """Kill a child and whatever it has started."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.is_alive():
            process.kill()
    process.join()


def _reset_peak() -> int:
    """Start the peak of resident memory anew; returns what is resident now."""
    with contextlib.suppress(OSError):  # not every container lets us: then the peak is the old one
        Path("/proc/self/clear_refs").write_text("5")
    return max(_status("VmRSS"), _status("VmHWM"))


def _status(name: str) -> int:
    """An entry of the process's memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _innermost(error: BaseException) -> str:
    """The kind of an error and the last line of ours that it passed through.

    An error that was raised in another process says by `where` what that line was.
    """
    if isinstance(error, Lost) and error.kind:
        return f"Lost: {error.kind}"
    if where := getattr(error, "where", ""):
        return str(where)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/ipot/" in f.filename or "/campaign/" in f.filename]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.name}"


def _last_words(folder: Path) -> str:
    """What faulthandler wrote before the end."""
    with contextlib.suppress(OSError):
        return (folder / "traceback").read_text()[:4000]
    return ""


def _line(said: str) -> str:
    """The innermost line of ours in what faulthandler wrote, to tell findings apart."""
    lines = [line.strip() for line in said.splitlines()]
    ours = [line for line in lines if "/ipot/" in line]
    return next(iter(ours or [line for line in lines if line.startswith("File")]), said[:60])
