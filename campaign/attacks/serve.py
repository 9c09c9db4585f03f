"""Requests changed at random, sent to a running server: each is answered or refused in JSON, none
ends it, and nothing is left of any."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import socket
import struct
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from campaign.attack import Attack, Case, Lost, Place
from campaign.attacks import _array_bases as bases
from campaign.attacks import _requests as requests
from campaign.attacks._mutate import Around, Tree
from campaign.attacks._trial import fork_server
from campaign.libraries import missing

NEEDED = ("starlette", "uvicorn", "h11")
PATIENCE = 20.0
"""Seconds for an answer, on a machine that others use as well."""
BODY = 1 << 22
"""Bytes of a body that the server takes."""


class Requests(Attack):
    """Right requests with one to three changes."""

    name = "serve: requests"
    counted = "mutated requests"
    share = 3.0
    seconds = 30.0

    def __init__(self) -> None:
        self._right: dict[str, requests.Request] = {}
        self._running: Running | None = None

    def possible(self) -> str | None:
        """The libraries of the extra `serve`."""
        return missing(NEEDED)

    def warm(self) -> None:
        """Import the server and what reads uploads."""
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        for name in ("ipot.api", "ipot.serve.application", "ipot.serve.listening"):
            importlib.import_module(name)
        for name in ("ipot.serve.uploads", "ipot.surrogate.files", "ipot.formats.vtk", "h5py"):
            importlib.import_module(name)

    def prepare(self, shared: Path) -> None:
        """Fit the models that are served, and write files that can be uploaded."""
        import ipot
        from ipot.formats import Case as Field
        from ipot.formats import write_case

        for name in requests.MODELS:
            data = ipot.Dataset.from_arrays(**bases.arrays(name))
            model = bases.fitted(data)
            model.calibrate(data)
            model.save(shared / name)
        (shared / "files").mkdir()
        whole = bases.arrays("mesh")
        field = Field(points=whole["points"], fields={"value": whole["values"][0]})
        for ending in ("vtu", "csv", "h5", "npz"):
            write_case(shared / "files" / f"case.{ending}", field)

    def load(self, shared: Path) -> None:
        """Load them."""
        for name in requests.MODELS:
            bases.model(shared, name)
        self._right = requests.right_ones(shared / "files")

    def start(self) -> None:
        """Have files tried by a server that need not import all libraries again."""
        fork_server()

    def draw(self, random: Random) -> Case:
        """A right request and its changes."""
        kinds = sorted(self._drawn_from())
        kind = random.choice(kinds)
        changes = requests.drawn(self._drawn_from()[kind], random)
        return {"request": kind, "changes": changes, "rudely": random.random() < 0.5}

    def _drawn_from(self) -> dict[str, requests.Request]:
        """What cases name: their bodies do not matter for it."""
        return NAMED

    def run(self, case: Case, place: Place) -> None:
        """Send it, hold the answer against what must be, and see that the server goes on."""
        if not self._right:
            self.load(place.shared)
        if self._running is None or not self._running.thread.is_alive():
            self._running = Running(place.shared)
        server = self._running
        others: dict[str, Tree] = {"a": {"body.bin": b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"}}
        around = Around(place.shared, "..", others)
        request = requests.changed(self._right[case["request"]], case["changes"], around)
        sent = request.written(around)
        answer = server.asked(sent, method=request.method, rudely=case["rudely"])
        server.goes_on()
        if answer is not None:
            _judged(answer, place.shared)


NAMED = {
    **{path: requests.Request("GET", path) for path in ("/", "/healthz", "/metrics", "/v1/models")},
    **{path: requests.Request("GET", path) for path in ("/openapi.json", "/v1/models/mesh")},
    **{
        f"{model} {one} {kind}": requests.Request("POST", "", (), b"x", f".{kind}")
        for model in requests.MODELS
        for one in (True, False)
        for kind in ("json", "npz")
        if (model, one, kind) != ("uneven", False, "npz")
    },
    **{f"case.{e}": requests.Request("POST", "", (), b"x", f".{e}") for e in ("vtu", "csv", "npz")},
    "case.h5": requests.Request("POST", "", (), b"x", ".h5"),
    "solve": requests.Request("POST", "", (), b"x", ".json"),
}
"""What cases are drawn from: names of right requests, and what kind of body these have. Drawing
needs no models."""


class Answer:
    """What came back."""

    def __init__(self, found: http.client.HTTPResponse, body: bytes) -> None:
        self.status, self.body = found.status, body
        self.kind = found.headers.get("content-type", "")
        self.policy = found.headers.get("content-security-policy")
        self.retry = found.headers.get("retry-after")


def _judged(answer: Answer, shared: Path) -> None:
    """Refuse an answer that must not be; raise the sentence of an error."""
    from ipot.errors import DataError

    if answer.policy is None:
        raise Lost(f"an answer without a policy: {answer.status}", "policy")
    if str(shared).encode() in answer.body or b"Traceback" in answer.body:
        raise Lost(f"it tells too much: {answer.body[:300]!r}", "tells")
    if answer.status < 400:
        return
    if answer.body:  # of HEAD there is none
        try:
            said = json.loads(answer.body)
        except ValueError:
            raise Lost(f"an error that is not JSON: {answer.body[:300]!r}", "not JSON") from None
        if set(said) != {"error", "status"} or said["status"] != answer.status or not said["error"]:
            raise Lost(f"an error of another form: {said}", "form")
        if answer.kind != "application/json":
            raise Lost(f"an error of the kind {answer.kind}", "kind")
        if len(said["error"]) > 2000:
            raise Lost(f"a sentence of {len(said['error'])} characters", "long")
    if answer.status == 500:
        raise Lost(f"it failed: {answer.body[:300]!r}", "500")
    if answer.status == 503 and answer.retry is None:
        raise Lost("it does not say when to ask again", "retry")
    raise DataError(f"{answer.status}: {answer.body[:200]!r}")


class Running:
    """A server in a thread of this process."""

    def __init__(self, shared: Path) -> None:
        from ipot.serve import listening
        from ipot.serve.application import application
        from ipot.serve.limits import Limits
        from ipot.serve.models import Models, Served

        served = [Served(name, shared / name) for name in requests.MODELS]
        for one in served:
            one._model, one.state = bases.model(shared, one.name), "ready"
        limits = Limits(body=BODY, head_seconds=PATIENCE, body_seconds=PATIENCE)
        app = application(Models(served), limits)
        self.server: Any = app.server
        listener = listening.bound("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        listening.be_silent()
        run = listening.server_of(app, limits).run
        self.thread = threading.Thread(target=run, args=([listener],), daemon=True)
        self.thread.start()
        asked = bases.question("mesh", one=True)
        self.right = json.dumps({n: v.tolist() for n, v in asked.items()})
        self.wanted = bases.model(shared, "mesh").predict(**asked)

    def asked(self, sent: bytes, *, method: str, rudely: bool) -> Answer | None:
        """The answer to some bytes; None where they are not a whole request, after which the
        client hangs up."""
        whole = _is_whole(sent)
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            try:
                connection.sendall(sent)
                if not whole:
                    if rudely:
                        linger = struct.pack("ii", 1, 0)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return None
                found = http.client.HTTPResponse(connection, method=method)
                found.begin()
                return Answer(found, found.read())
            except TimeoutError as error:
                raise Lost(f"no answer within {PATIENCE:g} s", "no answer") from error
            except (ConnectionError, http.client.HTTPException) as error:
                if len(sent) > BODY:  # cut off while it was sent
                    return None
                raise Lost(f"no answer: {type(error).__name__} {error}", "no answer") from error

    def goes_on(self) -> None:
        """Ask what is right, and see that nothing is left of what was asked before."""
        end = time.monotonic() + PATIENCE
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(client):
            try:
                client.request("POST", "/v1/models/mesh/predict", self.right)
                found = json.loads(client.getresponse().read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise Lost(f"it does not go on: {error}", "goes on") from error
        if not np.allclose(found.get("prediction", np.nan), self.wanted, rtol=1e-5, atol=1e-6):
            raise Lost(f"it answers otherwise afterwards: {str(found)[:300]}", "otherwise")
        while self.server.room.taken or self.server.worker.jobs or self.server.solving.asked:
            if time.monotonic() > end:
                raise Lost("something is left of a request", "left")
            time.sleep(0.005)


def _is_whole(sent: bytes) -> bool:
    """Whether bytes must be answered: a request to its end, or what can never be a request."""
    import h11

    from ipot.serve.listening import HEAD

    connection = h11.Connection(h11.SERVER, HEAD)
    connection.receive_data(sent)
    begun = False
    try:
        while isinstance(event := connection.next_event(), h11.Request | h11.Data):
            begun = True
        return isinstance(event, h11.EndOfMessage)
    except h11.RemoteProtocolError:
        return not begun  # in the middle of a body the connection may be closed


ATTACKS = [Requests()]
