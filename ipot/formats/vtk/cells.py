"""Cells of meshes as VTK counts them: checks, orders and groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ipot.errors import DataError
from ipot.formats.fields import Mesh

GROUPS = ("Verts", "Lines", "Strips", "Polys")
"""The lists of cells that a surface has, in the order of `Mesh.counts`."""

DATA_ORDER = ("Verts", "Lines", "Polys", "Strips")
"""The order in which cell data follow them in a file, which is another."""

POLYHEDRON, CONVEX_POINT_SET = 42, 41

_GROUP_OF = {1: "Verts", 2: "Verts", 3: "Lines", 4: "Lines", 6: "Strips"} | dict.fromkeys(
    (5, 7, 9), "Polys"
)


def check_cells(mesh: Mesh, points: int, where: str) -> None:
    """Refuse cells that do not fit together or name points that do not exist."""
    ends, joined = mesh.offsets, mesh.connectivity
    if any(part.ndim != 1 or part.dtype.kind not in "iu" for part in (ends, joined, mesh.types)):
        raise DataError(
            f"{where}: offsets, connectivity and types of cells must be rows of integers"
        )
    if len(mesh.types) != len(ends):
        raise DataError(f"{where}: {len(ends)} cells have {len(mesh.types)} types")
    if len(ends) and (mesh.types.min() < 0 or mesh.types.max() > 255):
        raise DataError(f"{where}: types of cells must be from 0 to 255, as VTK numbers them")
    total = int(ends[-1]) if len(ends) else 0
    if np.any(ends[1:] < ends[:-1]) or (len(ends) and ends[0] < 0) or total != len(joined):
        raise DataError(
            f"{where}: the offsets of cells must not decrease and must end at {len(joined)}, the "
            "number of corners listed: the file is damaged"
        )
    if len(joined) and (joined.min() < 0 or joined.max() >= points):
        raise DataError(
            f"{where}: cells join points {joined.min()} to {joined.max()}; there are {points}, "
            "counted from 0"
        )


def surface_types(group: str, lengths: np.ndarray) -> np.ndarray:
    """VTK's types of the cells of a surface, which a file gives by their group and length alone."""
    one, other = {"Verts": (1, 2), "Lines": (3, 4), "Strips": (6, 6), "Polys": (5, 7)}[group]
    types = np.full(len(lengths), other, np.uint8)
    types[lengths == {"Verts": 1, "Lines": 2}.get(group, 3)] = one
    if group == "Polys":
        types[lengths == 4] = 9
    return types


def ranks(types: np.ndarray, order: tuple[str, ...]) -> np.ndarray:
    """For every cell the place of its group in an order; -1 where it is no part of a surface."""
    table = np.full(256, -1, np.int8)
    for number, group in _GROUP_OF.items():
        table[number] = order.index(group)
    return table[types.astype(np.uint8)]


def take_cells(mesh: Mesh, order: np.ndarray) -> Mesh:
    """The same cells in another order, or some of them."""
    ends = mesh.offsets.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    new_ends = np.cumsum(lengths[order])
    shift = (ends - lengths)[order] - (new_ends - lengths[order])
    index = np.arange(new_ends[-1] if len(order) else 0) + np.repeat(shift, lengths[order])
    return replace(
        mesh, connectivity=mesh.connectivity[index], offsets=new_ends, types=mesh.types[order]
    )


def join_meshes(meshes: list[Mesh], points: list[int]) -> Mesh:
    """The cells of several pieces as one list; `points` says how many each piece has."""
    shifts = np.cumsum([0, *points[:-1]])
    corners = np.cumsum([0, *(len(mesh.connectivity) for mesh in meshes[:-1])])
    verts, lines, strips, polys = (sum(mesh.counts[k] for mesh in meshes) for k in range(4))
    return Mesh(
        kind=meshes[0].kind,
        connectivity=np.concatenate(
            [mesh.connectivity + shift for mesh, shift in zip(meshes, shifts, strict=True)]
        ),
        offsets=np.concatenate(
            [mesh.offsets + shift for mesh, shift in zip(meshes, corners, strict=True)]
        ),
        types=np.concatenate([mesh.types for mesh in meshes]),
        counts=(verts, lines, strips, polys),
    )
