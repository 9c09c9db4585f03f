"""Symmetries of a problem, as augmentation.

A symmetry maps a solved case to another solved case. On a grid that it maps onto itself it is a
permutation of the rows: the mesh stays shared and every sample can be turned differently. On
scattered points it moves the coordinates instead. All channels are scalars, which a symmetry may
multiply by a sign; a problem with vector channels must not list one that turns directions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ipot.errors import Unsupported
from ipot.samples import Batch
from ipot.spec import Spec

DRAWS = 3
"""Random numbers that an element of a symmetry is made from."""


@runtime_checkable
class Symmetry(Protocol):
    """A group; its elements are given by `DRAWS` numbers in [0, 1) for each sample."""

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """Row indices (B, N): the old row that comes to lie at each place."""
        ...

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """Where points (B, N, D) come to lie."""
        ...

    def sign(self, draw: Tensor) -> Tensor:
        """What every channel is multiplied by (B)."""
        ...


class Square:
    """The eight symmetries of the square: two reflections and the exchange of the axes."""

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """Flip the target place, exchange, and read there."""
        n = _side(grid)
        flip_x, flip_y, swap = (c.view(-1, 1, 1) for c in _coins(draw))
        i, j = _places(n, draw.device)
        i, j = torch.where(flip_x, n - 1 - i, i), torch.where(flip_y, n - 1 - j, j)
        return torch.where(swap, j * n + i, i * n + j).flatten(1)

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """Exchange the coordinates, then reflect them about the middle of the domain."""
        flip_x, flip_y, swap = (c.view(-1, 1, 1) for c in _coins(draw))
        low = points.new_tensor([a for a, _ in spec.domain])
        high = points.new_tensor([b for _, b in spec.domain])
        points = torch.where(swap, points.flip(-1), points)
        return torch.where(torch.cat([flip_x, flip_y], -1), low + high - points, points)

    def sign(self, draw: Tensor) -> Tensor:
        """Scalars do not change."""
        return torch.ones_like(draw[:, 0])


class Translation:
    """Shifts along every periodic axis, by whole cells where there is a grid."""

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """Every periodic axis rolled by its own number of cells."""
        index = torch.zeros((draw.shape[0],) + (1,) * len(grid), device=draw.device).long()
        for axis, size in enumerate(grid):
            shape = [1] * (len(grid) + 1)
            shape[axis + 1] = size
            cells = size if spec.periods[axis] else 0
            shift = (draw[:, axis] * cells).long().view((-1,) + (1,) * len(grid))
            place = torch.arange(size, device=draw.device).view(shape)
            index = index * size + (place - shift) % size
        return index.flatten(1)

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """Shift and wrap."""
        shift = draw[:, None, : points.shape[-1]].to(points)
        return _wrap(points + shift * points.new_tensor([p or 0.0 for p in spec.periods]), spec)

    def sign(self, draw: Tensor) -> Tensor:
        """Scalars do not change."""
        return torch.ones_like(draw[:, 0])


class Diagonal:
    """What the torus keeps under a force g(x + y) with g(θ) = sin 2πθ + cos 2πθ.

    The force leaves only three kinds of symmetry of the vorticity:
    shifts along the diagonal, (x - s, y + s); the half turn with a quarter shift, w(1/4 - x, -y),
    since g(1/4 - θ) = g(θ); and the exchange of the axes with a half shift and a change of sign,
    -w(y + 1/2, x), since g(θ + 1/2) = -g(θ) and a reflection turns vorticity around.
    """

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """The three maps one after the other, from the target place back."""
        n = _side(grid)
        if n % 4:
            raise Unsupported(f"a quarter shift needs a side divisible by 4, got {n}")
        turn, swap = (c.view(-1, 1, 1) for c in _coins(draw)[1:])
        shift = (draw[:, 0] * n).long().view(-1, 1, 1)
        i, j = _places(n, draw.device)
        i, j = i - shift, j + shift
        i, j = torch.where(turn, n // 4 - i, i), torch.where(turn, -j, j)
        i, j = torch.where(swap, j + n // 2, i), torch.where(swap, i, j)
        return ((i % n) * n + j % n).flatten(1)

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """The inverse maps in the opposite order."""
        turn, swap = (c.view(-1, 1) for c in _coins(draw)[1:])
        shift = draw[:, 0, None].to(points)
        x, y = points.unbind(-1)
        x, y = torch.where(swap, y, x), torch.where(swap, x - 0.5, y)
        x, y = torch.where(turn, 0.25 - x, x), torch.where(turn, -y, y)
        return _wrap(torch.stack([x + shift, y - shift], -1), spec)

    def sign(self, draw: Tensor) -> Tensor:
        """The exchange of the axes is a reflection."""
        return 1.0 - 2.0 * _coins(draw)[2]


SYMMETRIES: dict[str, Symmetry] = {
    "square": Square(),
    "translation": Translation(),
    "diagonal": Diagonal(),
}


def draw(spec: Spec, count: int, generator: torch.Generator) -> Tensor:
    """Random elements of all symmetries of a problem, on the CPU: (B, symmetries, DRAWS)."""
    if not spec.symmetries:
        raise Unsupported(f"{spec.name} lists no symmetry to augment by")
    shape = (count, len(spec.symmetries), DRAWS)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def apply(batch: Batch, draws: Tensor, spec: Spec, *, shared: bool | None = None) -> Batch:
    """Turn every sample of a batch by its own element.

    `shared` says whether all samples of the data have one mesh, which a batch of one cannot tell.
    """
    if shared is None:
        shared = batch.points.shape[0] == batch.queries.shape[0] == 1
    for number, name in enumerate(spec.symmetries):
        symmetry, element = SYMMETRIES[name], draws[:, number]
        if shared and batch.grid is not None and batch.grid == batch.query_grid:
            batch = _permute(batch, symmetry.permutation(element, batch.grid, spec))
        else:
            batch = replace(
                batch,
                points=_move(symmetry, batch.points, element, spec),
                queries=_move(symmetry, batch.queries, element, spec),
                grid=None,
                query_grid=None,
            )
        sign = symmetry.sign(element).to(batch.values.dtype)
        targets = batch.targets
        if targets is not None:
            targets = targets * sign.view(-1, 1, 1, 1)
        batch = replace(batch, values=batch.values * sign.view(-1, 1, 1), targets=targets)
    return batch


def _move(symmetry: Symmetry, places: Tensor, element: Tensor, spec: Spec) -> Tensor:
    """Places (B or 1, ..., D) moved; where a mesh moves in time, all its places alike."""
    places = places.expand(element.shape[0], *places.shape[1:])
    return symmetry.move(places.flatten(1, -2), element, spec).view(places.shape)


def _permute(batch: Batch, index: Tensor) -> Batch:
    wide = index.unsqueeze(-1)
    targets = batch.targets
    if targets is not None:
        b, t, _, k = targets.shape
        targets = targets.gather(2, wide.unsqueeze(1).expand(b, t, -1, k))
    values = batch.values.gather(1, wide.expand(-1, -1, batch.values.shape[-1]))
    return replace(batch, values=values, targets=targets)


def _coins(draw: Tensor) -> tuple[Tensor, ...]:
    return (draw >= 0.5).unbind(-1)


def _side(grid: tuple[int, ...]) -> int:
    if len(grid) != 2 or grid[0] != grid[1]:
        raise Unsupported(f"this symmetry needs a square grid, got {grid}")
    return grid[0]


def _places(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    line = torch.arange(n, device=device)
    return line.view(1, n, 1), line.view(1, 1, n)


def _wrap(points: Tensor, spec: Spec) -> Tensor:
    low = points.new_tensor([a for a, _ in spec.domain])
    period = points.new_tensor([p or 0.0 for p in spec.periods])
    inside = torch.remainder(points - low, torch.where(period > 0, period, 1.0)) + low
    return torch.where(period > 0, inside, points)
