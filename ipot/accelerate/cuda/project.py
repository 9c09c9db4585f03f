"""From coordinates and values straight to keys, values and queries; forward only.

The features of a point are many more numbers than the point: 130 for two coordinates. Here they
live in registers only. A program takes a block of points, computes their features once, and leaves
the projections of every sample that shares the mesh. What it equals is written down elsewhere:

    project_tokens   linear(norm([features, values]))            `accelerate.shared_mesh.project`
    lift_tokens      token = lift(features, values), and after it linear(norm(token)) if wanted

LayerNorm takes the mean away before the projection, which is linear: rows of weights whose own mean
was taken away do the same, and leave no large numbers to cancel in half precision.

    W (γ (x - μ) / σ + β) = W' x / σ + W β,   W' = W γ - (mean of each row of W γ)
"""
# No postponed annotations: torch reads the types of an operator's arguments.

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from ipot.accelerate.cuda import plainly
from ipot.accelerate.cuda._project import lift_kernel, project_kernel
from ipot.accelerate.cuda.programs import Tile, padded

AXES, PHASES, CHANNELS, COLUMNS, WIDTH = 4, 256, 64, 1024, 256
"""The most coordinates, frequencies, values, projected channels and channels of a lifted token."""
PROGRAMS = 512
"""Programs that are enough to fill a GPU; samples of a small mesh are shared out among as many."""


TILES = {  # points and projected channels, by the widest that a program holds on to
    64: Tile(64, 64, 4, 2),
    128: Tile(64, 64, 4, 2),
    256: Tile(32, 64, 4, 1),
}


class ProjectionWeights(NamedTuple):
    """What `project_tokens` reads, made by `prepare`."""

    places: list[Tensor]
    weights: list[Tensor]
    phases: int
    features: int
    out: int
    eps: float


class LiftingWeights(NamedTuple):
    """What `lift_tokens` reads, made by `prepare_lift`; `out` is 0 without a projection."""

    places: list[Tensor]
    weights: list[Tensor]
    width: int
    out: int
    eps: float


def supports(position: Any, *, values: int = 0, out: int = 0, lift: Any = None) -> bool:
    """Whether the kernels take these sizes: features, channels of values, of the projections.

    `position` is a `FourierFeatures`, `lift` a `Lift`. Whether there are kernels at all on a device
    is for `available` to say. There is no backward, so not where gradients are asked.
    """
    axes, phases = position.matrix.shape
    wide = [0] if lift is None else [lift.out.in_features, lift.out.out_features]
    # A layer that asks not to be rounded (`Precise`) is a kind of its own.
    plain = lift is None or type(lift.from_position) is nn.Linear
    return (
        not torch.is_grad_enabled()
        and position.matrix.dtype == torch.float32
        and (axes <= AXES and 0 < phases <= PHASES and values <= CHANNELS)
        and (out <= COLUMNS and max(wide) <= WIDTH and plain)
    )


def prepare(
    position: Any, norm: nn.LayerNorm, linear: nn.Linear, *, dtype: torch.dtype = torch.bfloat16
) -> ProjectionWeights:
    """The weights of linear(norm([features, values])) as the kernel reads them.

    Products are of numbers rounded to `dtype`, added up in float32, and the result has it too. A
    few small operations; what comes of them serves any number of chunks.
    """
    _refuse_gradients(linear.weight)
    phases = position.matrix.shape[1]
    features = len(position.raw) + 2 * phases
    with torch.no_grad(), torch.autocast(linear.weight.device.type, enabled=False):
        weight = linear.weight.float() * norm.weight.float()
        weight = weight - weight.mean(1, keepdim=True)
        wide = _side(linear.out_features)
        weights = _columns(position, weight, _offset(norm, linear), wide, dtype)
        places = _places(position)
    return ProjectionWeights(places, weights, phases, features, linear.out_features, norm.eps)


def prepare_lift(
    position: Any,
    lift: Any,
    norm: nn.LayerNorm | None = None,
    linear: nn.Linear | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
) -> LiftingWeights:
    """What the kernel reads for lift(features, values), and for linear(norm(token)) if given."""
    _refuse_gradients(lift.out.weight)
    if (norm is None) != (linear is None):
        raise ValueError("a projection after a lift needs both its norm and its linear layer")
    hidden, width = _side(lift.out.in_features), padded(lift.out.out_features)
    with torch.no_grad(), torch.autocast(lift.out.weight.device.type, enabled=False):
        first = lift.from_position.weight.float()
        if lift.from_value is not None:
            first = torch.cat([first, lift.from_value.weight.float()], 1)
        weights = _columns(position, first, lift.from_position.bias.float(), hidden, dtype)
        weights.append(_filled(lift.out.weight.float().T, hidden, width, dtype))
        weights.append(_filled(lift.out.bias.float(), 0, width))
        if linear is not None and norm is not None:
            wide = _side(linear.out_features)
            weight = linear.weight.float() * norm.weight.float()
            weights.append(_filled(weight.T, width, wide, dtype))
            weights.append(_filled(_offset(norm, linear), 0, wide))
        places = _places(position)
    out = 0 if linear is None else linear.out_features
    return LiftingWeights(
        places, weights, lift.out.out_features, out, 0.0 if norm is None else norm.eps
    )


