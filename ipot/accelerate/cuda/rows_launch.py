"""The kernels of `ipot.accelerate.cuda.rows` on tensors: what is allocated, and the grids."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from ipot.accelerate.cuda import rows_backward, rows_forward, rows_many
from ipot.accelerate.cuda.rows_layout import (
    Launch,
    by_library,
    check_finish,
    check_projection,
    depth,
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
        rows_forward.project[(triton.cdiv(rows, how.rows), columns // step)](
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
            **how.options(),
        )
    return out


def project_back(x: Tensor, packed: Tensor, weights: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the packed parameters."""
    check_projection(x, packed, weights, grad.shape[1], grad.dtype)
    x, packed, weights, grad = (t.contiguous() for t in (x, packed, weights, grad))
    dx, sums = torch.empty_like(x), norm_table(x)
    with torch.cuda.device_of(x):
        shares = launch_project_back(x, packed, weights, grad, Rowwise(dx, sums))
        return dx, add_shares(shares, sums, packed)


class Rowwise(NamedTuple):
    """What becomes of the rows in a projection's backward pass."""

    dx: Tensor
    """Where their gradients go."""
    sums: Tensor
    """Where the sums of the norm's gradients go, see `norm_table`."""
    past: Tensor | None = None
    """What is added: what comes to the rows past the projection,"""
    more: Tensor | None = None
    """and from elsewhere."""


def norm_table(x: Tensor) -> Tensor:
    """A place for the sums that `launch_project_back` makes of these rows."""
    rows, width = x.shape
    return _table(x, triton.cdiv(rows, tuning(width, rows).project_back.rows), 2 * width)


def launch_project_back(
    x: Tensor,
    packed: Tensor,
    weights: Tensor,
    grad: Tensor,
    rowwise: Rowwise | None,
    *,
    how: Launch | None = None,
    weigh: bool = True,
) -> Tensor:
    """The gradients of rows, if there is a place for them, and, if told so, of the weight: the
    shares of it that are returned are which `add_shares` adds up."""
    (rows, width), columns = x.shape, grad.shape[1]
    how = how or tuning(width, rows).project_back
    step = share(columns, how.columns)
    blocks = triton.cdiv(rows, how.rows) if rowwise else 0
    parts, length = stretches(rows, columns // step, how.rows) if weigh else (0, 0)
    shares = _table(x, parts, packed.numel() - 2 * width)
    dx, sums, past, more = rowwise or (x, x, None, None)
    rows_backward.project_back[(blocks + parts * (columns // step),)](
        *(x, packed, weights, grad, past, more, dx, shares, sums),
        *(rows, blocks, length),
        P=columns,
        D=width,
        BIAS=packed.numel() > (columns + 2) * width,
        PAST=past is not None,
        MORE=more is not None,
        ROWS=how.rows,
        COLUMNS=step,
        **how.options(),
    )
    return shares


def finish(
    x: Tensor, o: Tensor, packed: Tensor, weights: Tensor, out: Tensor | None = None
) -> Tensor:
    """All of a block after its attention."""
    hidden = check_finish(x, o, packed, weights)
    x, o, packed, weights = (t.contiguous() for t in (x, o, packed, weights))
    (rows, inner), (again, width) = o.shape, x.shape
    how = tuning(width, rows).finish
    if out is None:
        out = x.new_empty((rows, width), dtype=torch.float32)
    with torch.cuda.device_of(x):
        rows_forward.finish[(triton.cdiv(rows, how.rows),)](
            *(x, o, packed, weights, out),
            *(out, out, out, out),  # nothing is kept
            *(rows, again),
            **finish_sizes(how, width, hidden, inner),
            KEEP=False,
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
        columns = finish_sizes(tuning(width, rows).finish, width, hidden, inner)["COLUMNS"]
        dx, do, gradient = rows_many.finish_back_by_library(
            x, o, packed, weights, grad, hidden, columns
        )
        return _once(dx, again), do, gradient
    do, how = torch.empty_like(o), tuning(width, rows)
    behind = Behind.empty(x, o, hidden, rows)
    with torch.cuda.device_of(x):
        launch_finish_back(x, o, packed, weights, grad, do, behind)
        shares = weight_shares(how.products, behind, grad, o)
        gradient = add_shares(shares, behind.sums, packed)
    return _once(behind.dx, again), do, gradient


class Behind(NamedTuple):
    """What the rows after an attention leave in their backward pass, for the gradients of weights;
    with an axis in front for several applications."""

    dx: Tensor
    normed: Tensor
    dgates: Tensor
    units: Tensor
    sums: Tensor

    @classmethod
    def empty(cls, x: Tensor, o: Tensor, hidden: int, rows: int, *many: int) -> Behind:
        """Places for it all."""
        width = x.shape[1]
        blocks = triton.cdiv(rows, tuning(width, rows).finish_back.rows)
        return cls(
            dx=x.new_empty((*many, rows, width)),
            normed=o.new_empty((*many, rows, width)),
            dgates=o.new_empty((*many, rows, 2 * hidden)),
            units=o.new_empty((*many, rows, hidden)),
            sums=x.new_empty((*many, blocks, 2 * width), dtype=torch.float32),
        )

    def of(self, index: int) -> Behind:
        """One application's."""
        return Behind(*(tensor[index] for tensor in self))

    def flat(self) -> Behind:
        """The rows of all applications, one below the other."""
        return Behind(*(tensor.flatten(0, 1) for tensor in self))


def launch_finish_back(
    x: Tensor,
    o: Tensor,
    packed: Tensor,
    weights: Tensor,
    grad: Tensor,
    do: Tensor,
    behind: Behind,
) -> None:
    """The gradients that have rows."""
    (rows, inner), (again, width) = o.shape, x.shape
    how = tuning(width, rows).finish_back
    dx, normed, dgates, units, sums = behind
    rows_backward.finish_back[(triton.cdiv(rows, how.rows),)](
        *(x, o, packed, weights, grad, dx, do, normed, dgates, units, sums),
        *(rows, again),
        **finish_sizes(how, width, units.shape[1], inner),
        LEAN=how.lean,
    )


def _once(dx: Tensor, again: int) -> Tensor:
    """The gradients of rows that served again and again, added up."""
    return dx if again == len(dx) else dx.view(-1, again, dx.shape[1]).sum(0)


def finish_sizes(how: Launch, width: int, hidden: int, inner: int) -> dict[str, int]:
    """What the kernels after an attention are compiled for."""
    return {
        "D": width,
        "F": hidden,
        "INNER": inner,
        "ROWS": how.rows,
        # At least two pieces: backward would keep a single one in registers from end to end.
        "COLUMNS": share(inner, min(how.inner, max(16, inner // 2))),
        "HIDDEN": share(hidden, how.columns),
        **how.options(),
    }


def weight_shares(how: Launch, behind: Behind, grad: Tensor, o: Tensor) -> Tensor:
    """Shares of the gradients of the weights after an attention, which `add_shares` adds up."""
    dx, normed, dgates, units, _ = behind
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
        **how.options(),
    )
    return shares


def add_shares(shares: Tensor, sums: Tensor, packed: Tensor) -> Tensor:
    """The gradient of packed parameters."""
    out = torch.empty_like(packed)
    # The sums of the LayerNorm have few columns and many rows: few columns a program, many rows.
    total, norm, columns, few = shares.shape[1], sums.shape[1], 128, 8
    rows_backward.add_shares[(triton.cdiv(total, columns) + triton.cdiv(norm, few),)](
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
