"""The kernels of `ipot.kernels.rows` on tensors: what is allocated, and the grids."""

from __future__ import annotations

import torch
from torch import Tensor

from ipot.kernels import rows_backward, rows_forward, rows_many
from ipot.kernels.rows_layout import (
    Launch,
    by_library,
    check_finish,
    check_projection,
    depth,
    pieces,
    share,
    stretches,
    tuning,
)


def project(x: Tensor, packed: Tensor, weights: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """LN(x) Wᵀ + b."""
    biased = check_projection(x, packed, weights, columns, dtype)
    x, packed, weights = (t.contiguous() for t in (x, packed, weights))
    rows, width = x.shape
    how = tuning(width, rows).project
    step = share(columns, how.columns)
    out = x.new_empty((rows, columns), dtype=dtype)
    with torch.cuda.device_of(x):
        rows_forward.project[(pieces(rows, how.rows), columns // step)](
            x,
            packed,
            weights,
            out,
            rows,
            P=columns,
            D=width,
            BIAS=biased,
            ROWS=how.rows,
            COLUMNS=step,
            **_options(how),
        )
    return out


def project_back(x: Tensor, packed: Tensor, weights: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the packed parameters."""
    columns = grad.shape[1]
    biased = check_projection(x, packed, weights, columns, grad.dtype)
    x, packed, weights, grad = (t.contiguous() for t in (x, packed, weights, grad))
    rows, width = x.shape
    how = tuning(width, rows).project_back
    step = share(columns, how.columns)
    blocks = pieces(rows, how.rows)
    parts, length = stretches(rows, columns // step, how.rows)
    dx = torch.empty_like(x)
    shares = _table(x, parts, packed.numel() - 2 * width)
    sums = _table(x, blocks, 2 * width)
    with torch.cuda.device_of(x):
        rows_backward.project_back[(blocks + parts * (columns // step),)](
            x,
            packed,
            weights,
            grad,
            dx,
            shares,
            sums,
            rows,
            blocks,
            length,
            P=columns,
            D=width,
            BIAS=biased,
            ROWS=how.rows,
            COLUMNS=step,
            **_options(how),
        )
        return dx, _fold(shares, sums, packed)


def finish(x: Tensor, o: Tensor, packed: Tensor, weights: Tensor) -> Tensor:
    """All of a block behind its attention."""
    hidden = check_finish(x, o, packed, weights)
    x, o, packed, weights = (t.contiguous() for t in (x, o, packed, weights))
    (rows, inner), (again, width) = o.shape, x.shape
    how = tuning(width, rows).finish
    out = x.new_empty((rows, width), dtype=torch.float32)
    with torch.cuda.device_of(x):
        rows_forward.finish[(pieces(rows, how.rows),)](
            x, o, packed, weights, out, rows, again, **_sizes(how, width, hidden, inner)
        )
    return out


def finish_back(
    x: Tensor, o: Tensor, packed: Tensor, weights: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of o and of the packed parameters."""
    hidden = check_finish(x, o, packed, weights)
    x, o, packed, weights, grad = (t.contiguous() for t in (x, o, packed, weights, grad))
    (rows, inner), (again, width) = o.shape, x.shape
    if by_library(width, rows):
        columns = _sizes(tuning(width, rows).finish, width, hidden, inner)["COLUMNS"]
        dx, do, gradient = rows_many.finish_back(x, o, packed, weights, grad, hidden, columns)
        return _once(dx, again), do, gradient
    how = tuning(width, rows)
    blocks = pieces(rows, how.finish_back.rows)
    dx, do = x.new_empty((rows, width)), torch.empty_like(o)
    normed, dgates, units = (o.new_empty((rows, n)) for n in (width, 2 * hidden, hidden))
    sums = _table(x, blocks, 2 * width)
    sizes = _sizes(how.finish_back, width, hidden, inner) | {"LEAN": how.finish_back.lean}
    with torch.cuda.device_of(x):
        rows_backward.finish_back[(blocks,)](
            x, o, packed, weights, grad, dx, do, normed, dgates, units, sums, rows, again, **sizes
        )
        shares = _products(how.products, dgates, normed, grad, units, dx, o)
        gradient = _fold(shares, sums, packed)
    return _once(dx, again), do, gradient


def _once(dx: Tensor, again: int) -> Tensor:
    """The gradients of rows that served again and again, added up."""
    return dx if again == len(dx) else dx.view(-1, again, dx.shape[1]).sum(0)


def _sizes(how: Launch, width: int, hidden: int, inner: int) -> dict[str, int]:
    return {
        "D": width,
        "F": hidden,
        "INNER": inner,
        "ROWS": how.rows,
        # At least two pieces: backward would keep a single one in registers from end to end.
        "COLUMNS": share(inner, min(how.inner, max(16, inner // 2))),
        "HIDDEN": share(hidden, how.columns),
        **_options(how),
    }


def _options(how: Launch) -> dict[str, int]:
    return {"num_warps": how.warps, "num_stages": how.stages}


def _products(
    how: Launch,
    dgates: Tensor,
    normed: Tensor,
    grad: Tensor,
    units: Tensor,
    dx: Tensor,
    o: Tensor,
) -> Tensor:
    rows, width = normed.shape
    hidden, inner = units.shape[1], o.shape[1]
    gate, channel, unit, column = (
        share(n, how.columns) for n in (2 * hidden, width, hidden, inner)
    )
    tiles = (width // channel) * (2 * hidden // gate + hidden // unit + inner // column)
    parts, length = stretches(rows, tiles, how.rows)
    shares = _table(o, parts, 2 * hidden * (width + 1) + width * (hidden + inner + 2))
    rows_backward.finish_products[(parts * tiles,)](
        dgates,
        normed,
        grad,
        units,
        dx,
        o,
        shares,
        rows,
        length,
        D=width,
        F=hidden,
        INNER=inner,
        ROWS=how.rows,
        GATES=gate,
        CHANNELS=channel,
        HIDDEN=unit,
        COLUMNS=column,
        **_options(how),
    )
    return shares


def _fold(shares: Tensor, sums: Tensor, packed: Tensor) -> Tensor:
    out = torch.empty_like(packed)
    # The sums of the LayerNorm have few columns and many rows: few columns a program, many rows.
    total, norm, columns, few = shares.shape[1], sums.shape[1], 128, 8
    rows_backward.fold[(pieces(total, columns) + pieces(norm, few),)](
        shares,
        sums,
        out,
        len(shares),
        len(sums),
        TOTAL=total,
        NORM=norm,
        PARTS=depth(len(shares)),
        BLOCKS=depth(len(sums), 256),
        COLUMNS=columns,
        FEW=few,
    )
    return out


def _table(like: Tensor, rows: int, columns: int) -> Tensor:
    return like.new_empty((rows, columns), dtype=torch.float32)
