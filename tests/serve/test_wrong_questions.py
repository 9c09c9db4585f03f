"""Whatever is wrong with a question, the client is told, in the sentence that Python has for it,
and the server goes on."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import ipot
from ipot.errors import IpotError
from serve.asking import npz

RANDOM = np.random.default_rng(2)
X = RANDOM.random((12, 2)).tolist()
A = RANDOM.random((12, 1)).tolist()
PAST = RANDOM.standard_normal((12, 10)).tolist()
NPZ = "application/x-npz"
PATH = "/v1/models/darcy/predict"

WRONG = {
    "no values": ("darcy", {"points": X}),
    "no points": ("darcy", {"values": A}),
    "too few values": ("darcy", {"points": X, "values": A[:5]}),
    "too many channels": ("darcy", {"points": X, "values": [[1, 2]] * 12}),
    "places with three axes": ("darcy", {"points": [[0, 0, 0]] * 12, "values": A}),
    "queries with one axis": ("darcy", {"points": X, "values": A, "queries": [[0.5]]}),
    "no queries": ("darcy", {"points": X, "values": A, "queries": []}),
    "one number": ("darcy", {"points": 3, "values": A}),
    "infinite values": ("darcy", {"points": X, "values": [[1e999]] * 12}),
    "infinite points": ("darcy", {"points": [[1e999, 0]] * 12, "values": A}),
    "parameters of none": ("darcy", {"points": X, "values": A, "parameters": [1.0]}),
    "no parameters": ("parameters", {"queries": X}),
    "too many parameters": ("parameters", {"queries": X, "parameters": [1.0] * 9}),
    "bounds of none": ("darcy", {"points": X, "values": A, "interval": 0.9}),
    "an interval of everything": ("mesh", {"points": X, "values": A, "interval": 1.0}),
    "a negative interval": ("mesh", {"points": X, "values": A, "interval": -3}),
    "no steps": ("navier_stokes", {"points": X, "values": PAST, "steps": 0}),
    "steps back": ("navier_stokes", {"points": X, "values": PAST, "steps": -1}),
    "times between steps": ("navier_stokes", {"points": X, "values": PAST, "times": [0.4]}),
    "times that fall": ("navier_stokes", {"points": X, "values": PAST, "times": [2.0, 1.0]}),
    "no times": ("navier_stokes", {"points": X, "values": PAST, "times": []}),
    "steps and times": ("navier_stokes", {"points": X, "values": PAST, "steps": 1, "times": [1.0]}),
    "steps of none": ("mesh", {"points": X, "values": A, "steps": 3}),
}


def asked(folder, question):
    """What Python answers, or refuses with."""
    try:
        return ipot.load(folder, device="cpu").predict(**question)
    except IpotError as error:
        return str(error)


@pytest.mark.parametrize("kind", WRONG)
def test_sentences_are_python_s(running, served, kind):
    name, question = WRONG[kind]
    body = json.dumps(question).replace("Infinity", "1e999")  # which JSON has, and is infinite
    found = running.ask("POST", f"/v1/models/{name}/predict", body.encode())
    wanted = asked(served[name].folder, question)
    if isinstance(wanted, str):
        assert (found.status, found.error) == (422, wanted)
    else:  # what Python takes is taken
        assert found.status == 200, found.body
        np.testing.assert_allclose(found.json["prediction"], wanted, rtol=1e-5, atol=1e-6)
    running.lives()


def archive(**members):
    """A zip of anything."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


