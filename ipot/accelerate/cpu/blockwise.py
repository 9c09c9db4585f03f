"""Attention on a CPU, in blocks that stay in its caches, forward and backward.

A matrix of all scores is written to memory and read again by every operation on it, which takes a
CPU longer than the arithmetic. Here the scores of a block of keys and queries are held at a time.
They stand keys by queries, so that values with ones beside them give weighted sums and sums of
weights in one product. The backward pass makes the scores anew from the logarithm of those sums.
What is subtracted from scores, and from the gradients of weights, is one more channel of the
product that they come from. So a block is passed over by the exponential function and, in the
backward pass, by one multiplication; all else is products.
"""
# No postponed annotations: torch reads the types of an operator's arguments.

from collections.abc import Iterator

import torch
from torch import Tensor

from ipot.accelerate.cpu.interface import attention_operator

SCORES = 1 << 18
"""Of a block: 1 MiB in float32, about what a core has in cache for itself."""
SHORT = 256
"""Keys or queries of a block on its shorter side, where there are as many: products with fewer
rows are slow."""
STEADY = 60.0
"""Scores up to which weights are computed as they are: exp(60) times any number of keys is still a
float32, and so is exp(-60). Beyond, the largest score is subtracted."""
FEW = 1 << 14
"""Scores of a sample up to which blocks are not worth their calls."""
MANY = 1 << 22
"""Scores of a batch beyond which the operations of the formula wait for memory."""


def pays(query: Tensor, key: Tensor, heads: int, *, trained: bool, narrow: bool) -> bool:
    """True if blocks are quickest: for training with so many scores that each operation on them
    goes to memory, and for narrow values. Elsewhere the fused operator is as quick."""
    exact = query.dtype == key.dtype and query.dtype in (torch.float32, torch.float64)
    if not exact or query.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    scores = heads * query.shape[1] * key.shape[1]
    return scores > FEW and (narrow or (trained and len(key) * scores > MANY))


