# The first hour of an engineer: sixty VTU files of different meshes, a load on each, its deflection out.
# In an empty folder: bash meshes.sh
set -e

# Files in the place of yours: sixty to learn from, and ten that nobody has seen.
python - <<'EOF'
import numpy as np
from scipy.spatial import Delaunay

from ipot.formats import Case, Mesh, write_case

for i in range(70):
    rng = np.random.default_rng(i)
    points = rng.random((rng.integers(500, 700), 2))
    cells = Delaunay(points).simplices
    mesh = Mesh(
        kind="UnstructuredGrid",
        connectivity=cells.ravel(),
        offsets=np.arange(3, cells.size + 1, 3),
        types=np.full(len(cells), 5),  # VTK's number of a triangle
    )
    load = np.sin(3 * points[:, 0] + i)
    fields = {"load": load, "bend": load**3 * points[:, 1] ** 2}
    folder = "beams" if i < 60 else "new_beams"
    write_case(f"{folder}/{i}.vtu", Case(points=points, mesh=mesh, fields=fields))
EOF

# What is in there, and a model of it.
ipot data inspect beams
ipot fit beams --inputs load --targets bend --minutes 3 --out beam

# How good it is on the ten others, in numbers and in pictures.
ipot evaluate beam new_beams --json
ipot plot beam new_beams --sample 3 --out pictures

# Answers for ParaView: one new case, all new cases, and one with bounds.
ipot predict beam new_beams/60.vtu --out answer.vtu
ipot predict beam new_beams --out answers
ipot predict beam new_beams/60.vtu --interval 0.9 --out bounds.vtu

# The model without this package.
ipot export beam --out beam.pt2
