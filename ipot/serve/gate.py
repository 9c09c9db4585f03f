"""Who may ask, and what every answer says to a browser.

A page of somebody else that is open in a browser on this machine may send requests to 127.0.0.1. It
must not read answers, nor have work done:

- Answers carry no header for other origins (CORS), so that no other page reads them.
- A request that a browser sends for another page says so, in `Origin` or `Sec-Fetch-Site`, and is
  refused.
- A page whose name is made to lead to 127.0.0.1 (DNS rebinding) would be of the same origin. Its
  requests carry its name as `Host`. Taken are addresses, which nobody can make lead elsewhere,
  `localhost`, and names that were given when the server was started.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ipot.serve.limits import Room
from ipot.serve.refused import UNEXPECTED, Refused, busy

if TYPE_CHECKING:
    from ipot.serve.application import Server

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


PIECE = 1 << 18
"""Bytes of an answer that are sent at a time."""


class Gate:
    """Around the whole application: refuses strangers, adds headers, counts."""

    def __init__(self, inner: Any, server: Server, names: Iterable[str] = ()) -> None:
        self.inner, self.server = inner, server
        self.inside = 0
        """Requests that are being answered."""
        self.names = {name.lower().rstrip(".") for name in names}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """A request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.inner(scope, receive, send)
            return
        began, status = time.monotonic(), 0
        scope["held"] = held = Held(self.server.room)

        async def tell(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = message | {"headers": [*message.get("headers", ()), *HEADERS]}
            body, start = message.get("body", b""), 0
            # Piece by piece, so that it counts as held until the client has taken it.
            while len(body) - start > PIECE:
                piece = body[start : start + PIECE]
                await send({"type": message["type"], "body": piece, "more_body": True})
                start += PIECE
            if start:
                message = message | {"body": body[start:]}
            await send(message)

        try:
            self.inside += 1
            refused = self.refused(scope)
            if refused is None:
                await self.inner(scope, receive, tell)
            else:
                await send_refused(refused, tell)
        except Exception:
            # Told to nobody and kept nowhere: a traceback may quote what was asked.
            if not status:
                await send_refused(Refused(500, UNEXPECTED, close=True), tell)
        finally:
            self.inside -= 1
            held.release()
            # A path that leads nowhere is any text at all.
            route = scope.get("route_path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.server.metrics.count(route, method, status, time.monotonic() - began)

    def refused(self, scope: Any) -> Refused | None:
        """Why a request is refused before it is looked at; None where it is not."""
        if self.inside > self.server.limits.connections:
            return busy(f"{self.inside - 1} requests are being answered", 5)
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in (b"host", b"origin", b"sec-fetch-site") and name in found:
                return Refused(400, f"the header {name.decode()} is there twice", close=True)
            found[name] = value
        host = found.get(b"host", b"").decode("latin-1")
        if not self.is_ours(host):
            return Refused(
                421,
                "this server does not answer to that name: ask by its address or localhost, or "
                "start it with --host-name NAME",
                close=True,
            )
        origin = found.get(b"origin")
        if origin is not None and not _same(origin.decode("latin-1"), host):
            return Refused(403, "requests from the pages of others are refused", close=True)
        site = found.get(b"sec-fetch-site")
        if site in (b"cross-site", b"same-site") and not _is_visit(found):
            return Refused(403, "requests from the pages of others are refused", close=True)
        return None

    def is_ours(self, host: str) -> bool:
        """Whether a request by this host is meant for us."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        name = name.rstrip(".")
        if name == "localhost" or name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def _same(origin: str, host: str) -> bool:
    """Whether a page comes from where the request goes; a proxy may have changed the scheme."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _is_visit(headers: dict[bytes, bytes]) -> bool:
    """Whether somebody followed a link to the page: that is no request by the script of another."""
    return headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"origin") is None


class Held:
    """What one request has in memory: its body, its answer."""

    def __init__(self, room: Room) -> None:
        self.room, self.size = room, 0

    def take(self, size: int) -> None:
        """Count more of it."""
        self.room.take(size)
        self.size += size

    def release(self) -> None:
        """All of it is gone."""
        self.room.give(self.size)
        self.size = 0


def error_body(refused: Refused) -> bytes:
    """An error as every route tells it."""
    return json.dumps({"error": str(refused), "status": refused.status}).encode()


def error_headers(refused: Refused) -> dict[str, str]:
    """The headers of an error."""
    found = {"content-type": "application/json", "cache-control": "no-store"}
    if refused.retry is not None:
        found["retry-after"] = str(refused.retry)
    if refused.close:
        found["connection"] = "close"
    return found


async def send_refused(refused: Refused, send: Callable[[Any], Any]) -> None:
    """Answer with an error."""
    body = error_body(refused)
    headers = error_headers(refused) | {"content-length": str(len(body))}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
