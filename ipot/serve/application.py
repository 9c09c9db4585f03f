"""What is asked by which address, and the one place where errors become answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ipot.errors import shown
from ipot.serve import facts, routes, schema
from ipot.serve.gate import Gate, error_body, error_headers
from ipot.serve.limits import Limits, Room
from ipot.serve.metrics import Metrics
from ipot.serve.models import Models, Served
from ipot.serve.page import File, read_page
from ipot.serve.refused import Refused, as_refused
from ipot.serve.solving import Solving
from ipot.serve.worker import Worker

ENDING = 5.0
"""Seconds that the question at work is waited for at the end."""


class Server:
    """What the routes share."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        page: dict[str, File] | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.models, self.limits, self.tell = models, limits, tell
        self.page = read_page() if page is None else page
        self.worker = Worker(limits.waiting)
        self.solving = Solving(limits)
        self.metrics, self.room = Metrics(), Room(limits.held)
        self.metrics.gauges |= {
            "ipot_questions_waiting": ("Questions that wait", lambda: self.worker.waiting),
            "ipot_questions_running": ("Questions at work", lambda: float(self.worker.running)),
            "ipot_solvers": ("Solvers that run or wait", lambda: float(self.solving.asked)),
            "ipot_held_bytes": ("Bodies and answers in memory", lambda: float(self.room.taken)),
            "ipot_models_ready": (
                "Models that are loaded",
                lambda: float(sum(model.state == "ready" for model in self.models)),
            ),
        }
        self.schema = schema.document(limits)

    def start(self) -> None:
        """Begin to load the models."""
        self.worker.start()
        for model in self.models:
            self.worker.put_off(partial(self._begin, model))

    def _begin(self, model: Served) -> None:
        """Load a model; whoever started the server hears why one cannot be loaded."""
        try:
            facts.warm(model)
        finally:
            if model.why is not None:
                self.tell(str(model.why))

    def stop(self) -> None:
        """End what runs beside the answers."""
        self.solving.stop()
        self.worker.stop(ENDING)


Handler = Callable[[Server, Request], Awaitable[Response]]


def application(
    models: Models,
    limits: Limits | None = None,
    *,
    names: Iterable[str] = (),
    page: dict[str, File] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Gate:
    """The server as an ASGI application. `names` are hosts that it answers to besides addresses;
    `tell` takes what its owner should know: which model cannot be loaded."""
    server = Server(models, limits or Limits(), page, tell)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        server.start()
        try:
            yield
        finally:
            await server.solving.end()
            server.stop()

    found = [
        Route(path, _answering(server, path, handler), methods=[method])
        for path, method, handler in ROUTES
    ]
    # One route for each file, and none for any path: what is asked in the wrong way is told so.
    file = _answering(server, PAGE, routes.page)
    found += [Route(f"/{name}", file, methods=["GET"]) for name in server.page]
    app = Starlette(
        routes=found,
        lifespan=lifespan,
        exception_handlers={HTTPException: _not_here, Exception: _unexpected},
    )
    app.router.redirect_slashes = False
    return Gate(app, server, names)


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("/v1/models", "GET", routes.list_models),
    ("/v1/models/{name}", "GET", routes.one_model),
    ("/v1/models/{name}/predict", "POST", routes.predict),
    ("/v1/models/{name}/solve", "POST", routes.solve),
    ("/v1/models/{name}/samples/{k}", "GET", routes.sample),
    ("/v1/models/{name}/extras", "GET", routes.extras),
    ("/v1/models/{name}/files", "POST", routes.files),
    ("/healthz", "GET", routes.health),
    ("/metrics", "GET", routes.metrics),
    ("/openapi.json", "GET", routes.openapi),
)
PAGE = "/page"
"""What all files of the page are counted as."""


def _answering(server: Server, path: str, handler: Handler) -> Callable[[Request], Any]:
    """A handler whose errors are answers."""

    async def answer(request: Request) -> Response:
        request.scope["route_path"] = path
        try:
            return await handler(server, request)
        except ClientDisconnect:
            return _error(Refused(499, "the client hung up", close=True))
        except Exception as error:
            return _error(as_refused(error, server.models.private))

    return answer


def _error(refused: Refused) -> Response:
    return Response(error_body(refused), refused.status, error_headers(refused))


async def _not_here(request: Request, error: Any) -> Response:
    """An address or a method that there is not."""
    status = error.status_code
    said = f"there is nothing at {shown(request.url.path)}"
    if status == 405:
        said = f"{shown(request.method)} is not for this address"
    refused = Refused(status, said)
    headers = error_headers(refused) | dict(error.headers or {})
    return Response(error_body(refused), status, headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    return _error(as_refused(error))
