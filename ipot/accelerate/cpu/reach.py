"""When compiled kernels may be called: they read memory, and nobody else sees what they do."""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward
from torch import Tensor

from ipot.accelerate.cpu.build import library, why_not_bf16

EXACT = (torch.float32,)
ROUNDED = (torch.float32, torch.bfloat16)
"""The kinds of numbers that kernels read, and those that they can be given to round."""


# The compiler takes the answer as it is: traced, it would break its graph.
@torch.compiler.assume_constant_result
def available() -> bool:
    """Whether there are kernels; the first question compiles them."""
    return library() is not None


def exact(*tensors: Tensor) -> bool:
    """The same, and products of them are not to be rounded."""
    return not torch.is_autocast_enabled("cpu") and readable(*tensors)


def rounds(*tensors: Tensor) -> bool:
    """Whether autocast asks for products of these in bf16, in which they may be already, and there
    are kernels for it. None of them is to be differentiated; a compiler goes its own ways."""
    if not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    if torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return readable(*tensors, kinds=ROUNDED) and why_not_bf16() is None


def served(*tensors: Tensor) -> bool:
    """Whether kernels compute products of float32 as they are asked for now: exactly, or rounded
    where nothing is differentiated."""
    return exact(*tensors) or (rounds(*tensors) and readable(*tensors))


def readable(*tensors: Tensor, kinds: tuple[torch.dtype, ...] = EXACT) -> bool:
    """Whether tensors are of some kinds (float32) in this machine's memory, and operations on them
    are not being recorded or transformed by somebody who would miss what kernels do: a tracer, an
    export, a mode of torch's dispatcher, functions of `torch.func`, derivatives in forward mode."""
    if torch.compiler.is_compiling():
        watched = torch.compiler.is_exporting()
    else:
        watched = torch.jit.is_tracing() or bool(torch._C._len_torch_dispatch_stack())
        watched = watched or torch._C._functorch.peek_interpreter_stack() is not None
        watched = watched or forward._current_level >= 0
    if watched:
        return False
    return all(t.dtype in kinds and t.device.type == "cpu" for t in tensors)
