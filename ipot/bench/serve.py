"""Answers of `ipot serve`: one client alone, and many at once, over sockets of this machine.

A server is started as a user starts it, in a process of its own. Each client asks without a pause;
where it is refused, it waits as long as it is told.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ipot.bench.measuring import Memory, Terms, Timing
from ipot.bench.rows import OURS, Row
from ipot.errors import DataError, RunError

NPZ = "application/x-npz"
MOST_CLIENTS = 500
PATIENCE = 60.0
"""Seconds that a client waits for an answer."""
LOADING = 300.0
"""Seconds for a server to load its model."""
WARM_UP = 20
"""Answers that are not counted: the first ones compile, and take memory that stays."""
SELDOM = 0.5
"""Seconds from one look at the server's memory to the next."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of which model, and by how many at once."""

    model: str
    """What `ipot serve` is given: the name of a model in the package, or a folder."""
    clients: int
    points: int
    words: tuple[str, ...] = ()
    """More words for `ipot serve`."""


@dataclass
class Tally:
    """What came back to some clients."""

    times: list[float] = field(default_factory=list)
    """Milliseconds of answers."""
    refused: int = 0
    """Told to ask again later."""
    failed: int = 0
    """Anything else: it must be none."""
    resident: list[float] = field(default_factory=list)
    """Bytes of memory of the server, in the order of time."""
    seconds: float = 0.0
    """From the first question to the last answer."""


def check_load(load: Load) -> None:
    """Refuse what cannot be measured, before any work."""
    if not 1 <= load.clients <= MOST_CLIENTS:
        raise DataError(f"--clients must lie in 1 to {MOST_CLIENTS}, got {load.clients}")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RunError(
            f"ipot serve needs {error.name}: pip install 'ipot[serve]' brings it"
        ) from error


def measure_serving(load: Load, terms: Terms) -> tuple[list[Row], dict[str, Any]]:
    """A row for a lone client and one for all of them, and what became of their questions."""
    check_load(load)
    with serving(load) as port:
        terms.tell("the model is loaded")
        name, facts = facts_of(port)
        body, steps = question_of(facts, load.points)
        path = f"/v1/models/{name}/predict"
        ask_until(port, path, body, until=None, tally=Tally())
        row = Row(
            problem=facts["problem"] or name,
            version=OURS,
            points=load.points,
            queries=load.points,
            steps=steps,
        )
        found = []
        for clients in dict.fromkeys((1, load.clients)):
            terms.tell(f"{clients} at once" if clients > 1 else "a client alone")
            found.append((clients, asked_by(clients, port, path, body, terms.seconds)))
    rows = [_row(row, clients, tally, terms) for clients, tally in found]
    alone = rows[0].ms
    if alone:
        rows = [r if r.ms is None else replace(r, ratio=r.ms / alone) for r in rows]
    return rows, {"clients": [_told(clients, tally) for clients, tally in found]}


def _row(row: Row, clients: int, tally: Tally, terms: Terms) -> Row:
    row = replace(row, kind="one client" if clients == 1 else f"{clients} clients")
    if not tally.times:
        return replace(row, reason=f"no answer; {tally.refused} refused, {tally.failed} failed")
    top = max(tally.resident, default=0.0) / 2**30
    above = max(0.0, top - _early(tally.resident) / 2**30)
    memory = Memory(peak=top, above=above) if top else Memory(peak=None, above=None)
    timed = row.timed(Timing.of(tally.times), memory, None, terms.top)
    notes = (f"{row.kind}: {tally.refused} refused, {tally.failed} failed",)
    return replace(timed, samples_per_second=len(tally.times) / tally.seconds, notes=notes)


