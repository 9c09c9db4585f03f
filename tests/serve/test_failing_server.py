"""What goes wrong on the server's own side is told in a sentence that quotes nothing, and the next
question is answered."""

import asyncio

import numpy as np
import pytest

from serve.asking import AS_NPZ, npz, send

RANDOM = np.random.default_rng(0)
QUESTION = {"points": RANDOM.random((20, 2)).tolist(), "values": RANDOM.random((20, 1)).tolist()}
PREDICT, SOLVE = "/v1/models/darcy/predict", "/v1/models/navier_stokes/solve"
SECRET = "what was asked"
AS_HEADERS = {name.replace("_", "-"): value for name, value in AS_NPZ.items()}


def fails(error):
    def model():
        raise error

    return model


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (MemoryError(SECRET), 503, "the memory does not suffice for this question now"),
        (KeyError(SECRET), 500, "what it was is not told"),
    ],
)
def test_errors_that_are_no_answer(make_client, monkeypatch, error, status, said):
    client = make_client("darcy")
    with monkeypatch.context() as patch:
        patch.setattr(client.server.models.find("darcy"), "model", fails(error))
        found = client.post(PREDICT, QUESTION)
    assert (found.status, said in found.error) == (status, True), found.body
    assert SECRET.encode() not in found.body
    assert ("retry-after" in found.headers) == (status == 503)
    assert client.post(PREDICT, QUESTION).status == 200


def test_an_error_that_nobody_expects(make_client, monkeypatch):
    client = make_client("darcy")

    async def broken(scope, receive, tell):
        raise RuntimeError(SECRET)

    with monkeypatch.context() as patch:
        patch.setattr(client.app, "inner", broken)
        found = client.get("/healthz")
    assert found.status == 500
    assert found.error
    assert SECRET.encode() not in found.body
    assert client.get("/healthz").status == 200
    assert client.server.room.taken == 0


def flow():
    """A start of Navier-Stokes on its own grid, 128 x 128."""
    line = np.arange(128) / 128
    points = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    return {"points": points, "values": np.sin(2 * np.pi * points[:, :1]).repeat(10, 1)}


def test_a_solver_that_dies(make_client):
    client = make_client("navier_stokes")

    async def killed():
        body = npz(**flow(), steps=900)
        asked = asyncio.ensure_future(send(client.app, "POST", SOLVE, body, AS_HEADERS))
        while client.server.solving._process is None:
            await asyncio.sleep(0.05)
        client.server.solving._process.kill()
        return await asked

    found = client.run(killed())
    assert (found.status, found.error) == (500, "the solver ended without an answer")
    assert client.server.solving.asked == 0


def test_several_samples_for_a_solver(make_client):
    client = make_client("navier_stokes")
    two = [[[0.1, 0.2]], [[0.1, 0.2], [0.3, 0.4]]]
    found = client.post(SOLVE, {"points": two, "values": two})
    assert found.status == 422
    assert found.error == "points holds several samples: a solver takes one at a time"


def test_an_answer_that_is_larger_than_all_that_is_held(make_client):
    client = make_client("darcy", held=4000)
    body = npz(points=np.zeros((2, 2), "f4"), values=np.ones((2, 1), "f4"))
    assert len(body) < 4000
    assert client.post(PREDICT, body, **AS_NPZ).status == 200
    many = npz(points=np.zeros((2, 2), "f2"), queries=np.zeros((300, 2), "f2"), values=[[1], [1]])
    assert len(many) < 4000
    found = client.post(PREDICT, many, content_type=AS_NPZ["content_type"])
    assert (found.status, found.error) == (413, "the answer is too large to be sent")
    assert client.server.room.taken == 0


def test_a_header_that_is_there_twice(running):
    with running.connect() as connection:
        lines = [
            "GET /healthz HTTP/1.1",
            f"Host: 127.0.0.1:{running.port}",
            *["Origin: http://x"] * 2,
            "Connection: close",
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        said = b"".join(iter(lambda: connection.recv(10_000), b"")).decode()
    assert said.startswith("HTTP/1.1 400")
    assert "the header origin is there twice" in said
    running.lives()
