"""The gradients of attention of some rows to themselves, in two parts that do not meet.

A block of queries goes over all keys, and a block of keys and values over all queries. Both compute
the weights anew, which is seven products where one part for all would have five: but then what a
query gets from a block of keys is a part of its gradient, to be written down and added up, and each
tile has to be turned round. That took longer (docs/speed.md).
"""

from __future__ import annotations

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cuda._attention_self import backward_kernel
from ipot.accelerate.cuda.programs import Tile, enough, padded


def tile_of(width: int) -> Tile:
    """By the padded width of a head. Measured on an H200 up to 32."""
    if width > 64:
        return Tile(64, 32, 4, 1)
    return Tile(64, 64, 4, 3)


def blocks_of(count: int, width: int) -> int:
    """Blocks of queries of a sample, for which there are sums; by the width of a head."""
    return triton.cdiv(count, _rows(count, padded(width)))


def self_gradients(
    gradient: Float[Tensor, "B Z i"],
    triples: Float[Tensor, "B Z i3"],
    out: Float[Tensor, "B Z i"],
    lse: Float[Tensor, "B H Z"],
    heads: int,
    sums: Float[Tensor, "S i"] | None = None,
) -> Float[Tensor, "B Z i3"]:
    """The gradient of queries, keys and values side by side. With `sums`, the sums of the gradients
    of queries over each of the B times `blocks_of` blocks are written there."""
    gradient, triples, out = (t.contiguous() for t in (gradient, triples, out))
    size, count, inner = gradient.shape
    width = inner // heads
    wide = padded(width)
    how, rows = tile_of(wide), _rows(count, wide)
    programs = size * heads * triton.cdiv(count, rows)
    found = torch.empty_like(triples)
    deltas = torch.empty_like(lse)
    # Together they fill a GPU; one after the other they do not compute twice what they share.
    apart = programs > 2 * enough(triples.device)
    for queries, pairs in ((True, False), (False, True)) if apart else ((True, True),):
        backward_kernel[(programs * (queries + pairs),)](
            *(triples, out, gradient, lse, deltas, found, deltas if sums is None else sums),
            *(count, width**-0.5),
            H=heads,
            E=width,
            PAD_E=wide,
            ROWS=rows,
            COLUMNS=min(how.columns, padded(count)),
            WHOLE=count % rows == 0 and count % min(how.columns, padded(count)) == 0,
            QUERIES=queries,
            PAIRS=pairs,
            SUMS=sums is not None,
            PRECISION="ieee" if triples.dtype == torch.float32 else "tf32",
            **how.options(),
        )
    return found


def _rows(count: int, width: int) -> int:
    return min(tile_of(width).rows, padded(count))
