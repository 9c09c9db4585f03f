"""Full-approximation multigrid for the steady Euler equations on a C-mesh.

Every mesh is smoothed by explicit Runge-Kutta steps with local time steps; the coarse ones are
first-order. States are injected, residuals restricted, corrections prolongated.

A coarse mesh drops every other node along both axes, but never the trailing edge or an end.
Prolongation is linear in the index. Restriction is its transpose: what flows out of a dropped cell
is handed to the cells around it, and nothing is lost. All of it is indexing and sums, no products
of matrices: the result of a sample does not depend on the others of its batch.

Brandt, Math. Comput. 31 (1977); Jameson, Appl. Math. Comput. 13 (1983).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.solvers import euler_flux, euler_grid, euler_residual
from ipot.solvers.euler_flux import Limiter
from ipot.solvers.euler_residual import Steps

_SECOND_ORDER = (0.1084, 0.2602, 0.5052, 1.0)
_FIRST_ORDER = (0.0833, 0.2069, 0.4265, 1.0)
# A mesh is coarsened while it has this many cells along every part of it.
_ENOUGH = 10
# A correction may take no more than this part of the density or the pressure at a node.
_MOST = 0.5


@dataclass(frozen=True)
class Settings:
    """How a cycle goes."""

    limiter: Limiter = "minmod"
    courant: float = 1.5
    relax: float = 1.0
    """The part of a coarse correction that is used."""
    after: int = 2
    """Smoothing steps on the finest mesh after its correction, which disturbs shocks."""


class Level:
    """One mesh, its state and its forcing."""

    def __init__(
        self,
        mesh: Float[Tensor, "B I J 2"],
        outside: Float[Tensor, "4 1 1"],
        limiter: Limiter | None,
    ) -> None:
        self.grid = euler_grid.build(mesh, outside.dtype)
        self.outside, self.limiter = outside, limiter
        self.stages = _FIRST_ORDER if limiter is None else _SECOND_ORDER
        self.state = outside.unsqueeze(-1).expand(4, *mesh.shape[:3]).contiguous()
        self.forcing: Tensor | None = None

    def residual(self) -> Float[Tensor, "4 B I J"]:
        """Outflow plus forcing, which a solution makes vanish."""
        total = euler_residual.outflow(self.state, self.grid, self.outside, self.limiter)
        return total if self.forcing is None else total.add_(self.forcing)

    def smooth(self, courant: float, first: Tensor | None = None) -> None:
        """One Runge-Kutta step; `first` is the residual at its start, where that is known."""
        start = self.state.clone()
        steps = Steps(start, self.grid, courant)
        for stage in self.stages:
            change = steps(self.residual() if first is None else first)
            first = None
            torch.sub(start, change, alpha=stage, out=self.state)


class Hierarchy:
    """A batch of meshes with their coarse meshes."""

    def __init__(
        self, mesh: Float[Tensor, "B I J 2"], outside: Float[Tensor, "4 1 1"], settings: Settings
    ) -> None:
        self.settings = settings
        self.levels = [Level(mesh, outside, settings.limiter)]
        self.axes: list[tuple[Axis, Axis]] = []
        wake = self.levels[0].grid.wake
        along, across = [wake, mesh.shape[1] - 1 - 2 * wake, wake], [mesh.shape[2] - 1]
        while min(*along, *across) >= _ENOUGH:
            axes = (
                Axis(along, outside.dtype, mesh.device),
                Axis(across, outside.dtype, mesh.device),
            )
            mesh, along, across = inject(mesh.movedim(-1, 0), axes), axes[0].parts, axes[1].parts
            mesh = mesh.movedim(0, -1)
            self.axes.append(axes)
            self.levels.append(Level(mesh, outside, None))

    @property
    def state(self) -> Float[Tensor, "4 B I J"]:
        """The state on the finest mesh, conserved."""
        return self.levels[0].state

    def start(self, steps: int, capture: Callable[..., Callable[[], None]]) -> None:
        """A first guess: the free stream on the coarsest mesh, smoothed and carried upwards.

        The finest mesh, the most expensive, has fewer steps: cycles do better there.
        """
        for number in reversed(range(len(self.levels))):
            level = self.levels[number]
            smooth = capture(lambda level=level: level.smooth(self.settings.courant), [level.state])
            for _ in range(steps if number else steps // 3):
                smooth()
            if number:
                guess = prolongate(level.state, self.axes[number - 1])
                self.levels[number - 1].state.copy_(guess)

    def cycle(self) -> None:
        """One W-cycle."""
        self._cycle(0, None)

    def _cycle(self, number: int, first: Tensor | None) -> None:
        level = self.levels[number]
        level.smooth(self.settings.courant, first)
        if number + 1 == len(self.levels):
            return
        coarse, axes = self.levels[number + 1], self.axes[number]
        wanted = self._restricted(level, coarse, axes)
        coarse.state.copy_(inject(level.state, axes))
        before = coarse.state.clone()
        coarse.forcing = None
        coarse.forcing = wanted - coarse.residual()
        # The forcing makes `wanted` the residual at the start of the first of two visits.
        self._cycle(number + 1, wanted)
        self._cycle(number + 1, None)
        correction = prolongate(coarse.state - before, axes).mul_(self.settings.relax)
        level.state.add_(_tamed(correction, level.state))
        for _ in range(0 if number else self.settings.after):
            level.smooth(self.settings.courant)

    @staticmethod
    def _restricted(level: Level, coarse: Level, axes: tuple[Axis, Axis]) -> Tensor:
        residual, copies = level.residual(), level.grid.wake + 1
        # Both copies of a wake node hold its whole residual: each hands on one half.
        residual[..., :copies, 0] /= 2
        residual[..., -copies:, 0] /= 2
        return euler_grid.merge(restrict(residual, axes), coarse.grid.wake)


def _tamed(change: Tensor, state: Tensor) -> Tensor:
    """A change, shortened where it would take too much of the density or the pressure.

    Between two states the pressure is at least what a straight line between its values says.
    """
    change = change * _share(state[0], state[0] + change[0])
    before = euler_flux.pressure(state).clamp_(min=euler_flux.LEAST)
    return change.mul_(_share(before, euler_flux.pressure(state + change)))


def _share(before: Tensor, after: Tensor) -> Tensor:
    """The part of the way to take, where going all of it would take too much."""
    return _MOST / (1 - after / before).clamp_(min=_MOST)


class Axis:
    """One axis of a mesh, made of parts whose ends are kept, and what its coarse mesh keeps."""

    def __init__(self, parts: list[int], dtype: torch.dtype, device: torch.device) -> None:
        self.parts = [(cells + 1) // 2 for cells in parts]
        nodes = sum(parts) + 1
        kept = _kept(parts)
        place = {node: number for number, node in enumerate(kept)}

        def number(node: int, towards: int) -> int:
            return place[node] if node in place else place[node + towards]

        def dropped(node: int, towards: int) -> int:
            beside = node + towards
            return beside if 0 <= beside < nodes and beside not in place else node

        def tensor(values: list[int]) -> Tensor:
            return torch.tensor(values, device=device)

        self.kept = tensor(kept)
        self.low = tensor([number(node, -1) for node in range(nodes)])
        self.high = tensor([number(node, 1) for node in range(nodes)])
        self.before = tensor([dropped(node, -1) for node in kept])
        self.behind = tensor([dropped(node, 1) for node in kept])
        # Half of a dropped node goes to either side; where none was dropped, nothing does.
        self.share_before = (self.before != self.kept).to(dtype) / 2
        self.share_behind = (self.behind != self.kept).to(dtype) / 2


def _kept(parts: list[int]) -> list[int]:
    """Every other node, with the ends of all parts.

    A part of an odd number of cells keeps one cell whole, at the end that lies in the middle of
    the axis, so that a mesh and its mirror image are coarsened alike.
    """
    kept, start, middle = [], 0, sum(parts) / 2
    for cells in parts:
        first = start if start + cells / 2 <= middle else start + cells % 2
        kept += [start, *range(first, start + cells, 2)]
        start += cells
    return sorted({*kept, start})


def inject(field: Float[Tensor, "*C I J"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C i j"]:
    """The values at the nodes that are kept."""
    return field.index_select(-2, axes[0].kept).index_select(-1, axes[1].kept)


def prolongate(field: Float[Tensor, "*C i j"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C I J"]:
    """Linear interpolation in the index along both axes."""
    for axis, dim in zip(axes, (-2, -1), strict=True):
        field = (field.index_select(dim, axis.low) + field.index_select(dim, axis.high)) / 2
    return field


def restrict(field: Float[Tensor, "*C I J"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C i j"]:
    """The transpose of `prolongate`."""
    for axis, dim in zip(axes, (-2, -1), strict=True):
        before, behind = axis.share_before, axis.share_behind
        if dim == -2:
            before, behind = before.unsqueeze(-1), behind.unsqueeze(-1)
        total = field.index_select(dim, axis.kept)
        total.addcmul_(field.index_select(dim, axis.before), before)
        field = total.addcmul_(field.index_select(dim, axis.behind), behind)
    return field