def project_tokens(points: Tensor, values: Tensor | None, projection: ProjectionWeights) -> Tensor:
    """Points (N, D), (1, N, D) or each sample's own (B, N, D), and values (B, N, C) or None, to
    (B, N, p)."""
    points, values, shape = _rows(points, values, projection)
    call = _project_function if plainly() else _project
    return call(points, values, *projection).view(*shape, projection.out)


def lift_tokens(
    points: Tensor, values: Tensor | None, lifting: LiftingWeights, *, keep: bool = False
) -> tuple[Tensor | None, Tensor | None]:
    """Projections (B, N, p) and tokens (B, N, width) of the same points and values.

    Projections are None where none were prepared, tokens are None unless they are to be kept.
    """
    keep = keep or not lifting.out
    points, values, shape = _rows(points, values, lifting)
    call = _lift_function if plainly() else _lift
    out, tokens = call(points, values, *lifting, keep)
    return (
        out.view(*shape, lifting.out) if lifting.out else None,
        tokens.view(*shape, lifting.width) if keep else None,
    )


def _project_function(
    points: Tensor,
    values: Tensor,
    places: list[Tensor],
    weights: list[Tensor],
    phases: int,
    features: int,
    out: int,
    eps: float,
) -> Tensor:
    samples, count, channels = values.shape
    answer = values.new_empty(samples, count, out, dtype=weights[0].dtype)
    if not answer.numel():
        return answer
    phases_wide, wide = weights[0].shape[1:]
    tile = _tile(phases_wide, count, weights[0].dtype)
    grid, share = _grid(samples, count, tile.rows)
    _launch(
        project_kernel,
        grid,
        tile,
        [points, values, answer, *places, *weights, count, samples, share, eps],
        D=points.shape[-1],
        C=channels,
        PHASES=phases,
        PADDED=phases_wide,
        FEATURES=features,
        OUT=out,
        WIDE=wide,
        COLUMNS=min(tile.columns, wide),
    )
    return answer


_project = torch.library.custom_op("ipot::project_tokens", _project_function, mutates_args=())


@_project.register_fake
def _(points, values, places, weights, phases, features, out, eps):
    return values.new_empty(*values.shape[:2], out, dtype=weights[0].dtype)


def _lift_function(
    points: Tensor,
    values: Tensor,
    places: list[Tensor],
    weights: list[Tensor],
    width: int,
    out: int,
    eps: float,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    samples, count, channels = values.shape
    kind = weights[0].dtype
    answer = values.new_empty(samples, count, out, dtype=kind)
    tokens = values.new_empty(samples, count, width if keep else 0, dtype=kind)
    if not samples * count:
        return answer, tokens
    phases_wide, hidden = weights[0].shape[1:]
    broad = weights[4].shape[1]
    wide = weights[6].shape[1] if out else 16
    tile = _tile(max(phases_wide, broad), count, kind)
    grid, share = _grid(samples, count, tile.rows)
    # Without a projection the last two are not read.
    weights = weights if out else [*weights, weights[4], weights[5]]
    _launch(
        lift_kernel,
        grid,
        tile,
        [points, values, answer, tokens, *places, *weights, count, samples, share, eps],
        D=points.shape[-1],
        C=channels,
        PADDED=phases_wide,
        HIDDEN=hidden,
        WIDTH=width,
        BROAD=broad,
        OUT=out,
        WIDE=wide,
        COLUMNS=min(tile.columns, wide),
        BETWEEN=min(tile.columns, hidden),
        KEEP=keep,
    )
    return answer, tokens


_lift = torch.library.custom_op("ipot::lift_tokens", _lift_function, mutates_args=())


@_lift.register_fake
def _(points, values, places, weights, width, out, eps, keep):
    rows = values.shape[:2]
    kind = weights[0].dtype
    answer = values.new_empty(*rows, out, dtype=kind)
    return answer, values.new_empty(*rows, width if keep else 0, dtype=kind)


def _launch(kernel: Any, grid: tuple, tile: Tile, arguments: list, **constants: int) -> None:
    # A kernel runs on the current device, which need not be the one that the tensors are on.
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](
            *arguments,
            **constants,
            ROWS=tile.rows,
            **tile.options(),
        )


