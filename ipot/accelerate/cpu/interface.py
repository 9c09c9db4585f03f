"""How the compiled library is called: which tensors it may read, and in which structures.

Kernels read memory, and torch does not see what they do: `readable` and its kin say when that is
allowed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ipot.accelerate.cpu.build import library, why_not_bf16
from ipot.errors import Unsupported

GRAIN = 1 << 20
"""Multiplications that are worth a thread: some ten microseconds of one."""


class Rows(ctypes.Structure):
    """Rows of several samples: their channels lie side by side, rows and samples anywhere."""

    _fields_ = (("data", ctypes.c_void_p), ("sample", ctypes.c_long), ("row", ctypes.c_long))


class Problem(ctypes.Structure):
    """Attention, as `attend.cpp` has it."""

    _fields_ = (
        *((name, Rows) for name in ("query", "key", "value")),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("samples", "query_samples", "heads", "queries")),
        *((name, ctypes.c_long) for name in ("keys", "width", "value_width")),
        ("scale", ctypes.c_float),
        ("threads", ctypes.c_int),
    )


class Mesh(ctypes.Structure):
    """Attention over a shared mesh, as `mesh.cpp` has it."""

    _fields_ = (
        *((name, Rows) for name in ("query", "key", "value")),
        *((name, ctypes.c_void_p) for name in ("slope", "factor", "extra")),
        *((name, ctypes.c_long) for name in ("samples", "heads", "queries", "keys")),
        *((name, ctypes.c_long) for name in ("width", "value_width", "extras")),
        ("scale", ctypes.c_float),
        ("threads", ctypes.c_int),
    )


class Features(ctypes.Structure):
    """Points and what their features are made with, as `project.cpp` has it."""

    _fields_ = (
        ("points", Rows),
        *((name, ctypes.c_void_p) for name in ("centre", "radius", "matrix", "raw")),
        *((name, ctypes.c_long) for name in ("samples", "count", "dimensions", "phases", "raws")),
        ("threads", ctypes.c_int),
    )


class Projection(ctypes.Structure):
    """What features are multiplied by, as `project.cpp` has it."""

    _fields_ = (
        ("values", Rows),
        *((name, ctypes.c_void_p) for name in ("weight", "offset")),
        *((name, ctypes.c_long) for name in ("value_width", "columns")),
        ("epsilon", ctypes.c_float),
    )


class Layer(ctypes.Structure):
    """A linear layer, inputs by outputs, as `block.cpp` has it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        *((name, ctypes.c_long) for name in ("inputs", "outputs")),
    )


class Linear(ctypes.Structure):
    """A linear layer as torch has it and the norm before it, as `half_layers.h` reads them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "scale", "shift")),
        *((name, ctypes.c_long) for name in ("row", "inputs", "outputs")),
    )


class Tokens(ctypes.Structure):
    """Attention over tokens that share a mesh, as `half_mesh.cpp` has it."""

    _fields_ = (
        *((name, Rows) for name in ("query", "key", "value", "channels")),
        ("sums", ctypes.c_void_p),
        ("layer", Linear),
        *((name, ctypes.c_long) for name in ("samples", "heads", "queries", "keys")),
        *((name, ctypes.c_long) for name in ("width", "value_width", "own")),
        *((name, ctypes.c_float) for name in ("scale", "epsilon")),
        ("threads", ctypes.c_int),
    )


def rows(x: Tensor) -> Rows:
    """A tensor (B, N, C) whose channels lie side by side, which must live as long."""
    return Rows(pointer(x), x.stride(0), x.stride(1))


def pointer(x: Tensor) -> int:
    """The address of a tensor of float32 in memory; others are refused."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise Unsupported(
            f"compiled kernels are for float32 on a CPU, not for {x.dtype} on {x.device}: leave "
            'the choice to attention="auto"'
        )
    return x.data_ptr()


def dense(x: Tensor) -> Tensor:
    """The tensor with its channels side by side, copied if they are not."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def address(x: Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor lies."""
    return ctypes.c_void_p(pointer(x))


def differentiable_gradients(
    formula: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor | None],
    gradients: Tensor | tuple[Tensor, ...],
) -> list[Tensor | None]:
    """The gradients of a formula of some inputs, to be differentiated once more."""
    # Tensors of their own: one input may have been made from another.
    own = [None if t is None else t.view_as(t) for t in inputs]
    asked = [t for t in own if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(formula(*own), asked, gradients, create_graph=True))
    return [next(found) if t is not None and t.requires_grad else None for t in own]


Attend = Callable[..., tuple[Tensor, Tensor]]
Gradients = Callable[..., tuple[Tensor, Tensor]]


