"""Pages and names of others are refused; nothing of an answer is for them, and no other file of the
machine is read."""

import io
import json

import numpy as np
import pytest

from ipot.formats import Case, write_case
from ipot.serve.page import read_page
from serve.running import read_answer

RANDOM = np.random.default_rng(4)
X, A = RANDOM.random((12, 2)), RANDOM.random((12, 1))
OK = json.dumps({"points": X.tolist(), "values": A.tolist()}).encode()
PATH = "/v1/models/darcy/predict"


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.1",
            "2130706433",
        ),
        *("", " ", "evil.example:80", "[::1", "[evil]", "0x7f.0.0.1", "localhost@evil.example"),
    ],
)
def test_other_names_are_refused(running, host):
    for method, path, body in (("GET", "/", None), ("POST", PATH, OK), ("GET", "/healthz", None)):
        found = running.ask(method, path, body, host=host)
        assert found.status in (400, 421)
        assert found.error
        assert found.headers["connection"] == "close"


def test_no_name_at_all_is_refused(running):
    for head in (
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        with running.connect() as connection:
            connection.sendall(head)
            assert read_answer(connection).status == 421
    twice = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"
    with running.connect() as connection:
        connection.sendall(twice)
        assert read_answer(connection).status == 400


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:80", "10.1.2.3"]
)
def test_addresses_and_localhost_are_taken(running, host):
    assert running.ask("GET", "/healthz", host=host).status == 200


def test_names_that_were_given_are_taken(start):
    server = start(names=["Surrogates.Example"])
    for host, status in (
        ("surrogates.example", 200),
        ("surrogates.example.:99", 200),
        ("a.b", 421),
    ):
        assert server.ask("GET", "/healthz", host=host).status == status
    same = {"host": "surrogates.example", "origin": "https://surrogates.example"}
    assert server.ask("POST", PATH, OK, **same).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://[evil"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "origin": "null"},
    ],
)
def test_pages_of_others_are_refused(running, headers):
    for method, path, body in (("POST", PATH, OK), ("GET", "/v1/models", None)):
        found = running.ask(method, path, body, **headers)
        assert (found.status, found.error) == (403, "requests from the pages of others are refused")


def test_a_link_to_the_page_may_be_followed(running):
    visit = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert running.ask("GET", "/", **visit).status == 200
    own = {"origin": f"http://127.0.0.1:{running.port}", "sec_fetch_site": "same-origin"}
    assert running.ask("POST", PATH, OK, **own).status == 200


def test_no_other_page_may_read_answers(running):
    """Neither an answer nor an error has a header for other origins; a preflight is refused."""
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "x"}
    answers = [
        running.ask("GET", "/"),
        running.ask("GET", "/v1/models"),
        running.ask("POST", PATH, OK),
        running.ask("POST", PATH, b"{}"),
        running.ask("OPTIONS", PATH, **asked),
        running.ask("OPTIONS", PATH, origin="http://evil.example", **asked),
        running.ask("GET", "/none"),
    ]
    assert [found.status for found in answers] == [200, 200, 200, 422, 405, 403, 404]
    for found in answers:
        assert not [name for name in found.headers if name.startswith("access-control")]
        assert found.headers["cross-origin-resource-policy"] == "same-origin"


def test_every_answer_has_the_policy(running):
    page = [f"/{name}" for name in read_page()]
    assert "/" in page
    found = [running.ask("GET", path) for path in (*page, "/v1/models", "/openapi.json", "/none")]
    found += [running.ask("HEAD", "/"), running.ask("PUT", "/"), running.ask("POST", PATH, b"")]
    found += [running.ask("GET", "/", host="evil.example"), running.ask("POST", PATH, OK)]
    again = running.ask("GET", "/", if_none_match=found[page.index("/")].headers["etag"])
    assert again.status == 304
    for answer in (*found, again):
        policy = answer.headers["content-security-policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
        # From nowhere else, nothing written into the page, and no text made into a program.
        assert rules["script-src"] == "'self' 'wasm-unsafe-eval'"
        assert rules["connect-src"] == rules["style-src"] == "'self'"
        assert "http" not in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_what_is_no_http_is_told_so(running):
    for sent in (
        *(
            b"hello\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"\x00" * 50 + b"\r\n\r\n",
        ),
        *(b"GET / HTTP/x\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n"),
        *(
            b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
            b"G\r\n" * 20 + b"\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
        ),
    ):
        with running.connect() as connection:
            connection.sendall(sent)
            connection.shutdown(1)
            found = read_answer(connection)
        assert (found.status, found.headers["connection"]) == (400, "close")
        assert found.error == "this is not a request of HTTP that can be read"
        assert "content-security-policy" in found.headers
    running.lives()


def test_two_requests_at_once_on_a_connection(running):
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running.connect() as connection:
        connection.sendall(one * 3 + b"hello\r\n\r\n")
        connection.shutdown(1)
        said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert said.count(b"HTTP/1.1 200") == 3
    assert b"HTTP/1.1 400" in said
    running.lives()


SECRET = 7.0625
"""A number that is in no model's answers."""


@pytest.fixture
def secret(tmp_path):
    """A file beside the models that nobody gave."""
    import h5py

    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["points"], file["values"] = X, np.full((12, 1), SECRET)
    (tmp_path / "secret.txt").write_text(f"x,y,a\n0,0,{SECRET}\n" * 5)
    return tmp_path


def upload(server, model, name, body, **more):
    options = "".join(f"&{k}={v}" for k, v in more.items())
    return server.ask("POST", f"/v1/models/{model}/files?name={name}{options}", body)


def test_files_cannot_name_other_files(running, secret):
    import h5py

    linked, stored = io.BytesIO(), io.BytesIO()
    with h5py.File(linked, "w") as file:
        file["points"] = X
        file["values"] = h5py.ExternalLink(str(secret / "secret.h5"), "/values")
    with h5py.File(stored, "w") as file:
        file["points"] = X
        place = [(str(secret / "secret.txt"), 0, 96)]
        file.create_dataset("values", (12, 1), "f8", external=place)
    piece = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "{secret}/secret.txt">]>'
    vtu = f'{piece}<VTKFile type="UnstructuredGrid">&b;</VTKFile>'.encode()
    names = f'<VTKFile type="PUnstructuredGrid"><Piece Source="{secret}/a.vtu"/></VTKFile>'.encode()
    for name, body in (
        *(("a.h5", linked.getvalue()), ("a.h5", stored.getvalue()), ("a.vtu", vtu)),
        *(("a.vtu", names), ("a.csv", f"{secret}/secret.txt\n".encode())),
    ):
        for model in ("darcy", "mesh"):
            found = upload(running, model, name, body)
            assert found.status == 422, (name, found.body)
            assert str(SECRET).encode() not in found.body
    running.lives()


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.h5", "..%2fsecret.h5", "%2fetc%2fpasswd", "a%2fb.h5", "a%5cb.h5", ".h5", ""),
        *("a%00.h5", "a.h5%0a", "..h5", "a..h5", "%20a.h5", "a.pvtu", "a.vtm", "a.foam", "a.pkl"),
        *("a.npy", "a", "a.h5.exe", "%E2%80%AE.h5", "x" * 200 + ".h5", "a.zarr", "a.case"),
    ],
)
def test_names_of_files_that_are_refused(running, name):
    found = upload(running, "darcy", name, b"x")
    assert found.status == 422
    assert found.error
    assert len(found.error) < 600


