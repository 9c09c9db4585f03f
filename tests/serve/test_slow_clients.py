"""Clients that are slow, hang up, or are many: nothing of theirs stays, and others are answered."""

import json
import socket
import struct
import threading
import time

import numpy as np
import pytest

from ipot.stopping import stop_if_asked
from serve.asking import npz
from serve.running import read_answer, until

RANDOM = np.random.default_rng(5)
X, A = RANDOM.random((12, 2)), RANDOM.random((12, 1))
OK = json.dumps({"points": X.tolist(), "values": A.tolist()}).encode()
PATH = "/v1/models/darcy/predict"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n".encode()
LENGTH = HEAD + b"Content-Length: %d\r\n\r\n" % len(OK)
GRID = RANDOM.random((2**18, 2)).astype(np.float16)
LARGE = npz(points=X, values=np.stack([A] * 4), queries=GRID)
"""A question whose answer is of 4 MiB: more than a socket takes whose client reads nothing."""
LARGE_HEAD = (
    HEAD + b"Content-Type: application/x-npz\r\nAccept: application/x-npz\r\n"
    b"Content-Length: %d\r\n\r\n" % len(LARGE)
)


def rudely(connection):
    """Hang up without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def unwilling(server):
    """A connection that takes little at a time."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.settimeout(60)
    return connection


def closed(connection):
    """Whether the server has hung up."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("leave", [rudely, socket.socket.close])
@pytest.mark.parametrize(
    "sent",
    [
        *(b"", b"POST", HEAD, LENGTH, LENGTH + OK[:-1], LENGTH + OK, LARGE_HEAD + LARGE[:99999]),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        LARGE_HEAD + LARGE,
    ],
    ids=range(9),
)
def test_a_client_that_hangs_up(running, sent, leave):
    for _ in range(5):
        connection = running.connect()
        connection.sendall(sent)
        leave(connection)
    until(lambda: len(running.listens.server_state.connections) == 0)
    running.lives()


def test_a_client_that_hangs_up_in_the_middle_of_an_answer(running):
    for leave in (rudely, socket.socket.close):
        connection = unwilling(running)
        connection.sendall(LARGE_HEAD + LARGE)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert running.server.room.taken > 0
        leave(connection)
        running.lives()


def occupied(server):
    """Keeps the model's thread until the event is set that it gives."""
    begun, free = threading.Event(), threading.Event()
    server.server.worker.put_off(lambda: begun.set() or free.wait(60))
    assert begun.wait(60)
    return free


def test_a_question_whose_client_is_gone_is_not_begun(start):
    server = start()
    free, begun = occupied(server), []
    work = server.server.models.find("darcy")
    whole = work.model
    work.model = lambda: begun.append(1) or whole()
    try:
        connection = server.connect()
        connection.sendall(LENGTH + OK)
        until(lambda: server.server.worker.jobs)
        rudely(connection)
        until(lambda: not server.server.worker.jobs)
        free.set()
        server.lives()
        assert not begun
    finally:
        work.model = whole
        free.set()


def endless(server):
    """A model whose answer takes steps without end; says how often it was begun and stopped."""
    model = server.server.models.find("darcy").model()
    counts, whole = {"begun": 0, "stopped": 0}, model.answer

    def answer(*args, **kwargs):
        counts["begun"] += 1
        end = time.monotonic() + 120
        try:
            while time.monotonic() < end:
                stop_if_asked()
                time.sleep(0.005)
        except BaseException:
            counts["stopped"] += 1
            raise
        raise AssertionError("it was not stopped")

    model.answer = answer
    return counts, lambda: setattr(model, "answer", whole)


@pytest.mark.parametrize("leave", [rudely, socket.socket.close])
def test_a_question_at_work_stops_when_its_client_is_gone(start, leave):
    server = start()
    counts, restore = endless(server)
    connection = server.connect()
    connection.sendall(LENGTH + OK)
    until(lambda: counts["begun"])
    leave(connection)
    until(lambda: counts["stopped"])
    restore()
    assert server.ask("POST", PATH, OK).status == 200
    server.lives()
    assert counts == {"begun": 1, "stopped": 1}


