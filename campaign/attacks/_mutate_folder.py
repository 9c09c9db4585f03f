"""Changes to folders: what lies in them, where links lead, and what Zarr's metadata say."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from campaign.attacks._mutate import (
    Around,
    Inapplicable,
    Link,
    Tree,
    content,
    mutator,
    pick_file,
)
from campaign.attacks._mutate_text import ODD


@mutator("folder entries")
def _entries(tree: Tree, random: Random, around: Around) -> None:
    """Files that are missing, empty, exchanged, doubled, or not what their names say."""
    if len(tree) < 2:
        raise Inapplicable
    one, two = pick_file(tree, random), pick_file(tree, random)
    kind = random.randrange(8)
    if kind == 0:
        del tree[one]
    elif kind == 1:
        tree[one] = b""
    elif kind == 2:
        tree[one], tree[two] = tree[two], tree[one]
    elif kind == 3:
        tree[one] = tree[two]
    elif kind == 4:
        folder, _, last = one.rpartition("/")
        stem, dot, suffix = last.rpartition(".")
        names = (f"{stem} (1){dot}{suffix}", f".{last}.tmp", f"{stem}\n{dot}{suffix}", "x" * 200)
        tree[f"{folder}/{random.choice((*names, f'ä{dot}{suffix}', f'-{last}'))}"] = tree[one]
    elif kind == 5:
        data = content(tree, one)
        del tree[one]
        tree[f"{one}/inside"] = data
    elif kind == 6:
        tree[f"{one}.txt"] = b"a remark"
    else:
        tree[f"{one.rpartition('/')[0]}/more"] = random.randbytes(50)


@mutator("folder links")
def _links(tree: Tree, random: Random, around: Around) -> None:
    """Symbolic links in the place of files: to secrets, to nothing, and in a circle."""
    one = pick_file(tree, random)
    suffix = one.rpartition(".")[2]
    secrets = {"npy": "secret.npy", "vtu": "secret.vtu", "h5": "secret.h5", "csv": "secret.csv"}
    name = secrets.get(suffix, "secret.raw")
    aims = (str(around.secrets / name), str(around.secrets / name), "no-such", one.split("/")[-1])
    tree[one] = Link(random.choice((*aims, "/dev/null", ".")))


ZARR = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")
CODECS: tuple[Any, ...] = (
    [{"id": "pickle"}],
    [{"id": "zlib", "level": 99}],
    [{"id": "no-such"}],
    [{"name": "bytes"}, {"name": "bytes"}],
    [{"name": "transpose", "configuration": {"order": [5, 5]}}, {"name": "bytes"}],
    [{"name": "sharding_indexed", "configuration": {"chunk_shape": [0]}}],
    [{"name": "gzip", "configuration": {"level": 1}}],
    [{"name": "bytes", "configuration": {"endian": "big"}}],
    [],
)
FIELDS: dict[str, tuple[Any, ...]] = {
    "shape": ([0], [], [-1], [2**40, 3, 4], [2**62], [1] * 40, [20, 3], [21, 3, 4], "x", None),
    "chunks": ([0, 3, 4], [1, 1, 1], [2**31, 3, 4], [], [-1, -1, -1], None),
    "chunk_grid": ({}, {"name": "regular", "configuration": {"chunk_shape": [0, 0, 0]}}, None),
    "dtype": ("|O", ">f4", "<f8", "<i2", "<U4", "|V8", "<M8[ns]", [["a", "<f4"]], "x", 5),
    "data_type": ("float64", "int8", "string", "r8", "complex64", {"name": "struct"}, 5),
    "codecs": CODECS,
    "filters": CODECS,
    "compressor": tuple(c[0] if c else None for c in CODECS),
    "fill_value": ("NaN", "Infinity", 10**400, "AAAA", None, [], {}, 5),
    "order": ("F", "X", None),
    "dimension_separator": ("/", "../", "", None),
    "node_type": ("group", "array", "x"),
    "zarr_format": (1, 2, 3, 4, "3"),
    "dimension_names": (["time", "time", "time"], [None] * 3, ["a"], "x", ["../x", "", "\0"]),
    "attributes": ({}, {"_ARRAY_DIMENSIONS": ["time"]}, {"units": 5}, {"scale_factor": 0}, []),
    "storage_transformers": ([{"name": "x"}],),
}


@mutator("zarr metadata")
def _zarr(tree: Tree, random: Random, around: Around) -> None:
    name = pick_file(tree, random, *ZARR)
    meta = json.loads(content(tree, name))
    known = [key for key in FIELDS if key in meta] or list(meta)
    key = random.choice(known)
    values = FIELDS.get(key, ODD)
    meta[key] = random.choice((*values, random.choice(ODD)) if random.random() < 0.3 else values)
    tree[name] = json.dumps(meta).encode(errors="surrogatepass")


@mutator("zarr chunk")
def _chunk(tree: Tree, random: Random, around: Around) -> None:
    """A chunk that is missing, cut, somebody else's, or a link to a secret."""
    chunks = [n for n in sorted(tree) if not n.endswith(ZARR) and isinstance(tree[n], bytes)]
    if not chunks:
        raise Inapplicable
    one = random.choice(chunks)
    data = content(tree, one)
    kind = random.randrange(5)
    if kind == 0:
        del tree[one]
    elif kind == 1:
        tree[one] = data[: random.randrange(len(data) + 1)]
    elif kind == 2:
        tree[one] = content(tree, random.choice(chunks))
    elif kind == 3:
        tree[one] = Link(str(around.secrets / "secret.raw"))
    else:
        tree[one] = random.randbytes(len(data))