def _early(resident: Sequence[float]) -> float:
    """The most that was taken in the first third of the time: growth is what comes after."""
    return max(resident[: max(1, len(resident) // 3)], default=0.0)


def _told(clients: int, tally: Tally) -> dict[str, Any]:
    return {
        "clients": clients,
        "answers": len(tally.times),
        "refused": tally.refused,
        "failed": tally.failed,
        "resident_bytes": tally.resident,
    }


@contextlib.contextmanager
def serving(load: Load) -> Iterator[int]:
    """A server of the model, at some port, until it is no longer needed."""
    words = [sys.executable, "-m", "ipot", "serve", load.model, "--port", "0", *load.words]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:
            said += line
            if found := re.search(r"http://[\d.]+:(\d+)/", line):
                break
        else:
            raise RunError(f"no server was started: {said.strip()}")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        port = int(found[1])
        _wait_until_ready(port)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stderr.close()


def _wait_until_ready(port: int) -> None:
    end = time.monotonic() + LOADING
    while time.monotonic() < end:
        states = _get(port, "/healthz")["models"]
        if "failed" in states.values():
            facts_of(port)  # says why
        if set(states.values()) == {"ready"}:
            return
        time.sleep(0.1)
    raise RunError(f"the model was not loaded within {LOADING:g} s")


def _get(port: int, path: str) -> Any:
    """What an address says, as JSON."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LOADING)) as one:
        one.request("GET", path)
        found = json.loads(one.getresponse().read())
    if "error" in found and "status" in found:
        raise RunError(found["error"])
    return found


def facts_of(port: int) -> tuple[str, dict[str, Any]]:
    """The name and the facts of the model that is served."""
    name = _get(port, "/v1/models")["models"][0]["name"]
    return name, _get(port, f"/v1/models/{name}")


def question_of(facts: dict[str, Any], points: int) -> tuple[bytes, int]:
    """A question as npz, at random places and with values as in training; and its steps."""
    spec, ranges, random = facts["spec"], facts["ranges"], np.random.default_rng(0)
    arrays = {"queries": _drawn(random, spec["query_domain"], points)}
    if spec["inputs"]:
        arrays["points"] = _drawn(random, spec["domain"], points)
        # A model that was never trained knows no ranges.
        known = ranges["values"] or [[0.0, 1.0]] * len(spec["inputs"])
        arrays["values"] = _drawn(random, known, points)
        if spec["query_domain"] == spec["domain"]:
            arrays["queries"] = arrays["points"]
    if spec["parameters"]:
        arrays["parameters"] = _drawn(
            random, ranges["parameters"] or [[0.0, 1.0]] * len(spec["parameters"]), 1
        )[0]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue(), spec["steps"]


def _drawn(random: np.random.Generator, ranges: Any, count: int) -> np.ndarray:
    low, high = np.array(ranges, np.float64).reshape(-1, 2).T
    return random.uniform(low, high, (count, len(low))).astype(np.float32)


def asked_by(clients: int, port: int, path: str, body: bytes, seconds: float) -> Tally:
    """What comes back to so many clients in so many seconds."""
    began = time.monotonic()
    until = began + seconds
    tallies = [Tally() for _ in range(clients)]
    threads = [
        threading.Thread(target=ask_until, args=(port, path, body, until, tally))
        for tally in tallies
    ]
    for thread in threads:
        thread.start()
    resident = [_resident(port)]
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(SELDOM, left))
        resident.append(_resident(port))
    for thread in threads:
        thread.join()
    return Tally(
        times=[spent for tally in tallies for spent in tally.times],
        refused=sum(tally.refused for tally in tallies),
        failed=sum(tally.failed for tally in tallies),
        resident=[size for size in resident if size],
        seconds=time.monotonic() - began,
    )


def ask_until(port: int, path: str, body: bytes, until: float | None, tally: Tally) -> None:
    """Ask without a pause, and once at least; without an end, as often as a warm-up takes."""
    headers = {"content-type": NPZ, "accept": NPZ}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        while True:
            began = time.monotonic()
            status, said, wait = _asked(connection, path, body, headers)
            if status == 200:
                tally.times.append(1e3 * (time.monotonic() - began))
            elif status == 503:
                tally.refused += 1
                time.sleep(wait if until is None else max(0.0, min(wait, until - began)))
            elif until is None:
                raise RunError(said.decode())
            else:
                tally.failed += 1
            if len(tally.times) >= WARM_UP if until is None else time.monotonic() >= until:
                return


def _asked(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes, float]:
    """The status, the body and the seconds to wait of an answer; 0 where there is none."""
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), float(answer.headers.get("Retry-After", 1))
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return 0, str(error).encode(), 1.0


def _resident(port: int) -> float:
    """Bytes of memory that the server has; 0 where it has no time to say."""
    try:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as one:
            one.request("GET", "/metrics")
            text = one.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return 0.0
    found = re.search(r"^ipot_memory_bytes (\S+)$", text, re.M)
    return float(found[1]) if found else 0.0
