"""Predictions in bounded memory: any number of samples, inputs, queries and steps.

A batch need not be on the model's device. Its rows are copied there chunk by chunk, and the answers
back; so it may be larger than the memory of a GPU, or mapped from a file and never read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot import symmetry
from ipot.accelerate import for_answers
from ipot.accelerate.operators import decoded_at_once, encode
from ipot.accelerate.relay_streaming import StreamedPoints
from ipot.data.dataset import Dataset
from ipot.device import out_of_memory
from ipot.errors import DataError
from ipot.models.base import LatentOperator, Operator, without_queries
from ipot.samples import Batch
from ipot.spec import Need, Spec
from ipot.stopping import stop_if_asked

QUERIES_AT_ONCE = 1 << 18
"""Rows (samples times times times queries) that are answered in one go, and of a chunk of more."""
MOST_ROWS = 1 << 21
"""The most rows of one chunk, whatever is asked for: with a thousand channels its elements are
still counted by 31 bits."""


@torch.inference_mode()
def predict(
    model: Operator,
    batch: Batch,
    *,
    rows: int | None = None,
    out: Tensor | None = None,
    finite: bool = False,
) -> Float[Tensor, "B T M K"]:
    """A batch's fields, in chunks so that memory does not grow with the points and queries.

    A latent model encodes and steps once and decodes chunk by chunk; any other model that takes
    free queries is called for each chunk. Chunked equals whole up to rounding. `rows` are the
    samples times points, or times queries, that are taken at once.

    The answer is on the batch's device, or is written to `out` (B, T, M, K) on any device. With
    `finite` an answer that is not finite is an error that says where the first one is.
    """
    if rows is not None and rows < 1:
        raise DataError(f"rows must be at least 1, got {rows}")
    home = _Home.of(model, batch)
    if rows is None and out is None and _may_replay(home) and home.holds(batch):
        from ipot.accelerate.replay import replayed

        # Accelerated where it is captured and not before: a replay of a small question takes less
        # time than finding out whether the model has changed.
        answer = replayed(
            model, batch, lambda batch: _predict(for_answers(model), batch, home, None, None)
        )
        if answer is not None:
            if finite:
                refuse_infinite(answer, [torch.stack(answer.aminmax())], batch, model.spec)
            return answer
    # Around this and not around what is captured: a graph that does not fit is done without.
    with _room(_most(rows)):
        return _predict(for_answers(model), batch, home, rows, out, finite=finite)


def _may_replay(home: _Home) -> bool:
    """True if answers may be captured and replayed on this device."""
    return home.device.type == "cuda"


def _most(rows: int | None) -> int:
    """The number of rows to take at once."""
    return min(rows or QUERIES_AT_ONCE, MOST_ROWS)


def _predict(
    model: Operator,
    batch: Batch,
    home: _Home,
    rows: int | None,
    out: Tensor | None,
    *,
    finite: bool = False,
) -> Tensor:
    most = _most(rows)
    answers = _Answers(batch, len(model.spec.outputs), out, finite=finite)
    if home.holds(batch) and _small(batch, most, rows):
        answers.put(slice(None), slice(None), model(batch))
    elif isinstance(model, LatentOperator):
        _decode_in_chunks(model, batch, home, answers, rows and most)
    else:
        _ask_in_chunks(model, batch, home, answers, most)
    whole = answers.whole()
    if finite:
        refuse_infinite(whole, answers.ends, batch, model.spec)
    return whole


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode, and afterwards each of its layers to the mode it was in."""
    before = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for layer, training in before:
            layer.training = training


def averaged(model: Operator, batch: Batch, *, finite: bool = False) -> Float[Tensor, "B T M K"]:
    """The mean of the answers to a batch and to its mirror images, turned back: as many times the
    work as the problem's symmetries have elements (`symmetry.elements`)."""
    asked, total = replace(batch, targets=None), None
    found = symmetry.elements(model.spec)
    for element in found.to(batch.values.device):
        draws = element.expand(batch.size, -1, -1)
        turned = symmetry.apply(asked, draws, model.spec)
        answer = predict(model, turned, finite=finite)
        answer = symmetry.undo(answer, asked, draws, model.spec)
        total = answer if total is None else total + answer
    assert total is not None
    return total / len(found)


