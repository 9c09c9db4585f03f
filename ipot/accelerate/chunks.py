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
from ipot.models.base import Latent, LatentOperator
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


class EncodesInChunks(LatentOperator):
    """A latent operator with its own method to encode inputs in chunks; mixed into its class."""

    def encode(self, batch: Batch) -> Latent:
        """The state at time zero; chunk by chunk where points are very many."""
        if self.takes_chunks() and self.is_much(batch):
            return self.encode_in_chunks(batch)
        return super().encode(batch)  # pyrefly: ignore[missing-attribute]

    def takes_chunks(self) -> bool:
        """True if the method knows all of the model's layers."""
        raise NotImplementedError

    def is_much(self, batch: Batch) -> bool:
        """True if a batch should be encoded in chunks now."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return self.too_many(batch)

    def too_many(self, batch: Batch) -> bool:
        """True if a batch has too many points to take them all at once."""
        raise NotImplementedError

    def encode_in_chunks(
        self, batch: Batch, prepare: Prepare = lambda batch: batch, at_once: int | None = None
    ) -> Latent:
        """The state of a batch, from chunks of about `at_once` samples times points; `prepare`
        turns each into what the model takes."""
        raise NotImplementedError


MakeTokens = Callable[..., tuple[Tensor | Split | Ready, Tensor | None]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunks:
    """The context of an attention, in chunks that are made one after the other."""

    rows: tuple[Tensor | None, ...]
    """What is cut: tensors (B or 1, N, ...) on any device, None for one that is not there."""
    tokens: MakeTokens
    """From those rows of a chunk to its tokens (B, n, d), and a mask (B, n) or None."""
    size: int
    """Rows of a chunk."""
    last: Callable[[], Tensor] | None = None
    """Tokens after all others, a chunk of their own."""
    weights: tuple[Tensor, ...] = ()
    """What tokens are made with besides; gradients go to these and to the rows and no further."""

    @property
    def count(self) -> int:
        """N, the rows of all chunks but the last."""
        return next(t.shape[1] for t in self.rows if t is not None)

    def parts(self) -> Iterator[slice | None]:
        """The rows of every chunk; None stands for the `last` one."""
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
        """Tokens and mask of a chunk, from its rows; the `last` one has no rows and no mask."""
        if part is None and self.last is not None:
            return self.last(), None
        return self.tokens(*rows)


def streams(rows: int, device: torch.device) -> bool:
    """True if that many rows of inputs (samples times points) should be taken in chunks on a
    device."""
    limit = STREAMED_ON_CPU if device.type == "cpu" else STREAMED
    limit = STREAMED_IN_TRAINING if torch.is_grad_enabled() else limit
    return rows > limit


def rows_by_kernel(count: int) -> int:
    """Rows of a chunk for our Triton kernels, if there are `count` rows in all."""
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
    """Points of a chunk: as many as make `rows` samples times points, fewer if the scores are held
    in memory. `count` is the number of samples times points in all."""
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
    """Stands for a batch's points, values and mask, which are prepared chunk by chunk.

    They may lie on another device than the model, and be larger than its memory. Only layers that
    take inputs in chunks can use this; anything else fails at once.
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
        need not be those of the batch. A mask that is `Streamed` stands for this one's own."""
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
