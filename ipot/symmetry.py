"""Symmetries of a problem, as augmentation and to average answers over.

A symmetry maps a solved case to another solved case. On a grid that it maps onto itself it is a
permutation of the rows: the mesh stays shared and every sample can be turned differently. On
scattered points it moves the coordinates instead. What happens to the channels a symmetry knows by
their names: most are scalars and stay, some change sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
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

    @property
    def any_grid(self) -> bool:
        """True if permutations of two grids of different sizes are the same map of space."""
        ...

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """Row indices (B, N): the old row that comes to lie at each place."""
        ...

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """Where points (B, N, D) come to lie."""
        ...

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """Fields (B, ..., channels) with these names, as they are after the map."""
        ...


class Square:
    """The eight symmetries of the square: two reflections and the exchange of the axes."""

    any_grid = True

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
        twice = _row(points, (a + b for a, b in spec.domain))
        points = torch.where(swap, points.flip(-1), points)
        return torch.where(torch.cat([flip_x, flip_y], -1), twice - points, points)

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """Scalars do not change."""
        return fields


class Translation:
    """Shifts along every periodic axis, by whole cells where there is a grid."""

    any_grid = False

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
        return _wrap(points + shift * _row(points, (p or 0.0 for p in spec.periods)), spec)

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """Scalars do not change."""
        return fields


class Diagonal:
    """What the torus keeps under a force g(x + y) with g(θ) = sin 2πθ + cos 2πθ.

    The force leaves only three kinds of symmetry of the vorticity:
    shifts along the diagonal, (x - s, y + s); the half turn with a quarter shift, w(1/4 - x, -y),
    since g(1/4 - θ) = g(θ); and the exchange of the axes with a half shift and a change of sign,
    -w(y + 1/2, x), since g(θ + 1/2) = -g(θ) and a reflection turns vorticity around.
    """

    any_grid = False

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

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """The exchange of the axes is a reflection, and all channels are vorticities."""
        return torch.where(_beside(_coins(draw)[2], fields), -fields, fields)


@dataclass(frozen=True)
class Mirror:
    """The reflection of one axis about the middle of the domain.

    `about` names the channels that are turned around with it: v becomes about[name] - v, which is
    a change of sign for the component of a vector and a reflection for a coordinate.
    """

    axis: int = 0
    about: Mapping[str, float] = field(default_factory=dict)
    any_grid: bool = True

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """The axis read backwards."""
        rows = torch.arange(torch.Size(grid).numel(), device=draw.device).view(1, *grid)
        flipped = rows.flip(1 + self.axis)
        return torch.where(_beside(_coins(draw)[0], rows), flipped, rows).flatten(1)

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """The coordinate of the axis, reflected."""
        low, high = spec.domain[self.axis]
        moved = points.clone()
        moved[..., self.axis] = low + high - points[..., self.axis]
        return torch.where(_beside(_coins(draw)[0], points), moved, points)

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """Channels that point along the axis are turned around."""
        return _turned(fields, _coins(draw)[0], [self.about.get(name) for name in names])


@dataclass(frozen=True)
class Sphere:
    """Turns about the axis and the reflection about the equator, on a grid (latitude, longitude).

    The reflection changes the sign of the channels named in `odd`, such as vorticity. Points are
    unit vectors.
    """

    odd: tuple[str, ...] = ("vorticity",)
    any_grid: bool = False

    def permutation(self, draw: Tensor, grid: tuple[int, ...], spec: Spec) -> Tensor:
        """Longitudes rolled, latitudes read backwards."""
        rows, columns = grid
        i = torch.arange(rows, device=draw.device).view(1, rows, 1)
        j = torch.arange(columns, device=draw.device).view(1, 1, columns)
        shift = (draw[:, 0] * columns).long().view(-1, 1, 1)
        i = torch.where(_beside(_coins(draw)[1], i), rows - 1 - i, i)
        return (i * columns + (j - shift) % columns).flatten(1)

    def move(self, points: Tensor, draw: Tensor, spec: Spec) -> Tensor:
        """A rotation about the third axis, and its reflection."""
        angle = (2 * torch.pi * draw[:, 0, None]).to(points)
        x, y, z = points.unbind(-1)
        z = torch.where(_coins(draw)[1].view(-1, 1), -z, z)
        turned = (angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y, z)
        return torch.stack(turned, -1)

    def act(self, fields: Tensor, draw: Tensor, names: tuple[str, ...]) -> Tensor:
        """The reflection turns rotation around."""
        about = [0.0 if _base(name) in self.odd else None for name in names]
        return _turned(fields, _coins(draw)[1], about)


SYMMETRIES: dict[str, Symmetry] = {
    "square": Square(),
    "translation": Translation(),
    "diagonal": Diagonal(),
    "sphere": Sphere(),
    # Above and below of a wing: the mesh runs around it, and y is a channel.
    "wing": Mirror(0, {"y": 0.0}),
    # Left and right of a cell that is held below and pulled above.
    "cell": Mirror(0),
    # Left and right of a forged block, whose deformed x runs from 0.35 down to -49.65.
    "block": Mirror(0, {"x": -49.3, "u_x": 0.0}),
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
        if shared and _permutable(batch, symmetry):
            batch = _permute(batch, symmetry, element, spec)
        else:
            batch = replace(
                batch,
                points=_move(symmetry, batch.points, element, spec),
                queries=_move(symmetry, batch.queries, element, spec),
                grid=None,
                query_grid=None,
            )
        targets = batch.targets
        if targets is not None:
            targets = symmetry.act(targets, element, spec.outputs)
        values = symmetry.act(batch.values, element, spec.inputs)
        batch = replace(batch, values=values, targets=targets)
    return batch


def undo(answer: Tensor, batch: Batch, draws: Tensor, spec: Spec) -> Tensor:
    """An answer (B, T, M, K) to a batch that was turned by `apply`, as one to that batch itself."""
    shared, turned = batch.points.shape[0] == batch.queries.shape[0] == 1, []
    for number, name in enumerate(spec.symmetries):
        symmetry = SYMMETRIES[name]
        rows = None
        if shared and _permutable(batch, symmetry):
            assert batch.query_grid is not None
            rows = symmetry.permutation(draws[:, number], batch.query_grid, spec)
        else:
            batch = replace(batch, grid=None, query_grid=None)
        turned.append((symmetry, draws[:, number], rows))
    for symmetry, element, rows in reversed(turned):
        # What is done to channels is its own inverse.
        answer = symmetry.act(answer, element, spec.outputs)
        if rows is not None:
            index = rows[:, None, :, None].expand_as(answer)
            answer = torch.empty_like(answer).scatter(2, index, answer)
    return answer


def elements(spec: Spec) -> Tensor:
    """Elements of all symmetries to average over, (G, symmetries, DRAWS): all of a group of
    reflections; of one with shifts those by nothing and by a half. The first changes nothing."""
    if not spec.symmetries:
        raise Unsupported(f"{spec.name} lists no symmetry to average over")
    coins = torch.tensor(list(product((0.0, 0.5), repeat=DRAWS)), dtype=torch.float64)
    # A reflection looks at one of the numbers, and the others would only repeat it.
    groups = [
        coins[[0, -1]] if isinstance(SYMMETRIES[name], Mirror) else coins
        for name in spec.symmetries
    ]
    return torch.stack([torch.stack(chosen) for chosen in product(*groups)])


def _permutable(batch: Batch, symmetry: Symmetry) -> bool:
    """True if the map is a permutation of inputs and one of queries that agree with each other."""
    if batch.grid is None or batch.query_grid is None:
        return False
    return symmetry.any_grid or batch.grid == batch.query_grid


def _move(symmetry: Symmetry, places: Tensor, element: Tensor, spec: Spec) -> Tensor:
    """Places (B or 1, ..., D) moved; where a mesh moves in time, all its places alike."""
    places = places.expand(element.shape[0], *places.shape[1:])
    return symmetry.move(places.flatten(1, -2), element, spec).view(places.shape)


def _permute(batch: Batch, symmetry: Symmetry, element: Tensor, spec: Spec) -> Batch:
    assert batch.grid is not None
    assert batch.query_grid is not None
    index = symmetry.permutation(element, batch.grid, spec).unsqueeze(-1)
    values = batch.values.gather(1, index.expand(-1, -1, batch.values.shape[-1]))
    targets = batch.targets
    if targets is not None:
        if batch.query_grid != batch.grid:
            index = symmetry.permutation(element, batch.query_grid, spec).unsqueeze(-1)
        b, t, _, k = targets.shape
        targets = targets.gather(2, index.unsqueeze(1).expand(b, t, -1, k))
    return replace(batch, values=values, targets=targets)


def _beside(flags: Tensor, fields: Tensor) -> Tensor:
    """One flag for each sample, shaped to broadcast over its fields."""
    return flags.view(-1, *[1] * (fields.ndim - 1))


def _turned(fields: Tensor, flags: Tensor, about: list[float | None]) -> Tensor:
    """Channels v with a middle m become m - v where flagged.

    Column by column: a tensor of the middles would be copied from the host, which a captured step
    cannot do.
    """
    if all(middle is None for middle in about):
        return fields
    columns = [
        v if middle is None else torch.where(_beside(flags, v), middle - v, v)
        for v, middle in zip(fields.unbind(-1), about, strict=True)
    ]
    return torch.stack(columns, -1)


def _base(name: str) -> str:
    """A channel's name without the frame that it belongs to: w(t-3) is w."""
    return name.split("(")[0]


def _coins(draw: Tensor) -> tuple[Tensor, ...]:
    return (draw >= 0.5).unbind(-1)


def _side(grid: tuple[int, ...]) -> int:
    if len(grid) != 2 or grid[0] != grid[1]:
        raise Unsupported(f"this symmetry needs a square grid, got {grid}")
    return grid[0]


def _places(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    line = torch.arange(n, device=device)
    return line.view(1, n, 1), line.view(1, 1, n)


def _row(like: Tensor, numbers: Iterable[float]) -> Tensor:
    """Numbers as a tensor, made on its device: a copy from the host could not be captured."""
    return torch.stack([torch.full((), x, dtype=like.dtype, device=like.device) for x in numbers])


def _wrap(points: Tensor, spec: Spec) -> Tensor:
    low = _row(points, (a for a, _ in spec.domain))
    period = _row(points, (p or 0.0 for p in spec.periods))
    inside = torch.remainder(points - low, torch.where(period > 0, period, 1.0)) + low
    return torch.where(period > 0, inside, points)
