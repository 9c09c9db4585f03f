"""What a block of attention does to each row by itself, before and after its attention:

project    LN(x) Wᵀ + b                                          one kernel; backward two
finish     s = x + o Woᵀ + bo
           [a, g] = LN(s) W1ᵀ + b1
           s + (a ⊙ gelu(g)) W2ᵀ + b2                            one kernel; backward three

Behind PyTorch these are the operators `ipot::norm_project` and `ipot::finish_block`. They take
their parameters packed in one tensor (`pack_projection`, `pack_finish`), so that the gradient is
one tensor as well: a block that is applied again and again is packed once, and its gradients add
up in one operation instead of twelve. Products are of the type of `o` or of the projection (bf16;
float32 is exact, for comparisons, and slow), sums and the residual stream are float32. Gradients
are deterministic. The plain version is `ipot.nn.attention.AttentionBlock`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cuda import plainly, rows_launch
from ipot.accelerate.cuda.rows_layout import TUNING, supports

__all__ = [
    "TUNING",
    "finish_block",
    "joined",
    "norm_project",
    "pack_finish",
    "pack_projection",
    "supports",
]


def pack_projection(
    gamma: Float[Tensor, " d"],
    beta: Float[Tensor, " d"],
    *weights: Float[Tensor, "_ d"],
    bias: Float[Tensor, " p"] | None = None,
) -> Float[Tensor, " n"]:
    """The parameters of a LayerNorm and of the projections after it, one below the other."""
    return joined([*weights, *([] if bias is None else [bias]), gamma, beta])


def pack_finish(
    out_weight: Float[Tensor, "d i"],
    out_bias: Float[Tensor, " d"],
    gamma: Float[Tensor, " d"],
    beta: Float[Tensor, " d"],
    into_weight: Float[Tensor, "f2 d"],
    into_bias: Float[Tensor, " f2"],
    weight: Float[Tensor, "d f"],
    bias: Float[Tensor, " d"],
) -> Float[Tensor, " n"]:
    """The parameters after an attention: its output projection, LayerNorm and feed-forward."""
    return joined([into_weight, into_bias, weight, bias, out_weight, out_bias, gamma, beta])


def joined(parts: list[Tensor]) -> Float[Tensor, " n"]:
    """All numbers of some tensors, one after the other. A compiler would make a kernel for each of
    the tensors; torch has one for all."""
    parts = [part.flatten() for part in parts]
    return torch.ops.ipot.join(parts) if torch.compiler.is_compiling() else torch.cat(parts)


def norm_project(
    x: Float[Tensor, "R d"],
    packed: Float[Tensor, " n"],
    columns: int,
    dtype: torch.dtype = torch.bfloat16,
    rounded: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, "R p"]:
    """LN(x) Wᵀ + b, in `dtype`, with the parameters of `pack_projection`; p is `columns`.

    `rounded` has the same parameters in `dtype` already, if they serve more than once: half as
    much to load. The gradient goes to `packed` all the same, unrounded.
    """
    weights = packed.detach() if rounded is None else rounded.detach()
    call = rows_launch.project if plainly() else torch.ops.ipot.norm_project
    return call(x, packed, weights, columns, dtype)


def finish_block(
    x: Float[Tensor, "Z d"],
    o: Float[Tensor, "R i"],
    packed: Float[Tensor, " n"],
    rounded: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, "R d"]:
    """All of a block after its attention, with the parameters of `pack_finish`.

    x may have fewer rows than o: they serve again and again, row r of o meets row r mod Z of x.
    `rounded` as for `norm_project`.
    """
    weights = packed.detach() if rounded is None else rounded.detach()
    call = rows_launch.finish if plainly() else torch.ops.ipot.finish_block
    return call(x, o, packed, weights)


_join = torch.library.custom_op(
    "ipot::join", torch.cat, mutates_args=(), schema="(Tensor[] parts) -> Tensor"
)
_project = torch.library.custom_op(
    "ipot::norm_project",
    rows_launch.project,
    mutates_args=(),
    schema="(Tensor x, Tensor packed, Tensor weights, int columns, ScalarType dtype) -> Tensor",
)
_project_back = torch.library.custom_op(
    "ipot::norm_project_backward",
    rows_launch.project_back,
    mutates_args=(),
    schema="(Tensor x, Tensor packed, Tensor weights, Tensor grad) -> (Tensor, Tensor)",
)
_finish = torch.library.custom_op(
    "ipot::finish_block",
    rows_launch.finish,
    mutates_args=(),
    schema="(Tensor x, Tensor o, Tensor packed, Tensor weights) -> Tensor",
)
_finish_back = torch.library.custom_op(
    "ipot::finish_block_backward",
    rows_launch.finish_back,
    mutates_args=(),
    schema="(Tensor x, Tensor o, Tensor packed, Tensor weights, Tensor grad)"
    " -> (Tensor, Tensor, Tensor)",
)


# What a compiler is told: shapes and types, without the numbers.
@_join.register_fake
def _(parts):
    return parts[0].new_empty(sum(part.shape[0] for part in parts))


@_project.register_fake
def _(x, packed, weights, columns, dtype):
    return x.new_empty((x.shape[0], columns), dtype=dtype)


@_project_back.register_fake
def _(x, packed, weights, grad):
    return x.new_empty(x.shape), packed.new_empty(packed.shape)


@_finish.register_fake
def _(x, o, packed, weights):
    return x.new_empty((o.shape[0], x.shape[1]), dtype=torch.float32)


@_finish_back.register_fake
def _(x, o, packed, weights, grad):
    return x.new_empty(x.shape), o.new_empty(o.shape), packed.new_empty(packed.shape)


def _keep_sizes(ctx, inputs, output) -> None:
    ctx.sizes = [part.shape[0] for part in inputs[0]]


def _backward_join(ctx, grad):
    return list(grad.split(ctx.sizes))


def _keep_projection(ctx, inputs, output) -> None:
    x, packed, weights, _, _ = inputs
    ctx.save_for_backward(x, packed, weights)


def _backward_projection(ctx, grad):
    dx, gradient = torch.ops.ipot.norm_project_backward(*ctx.saved_tensors, grad)
    return dx, gradient, None, None, None


def _keep_finish(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward_finish(ctx, grad):
    return *torch.ops.ipot.finish_block_backward(*ctx.saved_tensors, grad), None


_join.register_autograd(_backward_join, setup_context=_keep_sizes)
_project.register_autograd(_backward_projection, setup_context=_keep_projection)
_finish.register_autograd(_backward_finish, setup_context=_keep_finish)
