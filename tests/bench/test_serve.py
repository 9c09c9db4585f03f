"""What clients of a server count, and a server as a user starts it."""

from __future__ import annotations

import http.server
import io
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

from ipot.bench import serve
from ipot.errors import DataError, RunError


@pytest.fixture
def scripted():
    """A server that answers as it is told, again and again: a status, or None to hang up."""
    made = []

    def start(*script):
        asked = []

        class Answers(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                status = script[len(asked) % len(script)]
                asked.append((self.path, status))
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def do_GET(self):
                body = b"ipot_memory_bytes 5e8\n"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *given):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        made.append(server)
        return server.server_address[1], asked

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def test_answers_refusals_and_failures_are_counted_apart(scripted):
    port, asked = scripted(200, 503, 200, 500, None)
    found = serve.asked_by(3, port, "/p", b"abc", 0.5)
    counts = Counter(status for _, status in asked)
    assert len(found.times) == counts[200]
    assert found.refused == counts[503]
    assert found.failed == counts[500] + counts[None]
    assert min(counts[status] for status in (200, 503, 500, None)) > 0
    assert all(0 < spent < 1e3 * (found.seconds + 1) for spent in found.times)
    assert found.seconds >= 0.5
    assert found.resident
    assert set(found.resident) == {5e8}


def test_everybody_asks_once_at_least(scripted):
    port, asked = scripted(200)
    assert len(serve.asked_by(4, port, "/p", b"abc", 1e-9).times) == len(asked) == 4


def test_a_client_waits_as_long_as_it_is_told(scripted, monkeypatch):
    port, asked = scripted(503)
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(serve, "_asked", lambda *given: (503, b"", 7.0))
    tally = serve.Tally()
    serve.ask_until(port, "/p", b"", time.monotonic() + 0.05, tally)
    assert tally.refused == len(waited) > 0
    assert 0 < waited[0] <= 0.05  # and no longer than the measurement
    assert asked == []


def test_a_wrong_question_ends_the_measurement(scripted):
    port, _ = scripted(422)
    with pytest.raises(RunError, match=r"\{\}"):
        serve.ask_until(port, "/p", b"", None, serve.Tally())


def test_memory_that_grows_is_seen():
    steady = [1.0, 5.0, 4.0, 5.0, 5.0, 5.0]
    assert serve._early(steady) == 5.0
    assert max([*steady, 9.0]) - serve._early(steady) == 4.0


FACTS = {
    "spec": {"domain": [[0, 2], [5, 6]], "query_domain": [[0, 2], [5, 6]], "inputs": ["a", "b"]}
    | {"parameters": ["p"], "steps": 3},
    "ranges": {"values": [[1, 2], [-9, -8]], "parameters": [[4, 5]]},
}


def test_questions_are_like_those_of_the_training():
    body, steps = serve.question_of(FACTS, 50)
    found = dict(np.load(io.BytesIO(body), allow_pickle=False))
    assert steps == 3
    assert found["points"].shape == (50, 2)
    np.testing.assert_array_equal(found["points"], found["queries"])
    for name, low, high in (
        ("points", [0, 5], [2, 6]),
        ("values", [1, -9], [2, -8]),
        ("parameters", [4], [5]),
    ):
        assert (found[name] >= low).all()
        assert (found[name] <= high).all()
    alone = FACTS | {"spec": FACTS["spec"] | {"inputs": [], "parameters": []}}
    assert set(np.load(io.BytesIO(serve.question_of(alone, 5)[0]))) == {"queries"}


def test_a_server_that_does_not_start(tmp_path):
    load = serve.Load(model=str(tmp_path / "none"), clients=1, points=1)
    with pytest.raises(RunError, match=r"no server was started.*is not there"):
        serve.serving(load).__enter__()


def test_what_cannot_be_measured(monkeypatch):
    for clients in (0, -1, 501):
        with pytest.raises(DataError, match="--clients must lie in 1 to 500"):
            serve.check_load(serve.Load(model="", clients=clients, points=1))
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(RunError, match=r"needs uvicorn: pip install 'ipot\[serve\]'"):
        serve.check_load(serve.Load(model="", clients=1, points=1))
