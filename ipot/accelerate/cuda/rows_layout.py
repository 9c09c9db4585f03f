"""How the kernels of `rows` are laid out: which sizes they are made for, and blocks, warps and
stages for each, in one table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ipot.accelerate.cuda.programs import Tile
from ipot.errors import Unsupported

EPS = 1e-5
"""Of the norms."""
KINDS = (torch.bfloat16, torch.float32)
PROGRAMS = 264
"""Programs that keep a large GPU busy: two for each of its processors."""
LEAST = 128
"""Rows that a share of a weight's gradient is worth writing for."""
MANY = 8192
"""From here on there are rows enough for larger blocks of them."""

NEVER = 1 << 62
VERY_MANY = {64: 20480, 128: 8192, 256: 0}
"""By width: from here on the library's products are worth writing the hidden layer down for (H200:
0.30 against 0.39 ms at 51,200 rows of 128). At 256 that is reckoned and not measured by itself: two
blocks of 1,210 rows took our kernels 0.46 ms."""


@dataclass(frozen=True)
class Launch(Tile):
    """A tile whose columns are those of a projection, or channels of the hidden layer."""

    inner: int = 64
    """Channels of the attention at a time, after it."""
    lean: bool = False
    """Compute some of it twice, to have registers for more rows."""


@dataclass(frozen=True)
class Tuning:
    """The layouts of all kernels for one width; `products` has tiles of `columns` squared."""

    project: Launch
    project_back: Launch
    finish: Launch
    finish_back: Launch
    products: Launch


_NARROW = Tuning(
    project=Launch(32, 64),
    project_back=Launch(32, 64),
    finish=Launch(32, 32),
    finish_back=Launch(32, 32),
    products=Launch(64, 64),
)

# By width, and whether there are MANY rows. 64 and 128 were chosen by measurement on an H200, the
# others so that nothing spills registers on sm_90 (bf16).
TUNING: dict[tuple[int, bool], Tuning] = {
    (16, False): _NARROW,
    (16, True): _NARROW,
    (32, False): _NARROW,
    (32, True): _NARROW,
    (64, False): Tuning(
        project=Launch(64, 128),
        project_back=Launch(32, 64),
        finish=Launch(32, 64),
        finish_back=Launch(32, 64),
        products=Launch(64, 128),
    ),
    (64, True): Tuning(
        project=Launch(64, 64),
        project_back=Launch(64, 64),
        finish=Launch(64, 64),
        finish_back=Launch(64, 32, warps=8),
        products=Launch(64, 64),
    ),
    (128, False): Tuning(
        project=Launch(64, 128),
        project_back=Launch(32, 64),
        finish=Launch(64, 64),
        finish_back=Launch(16, 32),
        products=Launch(64, 64),
    ),
    (128, True): Tuning(
        project=Launch(64, 128, warps=8),
        project_back=Launch(32, 64),
        finish=Launch(64, 64),
        finish_back=Launch(128, 32, warps=8, lean=True),
        products=Launch(64, 128, warps=8),
    ),
    (256, False): Tuning(
        project=Launch(32, 64, warps=8),
        project_back=Launch(32, 32, warps=8),
        finish=Launch(32, 32, warps=8),
        finish_back=Launch(32, 16, warps=8),
        products=Launch(64, 64),
    ),
    (256, True): Tuning(
        project=Launch(64, 64, warps=8),
        project_back=Launch(32, 32, warps=8),
        finish=Launch(32, 32, warps=8),
        finish_back=Launch(32, 16, warps=8),
        products=Launch(64, 128, warps=8),
    ),
}


def supports(width: int, *others: int) -> bool:
    """Whether the kernels are made for these sizes: the width of the rows, and the channels of
    projection, attention or hidden layer. Where not, the plain version does the same."""
    return (width, False) in TUNING and all(n > 0 and n % 16 == 0 for n in others)


def tuning(width: int, rows: int) -> Tuning:
    """The layouts for so many rows of a width."""
    return TUNING[width, rows >= MANY]