class Evil:
    """Opens a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


OK = json.dumps({"points": X, "values": A}).encode()
AS_NPZ = npz(points=X, values=A)
MALFORMED = {
    "nothing": (b"", 400, "not JSON"),
    "text": (b"hello", 400, "not JSON"),
    "cut short": (OK[:-5], 400, "not JSON"),
    "twice": (OK + OK, 400, "not JSON"),
    "no UTF-8": (b'{"points": "\xff"}', 400, "not JSON"),
    "NaN": (b'{"points": [[NaN, 0]]}', 400, "NaN is no number of JSON"),
    "Infinity": (b'{"points": [[-Infinity, 0]]}', 400, "-Infinity is no number of JSON"),
    "a name twice": (b'{"points": 1, "points": 2}', 400, "twice"),
    "a digit too many": (b'{"steps": ' + b"9" * 9999 + b"}", 400, "not JSON"),
    "too deep": (b'{"points": ' + b"[" * 200_000, 422, "too many lists inside each other"),
    "a list": (b"[1, 2]", 422, "must be an object"),
    "a word": (b"null", 422, "must be an object"),
    "an unknown name": (b'{"point": 1}', 422, "unknown 'point'; known are points, values"),
    "a text": (b'{"points": "abc"}', 422, "points must be lists of numbers, got 'abc'"),
    "an object": (b'{"points": {"x": 1}}', 422, "points must be lists of numbers"),
    "texts": (b'{"points": ["a", "b"]}', 422, "points must hold real numbers, got text"),
    "nulls": (b'{"points": [null]}', 422, "points must hold real numbers"),
    "uneven": (b'{"points": [[1, 2], 3]}', 422, "its lists differ in length"),
    "unevener": (b'{"points": [[[1], 2], [3]]}', 422, "points[0] is not an array of numbers"),
    "texts in samples": (
        b'{"points": [[["a"]], [[1, 2], [3, 4]]]}',
        422,
        "points[0] must hold real",
    ),
    "large numbers": (b'{"points": [[1e2, ' + b"9" * 99 + b"]]}", 422, "real numbers"),
    "half a step": (b'{"steps": 1.5}', 422, "steps must be a whole number, got 1.5"),
    "true steps": (b'{"steps": true}', 422, "steps must be a whole number, got True"),
    "steps as text": (b'{"steps": "2"}', 422, "steps must be a whole number, got '2'"),
    "times in lists": (b'{"times": [[1]]}', 422, "times must be a list of numbers"),
    "an interval of text": (b'{"interval": "0.9"}', 422, "interval must lie between 0 and 1"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_json(running, kind):
    body, status, said = MALFORMED[kind]
    found = running.ask("POST", PATH, body)
    assert (found.status, said in found.error) == (status, True), found.body
    assert len(found.error) < 500
    running.lives()


def test_malformed_npz(running, tmp_path):
    loot = tmp_path / "opened"
    objects = io.BytesIO()
    np.save(objects, np.array([Evil(loot)], object), allow_pickle=True)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 2)}
    )
    cases = {
        "nothing": (b"", 400),
        "text": (b"hello", 400),
        "JSON": (OK, 400),
        "an array": (objects.getvalue(), 400),
        "cut short": (AS_NPZ[:-30], 422),
        "cut at its start": (AS_NPZ[:40], 422),
        "a pickle inside": (archive(points=pickle.dumps(Evil(loot))), 422),
        "an array of objects": (archive(points=objects.getvalue()), 422),
        "a header that lies": (archive(points=head.getvalue()), 422),
        "complex numbers": (npz(points=X, values=1j * np.ones((12, 1))), 422),
        "text inside": (npz(points=X, values=np.array([["a"]] * 12)), 422),
        "an unknown name": (npz(points=X, values=A, colour=1), 422),
        "NaN": (npz(points=X, values=np.full((12, 1), np.nan)), 422),
        "several steps": (npz(points=X, values=A, steps=[1, 2]), 422),
        "steps that are no number": (npz(points=X, values=A, steps="a"), 422),
    }
    for kind, (body, status) in cases.items():
        found = running.ask("POST", PATH, body, content_type=NPZ)
        assert found.status == status, (kind, found.body)
        assert found.error
        assert "/tmp" not in found.error
        assert str(tmp_path.parent) not in found.error
    assert not loot.exists()
    running.lives()


def test_damaged_npz_is_refused_or_answered(running):
    for place in range(0, len(AS_NPZ), 7):
        body = AS_NPZ[:place] + bytes([AS_NPZ[place] ^ 0x41]) + AS_NPZ[place + 1 :]
        found = running.ask("POST", PATH, body, content_type=NPZ)
        assert found.status in (200, 400, 413, 422), (place, found.body)
    running.lives()


def test_a_body_of_another_kind(running):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; a=b"):
        found = running.ask("POST", PATH, OK, content_type=kind)
        assert found.status == 415
        assert "application/json or application/x-npz" in found.error
    assert running.ask("POST", PATH, OK, content_type="Application/JSON; charset=x").status == 200


@pytest.mark.parametrize(
    "name",
    [
        *(
            "none",
            "DARCY",
            "darcy%20",
            "darcy%00",
            "%64arcy%2f",
            ".",
            "darcy%0a",
            "*",
            "%F0%9F%98%80",
        ),
        *(
            "..",
            "%2e%2e",
            "..%2f..%2fetc%2fpasswd",
            "..%5c..%5cx",
            "%2fetc%2fpasswd",
            "~",
            "a" * 999,
        ),
    ],
)
def test_names_are_never_paths(running, name):
    for method, tail in (("GET", ""), ("POST", "/predict"), ("POST", "/solve"), ("GET", "/extras")):
        found = running.ask(method, f"/v1/models/{name}{tail}", OK if method == "POST" else None)
        assert found.status == 404, found.body
        assert len(found.error) < 2000
        assert "root:" not in found.error
    running.lives()


def test_an_unknown_model_is_told_which_there_are(running, served):
    assert running.ask("GET", "/v1/models/none").error == (
        f"there is no model of that name here: {', '.join(served)}"
    )


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "//etc/passwd",
            "/..%2f..%2fetc/passwd",
        ),
        *("/page.py", "/../application.py", "/built.json/../../application.py", "/index.html/"),
        *(
            "/v1",
            "/v1/models/",
            "/v1/models/darcy/",
            "/v1/models/darcy/config.json",
            "/.git/config",
        ),
        "/v1/models/darcy/samples/../../../config.json",
    ],
)
def test_no_file_but_those_of_the_page(running, path):
    found = running.ask("GET", path)
    assert found.status == 404, found.body
    assert found.error.startswith("there is nothing at")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *((m, "/", "GET, HEAD") for m in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")),
        *((m, PATH, "POST") for m in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD")),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/v1/models/darcy/files", "POST"),
        ("GET", "/v1/models/darcy/solve", "POST"),
        ("BREW", "/metrics", "GET, HEAD"),
    ],
)
def test_wrong_methods(running, method, path, allowed):
    found = running.ask(method, path)
    assert found.status == 405
    assert ", ".join(sorted(found.headers["allow"].split(", "))) == allowed
    if method != "HEAD":
        assert found.error == f"{method!r} is not for this address"


@pytest.mark.parametrize("k", ["-1", "3", "1.0", "x", "9" * 50, "%31%32", "٣", "0x1", "+1"])
def test_samples_that_there_are_not(running, k):
    from urllib.parse import quote

    found = running.ask("GET", f"/v1/models/darcy/samples/{quote(k, safe='%')}")
    assert found.status == 404
    assert found.error == "there is no such sample: 0 to 2"
