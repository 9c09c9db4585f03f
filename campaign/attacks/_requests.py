"""Requests of HTTP: right ones, and changes to them. A change has a name and a number, as those of
files have."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from campaign.attacks import _mutate_text, _mutate_zip  # noqa: F401 (each registers its changes)
from campaign.attacks._array_bases import question
from campaign.attacks._mutate import GENERIC, MUTATORS, Around, Tree

NPZ = "application/x-npz"
MODELS = ("mesh", "timed", "parameters", "uneven")
HOST = "127.0.0.1:8000"
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "P ST", "")
PIECES = (
    *(
        "..",
        ".",
        "",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%0d%0aX:%20y",
        "%ff",
        "~",
        "*",
        "%",
    ),
    *(
        "a" * 5000,
        "\xe4",
        "%F0%9F%98%80",
        "mesh",
        "none",
        "predict",
        "config.json",
        "0",
        "-1",
        "9" * 40,
    ),
    *(
        "?name=a.vtu",
        "?name=../a.vtu",
        "?name=a.csv&grid=1e9",
        "?grid=" + "9" * 3000,
        "?&&=&",
        "#",
        " ",
    ),
    *("files?name=a.npz&steps=99999", "files?name=a.csv&interval=nan", "files?name=a.h5&format=x"),
)
HEADERS = (
    *(("Host", text) for text in ("", "evil.example", "localhost", "[::1", "127.0.0.1:99999999")),
    *(("Origin", text) for text in ("null", "http://evil.example", "http://" + HOST, "http://[")),
    *(
        ("Content-Type", text)
        for text in (NPZ, "application/json", "text/plain", "", ";", "a" * 99)
    ),
    *(("Accept", text) for text in (NPZ, "*/*", "application/x-ndjson", ",;,;q=x", "", "\xff")),
    *(("Content-Length", text) for text in ("0", "-1", "1e9", "99999999999", "9" * 30, "abc", "")),
    *(("Transfer-Encoding", text) for text in ("chunked", "gzip", "chunked, chunked", "identity")),
    *(("Connection", text) for text in ("close", "keep-alive", "upgrade", ", ,")),
    *(("Upgrade", "websocket"), ("Expect", "100-continue"), ("Expect", "x"), ("X" * 9999, "y")),
    *(
        ("Sec-Fetch-Site", "cross-site"),
        ("If-None-Match", '"a"'),
        ("Range", "bytes=0-1"),
        ("A b", "c"),
    ),
    *(("Content-Encoding", "gzip"), ("X", "a" * 40000), ("X", "a\r\n b"), ("X", "\x00"), ("", "")),
)


@dataclass(frozen=True)
class Request:
    """What is sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    ending: str = ".json"
    """Of a file that would hold the body: which changes know it."""
    chunks: int | None = None
    """The body is sent in pieces of so many bytes, and its length is not told."""
    raw: tuple[tuple[str, int], ...] = ()
    """Changes to the bytes of the whole."""

    def written(self, around: Around) -> bytes:
        """Its bytes."""
        body, headers = self.body, {"Host": HOST} | dict(self.headers)
        if self.chunks is not None:
            headers = {"Transfer-Encoding": "chunked"} | headers
            size = max(self.chunks, len(body) // 5000)
            pieces = [body[i : i + size] for i in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        elif body:
            headers = {"Content-Length": str(len(body))} | headers
        head = [f"{self.method} {self.target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        whole = "\r\n".join([*head, "", ""]).encode("latin-1") + body
        for name, number in self.raw:
            whole = _applied(name, whole, ".bin", number, around)
        return whole


def _applied(name: str, data: bytes, ending: str, number: int, around: Around) -> bytes:
    """Bytes after a change of files; as they were where it cannot be made."""
    tree: Tree = {f"body{ending}": data}
    try:
        MUTATORS[name](tree, Random(number), around)
    except Exception:  # whatever a change stumbles over in what others have left
        return data
    found = tree.get(f"body{ending}", b"")
    return found if isinstance(found, bytes) else data


def right_ones(files: Path) -> dict[str, Request]:
    """Requests that are answered; `files` has those that can be uploaded."""
    found = {
        path: Request("GET", path)
        for path in ("/", "/v1/models", "/healthz", "/metrics", "/openapi.json", "/v1/models/mesh")
    }
    found |= {
        f"/v1/models/{m}/samples/0": Request("GET", f"/v1/models/{m}/samples/0") for m in MODELS
    }
    for model in MODELS:
        for one in (True, False):
            asked = question(model, one=one) | ({"interval": 0.5} if one else {})
            plain = {name: _plain(value) for name, value in asked.items()}
            path = f"/v1/models/{model}/predict"
            kinds = {"Content-Type": "application/json"}
            body = json.dumps(plain).encode()
            found[f"{model} {one} json"] = Request("POST", path, tuple(kinds.items()), body)
            if not any(isinstance(value, list) for value in asked.values()):
                buffer = io.BytesIO()
                np.savez(buffer, **asked)
                kinds = {"Content-Type": NPZ, "Accept": NPZ}
                found[f"{model} {one} npz"] = Request(
                    "POST", path, tuple(kinds.items()), buffer.getvalue(), ".npz"
                )
    for path in sorted(files.iterdir()):
        target = f"/v1/models/mesh/files?name={path.name}"
        found[path.name] = Request("POST", target, (), path.read_bytes(), path.suffix)
    found["solve"] = replace(found["mesh True json"], target="/v1/models/mesh/solve")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


Change = Callable[[Request, Random], Request]
CHANGES: dict[str, Change] = {}


def change(name: str) -> Callable[[Change], Change]:
    """Register a change of a request."""

    def register(function: Change) -> Change:
        CHANGES[name] = function
        return function

    return register


@change("method")
def _method(request: Request, random: Random) -> Request:
    return replace(request, method=random.choice(METHODS))


@change("target")
def _target(request: Request, random: Random) -> Request:
    parts = request.target.split("/")
    place, piece = random.randrange(len(parts) + 1), random.choice(PIECES)
    kept = parts[place + random.randrange(2) :]
    return replace(request, target="/".join([*parts[:place], piece, *kept]))


@change("header")
def _header(request: Request, random: Random) -> Request:
    kept = [h for h in request.headers if random.random() < 0.8]
    return replace(request, headers=(*kept, random.choice(HEADERS)))


@change("length")
def _length(request: Request, random: Random) -> Request:
    told = max(
        0, len(request.body) + random.choice((-len(request.body), -9, -1, 1, 9, 10**6, 10**12))
    )
    return replace(request, headers=(*request.headers, ("Content-Length", str(told))))


@change("chunks")
def _chunks(request: Request, random: Random) -> Request:
    return replace(request, chunks=random.choice((1, 7, 1000, 10**6)))


@change("large")
def _large(request: Request, random: Random) -> Request:
    """More bytes than are taken."""
    return replace(request, body=request.body + random.choice((b" ", b"\0", b"[")) * (5 << 20))


@change("another body")
def _another(request: Request, random: Random) -> Request:
    bodies = (
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 9999,
        b'{"points": 1e999}',
        b"\xef\xbb\xbf{}",
        b"PK",
    )
    return replace(request, body=random.choice(bodies))


WHOLE = ("flip bits", "set a byte", "truncate", "delete bytes", "insert bytes", "swap blocks")
"""Changes to the bytes of a whole request."""
KNOWING = {
    ".json": ("json", "json", "json", "json encoding"),
    ".npz": ("zip headers", "zip members", "zip bomb", "npy header in zip", "npy header in zip"),
    ".csv": ("table cell", "table whole"),
    ".vtu": ("xml attribute", "xml piece elsewhere", "xml entities", "xml element", "xml number"),
}
"""Changes that know what a body means."""


def drawn(request: Request, random: Random) -> list[list[Any]]:
    """Some changes to a request, each a kind, a name and a number."""
    found: list[list[Any]] = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        kind = random.choices(("body", "request", "bytes"), (6 if request.body else 0, 3, 1))[0]
        if kind == "body":
            known = KNOWING.get(request.ending, ())
            name = random.choice(known if known and random.random() < 0.6 else GENERIC)
        else:
            name = random.choice(sorted(CHANGES) if kind == "request" else WHOLE)
        found.append([kind, name, random.randrange(1 << 32)])
    return found


def changed(request: Request, changes: list[list[Any]], around: Around) -> Request:
    """A request after some changes."""
    for kind, name, number in changes:
        if kind == "body":
            body = _applied(name, request.body, request.ending, number, around)
            request = replace(request, body=body)
        elif kind == "request":
            request = CHANGES[name](request, Random(number))
        else:
            request = replace(request, raw=(*request.raw, (name, number)))
    return request
