"""What training minimises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from ipot.data.dataset import Dataset
from ipot.evaluation.metrics import relative_l2
from ipot.samples import Batch


@runtime_checkable
class Objective(Protocol):
    """An object and not a function, because some systems own parameters beside the model's.

    One that changes as training goes on may have a method `follow(count)` besides: it is given,
    once, the tensor on the device that holds the number of the step.
    """

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """Parameter groups of its own; most have none."""
        ...

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, as a mean over its samples. It must call `model(batch)`."""
        ...


class RelativeL2:
    """The paper's loss, which is also its metric."""

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """Nothing of its own."""
        return ()

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over samples of ‖prediction - target‖ / ‖target‖."""
        return relative_l2(model(batch), batch.truth, mask=batch.query_mask).mean()