def predictions(
    model: Operator,
    data: Dataset,
    *,
    batch: int,
    device: torch.device | str,
    finite: bool = False,
    symmetric: bool = False,
) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch of a data set, in order, with the model's answer, or where `symmetric` with the
    mean over the problem's symmetries; see `predict` for `finite`."""
    if batch < 1:
        raise DataError(f"at least one sample at a time, got a batch of {batch}")
    home = device if not data.stacked else data[0].values.device
    for start in range(0, len(data), batch):
        index = torch.arange(start, min(start + batch, len(data)), device=home)
        piece = data.batch(index).to(device)
        yield piece, (averaged if symmetric else predict)(model, piece, finite=finite)


@dataclass(frozen=True)
class _Home:
    """The device and precision of a model; None if it has no weights."""

    device: torch.device
    dtype: torch.dtype | None

    @classmethod
    def of(cls, model: Operator, batch: Batch) -> _Home:
        for tensor in chain(model.parameters(), model.buffers()):
            if tensor.is_floating_point():
                return cls(tensor.device, tensor.dtype)
        return cls(batch.values.device, None)

    def holds(self, batch: Batch) -> bool:
        """True if a batch is on the device already."""
        tensors = (batch.points, batch.values, batch.queries)
        return all(t.device == self.device and t.dtype == self._dtype(t) for t in tensors)

    def bring(self, tensor: Tensor) -> Tensor:
        """A tensor on the device; to a GPU through page-locked memory, without waiting."""
        tensor = tensor.to(self._dtype(tensor))
        if tensor.device.type == "cpu" and self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def bring_all(self, batch: Batch) -> Batch:
        """A batch on the device."""
        batch = replace(batch, targets=None, weights=None)
        tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
        tensors = {name: t for name, t in tensors.items() if isinstance(t, Tensor)}
        # Each once: points that are the queries too are still so there.
        there: dict[int, Any] = {id(t): t for t in tensors.values()}
        there = {key: self.bring(t) for key, t in there.items()}
        return replace(batch, **{name: there[id(t)] for name, t in tensors.items()})

    def _dtype(self, tensor: Tensor) -> torch.dtype:
        """The precision for a tensor: the model's, but at least float32 for coordinates."""
        if self.dtype is None or not tensor.is_floating_point():
            return tensor.dtype
        return torch.promote_types(self.dtype, torch.float32)


class _Answers:
    """Collects the fields. One that comes from a GPU is written while the next is computed."""

    def __init__(
        self, batch: Batch, channels: int, out: Tensor | None, *, finite: bool = False
    ) -> None:
        self.finite = finite
        self.ends: list[Tensor] = []
        """The smallest and the largest number of each chunk, where they are asked for. They stay on
        the device until all is answered: nobody waits for a chunk."""
        self.shape = (batch.size, len(batch.times), batch.queries.shape[-2], channels)
        self.device, self.out = batch.values.device, out
        self.pending: tuple[Tensor, Tensor, Any] | None = None
        if out is not None and (tuple(out.shape) != self.shape or not out.is_floating_point()):
            raise DataError(
                f"out must be {self.shape} and of floating-point numbers, got "
                f"{tuple(out.shape)} of {out.dtype}"
            )

    def put(self, step: int | slice, part: slice | Tensor, answer: Tensor) -> None:
        """Take the answers of one step (B, m, K), or of all (B, T, m, K), at some queries."""
        if self.finite:
            self.ends.append(torch.stack(answer.aminmax()))
        if self.out is None:
            whole = answer.shape == self.shape and isinstance(part, slice)
            if whole and answer.device == self.device:
                self.out = answer
                return
            self.out = torch.empty(self.shape, dtype=answer.dtype, device=self.device)
        if isinstance(part, Tensor):
            self.out[:, step, part.to(self.out.device)] = answer.to(self.out)
            return
        place = self.out[:, step, part]
        if answer.device.type == "cuda" and place.device.type == "cpu":
            host = answer.to(place.device, non_blocking=True)
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(answer.device))
            self._write()
            self.pending = place, host, event
        else:
            place.copy_(answer)

    def whole(self) -> Tensor:
        """All fields."""
        self._write()
        assert self.out is not None
        return self.out

    def _write(self) -> None:
        if self.pending is not None:
            place, host, event = self.pending
            event.synchronize()
            place.copy_(host)
            self.pending = None


