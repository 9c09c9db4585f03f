"""What each address does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from ipot.serve import facts, truth
from ipot.serve.gate import error_body
from ipot.serve.limits import Limits
from ipot.serve.models import Served
from ipot.serve.question import (
    JSON,
    LINES,
    NPZ,
    Question,
    kind_of_answer,
    kind_of_body,
    read_question,
    write_answer,
)
from ipot.serve.refused import Refused, as_refused, too_large
from ipot.serve.uploads import Answer, answer_upload, upload_of
from ipot.serve.worker import with_remarks
from ipot.version import __version__

if TYPE_CHECKING:
    from ipot.serve.application import Server

DRAINED = 1 << 30
"""A body that is too large is taken to its end and thrown away up to here, so that the client hears
why: most clients listen only after they have sent all. Of one that does not say how large it is, so
much as comes within some seconds (`listening.Patience`)."""
FRESH = {"cache-control": "no-store"}


async def list_models(server: Server, request: Request) -> Response:
    """The models by name."""
    return _json({"models": [model.line() for model in server.models]})


async def one_model(server: Server, request: Request) -> Response:
    """The facts of one model."""
    served = _model(server, request)
    work = partial(facts.facts_of, served, server.limits)
    return _json(await _worked(server, request, work, ready="facts" in served.kept))


async def predict(server: Server, request: Request) -> Response:
    """An answer to arrays."""
    served, limits = _model(server, request), server.limits
    kind = kind_of_body(request.headers.get("content-type"))
    wanted = kind_of_answer(request.headers.get("accept"))
    body = await read_body(server, request)
    work = partial(answer_question, served, body, kind, wanted, limits)
    return _sent(request, await _worked(server, request, work), wanted)


def answer_question(served: Served, body: bytes, kind: str, wanted: str, limits: Limits) -> bytes:
    """The answer to a body, as a body."""
    model = served.model()
    question = read_question(body, kind, limits)
    return write_answer(ask(model, question, limits), wanted, limits)


def ask(model: Any, question: Question, limits: Limits) -> dict[str, Any]:
    """What `Surrogate.predict` answers, and what it warns of."""
    began = time.perf_counter()

    def answered() -> Any:
        model.refuse_level(question.interval)
        asked = model.request(**question.given)
        limits.refuse_samples(asked.samples, model.spec)
        return model.answer(asked, interval=question.interval)

    found, remarks = with_remarks(answered)
    parts = {"prediction": found}
    if question.interval is not None:
        parts = dict(zip(("prediction", "low", "high"), found, strict=True))
    spent = 1000 * (time.perf_counter() - began)
    return parts | {"milliseconds": round(spent, 3)} | ({"remarks": remarks} if remarks else {})


async def solve(server: Server, request: Request) -> Response:
    """The answer of the problem's own solver; where lines are asked for, with what is done on the
    way."""
    served = _model(server, request)
    if why := truth.why_not(served.problem):
        raise Refused(501, why)
    kind = kind_of_body(request.headers.get("content-type"))
    wanted = kind_of_answer(request.headers.get("accept"), LINES)
    body = await read_body(server, request)
    # Where questions are read one after another, since a body may unpack to much.
    question = await _worked(server, request, partial(read_question, body, kind, server.limits))
    del body
    solving = partial(server.solving.solve, served, question, gone=_gone(request))
    if wanted == LINES:
        return await _in_lines(server, solving)
    found = await solving()
    return _sent(request, write_answer(found, wanted, server.limits), wanted)


async def _in_lines(server: Server, solving: Callable[..., Any]) -> Response:
    """Lines of JSON as a solution comes. What fails before the first is an error as any other."""
    parts: asyncio.Queue[float | None] = asyncio.Queue()
    work = asyncio.ensure_future(solving(progress=parts.put_nowait))
    work.add_done_callback(lambda _: parts.put_nowait(None))

    def last() -> bytes:
        return write_answer(work.result(), JSON, server.limits)

    try:
        part = await parts.get()
        whole = last() if part is None else b""
    except BaseException:
        work.cancel()
        raise

    async def lines() -> Any:
        nonlocal part
        try:
            while part is not None:
                yield json.dumps({"part": round(part, 4)}).encode() + b"\n"
                part = await parts.get()
            try:
                yield (whole or last()) + b"\n"
            except Exception as error:
                yield error_body(as_refused(error, server.models.private)) + b"\n"
        finally:
            work.cancel()

    return StreamingResponse(lines(), media_type=LINES, headers=FRESH)


async def extras(server: Server, request: Request) -> Response:
    """What a problem has beside samples, as npz."""
    served = _model(server, request)
    work = partial(facts.extras_of, served)
    found = await _worked(server, request, work, ready="extras" in served.kept)
    if found is None:
        raise Refused(404, "there is nothing beside samples for this model")
    return _sent(request, write_answer(found, NPZ, server.limits), NPZ)


async def sample(server: Server, request: Request) -> Response:
    """One of the samples that came with a model, as npz."""
    served, text = _model(server, request), request.path_params["k"]
    work = partial(facts.samples_of, served)
    found = await _worked(server, request, work, ready="samples" in served.kept)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else -1
    if not 0 <= number < len(found):
        which = f"0 to {len(found) - 1}" if found else "none came with this model"
        raise Refused(404, f"there is no such sample: {which}")
    return _sent(request, write_answer(found[number], NPZ, server.limits), NPZ)


async def files(server: Server, request: Request) -> Response:
    """The answer to a file, as a file."""
    served, options = _model(server, request), dict(request.query_params)
    name = options.pop("name", None)
    upload_of(name, options, b"")  # refused before the body is read
    upload = upload_of(name, options, await read_body(server, request))

    def work() -> Answer:
        return with_remarks(lambda: answer_upload(served.model(), upload, server.limits))[0]

    answer = await _worked(server, request, work)
    headers = {"content-disposition": f'attachment; filename="{answer.name}"'}
    return _sent(request, answer.body, "application/octet-stream", headers)


async def health(server: Server, request: Request) -> Response:
    """Whether it is ready."""
    states = {model.name: model.state for model in server.models}
    return _json({"status": server.models.state, "models": states, "version": __version__})


async def metrics(server: Server, request: Request) -> Response:
    """Counters for Prometheus."""
    return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")


async def openapi(server: Server, request: Request) -> Response:
    """The description of this API."""
    return _json(server.schema)


async def page(server: Server, request: Request) -> Response:
    """A file of the page."""
    file = server.page[request.scope["path"].removeprefix("/")]
    headers = {"etag": file.mark, "cache-control": "no-cache", "content-type": file.kind}
    if request.headers.get("if-none-match") == file.mark:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers)


async def read_body(server: Server, request: Request) -> bytes:
    """The body, whose size is known or counted before it is held, and which must come in time."""
    limits, held = server.limits, request.scope["held"]
    told = request.headers.get("content-length")
    if told is not None and told.isdigit() and int(told) > limits.body:
        raise Refused(
            413,
            f"the body has {int(told)} bytes, and this server takes {limits.body}",
            close=int(told) > DRAINED,
        )
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise Refused(413, f"the body has more than {limits.body} bytes")
                held.take(len(part))
                parts.append(part)
    except TimeoutError as error:
        raise Refused(
            408, f"the body did not arrive within {limits.body_seconds:g} s", close=True
        ) from error
    return b"".join(parts)


def _model(server: Server, request: Request) -> Served:
    return server.models.find(request.path_params["name"])


def _gone(request: Request) -> Callable[[], Any]:
    """Comes back when the client has hung up."""

    async def gone() -> None:
        try:
            while (await request.receive())["type"] != "http.disconnect":
                pass
        except ClientDisconnect:
            pass

    return gone


async def _worked(
    server: Server, request: Request, work: Callable[[], Any], *, ready: bool = False
) -> Any:
    """The result of some work in the worker's thread; of work that is done already, at once."""
    if ready:
        return work()
    seconds = server.limits.seconds
    return await server.worker.run(work, seconds=seconds, gone=_gone(request))


def _json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type=JSON, headers=FRESH)


def _sent(
    request: Request, body: bytes, kind: str, headers: dict[str, str] | None = None
) -> Response:
    """An answer whose memory is counted until it is sent."""
    held = request.scope["held"]
    if len(body) > held.room.most:
        raise too_large("the answer is too large to be sent")
    held.release()  # what was asked is no longer needed
    held.take(len(body))
    return Response(body, media_type=kind, headers=FRESH | (headers or {}))