def _rows(
    points: Tensor, values: Tensor | None, prepared: ProjectionWeights | LiftingWeights
) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Points (N, D) and values (B, N, C) as the kernels read them, and the (B, N) of the answer."""
    for given in (points, values):
        if given is not None and given.dtype != torch.float32:
            raise TypeError(f"the kernels take float32, got {given.dtype}: use the plain version")
    _refuse_gradients(points, values)
    own = points.shape[0] if points.ndim == 3 else 1
    count, axes = points.shape[-2:]
    if values is None:
        values = points.new_empty(own, count, 0)
    if axes != len(prepared.places[0]):
        raise ValueError(f"expected {len(prepared.places[0])} coordinates a point, got {axes}")
    channels = values.shape[-1]
    if channels != len(prepared.weights[2]):
        raise ValueError(f"expected {len(prepared.weights[2])} values a point, got {channels}")
    if values.shape[1] != count or own not in (1, values.shape[0]):
        raise ValueError(
            f"points {tuple(points.shape)} and values {tuple(values.shape)} do not belong together"
        )
    shape = (values.shape[0], count)
    if own > 1:
        values = values.reshape(1, own * count, channels)
    return points.reshape(-1, axes).contiguous(), values.contiguous(), shape


def _refuse_gradients(*tensors: Tensor | None) -> None:
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise RuntimeError("this kernel has no backward: call it under torch.no_grad()")


def _places(position: Any) -> list[Tensor]:
    """Centre, inverse of the radius, which coordinates are features as such, and frequencies."""
    # Not by `[]`, which would wait for the device.
    kept = torch.zeros_like(position.centre).index_fill_(0, position.raw, 1.0)
    axes, phases = position.matrix.shape
    matrix = _filled(position.matrix, axes, padded(phases))
    exact = position.radius.double().reciprocal()
    high = exact.float()
    inverse = torch.stack([high, (exact - high).float()])
    return [position.centre, inverse, kept, matrix]


def _columns(
    position: Any, weight: Tensor, offset: Tensor, wide: int, dtype: torch.dtype
) -> list[Tensor]:
    """Weights (p, F + C) by what they multiply: sines and cosines, coordinates, values, one.

    Only the first are many enough for matrix units. The others stay in float32.
    """
    raw, (axes, phases) = len(position.raw), position.matrix.shape
    each = [raw, phases, phases, weight.shape[1] - raw - 2 * phases]
    coordinate, sine, cosine, value = _filled(weight.T, 0, wide).split(each)
    rows = padded(phases)
    waves = torch.stack([_filled(sine, rows, wide), _filled(cosine, rows, wide)])
    coordinates = weight.new_zeros(axes, wide).index_copy_(0, position.raw, coordinate)
    return [waves.to(dtype), coordinates, value.contiguous(), _filled(offset, 0, wide)]


def _offset(norm: nn.LayerNorm, linear: nn.Linear) -> Tensor:
    offset = linear.weight.float() @ norm.bias.float()
    return offset if linear.bias is None else offset + linear.bias.float()


def _filled(x: Tensor, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """With zeros after its columns and rows up to so many."""
    below = (0, max(0, rows - x.shape[0])) if x.ndim > 1 else ()
    return F.pad(x, (0, columns - x.shape[-1], *below)).to(dtype).contiguous()


def _side(out: int) -> int:
    """Columns in whole tiles of the largest kind."""
    most = max(tile.columns for tile in TILES.values())
    return padded(out) if out <= most else triton.cdiv(out, most) * most


def _tile(wide: int, count: int, kind: torch.dtype) -> Tile:
    tile = next(tile for side, tile in TILES.items() if wide <= side)
    # Without matrix units, which float32 has not, a quarter of the points fills the registers.
    most = tile.rows // 4 if kind == torch.float32 else tile.rows
    return replace(tile, rows=max(16, min(most, padded(count))))


def _grid(samples: int, count: int, rows: int) -> tuple[tuple[int, int], int]:
    """Programs along points and samples, and how many samples each takes.

    One program for all samples computes the features once; a small mesh has too few programs.
    """
    along = triton.cdiv(count, rows)
    groups = min(samples, triton.cdiv(PROGRAMS, along))
    share = triton.cdiv(samples, groups)
    return (along, triton.cdiv(samples, share)), share
