"""The application asked in process, as a server would ask it; no socket is opened."""

import asyncio
import io
import json
from dataclasses import dataclass

import numpy as np

from ipot.serve.application import application
from ipot.serve.limits import Limits
from ipot.serve.models import Models, Served
from ipot.serve.question import NPZ


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def arrays(self):
        with np.load(io.BytesIO(self.body), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}

    @property
    def error(self):
        assert self.json["status"] == self.status
        return self.json["error"]


async def send(app, method, path, body=b"", headers=None, *, pieces=None, hang_up=None):
    """One request. `pieces` send the body bit by bit; `hang_up` is an event after which the client
    is gone."""
    path, _, query = path.partition("?")
    found = {"host": "127.0.0.1:8000", **(headers or {})}
    if pieces is None and body and "content-length" not in found:
        found["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in found.items()],
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    waiting = list(pieces) if pieces is not None else [body]
    status, sent, told = 0, [], {}
    over = asyncio.Event()

    async def receive():
        if waiting:
            part = waiting.pop(0)
            if asyncio.iscoroutine(part):
                part = await part
            return {"type": "http.request", "body": part, "more_body": bool(waiting)}
        await (hang_up or over).wait()
        return {"type": "http.disconnect"}

    async def answer(message):
        nonlocal status
        if message["type"] == "http.response.start":
            assert not status, "answered twice"
            status = message["status"]
            told.update({k.decode(): v.decode() for k, v in message["headers"]})
        else:
            sent.append(message.get("body", b""))

    await app(scope, receive, answer)
    over.set()
    assert status, "no answer"
    return Reply(status, told, b"".join(sent))


class Client:
    """Requests to an application one after another, each in the same loop."""

    def __init__(self, *models, page=None, names=(), **limits):
        self.app = application(Models(models), Limits(**limits), names=names, page=page)
        self.server = self.app.server
        self.server.worker.start()
        self.loop = asyncio.new_event_loop()

    def close(self):
        solver = self.server.solving._process
        self.server.stop()
        if solver is not None:
            self.loop.run_until_complete(solver.wait())
            solver._transport.close()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.close()

    def ask(self, method, path, body=b"", **headers):
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.run(send(self.app, method, path, body, headers))

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, body=b"", **headers):
        return self.ask("POST", path, body, **headers)

    def run(self, work):
        return self.loop.run_until_complete(work)


def npz(**arrays):
    """Arrays as a body."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def saved(folder, model, name, **facts):
    """A model in a folder, as it is served."""
    model.save(folder / name)
    return Served(name, folder / name, how={"device": "cpu"}, **facts)


AS_NPZ = {"content_type": NPZ, "accept": NPZ}
