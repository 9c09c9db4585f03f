"""DINo: a field is a network with a code, and the code follows an ordinary differential equation.

    u(x) = D(x; α)                    decoder: a filter network, its amplitudes shifted by α
    dα/dt = ψ(α)                      a dense network, one Runge-Kutta step each dt
    α(0) = argmin ‖D(·; α) - u(0)‖    gradient descent from zero: there is no encoder

A code for each channel and one decoder for all of them; ψ sees the codes of all channels. Only the
last observed frame is fitted: earlier frames and static channels are not used, as published. Time
is counted in steps of the problem. All arithmetic is at least float32, under autocast as well.

Training is auto-decoding: every frame of every sample has a code of its own, learnt beside the
decoder from the error of its field, while ψ learns to follow the codes. Yin, Kirchmeyer,
Franceschi, Rakotomamonjy and Gallinari, "Continuous PDE dynamics forecasting with implicit neural
representations", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.data.dataset import Dataset
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.models._settings import positive
from ipot.models._wrappers import NormalizedLatent
from ipot.models.base import Latent, LatentOperator
from ipot.nn.mlp import MLP
from ipot.nn.points import UnitBox
from ipot.samples import Batch, Sample
from ipot.seeds import generator
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and rates; the sizes are those published for Navier-Stokes."""

    code: int = 100
    """Numbers that describe one channel of a frame."""
    width: int = 64
    """Channels of the decoder, half of them sines and half cosines."""
    layers: int = 3
    """Layers of the decoder, after the first."""
    frequency: float = 32.0
    """Range of the first frequencies, for coordinates in the unit box."""
    dynamics: int = 512
    """Width of the three hidden layers of ψ."""
    fit_steps: int = 100
    """Steps of gradient descent that find the code of an observed frame."""
    fit_rate: float = 0.05
    """Rate of these steps. Published are three times as many at a fifth of it, for the same fit."""
    code_factor: float = 10.0
    """Rate of the codes in training, in multiples of the network's: each is seen once an epoch."""
    forcing_steps: float = 10_000.0
    """Training steps in which teacher forcing becomes e times rarer: at first ψ starts from a true
    code at almost every time, in the end only at the first."""

    def __post_init__(self) -> None:
        positive(self, *(field.name for field in fields(self)))
        if self.width % 2:
            raise Unsupported(f"model.width must be even, got {self.width}")


class FourierNet(nn.Module):
    """A multiplicative filter network whose amplitudes are shifted by a code.

        z₀ = γ₀(x) (A₀ α + b₀)
        z_l = γ_l(x) (B_l z_{l-1} + A_l α + b_l),   l = 1 ... layers
        u = C z + c

    The filters γ_l(x) = [sin(ω_l x), cos(ω_l x)] are learnt and see nothing but the position: they
    are computed once for all codes. Their frequencies start within ± scale / √(D (layers + 1)), so
    that a product of all of them starts with about the same range however deep it is.
    """

    def __init__(
        self, dimension: int, *, code: int, width: int, layers: int, scale: float = 64.0
    ) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"half of the width are sines, half cosines: {width} is odd")
        self.scale = scale * (layers + 1) ** -0.5
        span = dimension**-0.5
        shape = (layers + 1, width // 2, dimension)
        self.frequencies = nn.Parameter(torch.empty(shape).uniform_(-span, span))
        self.first = nn.Parameter(torch.empty(width).uniform_(-span, span))
        self.shifts = nn.ModuleList(nn.Linear(code, width, bias=False) for _ in range(layers + 1))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, 1)

    def filters(self, x: Float[Tensor, "B1 M D"]) -> tuple[Tensor, ...]:
        """The filters of all layers at positions, each (B or 1, M, width)."""
        if x.shape[-1] != self.frequencies.shape[-1]:
            wanted = self.frequencies.shape[-1]
            raise ValueError(f"positions must have {wanted} coordinates, got {x.shape[-1]}")
        # Not a matmul: that may round the phases, to bf16 under autocast or to TF32 in training.
        weights = (self.scale * self.frequencies).flatten(0, 1)
        phase = x[..., :1] * weights[:, 0]
        for axis in range(1, x.shape[-1]):
            phase = phase + x[..., axis : axis + 1] * weights[:, axis]
        phases = phase.unflatten(-1, self.frequencies.shape[:2]).unbind(-2)
        return tuple(torch.cat([p.sin(), p.cos()], -1) for p in phases)

    def forward(
        self, filters: tuple[Tensor, ...], codes: Float[Tensor, "B K c"]
    ) -> Float[Tensor, "B M K"]:
        """The field of every code, at the positions of the filters."""
        first, *rest = (f.unsqueeze(1) for f in filters)
        shift, *shifts = (a(codes).unsqueeze(-2) for a in self.shifts)
        z = first * (shift + self.first)
        for layer, here, shift in zip(self.layers, rest, shifts, strict=True):
            z = here * (layer(z) + shift)
        return self.out(z).squeeze(-1).transpose(1, 2)


