"""Sockets: where the server listens, how long it waits for slow clients, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import warnings
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ipot.errors import RunError
from ipot.serve.gate import HEADERS, error_body, error_headers
from ipot.serve.limits import Limits
from ipot.serve.refused import Refused

KEEP_ALIVE = 15
"""Seconds that a connection stays open without a request."""
HEAD = 32 * 1024
"""Bytes of the head of a request."""
GRACE = 3
"""Seconds that answers have to reach their clients when the server ends."""


class Patience(H11Protocol):
    """A connection that ends where its client takes too long: to begin a request, to send one, or
    to take the answer. uvicorn waits for all of these without end."""

    head_seconds: float
    whole_seconds: float
    most: int
    """Connections that may be open."""
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there, and is given time for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._give(self.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Bytes came: of a head, which has a time of its own that bytes do not lengthen, or of a
        body."""
        idle = self._clock is None
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._give(self.whole_seconds)
        elif idle:  # a head has begun after a pause that was timed by keep-alive
            self._give(self.head_seconds)

    def on_response_complete(self) -> None:
        """An answer is written; if it is also gone, the connection waits for the next request."""
        self._stop_clock()
        super().on_response_complete()
        if self.transport.get_write_buffer_size() or self.conn_is_busy():
            self._give(self.whole_seconds)

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is answered as any other error."""
        if self.conn.our_state is not h11.IDLE:  # in the middle of an answer
            self.transport.close()
            return
        refused = Refused(400, "this is not a request of HTTP that can be read", close=True)
        body = error_body(refused)
        named = [(n.encode(), v.encode()) for n, v in error_headers(refused).items()]
        headers = [*named, *HEADERS, (b"content-length", str(len(body)).encode())]
        start = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def conn_is_busy(self) -> bool:
        """Whether the next request is here already, or the last one is still being sent."""
        return self.timeout_keep_alive_task is None or not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_clock()
        super().connection_lost(exc)

    def _give(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(seconds, self._late)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _late(self) -> None:
        """The time is up. What is not sent yet will never be taken."""
        self._clock = None
        self.transport.abort()


def patient(limits: Limits) -> type[Patience]:
    """The protocol with the times of some limits."""
    longest = 2 * (limits.seconds + limits.body_seconds) + limits.solve_seconds
    times = {"head_seconds": limits.head_seconds, "whole_seconds": longest}
    return type("Patience", (Patience,), times | {"most": 2 * limits.connections})


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; a port that is taken is told of by name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise RunError(f"--host {host}: no address of this machine ({error})") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # A port whose last server has just ended is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            raise RunError(
                f"port {port} of {host} is taken, perhaps by another ipot serve: end that one, or "
                f"choose another by --port {port + 1 if port < 65535 else 8000}"
            ) from error
        if code == errno.EACCES:
            why = f"port {port} needs rights that you have not: choose one above 1023"
            raise RunError(why) from error
        raise RunError(f"cannot listen on {host}, port {port}: {error}") from error
    listener.setblocking(False)
    return listener


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(app: Any, listener: socket.socket, limits: Limits) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    be_silent()
    try:
        server_of(app, limits).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn has ended cleanly, and passes the signal on
        pass
    finally:
        listener.close()


def be_silent() -> None:
    """Nothing is logged from here on: what libraries say may quote a request, and a terminal is no
    place for it."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "ipot"):
        logging.getLogger(name).handlers = [logging.NullHandler()]
        logging.getLogger(name).propagate = False
    # With no handler at all, Python would print what is worse than a remark.
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")


def server_of(app: Any, limits: Limits) -> uvicorn.Server:
    """What answers on a socket."""
    config = uvicorn.Config(
        app,
        http=patient(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEAD,
    )
    return uvicorn.Server(config)
