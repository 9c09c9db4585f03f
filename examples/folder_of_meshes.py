"""A folder of meshes, no two alike: learn from VTU files, answer on a new one, open it in ParaView.

    pip install ipot
    python examples/folder_of_meshes.py [--minutes 1.5]

A plate with a round hole, now here and now there, is heated: -Δu = 1, and u = 0 at the walls, by
finite elements. The files say which nodes are walls, and how warm it gets.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay, KDTree

import ipot
from ipot.formats import Case, Mesh, read_cases, write_case
from ipot.surrogate.cases import predict_case

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=1.5)
parser.add_argument("--out", type=Path, default=Path("runs/folder_of_meshes"))
flags, rng = parser.parse_args(), np.random.default_rng(0)


def plate(h):
    """A case of triangles with nodes about h apart, and on them `wall` and `u`."""
    centre, radius = rng.uniform(0.3, 0.7, 2), rng.uniform(0.1, 0.2)
    s, turn = np.arange(0, 1, h), np.arange(0, 2 * np.pi, h / radius)
    sides = [(s, 0 * s), (0 * s + 1, s), (1 - s, 0 * s + 1), (0 * s, 1 - s)]
    rim = centre[:, None] + radius * np.stack([np.cos(turn), np.sin(turn)])
    walls = np.concatenate([*sides, rim], axis=1).T
    inner = np.stack(np.meshgrid(s, s), -1) + h * rng.uniform(0.2, 0.8, (len(s), len(s), 2))
    keep = (np.linalg.norm(inner - centre, axis=-1) > radius) & (inner.max(-1) < 1)
    points = np.concatenate([walls, inner[keep & (KDTree(walls).query(inner)[0] > 0.6 * h)]])
    cells = Delaunay(points).simplices
    cells = cells[np.hypot(*(points[cells].mean(1) - centre).T) > radius]
    edges = points[cells[:, [2, 0, 1]]] - points[cells[:, [1, 2, 0]]]
    area = np.abs(np.linalg.det(edges[:, :2])) / 2
    stiff = np.einsum("tid,tjd->tij", edges, edges) / (4 * area[:, None, None])
    places = np.repeat(cells, 3, 1).ravel(), np.tile(cells, 3).ravel()
    matrix = sparse.csc_matrix((stiff.ravel(), places))[len(walls) :, len(walls) :]
    load = np.bincount(cells.ravel(), np.repeat(area / 3, 3))
    u = np.concatenate([np.zeros(len(walls)), spsolve(matrix, load[len(walls) :])])
    ends, types = np.arange(3, cells.size + 1, 3), np.full(len(cells), 5)
    mesh = Mesh(kind="UnstructuredGrid", connectivity=cells.ravel(), offsets=ends, types=types)
    return Case(points=points, mesh=mesh, fields={"wall": 1.0 * (u == 0), "u": u})


for i in range(300):
    write_case(flags.out / "plates" / f"{i}.vtu", plate(h=rng.uniform(0.045, 0.075)))
write_case(flags.out / "new.vtu", plate(h=0.045))
model = ipot.fit(flags.out / "plates", inputs="wall", targets="u", minutes=flags.minutes)
answer = predict_case(model, read_cases(flags.out / "new.vtu")[0])
truth, found = (answer.fields[name] for name in ("u", "u_predicted"))
write_case(flags.out / "answer.vtu", answer)
error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
print(f"{100 * error:.1f} % on {len(truth)} new nodes; open {flags.out}/answer.vtu")
