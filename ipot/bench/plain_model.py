"""The model without anything that makes it quick, as one writes it down first.

The model as it stands: float32 without the shorter formats of matrix units, eager, softmax(QK)V in
three operations, every step of a rollout decoded by itself, position features and their projections
for every sample, PyTorch's own AdamW. What `ipot.accelerate` makes of it has the same weights, and
gives the same answer up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.errors import Unsupported
from ipot.evaluation.metrics import relative_l2
from ipot.models.base import LatentOperator, Operator
from ipot.samples import Batch
from ipot.training.draws import Draw, Draws
from ipot.training.settings import Training


@contextmanager
def plainly() -> Iterator[None]:
    """Full float32 in products, for the time of a block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def expanded(batch: Batch) -> Batch:
    """The batch with points and queries of every sample's own, where a mesh was shared."""

    def own(tensor: Tensor) -> Tensor:
        return tensor.expand(batch.size, *tensor.shape[1:]).contiguous()

    return replace(batch, points=own(batch.points), queries=own(batch.queries))


def forward(model: Operator, batch: Batch) -> Float[Tensor, "B T M K"]:
    """The model's answer, with points and queries of every sample's own."""
    if not isinstance(model, LatentOperator):
        raise Unsupported(f"{model.name} has no plain version: it does not step in latent space")
    return model(expanded(batch))


class PlainStep:
    """A training step: the same batches and the same loss as the trainer's, none of its speed."""

    def __init__(self, model: Operator, draws: Draws, settings: Training) -> None:
        self.model, self.draws, self.settings = model, draws, settings
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def __call__(self, draw: Draw) -> Tensor:
        """One step on the samples of a draw that lies on the data's device; returns the loss."""
        with plainly():
            loss = losses(self.model, self.draws.stacked_batch(draw)).mean()
            self.optimizer.zero_grad()
            loss.backward()
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimizer.step()
        return loss.detach()


def losses(model: Operator, batch: Batch) -> Float[Tensor, " B"]:
    """The relative error of every sample."""
    return relative_l2(forward(model, batch), batch.truth, mask=batch.query_mask)


def first_in_pieces(model: Operator, batch: Batch, size: int) -> tuple[float, list[Tensor]]:
    """The loss of a batch, a mean over samples, and its gradients, so many samples at a time."""
    device, total = batch.values.device, 0.0
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in parameters]
    with plainly():
        for start in range(0, batch.size, size):
            index = torch.arange(start, min(start + size, batch.size), device=device)
            loss = losses(model, batch.take(index)).sum() / batch.size
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            for total_gradient, gradient in zip(sums, found, strict=True):
                if gradient is not None:
                    total_gradient += gradient
            total += float(loss.detach())
    return total, sums
