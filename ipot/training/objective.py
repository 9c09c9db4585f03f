"""What training minimises, and the error on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.data.dataset import Dataset
from ipot.device import out_of_memory, release_memory
from ipot.errors import Unsupported
from ipot.evaluation.metrics import relative_l2, typical_where_zero
from ipot.evaluation.predict import in_evaluation_mode, predict
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.spec import Spec
from ipot.training.draws import sizes_of
from ipot.training.gradients import GradientError, gradient_error

AT_ONCE = 16
"""Samples of a batch on a CPU."""
ROWS = 1 << 18
"""Points or queries of a batch on a GPU, which small batches would leave idle ..."""
MOST = 128
"""... and the most samples of one there."""


@runtime_checkable
class Objective(Protocol):
    """A loss. It is an object and not a function because some systems train parameters beside the
    model's.

    Optional methods: `follow(count)` is called once with the tensor on the device that holds the
    number of the step, for a loss that changes during training; `regions()` yields parts worth
    compiling, as for a model; `measure(prediction, batch)` gives the error of each sample by which
    the best weights are chosen, if that is not the relative L2.
    """

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """Parameter groups of its own; most have none."""
        ...

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, as a mean over its samples. It must call `model(batch)`."""
        ...


class RelativeL2:
    """The paper's loss, which is also its metric."""

    scale: Tensor | None = None
    """Sizes of the channels, where each counts in its own."""
    weighted = False
    """True if queries count by the weights that samples carry."""

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """No parameters of its own."""
        return ()

    @cached_property
    def error(self) -> nn.Module:
        """The error, as a module so that it can be compiled."""
        return MeanRelativeL2()

    def regions(self) -> Iterator[nn.Module]:
        """The error: a dozen small passes over the fields, which a compiler fuses."""
        yield self.error

    def __call__(self, model: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        """The mean over samples of ‖prediction - target‖ / ‖target‖."""
        return self.error(answered(model, batch), batch.truth, batch.query_mask)


def answered(model: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """The model's answer. A shape other than the truth's is refused: otherwise an axis of length
    one would be broadcast silently."""
    found, wanted = model(batch), batch.truth.shape
    if found.shape != wanted:
        raise Unsupported(
            f"{getattr(model, 'name', 'the model')} answered in the shape {tuple(found.shape)}, "
            f"where (samples, times, queries, outputs) are {tuple(wanted)}; see docs/extend.md"
        )
    return found


class BalancedL2(RelativeL2):
    """Relative L2 with every output channel divided by its own size, so that a pressure of 1e5 does
    not drown a velocity of 1, and every query counted by its weight where samples carry weights."""

    weighted = True

    def __init__(self, scale: Float[Tensor, " K"]) -> None:
        self.scale = self._scale = scale

    def __call__(self, model: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        """The mean over samples."""
        return self.error(answered(model, batch), batch.truth, batch.query_mask, batch.weights)

    def measure(self, prediction: Float[Tensor, "B T M K"], batch: Batch) -> Float[Tensor, " B"]:
        """The error of each sample, in the precision of the prediction."""
        scale = self._scale.to(prediction)
        truth, weights = batch.truth.to(prediction), batch.weights
        return relative_l2(
            prediction / scale, truth / scale, mask=batch.query_mask, weights=weights
        )

    @cached_property
    def error(self) -> nn.Module:
        """The error, as a module so that it can be compiled."""
        return MeanRelativeL2(self._scale)

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """No parameters of its own; the scales are moved to the model's device."""
        self.error.to(next(model.parameters()).device)
        return ()


class WithGradients:
    """A loss plus a weight times the relative L2 error of gradients in space.

    Gradients are compared with the loss's own channel sizes and query weights. The best weights are
    chosen without them.
    """

    def __init__(self, inner: RelativeL2, weight: float, spec: Spec) -> None:
        self.inner, self.weight, self.spec = inner, weight, spec
        self.gradients: GradientError | None = None
        for name in ("measure", "follow"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """The loss's own groups. Neighbours in the mesh are searched for, once."""
        device = next(model.parameters()).device
        self.gradients = gradient_error(data, self.spec, device, self.inner.scale)
        return self.inner.prepare(model, data)

    def regions(self) -> Iterator[nn.Module]:
        """The regions of both errors."""
        yield from self.inner.regions()
        if self.gradients is not None:
            yield self.gradients

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over samples."""
        if self.gradients is None:
            raise RuntimeError(
                "a loss on gradients needs prepare(model, data) before its first use"
            )
        answers: list[Tensor] = []

        def asked(batch: Batch) -> Tensor:
            answers.append(model(batch))
            return answers[-1]

        loss = self.inner(asked, batch)
        weights = batch.weights if self.inner.weighted else None
        slopes = self.gradients(answers[-1], batch.truth, batch.index, batch.query_mask, weights)
        return loss + self.weight * slopes


def with_gradients(objective: Objective, weight: float, spec: Spec) -> Objective:
    """An objective with the error of gradients added; the objective itself if their weight is
    zero."""
    if not weight:
        return objective
    if not isinstance(objective, RelativeL2):
        raise Unsupported(
            f"--training.gradient-loss goes with the relative L2 error, and this system is trained "
            f"by {type(objective).__name__}: leave it out"
        )
    return WithGradients(objective, weight, spec)


class MeanRelativeL2(nn.Module):
    """The mean over samples of the relative L2 error, with channels divided by a scale if one is
    given."""

    scale: Tensor | None

    def __init__(self, scale: Float[Tensor, " K"] | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", None if scale is None else scale.float())

    def forward(
        self,
        prediction: Float[Tensor, "B T M K"],
        target: Float[Tensor, "B T M K"],
        mask: Bool[Tensor, "B M"] | None = None,
        weights: Float[Tensor, "B1 M"] | None = None,
    ) -> Float[Tensor, ""]:
        """One number for a batch."""
        if self.scale is not None:
            prediction, target = prediction / self.scale, target / self.scale
        return relative_l2(prediction, target, mask=mask, weights=weights).mean()


Measure = Callable[[Tensor, Batch], Tensor]
"""The error of each sample, from a prediction in float64 and the batch that it answers."""


def relative(prediction: Tensor, batch: Batch) -> Tensor:
    """The relative L2 error, as `evaluate` gives it."""
    return relative_l2(prediction, batch.truth.double(), mask=batch.query_mask)


class Validation:
    """The mean error over held-out samples during training, with one wait for the device.

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
        """The mean over samples. Each layer stays in training or evaluation mode, whichever it was
        in."""
        with in_evaluation_mode(model):
            while True:
                try:
                    found = [self._errors(model, batch) for batch in self._batches()]
                    errors, sizes = (torch.cat(part) for part in zip(*found, strict=True))
                    # Without a size of its own, an error is absolute: it would outweigh the others.
                    unit = torch.where(sizes > 0, 1.0, typical_where_zero(sizes))
                    return (errors / unit).mean().item()
                except Exception as error:
                    if self.batch == 1 or not out_of_memory(error):
                        raise
                # Outside of the handler: the error holds on to what had been computed.
                self.batch, self._kept = self.batch // 2, None
                release_memory()

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
    def _errors(self, model: Operator, batch: Batch) -> tuple[Tensor, Tensor]:
        """The errors of samples and the sizes of their targets, which are the measure's errors of
        the targets against zero. On the device."""
        truth = batch.truth.double()
        real = truth != 0
        if batch.query_mask is not None:
            real = real & batch.query_mask[:, None, :, None]
        real = real.flatten(1).any(1)
        nothing = replace(batch, targets=torch.zeros_like(batch.truth))
        sizes = self.measure(truth, nothing).where(real, 0.0)
        return self.measure(predict(model, batch).double(), batch), sizes

    def _gather(self, index: Tensor) -> Batch:
        home = self.device if self.data.resident else "cpu"
        return self.data.batch(index.to(home)).to(self.device)


def _samples_at_once(data: Dataset, device: torch.device) -> int:
    if device.type != "cuda":
        return AT_ONCE
    samples = [data[0]] if data.stacked else [data[i] for i in range(len(data))]
    largest = max(max(len(s.points), s.queries.shape[-2]) for s in samples)
    return max(1, min(MOST, ROWS // max(1, largest)))