def test_a_question_at_work_stops_when_its_time_is_up(start):
    server = start(seconds=0.5)
    counts, restore = endless(server)
    assert server.ask("POST", PATH, OK).status == 504
    until(lambda: counts["stopped"])
    restore()
    server.lives()


def test_a_client_that_takes_no_answer(start):
    """An answer that nobody takes is thrown away when its time is up."""
    server = start(seconds=1.0, solve_seconds=1.0, body_seconds=0.5)
    connection = unwilling(server)
    connection.sendall(LARGE_HEAD + LARGE)
    until(lambda: server.server.room.taken > 0)
    assert server.ask("GET", "/healthz").status == 200  # others do not wait for it
    server.lives()
    connection.close()


def test_a_head_that_does_not_come(start):
    server = start(head_seconds=0.5)
    connections = [server.connect() for _ in range(3)]
    connections[1].sendall(b"GET /healthz HTTP/1.1\r\n")
    began = time.monotonic()
    while not closed_by_now(connections[2]) and time.monotonic() - began < 30:
        connections[2].sendall(b"X")  # a byte now and then is no head
        time.sleep(0.1)
    assert all(closed(connection) for connection in connections)
    server.lives()


def closed_by_now(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(60)


def test_a_body_that_does_not_come(start):
    server = start(body_seconds=0.5)
    with server.connect() as connection:
        connection.sendall(LENGTH + OK[:-1])
        found = read_answer(connection)
        assert found.status == 408
        assert found.error == "the body did not arrive within 0.5 s"
        assert closed(connection)
    server.lives()


def test_more_requests_than_are_taken(start):
    server = start(connections=3, head_seconds=1.0)
    slow = [server.connect() for _ in range(3)]
    for connection in slow:
        connection.sendall(LENGTH + OK[:-1])
    until(lambda: server.server.room.taken >= 3 * (len(OK) - 1))
    found = server.ask("GET", "/healthz")
    assert found.status == 503
    assert found.error == "3 requests are being answered: ask again in 5 s"
    assert found.headers["retry-after"] == "5"
    for connection in slow:
        connection.sendall(OK[-1:])
        assert read_answer(connection).status == 200
    server.lives()


def test_more_connections_than_are_taken(start):
    server = start(connections=3, head_seconds=2.0)
    idle = [server.connect() for _ in range(6)]
    until(lambda: len(server.listens.server_state.connections) == 6)
    with server.connect() as one_more:
        assert closed(one_more)
    for connection in idle:
        assert closed(connection)
    server.lives()


def test_more_questions_than_wait(start):
    server = start(waiting=2)
    free = occupied(server)
    asked = [server.connect() for _ in range(5)]
    for connection in asked[:2]:
        connection.sendall(LENGTH + OK)
    until(lambda: len(server.server.worker.jobs) == 2)
    for connection in asked[2:]:
        connection.sendall(LENGTH + OK)
        found = read_answer(connection)
        assert found.status == 503
        wait = int(found.headers["retry-after"])
        assert found.error == f"2 questions wait already: ask again in {wait} s"
        assert wait >= 1
    assert server.told("ipot_questions_waiting") == 2
    free.set()
    for connection in asked[:2]:
        assert read_answer(connection).status == 200
    server.lives()


def test_a_question_that_would_wait_too_long_is_refused_at_once(start):
    server = start(seconds=20.0)
    free = occupied(server)
    asked = [server.connect() for _ in range(2)]
    for connection in asked:
        connection.sendall(LENGTH + OK)
    until(lambda: len(server.server.worker.jobs) == 2)
    server.server.worker.usual = 8.0
    found = server.ask("POST", PATH, OK)  # behind two of 8 s each, of 20 s
    assert (found.status, found.headers["retry-after"]) == (503, "24")
    free.set()
    for connection in asked:
        assert read_answer(connection).status == 200
    server.lives()


def test_more_bytes_than_are_held(start):
    server = start(held=len(OK) + 100)
    with server.connect() as slow:
        slow.sendall(LENGTH + OK[:-1])
        until(lambda: server.server.room.taken > 0)
        found = server.ask("POST", PATH, OK)
        assert found.status == 503
        assert "requests of" in found.error
        assert found.headers["retry-after"] == "5"
        rudely(slow)
    until(lambda: server.server.room.taken == 0)
    assert server.ask("POST", PATH, OK).status == 200
    server.lives()


def test_an_answer_that_takes_too_long(start):
    server = start(seconds=0.3)
    free = threading.Event()
    work = server.server.models.find("darcy")
    whole = work.model
    work.model = lambda: free.wait(60) and whole()
    try:
        found = server.ask("POST", PATH, OK)
        assert found.status == 504
        assert found.error == "no answer within 0.3 s: ask for fewer points, queries or steps"
        found = server.ask("POST", PATH, OK)  # behind that one
        assert found.status == 503
        assert found.error.startswith("this question waited for 0.3 s: ask again in")
    finally:
        work.model = whole
        free.set()
    until(lambda: not server.server.worker.running)
    assert server.ask("POST", PATH, OK).status == 200


def test_a_question_has_its_whole_time_when_its_turn_comes(start):
    server = start(seconds=3.0)
    free = occupied(server)
    with server.connect() as connection:
        connection.sendall(LENGTH + OK)
        until(lambda: server.server.worker.jobs)
        work = server.server.models.find("darcy")
        whole = work.model
        work.model = lambda: time.sleep(1.5) or whole()  # to the end of the time from its arrival
        try:
            time.sleep(2.2)
            free.set()
            assert read_answer(connection).status == 200
        finally:
            work.model = whole
            free.set()


def test_what_fails_in_the_background_ends_nothing(start):
    server = start()

    def fail():
        raise TypeError("a defect")

    server.server.worker.put_off(fail)
    until(lambda: not server.server.worker.later and not server.server.worker.running)
    assert server.ask("POST", PATH, OK).status == 200


def test_a_defect_is_told_without_its_words(start, monkeypatch):
    server = start()

    def fail(*given):
        raise TypeError("a secret of the question")

    monkeypatch.setattr("ipot.serve.routes.ask", fail)
    found = server.ask("POST", PATH, OK)
    assert found.status == 500
    assert found.error.startswith("the server failed at this request")
    assert b"secret" not in found.body
    monkeypatch.undo()
    assert server.ask("POST", PATH, OK).status == 200


def test_memory_that_does_not_suffice_now(start, monkeypatch):
    server = start()
    monkeypatch.setattr("ipot.serve.limits.machine_memory", lambda: 1 << 20)
    found = server.ask("POST", PATH, OK)
    assert found.status == 503
    assert found.error == "this question takes 256 MiB and 1 MiB are free: ask again in 10 s"
    monkeypatch.undo()
    assert server.ask("POST", PATH, OK).status == 200


def test_many_at_once_are_answered_or_told_when_to_come_back(start):
    """Twelve clients that ask without a pause: nothing fails, nothing piles up, nothing stays."""
    server = start(waiting=3)
    wanted = server.ask("POST", PATH, OK).json["prediction"]
    end, found, most = time.monotonic() + 3, [], []

    def ask():
        while time.monotonic() < end:
            answer = server.ask("POST", PATH, OK)
            found.append(answer)
            most.append(len(server.server.worker.jobs))

    clients = [threading.Thread(target=ask) for _ in range(12)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert {answer.status for answer in found} == {200, 503}
    for answer in found:
        if answer.status == 200:
            np.testing.assert_allclose(answer.json["prediction"], wanted, rtol=1e-6)
        else:
            assert int(answer.headers["retry-after"]) >= 1
            assert "questions wait already" in answer.error
    assert max(most) <= 3
    server.lives()
    text = server.ask("GET", "/metrics").body.decode()
    counted = text.split('route="/v1/models/{name}/predict",method="POST",status="200"} ')[1]
    assert int(counted.split("\n")[0]) == 1 + sum(answer.status == 200 for answer in found)
