"""When compiled kernels may be called: they read memory, and nobody else sees what they do."""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward
from torch import Tensor

from ipot.native.build import library


# The compiler takes the answer as it is: traced, it would break its graph.
@torch.compiler.assume_constant_result
def available() -> bool:
    """Whether there are kernels; the first question compiles them."""
    return library() is not None


def exact(*tensors: Tensor) -> bool:
    """The same, and products of them are not to be rounded."""
    return not torch.is_autocast_enabled("cpu") and readable(*tensors)


def readable(*tensors: Tensor) -> bool:
    """Whether tensors are float32 in this machine's memory, and operations on them are not being
    recorded or transformed by somebody who would miss what kernels do: a tracer, an export, a mode
    of torch's dispatcher, functions of `torch.func`, derivatives in forward mode."""
    if torch.compiler.is_compiling():
        watched = torch.compiler.is_exporting()
    else:
        watched = torch.jit.is_tracing() or bool(torch._C._len_torch_dispatch_stack())
        watched = watched or torch._C._functorch.peek_interpreter_stack() is not None
        watched = watched or forward._current_level >= 0
    if watched:
        return False
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
