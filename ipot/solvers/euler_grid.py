"""A C-mesh as a finite-volume grid: dual cells around nodes, and what gradients need.

Every node owns the part of its quadrilaterals that is bounded by their centroids and the midpoints
of their edges. The face between two neighbours is then the line from one centroid over the
midpoint to the other centroid, of which only the ends matter. Edges point forwards along an axis
and lie in arrays of the nodes' shape, whose last entry is empty: both directions are then one
tensor (2, B, I, J), and one launch.

The wake is stored twice. Each copy gathers its own side; `merge` adds the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Grid:
    """The geometry of a batch of C-meshes with `wake` cells along either side of the wake."""

    wake: int
    normal: Float[Tensor, "2 2 B I J"]
    """Unit normals (x and y) of the faces between neighbours, for both directions."""
    area: Float[Tensor, "2 B I J"]
    """Lengths of the faces; zero for the empty ones."""
    edge: Float[Tensor, "2 2 B I J"]
    """From node to neighbour (x and y), for both directions."""
    volume: Float[Tensor, "B I J"]
    slopes: Float[Tensor, "4 2 B I J"]
    """Weights (x and y) of the differences ahead and behind, along i then j, in the gradient."""
    across: Float[Tensor, "2 2 B I J"]
    """Sums of the two face normals (x and y) of a node, for both directions."""
    girth: Float[Tensor, "B I J"]
    """The length of all faces of a node, those on the boundary included."""
    thin: Float[Tensor, "B I J"]
    """From 1/2 for cells as long as wide to 1 for cells that are four times longer along i."""
    wall: Float[Tensor, "2 B W"]
    """Normals of the wall at its nodes, out of the flow; from trailing edge to trailing edge."""
    far: Float[Tensor, "2 B F"]
    """Normals of the far boundary at its nodes, in the order of `boundary`."""

    @property
    def body(self) -> slice:
        """The nodes of the wall along the first axis."""
        return slice(self.wake, self.volume.shape[-2] - self.wake)


def build(mesh: Float[Tensor, "B I J 2"], dtype: torch.dtype) -> Grid:
    """The grid of a batch of meshes, computed in float64.

    The first axis must run around the body against the clock, and the second outwards.
    """
    wake = wake_cells(mesh)
    x = mesh.double().movedim(-1, 0)
    normal, volume = _faces(x), merge(_volumes(x), wake)
    bad = (~(volume > 0).flatten(1).all(1)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"the meshes {bad} fold over, or run the wrong way: volumes <= 0")
    edge = torch.stack((_ahead(x, -2) - x, _ahead(x, -1) - x), dim=1)
    area = normal.norm(dim=0)
    # Any direction will do for a face without length.
    unit = torch.where(area > 0, normal / area, 1.0)
    wall = _left(_halves(x[..., wake : x.shape[-2] - wake, 0]))
    far = torch.cat(
        (
            _right(_halves(x[..., 0, :])),
            _right(_halves(x[..., -1])),
            _left(_halves(x[..., -1, :])),
        ),
        dim=-1,
    )
    behind = torch.stack((_behind(normal[:, 0], -2), _behind(normal[:, 1], -1)), dim=1)
    across = normal + behind
    tensors = {
        "normal": unit,
        "area": area,
        "edge": edge,
        "volume": volume,
        "slopes": _slopes(edge, wake),
        "across": across,
        "girth": _girth(area, wall, far, wake),
        "thin": _thin(across, wake),
        "wall": wall,
        "far": far,
    }
    return Grid(wake=wake, **{name: t.to(dtype).contiguous() for name, t in tensors.items()})


def wake_cells(mesh: Float[Tensor, "B I J 2"]) -> int:
    """How many cells the wake has: as far as the first line of nodes meets itself."""
    line = mesh[:, :, 0]
    same = (line == line.flip(1)).all(-1).all(0)[: line.shape[1] // 2].long()
    count = int(same.cumprod(0).sum())
    if count < 2:
        raise ValueError(
            "a C-mesh starts along a wake whose nodes are stored twice, first from above and at "
            "the end from below; these two copies differ"
        )
    return count - 1


def merge(sums: Float[Tensor, "*C I J"], wake: int) -> Float[Tensor, "*C I J"]:
    """Add what both copies of the wake's nodes have gathered, in place."""
    upper, lower = sums[..., : wake + 1, 0], sums[..., -1 - wake :, 0]
    total = upper + lower.flip(-1)
    upper.copy_(total)
    lower.copy_(total.flip(-1))
    return sums


def boundary(field: Float[Tensor, "*C I J"]) -> Float[Tensor, "*C F"]:
    """A field along the far boundary: upper outflow, the outer line, lower outflow."""
    return torch.cat((field[..., 0, :], field[..., -1], field[..., -1, :]), dim=-1)


