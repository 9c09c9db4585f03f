"""Small files of every format, as people have them, for fits and predictions."""

import numpy as np

from ipot.formats import Case, Mesh, Trajectories, write_case, write_cases
from ipot.formats.fields import TrajectoryField
from ipot.formats.the_well import write_well
from own import tiny


def triangles(side):
    """A square of so many points a side, in triangles; points in space, as mesh files have them."""
    line = np.linspace(0, 1, side)
    x, y = np.meshgrid(line, line, indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), np.zeros(side * side)], 1)
    corner = np.arange(side * side).reshape(side, side)[:-1, :-1].ravel()
    cells = [[corner, corner + side, corner + 1], [corner + 1, corner + side, corner + side + 1]]
    connectivity = np.concatenate([np.stack(c, 1) for c in cells]).ravel()
    count = len(connectivity) // 3
    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=connectivity,
        offsets=3 * np.arange(1, count + 1),
        types=np.full(count, 5, np.uint8),
    )
    return points, mesh


def case(i, side=None):
    """One case: fields at points and on cells, and a number, on a mesh of its own."""
    points, mesh = triangles(side or 3 + i % 3)
    points[:, 2] = 0.5
    a, u = (w[0] for w in tiny.waves(1, points[:, :2], seed=i))
    wind = np.stack([a, 2 * a, 0 * a], 1)
    centres = mesh.centres(points)
    return Case(
        points=points,
        fields={"a": a, "u": u, "wind": wind},
        mesh=mesh,
        cell_fields={"p": np.cos(centres[:, 0] + i), "q": np.sin(centres[:, 1] + i)},
        parameters={"re": np.array([float(i)])},
        units={"u": "Pa", "p": "K"},
    )


def on_one_mesh(i):
    """Points without cells, the same in every case."""
    found = case(i, side=3)
    points = found.points[:, :2]
    fields = {n: f for n, f in found.fields.items() if n != "wind"}
    return Case(points=points, fields=fields, parameters=found.parameters)


def folder(path, suffix, count=8, make=case):
    for i in range(count):
        write_case(path / f"case{i}{suffix}", make(i))
    return path


def hdf5(path, count=8, make=case):
    write_cases(path, [make(i) for i in range(count)])
    return path


def table(path, count=8):
    """Points of all cases in one file, with a column that tells them apart."""
    lines = ["case,x,y,re,a,u"]
    for i in range(count):
        c = on_one_mesh(i)
        for (x, y), a, u in zip(c.points, c.fields["a"], c.fields["u"], strict=True):
            lines.append(f"{i},{x},{y},{float(i)},{a},{u}")
    path.write_text("\n".join(lines) + "\n")
    return path


def npz(path, kind="mesh", count=10):
    given = tiny.arrays(kind, count)
    np.savez(path, **given)
    return path


def npy(path, kind="mesh"):
    path.mkdir()
    for name, array in tiny.arrays(kind).items():
        np.save(path / f"{name}.npy", array)
    return path


def trajectories(count=4, frames=9, grid=(4, 3), *, steady=True):
    """Waves that travel over a grid, a wind of two components, and a map that stays."""
    lines = [np.linspace(0, 1, n, endpoint=False) for n in grid]
    nodes = np.stack([n.ravel() for n in np.meshgrid(*lines, indexing="ij")], 1)
    times = 0.5 * np.arange(frames)
    speed = 0.1037 + 0.05 * np.arange(count)
    phase = nodes[:, 0] - speed[:, None, None] * times[:, None]
    height = np.cos(2 * np.pi * phase)[..., None]
    wind = np.concatenate([height, 2 * height], -1)
    fields = {"h": _field(height, ("h",)), "wind": _field(wind, ("wind_x", "wind_y"))}
    if steady:
        ground = np.broadcast_to(nodes[:, 1:], (count, frames, len(nodes), 1))
        fields["ground"] = _field(ground, ("ground",), steady=True)
    return Trajectories(
        points=nodes,
        grid=grid,
        times=times,
        fields=fields,
        parameters={"speed": speed},
        axes=("x", "y"),
        periods=(1.0, None),
        units={"wind": "m/s", "h": "m"},
        name="waves",
        source="waves",
    )


def _field(array, components, *, steady=False):
    return TrajectoryField(
        shape=array.shape,
        dtype=array.dtype,
        components=components,
        steady=steady,
        pieces=lambda trajectory, times: array[trajectory, times],
    )


def well(path, **sizes):
    write_well(path, trajectories(**sizes))
    return path
