"""Runs an attack for a while: cases side by side, findings shrunk and kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from campaign.attack import Attack, Case, Verdict, nth_case
from campaign.worker import Outcome, outcomes

FOUND = Path(__file__).parent / "found"
"""Cases that once failed; the tests try each of them again."""
CHUNK = 40
"""Cases that a process takes before it is replaced by a fresh one."""
ALIKE = 3
"""Findings of one kind that are kept; all of them are counted."""
SHRINKING = 30.0
"""Seconds that may be spent on making one finding smaller."""


@dataclass
class Tally:
    """What came of an attack in one run of the campaign."""

    attack: str
    counted: str
    first: int
    """Number of the first case."""
    last: int = 0
    """Number after the last case: where a run with the same seed goes on."""
    seconds: float = 0.0
    slowest: float = 0.0
    again: int = 0
    """Cases that outlasted their limit and were tried again with more time; they count as those
    that ended then."""
    verdicts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[Case, Outcome]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """What could not be tried on this machine, and why."""

    @property
    def tried(self) -> int:
        """Cases in all."""
        return sum(self.verdicts.values())

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.verdicts[outcome.verdict.value] += 1
        self.again += outcome.again
        self.slowest = max(self.slowest, outcome.seconds)


def run_attack(
    attack: Attack,
    seed: int,
    *,
    seconds: float,
    first: int = 0,
    jobs: int = 1,
    most: int | None = None,
    found: Path = FOUND,
    shrinking: float = SHRINKING,
) -> Tally:
    """Try cases until the time is up, or `most` of them; then make findings small and keep them."""
    tally = Tally(attack.name, attack.counted, first, first)
    alike: Counter[tuple[str, str]] = Counter()
    attack.warm()
    tally.left_out = attack.left_out()
    with tempfile.TemporaryDirectory(prefix="ipot-campaign-") as name:
        shared = Path(name)
        _in_child(_prepare, attack, shared)
        began = time.monotonic()
        try:
            for outcome in _side_by_side(attack, seed, first, shared, began + seconds, jobs, most):
                tally.add(outcome)
                tally.last = max(
                    tally.last, -(-(outcome.index + 1 - first) // CHUNK) * CHUNK + first
                )
                kind = (outcome.verdict.value, outcome.where)
                alike[kind] += 1
                if not outcome.verdict.good and alike[kind] <= ALIKE:
                    tally.findings.append((nth_case(attack, seed, outcome.index), outcome))
        finally:
            tally.seconds = time.monotonic() - began
            tally.findings = [shrunk(attack, c, o, shared, shrinking) for c, o in tally.findings]
            for case, outcome in tally.findings:
                keep(found, attack.name, case, outcome, seed)
    return tally


def replay(attack: Attack, case: Case) -> Outcome:
    """Try one case, like one that was kept."""
    return replay_all(attack, [case])[0]


def replay_all(attack: Attack, cases: list[Case]) -> list[Outcome]:
    """Try several cases; what they need is prepared once."""
    attack.warm()
    with tempfile.TemporaryDirectory(prefix="ipot-campaign-") as name:
        _in_child(_prepare, attack, Path(name))
        return list(outcomes(attack, enumerate(cases), Path(name)))


def shrunk(
    attack: Attack, case: Case, outcome: Outcome, shared: Path, seconds: float = SHRINKING
) -> tuple[Case, Outcome]:
    """The smallest case found that ends in the same way."""
    until = time.monotonic() + seconds
    better = True
    while better and time.monotonic() < until:
        better = False
        for candidate in attack.smaller(case):
            if time.monotonic() >= until:
                break
            again = next(iter(outcomes(attack, [(outcome.index, candidate)], shared)))
            if (again.verdict, again.where) == (outcome.verdict, outcome.where):
                case, outcome, better = candidate, again, True
                break
    return case, outcome


def keep(folder: Path, attack: str, case: Case, outcome: Outcome, seed: int) -> Path:
    """Write a finding down, under a name that is the same for the same case."""
    content = {
        "attack": attack,
        "case": case,
        "verdict": outcome.verdict.value,
        "said": outcome.said.splitlines()[:1],
        "seed": seed,
        "index": outcome.index,
    }
    digest = hashlib.sha256(json.dumps([attack, case], sort_keys=True).encode()).hexdigest()[:10]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{attack.replace(': ', '-').replace(' ', '-')}-{digest}.json"
    file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    return file


def _side_by_side(
    attack: Attack,
    seed: int,
    first: int,
    shared: Path,
    until: float,
    jobs: int,
    most: int | None,
) -> Iterator[Outcome]:
    """Outcomes of several processes, each with every `jobs`-th chunk of cases."""
    context = multiprocessing.get_context("fork")
    pipes, lanes = [], []
    for lane in range(jobs):
        parent, child = context.Pipe(duplex=False)
        arguments = (attack, seed, first, lane, jobs, shared, until, most, child)
        process = context.Process(target=_lane, args=arguments)
        process.start()
        child.close()
        pipes.append(parent)
        lanes.append(process)
    try:
        while pipes:
            for pipe in wait(pipes):
                try:
                    message: Any = pipe.recv()  # type: ignore[union-attr]
                except EOFError:
                    pipes.remove(pipe)  # type: ignore[arg-type]
                    continue
                if isinstance(message, BaseException):
                    raise message
                yield message
    finally:
        for process in lanes:
            if pipes:
                process.terminate()
            process.join()


def _lane(attack, seed, first, lane, jobs, shared, until, most, pipe) -> None:
    """The chunks of one process, each tried in a fresh child."""
    chunk = lane
    try:
        attack.load(shared)
        while time.monotonic() < until:
            start = first + chunk * CHUNK
            stop = start + CHUNK if most is None else min(start + CHUNK, first + most)
            if start >= stop:
                break
            cases = [(i, nth_case(attack, seed, i)) for i in range(start, stop)]
            for outcome in outcomes(attack, cases, shared, until):
                pipe.send(outcome)
            chunk += jobs
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))
    pipe.close()


def _prepare(attack: Attack, shared: Path) -> None:
    attack.start()
    attack.prepare(shared)


def _in_child(function: Any, *given: Any) -> None:
    """Call something in a process of its own: the parent stays small and without threads."""
    context = multiprocessing.get_context("fork")
    parent, child = context.Pipe(duplex=False)

    def call() -> None:
        try:
            function(*given)
            child.send(None)
        except Exception as error:
            child.send(f"{type(error).__name__}: {error}")
        child.close()

    process = context.Process(target=call)
    process.start()
    child.close()
    said = parent.recv() if parent.poll(600) else "it takes more than ten minutes"
    process.join(10)
    if process.is_alive():
        process.kill()
    if said is not None:
        raise RuntimeError(f"cannot prepare the attack: {said}")


def verdict_names() -> list[str]:
    """The columns of the table."""
    return [v.value for v in Verdict]