def add_boundary(sums: Float[Tensor, "*C I J"], values: Float[Tensor, "*C F"]) -> None:
    """Add what leaves through the far boundary to its nodes, in place."""
    rows, columns = sums.shape[-2:]
    sums[..., 0, :] += values[..., :columns]
    sums[..., -1] += values[..., columns : columns + rows]
    sums[..., -1, :] += values[..., columns + rows :]


def _ahead(field: Tensor, axis: int) -> Tensor:
    """The neighbour forwards; the last node is its own."""
    last = field.shape[axis] - 1
    return torch.cat((field.narrow(axis, 1, last), field.narrow(axis, last, 1)), axis)


def _behind(field: Tensor, axis: int) -> Tensor:
    """What belongs to the neighbour backwards; zero at the first node."""
    zero = torch.zeros_like(field.narrow(axis, 0, 1))
    return torch.cat((zero, field.narrow(axis, 0, field.shape[axis] - 1)), axis)


def _right(segment: Tensor) -> Tensor:
    """A segment (x and y first) turned by a quarter, with the clock."""
    return torch.stack((segment[1], -segment[0]))


def _left(segment: Tensor) -> Tensor:
    """A segment turned by a quarter, against the clock."""
    return torch.stack((-segment[1], segment[0]))


def _centroids(x: Tensor) -> Tensor:
    return (x[..., :-1, :-1] + x[..., 1:, :-1] + x[..., :-1, 1:] + x[..., 1:, 1:]) / 4


def _faces(x: Tensor) -> Tensor:
    """Normals of the faces, as long as these, pointing forwards along the edge."""
    centre = _centroids(x)
    normal = x.new_zeros(2, 2, *x.shape[1:])
    middle = (x[..., 1:, :] + x[..., :-1, :]) / 2
    ends = torch.cat((middle[..., :1], centre, middle[..., -1:]), -1)
    normal[:, 0, :, :-1] = _left(ends[..., 1:] - ends[..., :-1])
    middle = (x[..., 1:] + x[..., :-1]) / 2
    ends = torch.cat((middle[..., :1, :], centre, middle[..., -1:, :]), -2)
    normal[:, 1, ..., :-1] = _right(ends[..., 1:, :] - ends[..., :-1, :])
    return normal


def _volumes(x: Tensor) -> Tensor:
    """Half of the triangle from every edge to a centroid, for both ends of the edge."""
    centre, volume = _centroids(x), torch.zeros_like(x[0])
    low, high = slice(None, -1), slice(1, None)
    corners = [(low, low), (low, high), (high, high), (high, low)]
    for here, there in zip(corners, corners[1:] + corners[:1], strict=True):
        a, b = x[(..., *here)] - centre, x[(..., *there)] - centre
        half = (a[0] * b[1] - a[1] * b[0]) / 4
        volume[(..., *here)] += half
        volume[(..., *there)] += half
    return volume


def _slopes(edge: Tensor, wake: int) -> Tensor:
    """Least squares over the neighbours: the gradient is a sum of weights times differences."""
    weight = torch.ones_like(edge[0])
    # Edges along the wake are seen from both of its sides.
    weight[0, :, :wake, 0] = 0.5
    weight[0, :, -1 - wake : -1, 0] = 0.5
    scaled = edge * weight
    # Backwards, the difference of places and that of values both change sign: their product does
    # not, so that forward edges serve both of their ends.
    stencil = torch.stack(
        (scaled[:, 0], _behind(scaled[:, 0], -2), scaled[:, 1], _behind(scaled[:, 1], -1))
    )
    dx, dy = edge
    moments = torch.stack((dx * dx, dx * dy, dy * dy)) * weight
    total = moments.sum(1) + _behind(moments[:, 0], -2) + _behind(moments[:, 1], -1)
    xx, xy, yy = merge(total, wake)
    sx, sy = stencil.unbind(1)
    return torch.stack((yy * sx - xy * sy, xx * sy - xy * sx), dim=1) / (xx * yy - xy * xy)


def _halves(line: Tensor) -> Tensor:
    """Half of the segments of a line that meet in each of its nodes."""
    half = (line[..., 1:] - line[..., :-1]) / 2
    return torch.nn.functional.pad(half, (0, 1)) + torch.nn.functional.pad(half, (1, 0))


def _girth(area: Tensor, wall: Tensor, far: Tensor, wake: int) -> Tensor:
    total = area.sum(0) + _behind(area[0], -2) + _behind(area[1], -1)
    total[:, wake : total.shape[-2] - wake, 0] += wall.norm(dim=0)
    add_boundary(total, far.norm(dim=0))
    return merge(total, wake)


def _thin(across: Tensor, wake: int) -> Tensor:
    long, wide = merge(across.norm(dim=0), wake).flip(0)
    return ((long / wide - 1) / 3).clamp(0, 1) / 2 + 0.5