class DINo(LatentOperator):
    """Codes that are found by descent, moved by a differential equation, and decoded anywhere."""

    needs = frozenset({Need.HISTORY})
    frame_scale: Tensor
    frame_shift: Tensor

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        if spec.query_domain != spec.domain:
            raise Unsupported(f"DINo answers where it observes; {spec.name} has two domains")
        if spec.parameters:
            raise Unsupported(f"DINo has no place for parameters, {spec.name} has some")
        self.box = UnitBox(spec.domain)
        self.decoder = FourierNet(
            spec.dimension,
            code=config.code,
            width=config.width,
            layers=config.layers,
            scale=config.frequency,
        )
        size, hidden = config.code * len(spec.outputs), config.dynamics
        self.dynamics = MLP((size, hidden, hidden, hidden, size), activation="swish")
        # From the scales of the inputs to those of the outputs, in which everything is said here.
        self.register_buffer("frame_scale", torch.ones(len(spec.outputs)))
        self.register_buffer("frame_shift", torch.zeros(len(spec.outputs)))

    def observed(self, values: Float[Tensor, "B N C"]) -> Float[Tensor, "B N K"]:
        """The last past frame, in the scales of the outputs."""
        last, outputs = self.spec.history, len(self.spec.outputs)
        frame = values[..., (last - 1) * outputs : last * outputs]
        return frame * self.frame_scale + self.frame_shift

    def encode(self, batch: Batch) -> Latent:
        """The codes that fit the last frame; differentiable wherever gradients are wanted."""
        graph, config, mask = torch.is_grad_enabled(), self.config, batch.point_mask
        # The descent needs gradients of its own, also where the caller wants none.
        with torch.inference_mode(False), torch.enable_grad(), _exact(batch.values):
            filters = self.decoder.filters(self.box(batch.points))
            frame = self.observed(batch.values)
            if mask is not None:  # one that was made in inference mode is kept for no gradient
                mask = mask.clone()

            def error(codes: Tensor) -> Tensor:
                return mean_square(self.decoder(filters, codes) - frame, mask).sum()

            start = frame.new_zeros(batch.size, len(self.spec.outputs), config.code)
            codes = descend(error, start, config.fit_steps, config.fit_rate, differentiable=graph)
        return Latent(codes)

    def step(self, latent: Latent) -> Latent:
        """One Runge-Kutta step of the codes of all channels together."""
        with _exact(latent.state):
            codes = rk4(self.dynamics, latent.state.flatten(1))
        return Latent(codes.view_as(latent.state))

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields of the codes."""
        with _exact(latent.state):
            return self.decoder(self.decoder.filters(self.box(queries)), latent.state)

    def objective(self) -> AutoDecoding:
        """Auto-decoding: a learnt code for every frame."""
        return AutoDecoding(self.config)


class AutoDecoding:
    """Trains decoder and codes by the fields, and the dynamics by the codes.

    A rollout of the codes starts again from the learnt code of a time with a probability that falls
    from 1 to 0: teacher forcing at first, whole rollouts in the end.
    """

    codes: nn.Parameter
    strides: Tensor

    def __init__(self, config: Config) -> None:
        self.config = config
        self.count = torch.zeros((), dtype=torch.long)

    def follow(self, count: Tensor) -> None:
        """Take over the tensor that holds the number of the training step."""
        self.count = count

    def prepare(self, model: nn.Module, data: Dataset) -> Iterable[dict[str, Any]]:
        """A code for each sample, frame and channel: the last observed frame, then the targets."""
        scaled = _scaled(model)
        inner: DINo = scaled.inner
        last, outputs = inner.spec.history, len(inner.spec.outputs)
        seen = slice((last - 1) * outputs, last * outputs)
        gap = scaled.input_mean[seen] - scaled.output_mean
        inner.frame_scale.copy_(scaled.input_scale[seen] / scaled.output_scale)
        inner.frame_shift.copy_(gap / scaled.output_scale)
        times = {sample.times for sample in _numbered(data)}
        if len(times) != 1:
            raise DataError(f"DINo learns from samples with the same times, got {sorted(times)}")
        frames = len(times.pop())
        shape = (len(data), frames + 1, outputs, self.config.code)
        self.codes = nn.Parameter(inner.frame_scale.new_zeros(shape))
        strides = torch.rand(frames, generator=generator(0, "forcing"), dtype=torch.float64)
        self.strides, self.count = strides.to(self.codes.device), self.count.to(self.codes.device)
        return [{"params": [self.codes], "factor": self.config.code_factor, "weight_decay": 0.0}]

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean square error of the fields of all frames, and that of the codes."""
        if batch.index is None:
            raise DataError("auto-decoding needs to know which samples a batch has: `batch.index`")
        scaled = _scaled(model)
        codes = self.codes[batch.index]
        with _exact(codes):
            fields = self.reconstruction(scaled, batch, codes)
            return fields + self.following(scaled.inner, batch, codes.detach())

    def coins(self) -> Float[Tensor, " T"]:
        """Numbers in [0, 1), one for each time, that depend on the number of the step alone: whole
        multiples of different strides are spread evenly, modulo one, and independently."""
        return torch.remainder((self.count + 1) * self.strides, 1.0)

    def reconstruction(self, scaled: NormalizedLatent, batch: Batch, codes: Tensor) -> Tensor:
        """The error of the decoded frames, the first at the input points."""
        inner: DINo = scaled.inner
        first, *rest = (Latent(c) for c in codes.unbind(1))
        seen = inner.observed(scaled.seen(batch).values)
        wanted = (batch.truth - scaled.output_mean) / scaled.output_scale
        start = mean_square(inner.decode(first, batch.points) - seen, batch.point_mask)
        ahead = mean_square(inner.decode_all(rest, batch.queries) - wanted, batch.query_mask)
        return ((start + len(rest) * ahead) / (1 + len(rest))).mean()

    def following(self, inner: DINo, batch: Batch, codes: Tensor) -> Tensor:
        """The error of the dynamics: codes are targets here, and learn nothing from it."""
        wanted, (now, *ahead) = inner.steps(batch.times), codes.unbind(1)
        again = self.coins() < torch.exp(-self.count / self.config.forcing_steps)
        total = now.new_zeros(())
        for place, (before, after) in enumerate(zip([0, *wanted], wanted, strict=False)):
            for _ in range(after - before):
                now = inner.step(Latent(now)).state
            total = total + (now - ahead[place]).square().mean()
            now = torch.where(again[place], ahead[place], now)
        return total / len(ahead)


