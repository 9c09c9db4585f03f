"""A step of a solver as one launch.

A loop of many small kernels on a GPU waits for their launches. Captured as a CUDA graph, a step is
a single launch. It must read and write tensors that stay where they are, in place, and must not
look at a value on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def captured(
    step: Callable[[], None], state: Sequence[Tensor], *, rehearsals: int = 3
) -> Callable[[], None]:
    """The step as a graph where its state lies on a GPU, itself elsewhere.

    The plans and work space of libraries must exist before a capture, so the step is rehearsed;
    `state` is all that it changes, and is restored.
    """
    if not state[0].is_cuda:
        return step
    before = [tensor.clone() for tensor in state]
    with torch.cuda.device(state[0].device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(rehearsals):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    for tensor, value in zip(state, before, strict=True):
        tensor.copy_(value)
    return graph.replay