def attention_operator(
    name: str,
    forward: Attend,
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]],
    formula: Callable[..., Tensor] | None = None,
) -> tuple[Attend, Gradients]:
    """Attention that torch can differentiate and compile, from its two passes; and the gradients of
    a chunk of its keys and values, for callers that have many.

    `forward` takes queries, pairs, values, mask and heads; `backward` the gradient of the answer,
    then those tensors, both answers and the heads. `formula`, of what `forward` takes, is for
    derivatives of derivatives.
    """
    operator = _registered(name, forward, backward, formula)

    def attend(
        query: Tensor,
        pairs: Tensor,
        value: Tensor | None,
        heads: int,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Queries (Bq, M, H e), keys and after them values (B, N, H (e + f)) to (B, M, H f), and
        the logarithm of the sum of the weights (B, H, M).

        Where there is a `value`, `pairs` are keys alone. A query with a leading 1 serves the whole
        batch. Without a real key the answer is 0, its logarithm minus infinity.
        """
        tensors = (query, pairs) if value is None else (query, pairs, value)
        trained = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        way = operator if trained or torch.compiler.is_compiling() else forward
        return way(query, pairs, value, mask, heads)

    def gradients(
        gradient: Tensor,
        query: Tensor,
        pairs: Tensor,
        mask: Tensor | None,
        out: Tensor,
        lse: Tensor,
        heads: int,
    ) -> tuple[Tensor, Tensor]:
        """The gradients of queries and of some of the pairs, where `out` and `lse` are those of
        all."""
        return backward(gradient, query, pairs, None, mask, out, lse, heads)[:2]

    return attend, gradients


def _registered(
    name: str,
    forward: Attend,
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]],
    formula: Callable[..., Tensor] | None,
) -> Attend:
    """The operator of torch that `attention_operator` is made of."""
    operator = torch.library.custom_op(f"ipot::{name}", forward, mutates_args=())
    differentiated = torch.library.custom_op(f"ipot::{name}_backward", backward, mutates_args=())

    @operator.register_fake
    def _(query, pairs, value, mask, heads):
        width = pairs.shape[-1] - query.shape[-1] if value is None else value.shape[-1]
        out = pairs.new_empty(pairs.shape[0], query.shape[1], width)
        return out, pairs.new_empty(pairs.shape[0], heads, query.shape[1])

    @differentiated.register_fake
    def _(gradient, query, pairs, value, mask, out, lse, heads):
        rest = pairs.new_empty(0 if value is None else value.shape)
        return query.new_empty(query.shape), pairs.new_empty(pairs.shape), rest

    def keep(ctx, inputs, output) -> None:
        query, pairs, value, mask, heads = inputs
        ctx.save_for_backward(query, pairs, value, mask, *output)
        ctx.heads = heads
        ctx.mark_non_differentiable(output[1])

    def differentiate(ctx, gradient, _):
        query, pairs, value, mask, out, lse = ctx.saved_tensors
        if formula is not None and torch.is_grad_enabled():  # their derivatives are wanted too
            again = differentiable_gradients(
                lambda q, p, v: formula(q, p, v, mask, ctx.heads), (query, pairs, value), gradient
            )
            return *again, None, None
        dq, dp, dv = differentiated(gradient, query, pairs, value, mask, out, lse, ctx.heads)
        return dq, dp, None if value is None else dv, None, None

    operator.register_autograd(differentiate, setup_context=keep)
    return operator


def threads(work: int) -> int:
    """How many share so many multiplications: as torch has, but fewer where there are few. Others
    may want the cores, and to meet at the end of a task takes as long as thousands of them."""
    return max(1, min(torch.get_num_threads(), work // GRAIN))


EXACT = (torch.float32,)
ROUNDED = (torch.float32, torch.bfloat16)
"""The types of numbers that kernels read, and those that they can be given to round."""


# The compiler takes the answer as it is: traced, it would break its graph.
@torch.compiler.assume_constant_result
def available() -> bool:
    """True if there are kernels; the first call compiles them."""
    return library() is not None


def exact(*tensors: Tensor) -> bool:
    """True if kernels may read these tensors and products of them are not to be rounded."""
    return not torch.is_autocast_enabled("cpu") and readable(*tensors)


def rounds(*tensors: Tensor) -> bool:
    """True if autocast asks for products of these in bf16 (which they may be already), and there
    are kernels for it. None of them is to be differentiated; a compiler makes its own kernels."""
    if not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    if torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return readable(*tensors, kinds=ROUNDED) and why_not_bf16() is None


def served(*tensors: Tensor) -> bool:
    """True if kernels compute products of float32 as autocast asks for them now: exactly, or
    rounded where nothing is differentiated."""
    return exact(*tensors) or (rounds(*tensors) and readable(*tensors))


def readable(*tensors: Tensor, kinds: tuple[torch.dtype, ...] = EXACT) -> bool:
    """True if tensors are of some types (float32) in this machine's memory, and operations on them
    are not being recorded or transformed by somebody who would miss what kernels do: a tracer, an
    export, a mode of torch's dispatcher, functions of `torch.func`, derivatives in forward mode."""
    if torch.compiler.is_compiling():
        watched = torch.compiler.is_exporting()
    else:
        watched = torch.jit.is_tracing() or bool(torch._C._len_torch_dispatch_stack())
        watched = watched or torch._C._functorch.peek_interpreter_stack() is not None
        watched = watched or forward_ad._current_level >= 0
    if watched:
        return False
    return all(t.dtype in kinds and t.device.type == "cpu" for t in tensors)