def refuse_infinite(answer: Tensor, ends: list[Tensor], batch: Batch, spec: Spec) -> None:
    """Refuse an answer (B, T, M, K) that is not finite everywhere, by the first place.

    `ends` are the smallest and the largest number of its chunks; a NaN is both.
    """
    if bool(torch.isfinite(torch.stack(ends)).all()):
        return
    for i, sample in enumerate(answer):
        for step, rows in enumerate(sample):
            bad = ~torch.isfinite(rows)
            if batch.query_mask is not None:  # what is answered to padding is nobody's
                bad &= batch.query_mask[i, :, None].to(bad.device)
            if not bool(bad.any()):
                continue
            query, channel = (int(n) for n in bad.nonzero()[0])
            number = i if batch.index is None else int(batch.index[i])
            name, value = spec.outputs[channel], float(rows[query, channel])
            raise DataError(
                f"the answer is not finite: {name} is {value} in sample {number}, step {step}, at "
                f"query {query}, the first of {int(bad.sum())} in that step. Inputs far outside "
                "those of training do this, and damaged weights: check the units of the inputs and "
                "where the weights come from."
            )


def _small(batch: Batch, most: int, rows: int | None) -> bool:
    """True if a batch can be answered in one call. The model decides how it takes its inputs,
    unless the caller limits their `rows`."""
    asked = batch.size * batch.queries.shape[-2] * len(batch.times)
    return asked <= most and (rows is None or batch.size * batch.values.shape[1] <= most)


def _decode_in_chunks(
    model: LatentOperator,
    batch: Batch,
    home: _Home,
    answers: _Answers,
    rows: int | None,
) -> None:
    """Encode once, and take each chunk of the queries through all steps."""
    latent = encode(model, without_queries(batch), home.bring_all, rows)
    states = model.roll_on(latent, batch.times)
    count = batch.queries.shape[-2]
    given = rows
    if rows is None:
        rows = decoded_at_once(model, batch.size * count)
    parts: Sequence[slice | Tensor] = _slices(count, max(1, rows // batch.size))
    seen: Any = latent.seen
    if isinstance(seen, StreamedPoints) and batch.queries.ndim == 3:
        # Inputs around queries are computed anew: the fewer, the closer these lie together.
        parts = seen.order(batch.queries).split(max(1, (given or seen.at_once) // batch.size))
    for part in parts:
        if batch.queries.ndim == 3:
            here = [home.bring(batch.queries[:, part])] * len(states)
        else:
            here = [home.bring(batch.queries[:, i, part]) for i in range(len(states))]
        for step, (state, queries) in enumerate(zip(states, here, strict=True)):
            stop_if_asked()
            answers.put(step, part, model.decode(state, queries))


def _ask_in_chunks(
    model: Operator, batch: Batch, home: _Home, answers: _Answers, most: int
) -> None:
    """Ask a model that encodes and answers in one; its inputs are there all the time."""
    count, chunk = batch.queries.shape[-2], max(1, most // batch.size)
    if Need.SAME_POINTS in model.needs or count <= chunk:
        whole = batch if home.holds(batch) else home.bring_all(batch)
        answers.put(slice(None), slice(None), model(whole))
        return
    inputs = home.bring_all(replace(without_queries(batch), edges=batch.edges, grid=batch.grid))
    for part in _slices(count, chunk):
        stop_if_asked()
        mask = batch.query_mask
        piece = replace(
            inputs,
            queries=home.bring(batch.queries[..., part, :]),
            query_mask=None if mask is None else home.bring(mask[:, part]),
        )
        answers.put(slice(None), part, model(piece))


def _slices(count: int, chunk: int) -> list[slice]:
    return [slice(s, min(s + chunk, count)) for s in range(0, count, chunk)]


@contextmanager
def _room(rows: int) -> Iterator[None]:
    """Say what to change where memory does not suffice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        less = max(1, rows // 4)
        raise DataError(
            f"out of memory with {rows} rows (samples times points or queries) at once. Take "
            f"fewer: `predict(..., rows={less})` or `ipot predict --rows {less}`, or fewer samples."
        ) from error