def test_a_file_without_a_name(running):
    found = running.ask("POST", "/v1/models/darcy/files", b"x")
    assert "?name=case.vtu" in found.error


FIELD = Case(points=X, fields={"value": A[:, 0]})


@pytest.mark.parametrize("ending", ["vtu", "csv", "h5", "npz", "parquet"])
def test_files_are_answered_as_ipot_predict_does(running, served, tmp_path, ending):
    import ipot
    from ipot.formats import read_cases
    from ipot.surrogate.files import answer_files

    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"case.{ending}"
    write_case(path, FIELD)
    found = upload(running, "mesh", path.name, path.read_bytes())
    assert found.status == 200, found.body
    assert found.headers["content-disposition"] == f'attachment; filename="case_answer.{ending}"'
    answer, wanted = tmp_path / f"answer.{ending}", tmp_path / f"wanted.{ending}"
    answer.write_bytes(found.body)
    answer_files(ipot.load(served["mesh"].folder, device="cpu"), path, wanted)
    one, other = read_cases(answer)[0], read_cases(wanted)[0]
    assert set(one.fields) == set(other.fields)
    for name in one.fields:
        np.testing.assert_allclose(one.fields[name], other.fields[name], rtol=1e-6)


def test_a_file_of_several_cases_is_answered_in_one_file(running, served, tmp_path):
    """As the training file of a fit: an .npz of one case each would be several files."""
    import ipot
    from ipot.formats import read_cases

    a = np.random.default_rng(1).random((3, 12))
    np.savez(tmp_path / "cases.npz", coordinates=X, value=a)
    body = (tmp_path / "cases.npz").read_bytes()
    found = upload(running, "mesh", "cases.npz", body)
    assert found.status == 200, found.body
    assert found.headers["content-disposition"] == 'attachment; filename="cases_answer.h5"'
    (tmp_path / "answer.h5").write_bytes(found.body)
    wanted = ipot.load(served["mesh"].folder, device="cpu").predict(points=X, values=a)
    answers = read_cases(tmp_path / "answer.h5")
    assert len(answers) == 3
    for i, one in enumerate(wanted):
        np.testing.assert_allclose(answers[i].fields["target"], one, rtol=1e-5, atol=1e-6)
    refused = upload(running, "mesh", "cases.npz", body, format="npz")
    assert refused.status == 422
    said = refused.body.decode()
    assert "cases.npz holds 3 cases" in said
    assert "send a file of one case" in said
    assert "--out" not in said


def test_files_that_are_damaged(running, tmp_path):
    for ending in ("vtu", "csv", "h5", "npz"):
        write_case(tmp_path / f"case.{ending}", FIELD)
        body = (tmp_path / f"case.{ending}").read_bytes()
        for wrong in (b"", b"\0" * 100, body[: len(body) // 2], b"{}" + body, body[::-1]):
            found = upload(running, "mesh", f"case.{ending}", wrong)
            assert found.status in (200, 422), found.body
            if found.status == 422:
                assert "/tmp" not in found.error
                assert "ipot-serve" not in found.error
    running.lives()


def test_no_upload_is_left_behind(running, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_case(tmp_path / "case.vtu", FIELD)
    body = (tmp_path / "case.vtu").read_bytes()
    assert upload(running, "mesh", "case.vtu", body).status == 200
    assert upload(running, "mesh", "case.vtu", body[:300]).status == 422
    assert upload(running, "mesh", "case.vtu", body, format="h5").status == 200
    assert [path.name for path in tmp_path.iterdir()] == ["case.vtu"]
