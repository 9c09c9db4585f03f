"""A question that is too large is refused before it takes memory or time; the server goes on."""

import io
import json
import zipfile

import numpy as np
import pytest

from ipot.formats import Case, write_case
from ipot.serve.limits import Limits
from ipot.serve.metrics import resident
from serve.asking import npz
from serve.running import read_answer

RANDOM = np.random.default_rng(3)
X, A = RANDOM.random((12, 2)), RANDOM.random((12, 1))
OK = json.dumps({"points": X.tolist(), "values": A.tolist()}).encode()
NPZ = "application/x-npz"
PATH = "/v1/models/darcy/predict"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
MIB = 1 << 20
GROWTH = 400 * MIB
"""What a refusal may take, with the client, which is in the same process: these would take a
gigabyte and more."""


@pytest.fixture
def grows(running):
    """Memory that the process has taken since."""
    running.ask("POST", PATH, OK)
    before = resident()
    return lambda: resident() - before


def test_a_body_that_says_that_it_is_too_large(running):
    for size in (64 * MIB + 1, 10**12, 10**19):
        with running.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\nabc" % size)
            found = read_answer(connection)
        assert found.status == 413
        assert found.error == f"the body has {size} bytes, and this server takes {64 * MIB}"
    running.lives()


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(running):
    with running.connect() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n")
        assert read_answer(connection).status == 413
    with running.connect() as connection:  # and one that is not, is asked for
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(OK))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(OK)
        assert read_answer(connection).status == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_all_hears_why(start, chunked):
    server = start(body=MIB)
    body = (b"x" * MIB for _ in range(20)) if chunked else b"x" * 20 * MIB
    found = server.ask("POST", PATH, body)
    assert found.status == 413
    assert str(MIB) in found.error
    server.lives()


def test_a_length_that_lies(running):
    for told, status in ((len(OK) - 10, 400), (len(OK) + 10, 0)):
        with running.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % told + OK)
            if status:
                assert "not JSON" in read_answer(connection).error
        running.lives()
    for wrong in (b"-1", b"1e3", b"abc", b"5, 6", b"5\r\nContent-Length: 6", b"9" * 50):
        with running.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: %s\r\n\r\n" % wrong + OK)
            found = read_answer(connection)
        assert found.status == 400
        assert found.error
    running.lives()


def test_chunks_that_are_none(running):
    for chunks in (b"zz\r\nabc\r\n", b"-5\r\n", b"5\r\nab\r\n0\r\n\r\n", b"f" * 30 + b"\r\n"):
        with running.connect() as connection:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            connection.shutdown(1)
            connection.recv(1000)
    running.lives()


def test_a_head_that_is_too_large(running):
    for head in (b"X: " + b"a" * 100_000, b"X: a\r\n" * 50_000, b"a" * 100_000):
        with running.connect() as connection:
            connection.sendall(HEAD + head + b"\r\n\r\n")
            found = read_answer(connection)
        assert found.status in (400, 431)
        assert found.error
        assert "content-security-policy" in found.headers
    running.lives()


