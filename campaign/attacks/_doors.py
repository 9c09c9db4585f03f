"""The ways into the package that a changed file is tried at, and what must hold of what comes out.

A door returns named arrays. Those of a data set and the answers of a model must be finite; none may
hold the number of the secret files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np

from campaign.attack import Lost
from campaign.attacks._seeds import SECRET, Seed
from ipot.errors import DataError
from ipot.formats import Arrays, Case, Inventory, Mesh, Trajectories, read_cases

Named = Iterator[tuple[str, np.ndarray]]
Door = Callable[[Path, Seed], Named]


def digest(found: Named, *, linked: bool = False) -> tuple[str, int, list[str]]:
    """What came out of a door: a digest, bytes in all, and a digest of each array.

    `linked` says that a link in the folder itself leads to a secret file: whoever puts it there
    means it, and people do keep their files elsewhere.
    """
    whole, size, each = hashlib.blake2b(digest_size=12), 0, []
    for name, array in found:
        array = np.asarray(array)
        if array.dtype.kind not in "biufSUMm":
            raise Lost(f"{name} came back as {array.dtype}")
        if not linked and array.dtype in (np.float32, np.float64) and np.any(array == SECRET):
            raise Lost(f"{name} holds numbers of a file outside of the case's folder")
        size += array.nbytes
        raw = np.ascontiguousarray(array).tobytes()
        each.append(hashlib.blake2b(raw, digest_size=12).hexdigest())
        whole.update(f"{name}/{array.shape}/{array.dtype.str}/{each[-1]}".encode())
    return whole.hexdigest(), size, each


def _finite(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise Lost(f"{name} is not finite")
    return name, array


def _mesh(mesh: Mesh, points: int) -> Named:
    joined, ends = mesh.connectivity, mesh.offsets
    if len(joined) and (int(joined.min()) < 0 or int(joined.max()) >= points):
        raise Lost(f"cells have points {joined.min()} to {joined.max()} of {points}")
    if len(mesh.types) != len(ends):
        raise Lost(f"{len(mesh.types)} types of {len(ends)} cells")
    if len(ends) and (np.any(np.diff(ends.astype(object)) < 0) or int(ends[-1]) > len(joined)):
        raise Lost(f"cells end at {ends[:5]} of {len(joined)}")
    yield from (("joined", joined), ("ends", ends), ("types", mesh.types))


def _case(i: int, case: Case) -> Named:
    if case.points.dtype.kind not in "fiub":
        raise Lost(f"points are of {case.points.dtype}")
    yield f"{i}/points", case.points
    for part in ("fields", "cell_fields", "parameters"):
        for name, array in getattr(case, part).items():
            yield f"{i}/{part}/{name}", array
    if case.mesh is not None:
        yield from _mesh(case.mesh, len(case.points))


def _arrays(found: Arrays) -> Named:
    for name in ("points", "values", "queries", "targets", "parameters", "times", "weights"):
        value = getattr(found, name)
        for i, array in enumerate(value if isinstance(value, list) else [value]):
            if array is not None:
                yield f"{name}/{i}", array


def _trajectories(found: Trajectories) -> Named:
    yield from (("points", found.points), ("times", found.times))
    yield from found.parameters.items()
    for name, stored in found.fields.items():
        count, steps, nodes, width = stored.shape
        for trajectory in range(count):
            array = stored.read(trajectory)
            wanted = (1 if stored.steady else steps, nodes, width)
            if array.shape not in (wanted, (steps, nodes, width)):
                raise Lost(f"{name} has the shape {array.shape} and says {wanted}")
            yield f"{name}/{trajectory}", array


def read(path: Path, seed: Seed) -> Named:
    """Cases, arrays or trajectories, all of them read."""
    found = read_cases(path)
    if isinstance(found, Arrays):
        yield from _arrays(found)
    elif isinstance(found, Trajectories):
        yield from _trajectories(found)
    else:
        for i in range(len(found)):
            yield from _case(i, found[i])


def inspect(path: Path, seed: Seed) -> Named:
    """What `ipot data inspect` shows."""
    from ipot.formats import inspect

    found: Inventory = inspect(path)
    # In the order of names: Zarr lists them as its folder does, which is any.
    variables = sorted(found.variables, key=lambda v: v.name)
    for v in variables:
        numbers = [n for n in (v.low, v.mean, v.high) if n is not None]
        slack = 1e-6 * max(map(abs, numbers), default=0.0)
        if all(map(math.isfinite, numbers)) and any(b < a - slack for a, b in pairwise(numbers)):
            raise Lost(f"{v.name}: lowest, mean and highest are {numbers}")
        yield f"range of {v.name!r}", np.array(numbers)
        if v.missing < 0:
            raise Lost(f"{v.name} misses {v.missing}")
    if found.cases < 0:
        raise Lost(f"there are {found.cases} cases")
    shown = [asdict(v) for v in variables]
    yield "inventory", np.array([repr(shown), str(found.cases), str(found.points)])


def dataset(path: Path, seed: Seed) -> Named:
    """A data set as `ipot.fit` makes it of a path."""
    from ipot.formats.open_data import open_data

    data = open_data(path, **seed.options).data
    spec = data.spec
    if not len(data):
        raise Lost("a data set without samples")
    for i in range(len(data)):
        sample = data[i]
        for name, width in (("values", spec.channels), ("targets", len(spec.outputs))):
            array = getattr(sample, name).numpy()
            if array.shape[-1] != width:
                raise Lost(f"{name} has {array.shape[-1]} channels and should have {width}")
            yield _finite(f"{i}/{name}", array)
        for name in ("points", "queries", "parameters"):
            if (value := getattr(sample, name)) is not None:
                yield _finite(f"{i}/{name}", value.numpy())


def labelled(path: Path, seed: Seed) -> Named:
    """Everything in a labelled file, read as it is.

    What is opened is xarray's own, and so are its errors while it reads.
    """
    from ipot.formats.xarray_files import open_series

    found = open_series(path)
    for name in sorted(found.data_vars, key=str):
        array = found[name]
        if array.dtype.kind in "biuf":
            try:
                values = array.values
            except Exception as error:
                raise DataError(f"xarray cannot read {name}: {error}") from error
            if values.shape != array.shape:
                raise Lost(f"{name} has the shape {values.shape} and says {array.shape}")
            yield str(name), values


def npy(path: Path, seed: Seed) -> Named:
    """One array, as published files are read."""
    from ipot.data.readers import read_npy

    yield "array", read_npy(path)


def burgers(path: Path, seed: Seed) -> Named:
    """The rows of a published .mat file."""
    from ipot.problems.burgers import PROBLEM

    for split, count in (("train", 3), ("test", 2)):
        for name, rows in PROBLEM.read(split, count, path).items():
            if len(rows) != count:
                raise Lost(f"{name} has {len(rows)} rows of {count}")
            yield _finite(f"{split}/{name}", rows.numpy())


def elasticity(path: Path, seed: Seed) -> Named:
    """Samples of published .npy files."""
    from ipot.problems.elasticity import PROBLEM

    for name, rows in PROBLEM.read("train", 1, path).items():
        if len(rows) != 1:
            raise Lost(f"{name} has {len(rows)} rows of 1")
        yield _finite(name, rows.numpy())


def sst(path: Path, seed: Seed) -> Named:
    """The record of the surface of the sea."""
    from ipot.data import sst as module

    found = module.read(path)
    if found.sst.shape != (len(found.day), len(found.latitude)):
        raise Lost(f"temperatures of shape {found.sst.shape}")
    for name in ("sst", "latitude", "longitude"):
        yield _finite(name, getattr(found, name))


def snapshots(path: Path, seed: Seed) -> Named:
    """Snapshots in the layout of Dedalus."""
    from ipot.data import dedalus

    found = dedalus.read(path, ("height", "vorticity"), 3)
    shape = (3, len(found.latitudes), len(found.longitudes))
    for name, array in found.fields.items():
        if array.shape != shape:
            raise Lost(f"{name} has the shape {array.shape} and the grid {shape}")
        yield _finite(name, array)
    for name in ("times", "latitudes", "longitudes"):
        yield _finite(name, getattr(found, name))


DOORS: dict[str, Door] = {
    "read": read,
    "inspect": inspect,
    "dataset": dataset,
    "labelled": labelled,
    "npy": npy,
    "burgers": burgers,
    "elasticity": elasticity,
    "dedalus": snapshots,
    "sst": sst,
    "pieces": lambda path, seed: read(path / "a.pvtu", seed),
    "piece list": lambda path, seed: inspect(path / "a.pvtu", seed),
    "image pieces": lambda path, seed: read(path / "a.pvti", seed),
    "blocks": lambda path, seed: read(path / "a.vtm", seed),
    "ensight": lambda path, seed: read(path / "a.case", seed),
    "openfoam": lambda path, seed: read(path / "a.foam", seed),
}