def by_library(width: int, rows: int) -> bool:
    """Whether the backward pass after an attention is products by the library (`rows_many`)."""
    return rows >= VERY_MANY.get(width, NEVER)


def share(channels: int, most: int) -> int:
    """The largest power of two up to `most` that divides them."""
    return min(channels & -channels, most)


def depth(rows: int, most: int = 32) -> int:
    """Rows of a table to add up at a time."""
    return min(most, 1 << max(rows - 1, 0).bit_length())


def stretches(rows: int, tiles: int, block: int) -> tuple[int, int]:
    """How many stretches of rows the gradient of a weight of so many tiles is summed in, and their
    length in whole blocks. As many as keep a GPU busy, and none too short to be worth its share."""
    many = max(1, min(triton.cdiv(PROGRAMS, tiles), rows // LEAST))
    length = triton.cdiv(triton.cdiv(rows, many), block) * block
    return max(1, triton.cdiv(rows, max(length, block))), max(length, block)


def views_of_finish(
    packed: Tensor, width: int, hidden: int, inner: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The three weights among packed parameters, as views."""
    into, weight = 2 * hidden * width, width * hidden
    second, third = into + 2 * hidden, into + 2 * hidden + weight + width
    return (
        packed[:into].view(2 * hidden, width),
        packed[second : second + weight].view(width, hidden),
        packed[third : third + width * inner].view(width, inner),
    )


def transposed_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """aᵀ b, summed over rows in float32 and not rounded."""
    if a.is_cuda and a.dtype != torch.float32:
        torch.mm(a.T, b, out_dtype=torch.float32, out=out)
    else:
        torch.mm(a.T.float(), b.float(), out=out)


def check_projection(
    x: Tensor, packed: Tensor, weights: Tensor, columns: int, dtype: torch.dtype
) -> bool:
    """Whether the packed parameters have a bias; refuses what the kernels are not made for."""
    _check(x.shape[1], (columns,), dtype, x, packed, weights)
    least = (columns + 2) * x.shape[1]
    if packed.numel() not in (least, least + columns):
        raise Unsupported(
            f"{packed.numel()} packed parameters are no LayerNorm of {x.shape[1]} channels and "
            f"projection to {columns}: pack them with rows.pack_projection"
        )
    return packed.numel() > least


def check_finish(x: Tensor, o: Tensor, packed: Tensor, weights: Tensor) -> int:
    """The channels of the hidden layer; refuses what the kernels are not made for."""
    (rows, inner), (again, width) = o.shape, x.shape
    hidden, rest = divmod(packed.numel() - width * (inner + 4), 3 * width + 2)
    if rest or hidden < 1:
        raise Unsupported(
            f"{packed.numel()} packed parameters do not fit {width} channels after an attention "
            f"of {inner}: pack them with rows.pack_finish"
        )
    _check(width, (inner, hidden), o.dtype, x, packed, weights)
    if again == 0 or rows % again:
        raise Unsupported(f"{again} rows cannot serve {rows} again and again: take a divisor")
    return hidden


def _check(
    width: int,
    others: tuple[int, ...],
    dtype: torch.dtype,
    x: Tensor,
    packed: Tensor,
    weights: Tensor,
) -> None:
    if not supports(width, *others):
        raise Unsupported(
            f"no kernel for rows of {width} channels with {', '.join(map(str, others))} beside: "
            "the width is a power of two from 16 to 256, the others are multiples of 16; ask "
            "rows.supports, and take the plain version of ipot.nn.attention where it says no"
        )
    for kind in (dtype, x.dtype, packed.dtype, weights.dtype):
        if kind not in KINDS:
            raise Unsupported(f"kernels of rows take bfloat16 and float32, not {kind}: cast it")
    if weights.shape != packed.shape:
        raise Unsupported(
            f"{weights.numel()} rounded parameters beside {packed.numel()}: round the same ones"
        )