def deflated(**shapes):
    """An archive of zeros by their shapes, a thousand times smaller than these."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, shape in shapes.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                rest = 4 * int(np.prod(shape))
                while rest:
                    rest -= member.write(bytes(min(rest, MIB)))
    return buffer.getvalue()


def test_a_billion_queries(running, grows):
    """A file that unpacks to ten times as much as the server takes; and a claim of 1e9 that the
    bytes do not hold."""
    body = deflated(points=(12, 2), values=(12, 1), queries=(50 * MIB, 2))
    assert len(body) < 2 * MIB
    found = running.ask("POST", PATH, body, content_type=NPZ)
    assert found.status == 413
    assert "the body unpacks to 400 MiB, and this server takes 256 MiB" in found.error
    few = npz(points=X, values=A, queries=np.zeros((12, 2)))
    shape = b"(12, 2), }"
    place = few.rindex(shape)
    many = few[:place] + b"(1000000000, 2), }"[: len(shape) + 8] + few[place + len(shape) + 8 :]
    found = running.ask("POST", PATH, many, content_type=NPZ)
    assert found.status in (400, 422)
    assert grows() < GROWTH
    running.lives()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("darcy", {"values": (12, 1), "queries": (2**20 + 1, 2)}, "1048577 queries are asked for"),
        ("darcy", {"points": (2**20 + 1, 2), "values": (2**20 + 1, 1)}, "1048577 points are asked"),
        ("darcy", {"values": (257, 12, 1)}, "257 samples are asked for"),
        ("darcy", {"values": (200, 12, 1), "queries": (6000, 2)}, "1200000 queries are asked for"),
        ("navier_stokes", {"values": (12, 10), "steps": 10**9}, "1000000000 steps are asked for"),
        ("navier_stokes", {"values": (12, 10), "steps": 10**4000}, "far too many steps are asked"),
        ("navier_stokes", {"values": (12, 10), "times": [1e6]}, "1000000 steps are asked for"),
        (
            "navier_stokes",
            {"values": (12, 10), "queries": (5000, 2), "steps": 1000},
            "5000 queries in 1000 steps",
        ),
        (
            "navier_stokes",
            {"points": (5000, 2), "values": (5000, 10), "queries": (1, 2), "times": [1000.0]},
            "5000 points in 1000 steps",
        ),
    ],
)
def test_questions_beyond_the_limits(running, name, given, said):
    shapes = {"points": (12, 2), **given}
    arrays = {k: np.zeros(v) if isinstance(v, tuple) else v for k, v in shapes.items()}
    path = f"/v1/models/{name}/predict"
    if isinstance(given.get("steps"), int):
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
        text = json.dumps(plain | {"steps": 0}).replace('"steps": 0', f'"steps": 1{"0" * 4000}')
        body = json.dumps(plain) if given["steps"] < 10**15 else text
        found = running.ask("POST", path, body.encode())
    else:
        found = running.ask("POST", path, npz(**arrays), content_type=NPZ)
    assert found.status == 413, found.body
    assert said in found.error
    running.lives()


def test_json_is_counted_before_it_is_read(running, grows):
    for body in (b"[" + b"[]," * (20 * MIB) + b"[]]", b"[" + b"0," * (30 * MIB) + b"0]"):
        found = running.ask("POST", PATH, b'{"points": ' + body + b"}")
        assert found.status == 413
        assert "send them as application/x-npz" in found.error
    assert grows() < GROWTH
    largest = np.zeros((2**19 - 50, 2))
    question = {"points": X.tolist(), "values": A.tolist(), "queries": largest.tolist()}
    found = running.ask("POST", PATH, question)
    assert found.status == 200, found.body[:200]


def test_answers_that_are_too_large_for_json(start):
    server = start("darcy", "burgers", numbers=5)
    question = {"points": [[0.5, 0.5]], "values": [[3.0]], "queries": [[0.5, 0.5]]}
    assert server.ask("POST", PATH, question).status == 200
    question["values"] = np.ones((9, 1, 1)).tolist()
    found = server.ask("POST", PATH, question)
    assert found.status == 413
    assert "the answer has 10 numbers, and 5 at most are written as JSON" in found.error
    assert server.ask("POST", PATH, question, accept=NPZ).status == 200


def upload(server, model, name, body, **more):
    options = "".join(f"&{k}={v}" for k, v in more.items())
    return server.ask("POST", f"/v1/models/{model}/files?name={name}{options}", body)


def test_files_that_unpack_to_very_much(running, grows):
    """Of what a file takes, the server gives less than the machine has."""
    import h5py

    many = deflated(values=(12, 1), points=(50 * MIB, 2))
    found = upload(running, "darcy", "cases.npz", many)
    assert found.status == 422
    assert "takes 400 MiB and 256 MiB of memory are free" in found.error
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name in ("points", "values"):
            options = {"chunks": (MIB, 2), "compression": "gzip", "fillvalue": 0}
            array = file.create_dataset(name, (600 * MIB, 2), "f8", **options)
            array[:1] = 1
    for model in ("darcy", "mesh"):
        found = upload(running, model, "cases.h5", buffer.getvalue())
        assert found.status == 422, found.body
    assert grows() < GROWTH
    running.lives()


def test_options_of_files_beyond_the_limits(running, tmp_path):
    write_case(tmp_path / "a.vtu", Case(points=X, fields={"a": A[:, 0]}))
    body = (tmp_path / "a.vtu").read_bytes()
    for option, status in (
        *(({"grid": g}, 413) for g in (1025, 10**9, 10**2000)),
        *(({"steps": s}, 413) for s in (1001, 10**3000)),
        *(({"grid": g}, 422) for g in (-1, 0, "x", "1.5", "9" * 5000)),
        *(({"interval": i}, 422) for i in ("nan", "inf", 0, 1, 2, "x")),
        *(({"format": f}, 422) for f in ("exe", "../x", "", "pkl")),
        ({"other": 1}, 422),
    ):
        found = upload(running, "mesh", "a.vtu", body, **option)
        assert found.status == status, (option, found.body)
        assert len(found.error) < 500
    running.lives()


def test_the_limits_are_told(running):
    told = running.ask("GET", "/v1/models/darcy").json["limits"]
    limits = Limits()
    assert told["body"] == limits.body == 64 * MIB
    assert (told["rows"], told["samples"], told["steps"]) == (1 << 20, 256, 1000)
    assert told["numbers"] == 1 << 20
