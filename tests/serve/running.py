"""A server on 127.0.0.1, and clients that speak plain bytes: as slow, as wrong and as rude as need
be."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time

from ipot.serve import listening
from ipot.serve.application import application
from ipot.serve.limits import Limits
from ipot.serve.models import Models

PATIENCE = 60.0
"""Seconds until something that does not come is given up."""


class Running:
    """A server in a thread of its own, until it is closed."""

    def __init__(self, *models, names=(), **limits):
        found = Limits(**limits)
        app = application(Models(models), found, names=names)
        self.server = app.server
        listener = listening.bound("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.listens = listening.server_of(app, found)
        self.thread = threading.Thread(target=self.listens.run, kwargs={"sockets": [listener]})
        self.thread.start()
        until(lambda: self.listens.started)

    def close(self):
        self.listens.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def ask(self, method, path, body=None, **headers):
        """One request on a connection of its own."""
        return ask(self.port, method, path, body, **headers)

    def told(self, name):
        """The value of a line of /metrics."""
        text = self.ask("GET", "/metrics").body.decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])

    def lives(self):
        """Whether it still answers, and nothing is left of what was asked before."""
        assert self.ask("GET", "/healthz").status == 200
        until(lambda: self.server.room.taken == 0)
        until(lambda: not self.server.worker.jobs)


class Answer:
    """What came back."""

    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The sentence of an error, which has the form that all have."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) == {"error", "status"}
        assert self.json["status"] == self.status
        return self.json["error"]


def ask(port, method, path, body=None, **headers):
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(client):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, body, named)
        found = client.getresponse()
        return Answer(found.status, found.getheaders(), found.read())


def read_answer(connection):
    """The next answer on a connection."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    return Answer(found.status, found.getheaders(), found.read())


def until(holds, seconds=PATIENCE):
    """Wait for something to be so."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