def mean_square(
    difference: Float[Tensor, "B *T M K"], mask: Bool[Tensor, "B M"] | None
) -> Float[Tensor, " B"]:
    """The mean square of each sample over its real rows; nothing where it has none."""
    if mask is None:
        return difference.square().flatten(1).mean(1)
    real = mask.unsqueeze(-1) if difference.ndim == 3 else mask[:, None, :, None]
    squares = torch.where(real, difference, 0.0).square().flatten(1).sum(1)
    each = difference[0].numel() // mask.shape[1]
    return squares / (each * mask.sum(1).clamp_min(1))


def _exact(like: Tensor) -> torch.autocast:
    """Products in the precision of their operands, without autocast."""
    return torch.autocast(like.device.type, enabled=False)


def _scaled(model: nn.Module) -> NormalizedLatent:
    """The model with its scales; scales that change nothing are added where there are none."""
    if isinstance(model, NormalizedLatent):
        return model
    if not isinstance(model, DINo):
        raise Unsupported(f"auto-decoding trains a DINo, got a {type(model).__name__}")
    sizes = (model.spec.channels, len(model.spec.outputs))
    return NormalizedLatent(model, Statistics.identity(*sizes)).to(model.frame_scale.device)


def _numbered(data: Dataset) -> Iterator[Sample]:
    """The number of every sample; refused where two samples would share their codes."""
    for place in range(len(data)):
        sample = data[place]
        if sample.index != place:
            raise DataError(
                f"codes are kept by the number of a sample, and number {place} says that it is "
                f"{sample.index}: number the samples by their places"
            )
        yield sample


MODEL = DINo


def descend(
    error: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    rate: float,
    *,
    differentiable: bool = False,
) -> Tensor:
    """The end point of Adam from a start, with the usual moments; differentiable in what `error`
    uses."""
    fast, slow, tiny = 0.9, 0.999, 1e-8
    x = start.requires_grad_()
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, steps + 1):
        (slope,) = torch.autograd.grad(error(x), x, create_graph=differentiable)
        mean = fast * mean + (1 - fast) * slope
        square = slow * square + (1 - slow) * slope.square()
        # The small number stands below the root, which has no derivative at zero.
        size = (square / (1 - slow**step) + tiny**2).sqrt()
        x = x - rate / (1 - fast**step) * mean / size
        if not differentiable:
            x = x.detach().requires_grad_()
    return x if differentiable else x.detach()


def rk4(slope: Callable[[Tensor], Tensor], state: Tensor, step: float = 1.0) -> Tensor:
    """The state of dy/dt = slope(y) a step later, by the classical method of order four."""
    first = slope(state)
    second = slope(state + step / 2 * first)
    third = slope(state + step / 2 * second)
    fourth = slope(state + step * third)
    return state + step / 6 * (first + 2 * second + 2 * third + fourth)
