"""A step as one CUDA graph, and how to undo steps that were only tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

WARM_UP = 3
"""Steps that run before a capture, so that everything lazy has happened; they are undone."""


class Snapshot:
    """Tensors and an optimiser's state as they are now, to be put back in place: a captured graph
    holds the addresses."""

    def __init__(self, tensors: Iterable[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self.tensors, self.optimizer = [t.detach() for t in tensors], optimizer
        self.kept = [t.clone() for t in self.tensors]
        self.state = {
            p: {name: t.clone() for name, t in entries.items() if isinstance(t, Tensor)}
            for p, entries in optimizer.state.items()
        }

    def restore(self) -> None:
        """Put everything back. A state that was not there yet is all zeros, as it starts."""
        for tensor, kept in zip(self.tensors, self.kept, strict=True):
            tensor.copy_(kept)
        for p, entries in self.optimizer.state.items():
            for name, value in entries.items():
                if p in self.state:
                    value.copy_(self.state[p][name])
                else:
                    value.zero_()
        self.optimizer.zero_grad(set_to_none=True)


def capture(work: Callable[[], None], forget: Callable[[], None], pool: Any) -> Callable[[], None]:
    """Warm work up, capture it, and return what replays it; `forget` lets go of its gradients.

    Graphs of one pool share their memory: each must write all that it reads, and no two may run at
    once.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    forget()
    with torch.cuda.graph(graph, pool=pool):
        work()
    forget()
    return graph.replay
