"""Inputs of attention in chunks: how they are cut, and how large the chunks are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ipot.accelerate.projected import Ready
from ipot.accelerate.shared_mesh import Split
from ipot.accelerate.twins import Target
from ipot.models.base import Latent
from ipot.samples import Batch

STREAMED = 1 << 19
"""Rows of inputs (samples times points) beyond which they are worth taking in chunks."""
STREAMED_ON_CPU = 1 << 16
"""`STREAMED` on a CPU, where chunks stay in its caches."""
STREAMED_IN_TRAINING = 1 << 21
"""`STREAMED` where gradients are wanted, and every chunk is computed twice."""
ROWS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 17}
"""Rows of a chunk: on a CPU what stays in its caches, on a GPU what keeps it busy."""
ROWS_BY_KERNEL = (1 << 19, 1 << 21, 1 << 22)
"""Rows of a chunk for our kernels, which hold only its keys and values. More
where there are many in all: a GPU must take longer for a chunk than its host for launching it,
which is the case from four million on. Fewer are replayed (`ipot.accelerate.replay`)."""
SCORES_AT_ONCE = 1 << 24
"""Scores of a chunk (samples times heads times queries times keys), of which the plain formula
holds a few copies: 64 MiB each in float32."""

Prepare = Callable[[Batch], Batch]
"""From a batch as it is stored to what a model takes: on its device, in its scales."""


class EncodesInChunks:
    """A model whose encoder can take inputs in chunks by a way of its own."""

    def takes_chunks(self) -> bool:
        """True if its layers are those that this way knows."""
        raise NotImplementedError

    def is_much(self, batch: Batch) -> bool:
        """True if a batch had better be taken in chunks."""
        raise NotImplementedError

    def encode_in_chunks(
        self, batch: Batch, prepare: Prepare = lambda batch: batch, at_once: int | None = None
    ) -> Latent:
        """The state of a batch whose chunks `prepare` turns into what the model takes, of about
        `at_once` samples times points each."""
        raise NotImplementedError


Tokens = Callable[..., tuple[Tensor | Split | Ready, Tensor | None]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunks:
    """What is attended to, in chunks that are made when their turn comes."""

    rows: tuple[Tensor | None, ...]
    """What is cut: tensors (B or 1, N, ...) on any device, None for one that is not there."""
    tokens: Tokens
    """From those rows of a chunk to its tokens (B, n, d), and a mask (B, n) or None."""
    size: int
    """Rows of a chunk."""
    last: Callable[[], Tensor] | None = None
    """Tokens behind all others, a chunk of their own."""
    weights: tuple[Tensor, ...] = ()
    """What tokens are made with besides; gradients go to these and to the rows and no further."""

    @property
    def count(self) -> int:
        """N, the rows of all chunks but the last."""
        return next(t.shape[1] for t in self.rows if t is not None)

    def parts(self) -> Iterator[slice | None]:
        """The rows of every chunk; None is the one behind them."""
        for start in range(0, self.count, self.size):
            yield slice(start, min(start + self.size, self.count))
        if self.last is not None:
            yield None

    def cut(self, part: slice | None) -> list[Tensor | None]:
        """The rows of a chunk."""
        if part is None:
            return []
        return [None if t is None else t[:, part] for t in self.rows]

    def made(
        self, part: slice | None, rows: list[Tensor | None]
    ) -> tuple[Tensor | Split | Ready, Tensor | None]:
        """Tokens and mask of a chunk from its rows; the one behind them has none of either."""
        if part is None and self.last is not None:
            return self.last(), None
        return self.tokens(*rows)


def streams(rows: int, device: torch.device) -> bool:
    """True if so many rows of inputs (samples times points) are better taken in chunks there."""
    limit = STREAMED_ON_CPU if device.type == "cpu" else STREAMED
    limit = STREAMED_IN_TRAINING if torch.is_grad_enabled() else limit
    return rows > limit


def rows_by_kernel(count: int) -> int:
    """Rows of a chunk of so many, where our kernels do it."""
    few, many, most = ROWS_BY_KERNEL
    if count > 8 * most:
        return most
    return many if count > 2 * many else few


def chunk_size(
    target: Target,
    *,
    batch: int,
    queries: int,
    heads: int,
    rows: int | None = None,
    count: int = 0,
) -> int:
    """Points of a chunk: so many that samples times points are `rows`, and scores are few where
    they are held at all. `count` are the samples times points that there are."""
    device, kernel = target.device, target.triton
    if rows is None:
        rows = ROWS_AT_ONCE.get(device.type, ROWS_AT_ONCE["cuda"])
        rows = rows_by_kernel(count) if kernel else rows
    most = rows // batch
    if not kernel:
        most = min(most, SCORES_AT_ONCE // (batch * queries * heads))
    return max(1, most)


@dataclass(frozen=True, eq=False)
class Streamed:
    """Inputs that stand for a batch's points, values and mask, and are made chunk by chunk.

    They may lie on another device than the model, and be larger than its memory. Only a layer that
    takes inputs in chunks knows what to do with this; whatever else touches it fails at once.
    """

    rows: tuple[Tensor, Tensor, Tensor | None]
    """Points, values and mask as they are stored."""
    parameters: Tensor | None
    prepare: Callable[
        [Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None, Tensor | None]
    ]
    """From some of these rows to points, values, parameters and mask as an encoder takes them. It
    has no weights of its own."""
    at_once: int | None = None
    """Samples times points of a chunk; None leaves it to the device."""

    def seen_with(self, parameters: Tensor | None, mask: Tensor | Streamed | None) -> Streamed:
        """These inputs with the parameters and the mask that a model gives to one encoder, which
        need not be those of the batch. A mask that is itself `Streamed` means the own one."""
        points, values, own = self.rows

        def prepare(points: Tensor, values: Tensor, mask: Tensor | None) -> Any:
            points, values, _, mask = self.prepare(points, values, mask)
            return points, values, parameters, mask

        rows = points, values, own if isinstance(mask, Streamed) else mask
        return replace(self, rows=rows, parameters=parameters, prepare=prepare)

    @property
    def count(self) -> int:
        """Samples times points."""
        return self.rows[1].shape[0] * self.rows[1].shape[1]
