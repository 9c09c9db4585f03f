"""The error on held-out samples while training goes on, at little cost to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.device import out_of_memory, release_memory
from ipot.evaluation.metrics import relative_l2
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.training.draws import sizes_of

AT_ONCE = 16
"""Samples of a batch on a CPU."""
ROWS = 1 << 18
"""Points or queries of a batch on a GPU, which small batches would leave idle ..."""
MOST = 128
"""... and the most samples of one there."""


Measure = Callable[[Tensor, Batch], Tensor]
"""The error of each sample, from a prediction in float64 and the batch that it answers."""


def relative(prediction: Tensor, batch: Batch) -> Tensor:
    """The relative L2 error, as `evaluate` gives it."""
    return relative_l2(prediction, batch.truth.double(), mask=batch.query_mask)


class Validation:
    """The mean error over a data set, with nothing else and one wait for the device.

    With `keep`, ragged samples are sorted by size, collated once, and stay on the device.
    """

    def __init__(
        self,
        data: Dataset,
        device: torch.device,
        *,
        measure: Measure = relative,
        keep: bool = False,
    ) -> None:
        self.data, self.device, self.measure = data, device, measure
        self.keep = keep and not data.stacked
        self.batch = _samples_at_once(data, device)
        self._kept: list[Batch] | None = None

    def __call__(self, model: Operator) -> float:
        """The mean over samples; the model is left in the mode that it was in."""
        training = model.training
        model.eval()
        try:
            while True:
                try:
                    errors = [self._errors(model, batch) for batch in self._batches()]
                    return torch.cat(errors).mean().item()
                except Exception as error:
                    if self.batch == 1 or not out_of_memory(error):
                        raise
                # Outside of the handler: the error holds on to what had been computed.
                self.batch, self._kept = self.batch // 2, None
                release_memory()
        finally:
            model.train(training)

    def _batches(self) -> Iterable[Batch]:
        if self._kept is not None:
            return self._kept
        order = torch.arange(len(self.data))
        if self.keep and (sizes := sizes_of(self.data)) is not None:
            order = sizes.sum(0).argsort(stable=True)
        made = (self._gather(index) for index in order.split(self.batch))
        if not self.keep:
            return made
        self._kept = list(made)
        return self._kept

    @torch.inference_mode()
    def _errors(self, model: Operator, batch: Batch) -> Tensor:
        """On the device."""
        return self.measure(predict(model, batch).double(), batch)

    def _gather(self, index: Tensor) -> Batch:
        home = self.device if self.data.resident else "cpu"
        return self.data.batch(index.to(home)).to(self.device)


def _samples_at_once(data: Dataset, device: torch.device) -> int:
    if device.type != "cuda":
        return AT_ONCE
    samples = [data[0]] if data.stacked else [data[i] for i in range(len(data))]
    largest = max(max(len(s.points), s.queries.shape[-2]) for s in samples)
    return max(1, min(MOST, ROWS // max(1, largest)))
