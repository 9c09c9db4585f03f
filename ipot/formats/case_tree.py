"""A case as arrays in a tree of names, which .npz and HDF5 files share.

    points                           (N, D)
    fields/<name>                    (N) or (N, components)
    cells/<name>                     (cells) or (cells, components)
    mesh/connectivity, offsets, types, counts
    parameters/<name>                (count)

Beside them stand texts: `units/<name>` and `mesh/kind`. Names are percent-encoded where they hold
what a path cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from ipot.errors import DataError
from ipot.formats.fields import Case, Mesh
from ipot.formats.limits import check_numbers

FORMAT = "ipot-cases"

VERSION = 1

GROUPS = {"fields": "fields", "cells": "cell_fields", "parameters": "parameters"}

MESH = ("connectivity", "offsets", "types", "counts")


def check_version(source: str, version: Any) -> None:
    """Refuse a layout from the future, or from nowhere."""
    try:
        found = int(version)
    except (TypeError, ValueError):
        found = 0
    if found != VERSION:
        raise DataError(
            f"{source} has version {version} of the layout {FORMAT}; this ipot reads version "
            f"{VERSION}. Update ipot, or write the file again."
        )


def pack(case: Case) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and texts by their paths."""
    arrays = {"points": case.points}
    texts = {f"units/{written(name)}": str(unit) for name, unit in case.units.items()}
    for group, attribute in GROUPS.items():
        for name, array in getattr(case, attribute).items():
            arrays[f"{group}/{written(name)}"] = np.asarray(array)
    if case.mesh is not None:
        mesh = case.mesh
        arrays |= {f"mesh/{n}": np.asarray(getattr(mesh, n)) for n in MESH[:3]}
        arrays["mesh/counts"] = np.asarray(mesh.counts, np.int64)
        texts["mesh/kind"] = mesh.kind
    return arrays, texts


def unpack(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str], source: str) -> Case:
    """The case that was packed."""
    found: dict[str, dict[str, np.ndarray]] = {attribute: {} for attribute in GROUPS.values()}
    mesh: dict[str, np.ndarray] = {}
    for path, array in arrays.items():
        check_numbers(f"{path} of {source}", array.dtype)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        group, _, name = path.partition("/")
        if group == "mesh" and name in MESH:
            mesh[name] = array
        elif group in GROUPS and name:
            found[GROUPS[group]][read_back(name)] = array
        elif path != "points":
            raise DataError(f"{source} holds {path}, which no case has: write it again")
    if "points" not in arrays:
        raise DataError(f"{source} has no points: (N, D) places are expected")
    for name, array in found["parameters"].items():
        if array.ndim > 1:
            raise DataError(f"{source}: parameter {name} must be (count), got {array.shape}")
    found["parameters"] = {n: np.atleast_1d(a) for n, a in found["parameters"].items()}
    units = {
        read_back(path.partition("/")[2]): unit
        for path, unit in texts.items()
        if path.startswith("units/")
    }
    points = arrays["points"]
    if points.ndim != 2:
        raise DataError(f"{source}: points must be (N, D), got shape {points.shape}")
    points = points.astype(points.dtype.newbyteorder("="), copy=False)
    joined = _mesh(mesh, texts.get("mesh/kind"), len(points), source) if mesh else None
    return Case(
        points=points,
        mesh=joined,
        units=units,
        source=source,
        fields=found["fields"],
        cell_fields=found["cell_fields"],
        parameters=found["parameters"],
    )


def texts(source: str, content: Any) -> dict[str, str]:
    """The texts of a file, where they are texts by name."""
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        raise DataError(f"{source}: its description is damaged; write it again")
    return content


def _mesh(found: dict[str, np.ndarray], kind: str | None, points: int, source: str) -> Mesh:
    missing = [name for name in MESH if name not in found]
    if missing or kind is None:
        raise DataError(f"{source}: its mesh lacks {', '.join(missing or ['kind'])}")
    for name, array in found.items():
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(
                f"{source}: mesh/{name} must be a row of whole numbers, got {array.dtype} of "
                f"shape {array.shape}"
            )
    ends, corners = found["offsets"], found["connectivity"]
    if len(found["types"]) != len(ends) or len(found["counts"]) != 4:
        raise DataError(
            f"{source}: its mesh has {len(ends)} cells, {len(found['types'])} types and "
            f"{len(found['counts'])} counts; a type for each cell and 4 counts are expected"
        )
    in_order = not len(ends) or (np.all(ends[1:] >= ends[:-1]) and ends[0] >= 0)
    if not in_order or (int(ends[-1]) if len(ends) else 0) != len(corners):
        raise DataError(f"{source}: the ends of its cells do not fit their {len(corners)} corners")
    if len(corners) and not 0 <= int(corners.min()) <= int(corners.max()) < points:
        raise DataError(
            f"{source}: its cells join points {corners.min()} to {corners.max()}; there are "
            f"{points}, counted from 0"
        )
    counts = tuple(int(n) for n in found["counts"])
    return Mesh(
        kind=kind,
        connectivity=corners,
        offsets=ends,
        types=found["types"],
        counts=(counts[0], counts[1], counts[2], counts[3]),
    )


def written(name: str) -> str:
    """A name as a part of a path inside a file: any name comes back as it was."""
    # A dot alone means a place in HDF5, and an empty name nothing at all.
    return quote(name, safe=" ()[]+-=,:", errors="surrogatepass").replace(".", "%2E") or "%"


def read_back(name: str) -> str:
    """What `written` was given."""
    return "" if name == "%" else unquote(name, errors="surrogatepass")
