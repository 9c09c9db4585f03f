"""DeepONet: a branch network on fixed sensors, a trunk network on the query, and their product.

    u_k(y) = Σ_j b_kj(a(x_1), ..., a(x_m)) t_kj(y) + c_k

Unstacked: one branch network gives all coefficients, one trunk network all basis functions. The
trunk's last layer is activated, the branch's is linear. Sensors must be the same in every sample;
of a fine mesh some are taken, evenly along every axis. A periodic coordinate enters the trunk as
its sine and cosine.
Lu, Jin, Pang, Zhang and Karniadakis, "Learning nonlinear operators via DeepONet", 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.data.dataset import Dataset
from ipot.errors import DataError, Unsupported
from ipot.models._settings import positive
from ipot.models.base import OneStep
from ipot.nn.mlp import MLP, Activation
from ipot.nn.points import FourierFeatures
from ipot.samples import Batch
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a DeepONet; the defaults have the published 0.42 million weights on Darcy."""

    width: int = 128
    """Channels of the hidden layers."""
    layers: int = 5
    """Dense layers of the branch, and of the trunk."""
    basis: int | None = None
    """Basis functions for each output; None takes as many as channels."""
    sensors: int = 2209
    """At most so many input points go into the branch, evenly taken; 2209 is 47 x 47."""
    activation: Activation = "relu"
    """Between the layers, and after the trunk."""

    def __post_init__(self) -> None:
        positive(self, "width", "layers", "sensors")
        if self.basis is not None and self.basis < 1:
            raise Unsupported(f"model.basis must be positive or None, got {self.basis}")


class DeepONet(OneStep):
    """Fixed sensors for all samples, any queries."""

    needs = frozenset({Need.FIXED_POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        if not spec.shape:
            raise Unsupported(
                f"DeepONet is sized by the number of its sensors, and the spec of {spec.name} does "
                "not say it: give Spec.shape"
            )
        rows = evenly(spec.shape, config.sensors)
        self.register_buffer("rows", rows, persistent=False)
        into = len(rows) * spec.channels + len(spec.parameters)
        basis, outputs = config.basis or config.width, len(spec.outputs)
        hidden = (config.width,) * (config.layers - 1)
        last = basis * outputs
        self.branch = MLP((into, *hidden, last), activation=config.activation)
        # x itself along an axis that ends, sine and cosine along one that does not.
        waves = tuple(int(period is not None) for period in spec.query_periods)
        self.place = FourierFeatures(
            waves, (2.0,) * len(waves), domain=spec.query_domain, periods=spec.query_periods
        )
        self.trunk = MLP(
            (self.place.width, *hidden, last), activation=config.activation, activate_last=True
        )
        self.bias = nn.Parameter(torch.zeros(outputs))

    def examine(self, data: Dataset) -> None:
        """Refuse data with more or fewer sensors than the spec has."""
        self._check(len(data[0].points))
        super().examine(data)

    def coefficients(self, batch: Batch) -> Float[Tensor, "B K j"]:
        """The branch network's coefficients for an input function."""
        self._check(batch.values.shape[1])
        if batch.point_mask is not None:
            raise DataError("DeepONet needs a value at every sensor, and this batch lacks some")
        seen = batch.values.index_select(1, self.rows).flatten(1)
        if batch.parameters is not None:
            seen = torch.cat([seen, batch.parameters.to(seen.dtype)], dim=-1)
        return self.branch(seen).unflatten(-1, (len(self.bias), -1))

    def functions(self, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B1 M K j"]:
        """The basis functions at the queries."""
        return self.trunk(self.place(queries)).unflatten(-1, (len(self.bias), -1))

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The product; on shared queries the trunk is evaluated once for the whole batch."""
        branch, trunk = self.coefficients(batch), self.functions(batch.queries)
        if trunk.shape[0] == 1:
            return torch.einsum("bkj,mkj->bmk", branch, trunk[0]) + self.bias
        return torch.einsum("bkj,bmkj->bmk", branch, trunk) + self.bias

    def _check(self, points: int) -> None:
        expected = math.prod(self.spec.shape)
        if points != expected:
            raise DataError(
                f"DeepONet is bound to the {expected} input points of {self.spec.name} that it was "
                f"built for, these data have {points}. Train another one for them, or choose a "
                "model that takes any points."
            )


def evenly(shape: tuple[int, ...], most: int) -> Tensor:
    """Row-major numbers of at most `most` nodes of a grid, thinned alike along all axes.

    The shortest axis is thinned first: what it cannot give, the longer ones do.
    """
    count, left, total = {}, most, math.prod(shape)
    for turn, axis in enumerate(sorted(range(len(shape)), key=lambda axis: shape[axis])):
        share = min(1.0, left / total) ** (1 / (len(shape) - turn))
        count[axis] = min(shape[axis], max(1, math.floor(shape[axis] * share + 1e-9)))
        left, total = left // count[axis], total // shape[axis]
    rows = torch.zeros(1, dtype=torch.long)
    for axis, nodes in enumerate(shape):
        middle = (2 * torch.arange(count[axis]) + 1) * nodes // (2 * count[axis])
        rows = (rows.unsqueeze(1) * nodes + middle).flatten()
    return rows


MODEL = DeepONet