def _forward(
    query: Tensor, pairs: Tensor, value: Tensor | None, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    query, key, value = _parts(query, pairs, value, heads)
    (batch, _, columns, width), rows = value.shape, query.shape[2]
    query = query * query.shape[-1] ** -0.5
    steady = _largest(query) * _largest(key) < STEADY
    out = value.new_empty(batch, rows, heads, width)
    lse = value.new_empty(batch, heads, rows)
    blocks = _Blocks(heads, rows, columns, query)
    for b in range(batch):
        real = None if mask is None else mask[b, :, None]
        for part in blocks.groups:
            keys, values = key[b, part], _widened(value[b, part], 1.0)
            if real is not None and steady:
                values.mul_(real)
            for asked in blocks.rows:
                queries = query[b % len(query), part, asked].transpose(1, 2)
                if steady:
                    sums, top = _sums(queries, keys, values, blocks), 0.0
                else:
                    sums, top = _careful_sums(queries, keys, values, real, blocks)
                total = sums[:, width:]
                lse[b, part, asked] = (total.log() + top).squeeze(1)
                least = torch.finfo(total.dtype).tiny  # of no key at all: then the sum is 0 too
                sums = sums[:, :width] / total.clamp_min(least)
                out[b, asked, part] = sums.permute(2, 0, 1)
    return out.flatten(2), lse


def _sums(queries: Tensor, keys: Tensor, values: Tensor, blocks: "_Blocks") -> Tensor:
    """The weighted sums (h, f + 1, m) of values, with those of the weights as a last channel."""
    sums: Tensor | None = None
    for seen in blocks.columns:
        weights = blocks.product(keys[:, seen], queries).exp_()
        sums = _added(sums, values[:, seen].transpose(1, 2), weights)
    assert sums is not None
    return sums


def _careful_sums(
    queries: Tensor, keys: Tensor, values: Tensor, real: Tensor | None, blocks: "_Blocks"
) -> tuple[Tensor, Tensor]:
    """Sums of exponentials relative to the largest score, whose own would overflow."""
    sums: Tensor | None = None
    top = queries.new_full((len(queries), 1, queries.shape[-1]), float("-inf"))
    for seen in blocks.columns:
        scores = blocks.product(keys[:, seen], queries)
        if real is not None:
            scores.masked_fill_(~real[seen], float("-inf"))
        before, top = top, torch.maximum(top, scores.amax(1, keepdim=True))
        if sums is not None:
            sums.mul_((before - _finite(top)).exp_())
        sums = _added(sums, values[:, seen].transpose(1, 2), scores.sub_(_finite(top)).exp_())
    assert sums is not None
    return sums, _finite(top)


def _backward(
    gradient: Tensor,
    query: Tensor,
    pairs: Tensor,
    value: Tensor | None,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, of pairs and of values (empty where those are in the pairs)."""
    d_query, d_pairs = query.new_zeros(query.shape), pairs.new_zeros(pairs.shape)
    d_value = None if value is None else value.new_zeros(value.shape)
    sums = _parts(d_query, d_pairs, d_value, heads)
    query, key, values = _parts(query, pairs, value, heads)
    scale = query.shape[-1] ** -0.5
    gradient, out = _split(gradient, heads), _split(out, heads)
    # What weights and their gradients are relative to, as channels of queries and of gradients.
    query = _widened(query * scale, -_finite(lse).unsqueeze(-1))
    gradient = _widened(gradient, -(gradient * out).sum(-1, keepdim=True))
    blocks = _Blocks(heads, query.shape[2], key.shape[2], query)
    for b in range(len(key)):
        for part in blocks.groups:
            places = (sums[0][b % len(sums[0]), part], sums[1][b, part], sums[2][b, part])
            wide = _widened(key[b, part], 1.0), _widened(values[b, part], 1.0)
            real = None if mask is None else mask[b, :, None]
            for asked in blocks.rows:
                ours = query[b % len(query), part, asked], gradient[b, part, asked]
                _add_gradients(places, asked, ours, wide, real, blocks)
    d_query.mul_(scale)
    return d_query, d_pairs, query.new_empty(0) if d_value is None else d_value


def _add_gradients(
    places: tuple[Tensor, Tensor, Tensor],
    asked: slice,
    ours: tuple[Tensor, Tensor],
    wide: tuple[Tensor, Tensor],
    real: Tensor | None,
    blocks: "_Blocks",
) -> None:
    """What some queries, with the gradients of their answers, add to gradients."""
    d_query, d_key, d_value = places
    query, gradient = ours
    key, value = wide
    queries, gradients = query.transpose(1, 2), gradient.transpose(1, 2)
    found: Tensor | None = None
    for seen in blocks.columns:
        weights = blocks.product(key[:, seen], queries).exp_()
        if real is not None:
            weights.masked_fill_(~real[seen], 0.0)  # those of hidden keys may be infinite
        d_value[:, seen] += torch.bmm(weights, gradient[..., :-1])
        d_scores = blocks.product(value[:, seen], gradients, again=True).mul_(weights)
        d_key[:, seen] += torch.bmm(d_scores, query[..., :-1])
        found = _added(found, d_scores.transpose(1, 2), key[:, seen, :-1])
    assert found is not None
    d_query[:, asked] += found


class _Blocks:
    """How heads, queries and keys are cut, and room for the scores of a block."""

    def __init__(self, heads: int, rows: int, columns: int, like: Tensor) -> None:
        short = min(rows, columns, SHORT)
        group = max(1, min(heads, SCORES // (short * min(max(rows, columns), SHORT))))
        long = max(1, SCORES // (group * short))
        self.groups = list(_cut(heads, group))
        self.rows = list(_cut(rows, short if rows <= columns else long))
        self.columns = list(_cut(columns, long if rows <= columns else short))
        size = group * min(short * long, rows * columns)
        self._room = [like.new_empty(0), like.new_empty(0)]
        self._size = size

    def product(self, left: Tensor, right: Tensor, again: bool = False) -> Tensor:
        """left @ right, (h, n, m), in a place that the next block takes; `again` in another one."""
        shape = (len(left), left.shape[1], right.shape[2])
        if not len(self._room[again]):
            self._room[again] = left.new_empty(self._size)
        place = self._room[again][: shape[0] * shape[1] * shape[2]].view(shape)
        return torch.bmm(left, right, out=place)


def _added(sums: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return torch.bmm(left, right) if sums is None else sums.baddbmm_(left, right)


def _cut(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _widened(x: Tensor, channel: Tensor | float) -> Tensor:
    """A copy with one more channel; one copy for each sample where the channel is its own."""
    size = len(channel) if isinstance(channel, Tensor) else len(x)
    wide = x.new_empty(size, *x.shape[1:-1], x.shape[-1] + 1)
    wide[..., :-1] = x
    wide[..., -1:] = channel
    return wide


def _largest(x: Tensor) -> float:
    """The largest length of a row."""
    return float(torch.linalg.vector_norm(x, dim=-1).max()) if x.numel() else 0.0


def _finite(x: Tensor) -> Tensor:
    return x.masked_fill(x == float("-inf"), 0.0)


def _parts(
    query: Tensor, pairs: Tensor, value: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of queries, keys and values with their heads apart."""
    inner = query.shape[-1]
    value = pairs[..., inner:] if value is None else value
    return _split(query, heads), _split(pairs[..., :inner], heads), _split(value, heads)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


attend, gradients = attention_operator("attend_blocks", _forward, _backward)
