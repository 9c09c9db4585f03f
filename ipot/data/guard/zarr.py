"""What a Zarr store may hold: files inside its folder, known codecs, as many chunks as it has.

Only the metadata beside the arrays is read, never the consolidated copy, whose names could lead
out of the store.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data.guard.paths import file_or_folder, refuse_leaving, shown
from ipot.errors import DataError
from ipot.memory import SMALL, SQUEEZED

SPARSE = 100_000
"""Chunks that any array may have, stored or not."""
JSON = 2**26
"""Bytes of one file of metadata."""
DEEP = 32
CODECS = frozenset(
    (
        *("blosc", "zlib", "gzip", "zstd", "lz4", "lzma", "bz2", "shuffle", "delta"),
        *("fixedscaleoffset", "quantize", "packbits", "categorize", "astype", "crc32", "crc32c"),
        *("adler32", "fletcher32", "jenkins_lookup3", "bitround", "vlen-utf8", "vlen-bytes"),
        *("vlen-array", "base64", "json2", "msgpack2", "zfpy", "pcodec", "bytes", "transpose"),
        *("sharding_indexed", "endian", "cast_value", "scale_offset"),
    )
)
"""Codecs by name. Left out are those that unpickle, and whatever nobody here has looked at."""


def check(path: Path) -> int:
    """Refuse a store that leads out of itself, unpickles, or claims what it cannot hold.

    Returns how many bytes its files have.
    """
    arrays, total = _walk(path)
    for folder, told, files in arrays:
        name = shown(os.path.relpath(folder, path))
        what = f"{shown(path)}: {name}"
        try:
            _check_array(path, name, told, files, total)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(
                f"{what} has metadata that cannot be understood ({shown(error, 150)}): the store "
                "is damaged. Copy or download it again."
            ) from error
    return total


def _walk(path: Path) -> tuple[list[tuple[str, dict[str, Any], list[str]]], int]:
    """Arrays with their metadata and the files below them, and the bytes of the whole store."""
    found: list[tuple[str, dict[str, Any], list[str]]] = []
    total = 0
    inside: list[tuple[str, list[str]]] = []
    for folder, folders, names in os.walk(path):
        if folder.count(os.sep) - str(path).count(os.sep) > DEEP:
            raise DataError(f"{shown(path)} has folders more than {DEEP} deep: it is no Zarr store")
        for name in (*folders, *names):
            entry = os.path.join(folder, name)
            if os.path.islink(entry):
                refuse_leaving(path, Path(entry))
        for name in names:
            at = file_or_folder(Path(folder, name))
            total += at.st_size if at else 0
        told = None
        for mark in ("zarr.json", ".zarray"):
            if mark in names:
                told = _json(path, Path(folder, mark))
        if ".zgroup" in names:
            _json(path, Path(folder, ".zgroup"))
        if ".zattrs" in names:
            _json(path, Path(folder, ".zattrs"))
        inside = [(top, kept) for top, kept in inside if folder.startswith(top + os.sep)]
        if told is not None and told.get("node_type", "array") == "array":
            found.append((folder, told, []))
            inside.append((folder, found[-1][2]))
        for top, kept in inside:
            kept += [os.path.relpath(os.path.join(folder, name), top) for name in names]
    return found, total


def _json(store: Path, path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > JSON:
            raise ValueError(f"it has over {JSON} bytes")
        told = json.loads(path.read_bytes())
        if not isinstance(told, dict):
            raise ValueError("it is no object of JSON")
        return told
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{shown(store)}: cannot be opened as Zarr: {path.relative_to(store)} is damaged "
            f"({shown(error, 150)}). Copy or download the store again."
        ) from error


def _check_array(path: Path, name: str, told: dict[str, Any], files: list[str], total: int) -> None:
    what = f"{shown(path)}: {name}"
    shape = [_whole(n) for n in told["shape"]]
    if told.get("zarr_format") == 2:
        chunks, each = [_whole(n) for n in told["chunks"]], _item_v2(told["dtype"])
        codecs = [told.get("compressor"), *(told.get("filters") or [])]
        if "O" in str(told["dtype"]) and not told.get("filters"):
            raise DataError(f"{what} holds Python objects, which are pickles and never opened")
        separator = told.get("dimension_separator", ".")
    else:
        chunks = [_whole(n) for n in told["chunk_grid"]["configuration"]["chunk_shape"]]
        each, codecs = _item_v3(told["data_type"]), list(told["codecs"])
        keys = told.get("chunk_key_encoding") or "default"
        encoding: dict[str, Any] = {"name": keys} if isinstance(keys, str) else keys
        usual = "/" if encoding["name"] == "default" else "."
        separator = (encoding.get("configuration") or {}).get("separator", usual)
        if told.get("storage_transformers"):
            raise DataError(f"{what} has storage transformers, which are not supported")
    if separator not in (".", "/"):
        raise DataError(f"{what} puts {shown(repr(separator), 40)} between numbers of chunks")
    if len(chunks) != len(shape) or min(chunks, default=1) < 1 or len(shape) > 32:
        raise DataError(f"{what} has the shape {shape} and chunks of the shape {chunks}")
    _check_codecs(what, codecs)
    most = max(SMALL, SQUEEZED * total)
    for label, size in (("it", each * math.prod(shape)), ("a chunk", each * math.prod(chunks))):
        if size > most:
            raise DataError(
                f"{what}: {label} claims {size} bytes in a store of {total}, more than any "
                "compression explains. It is damaged, or made to exhaust memory."
            )
    _check_chunks(path, name, [-(-n // c) for n, c in zip(shape, chunks, strict=True)], files)


def _check_chunks(path: Path, name: str, grid: list[int], files: list[str]) -> None:
    """Zarr reads a chunk that is not there as a constant; in a field that is a gap."""
    expected, there = math.prod(grid), 0
    for file in files:
        numbers = re.findall(r"\d+", file) if re.fullmatch(r"(c[./])?\d+([./]\d+)*", file) else []
        there += len(numbers) == len(grid) and all(
            len(n) < 20 and int(n) < most for n, most in zip(numbers, grid, strict=True)
        )
    if len(grid) >= 3 and there < expected:
        raise DataError(
            f"{shown(path)}: {expected - there} of {expected} chunks of {name} are missing. "
            "Copy or download the store again."
        )
    if expected > max(SPARSE, 100 * len(files)):
        raise DataError(
            f"{shown(path)}: {name} claims {expected} chunks, and {there} are there: it is "
            "damaged, or made to be gone through for ever"
        )


def _check_codecs(what: str, codecs: list[Any], depth: int = 4) -> None:
    if len(codecs) > 16 or depth == 0:
        raise DataError(f"{what} is packed by more codecs than any honest array")
    for told in codecs:
        if told is None:
            continue
        codec: dict[str, Any] = {"name": told} if isinstance(told, str) else told
        name = str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")
        if name not in CODECS and not name.startswith("imagecodecs_"):
            why = "pickles can run any code" if "pickle" in name else "it is not known here"
            raise DataError(
                f"{what} is packed by the codec {shown(name, 40)!r}, which is not opened: {why}. "
                "Store numbers, packed by zstd, gzip or Blosc."
            )
        inner = codec.get("configuration") or {}
        if name == "sharding_indexed":
            _check_codecs(what, list(inner["codecs"]), depth - 1)
            _check_codecs(what, list(inner["index_codecs"]), depth - 1)
            if math.prod(_whole(n) for n in inner["chunk_shape"]) < 1:
                raise DataError(f"{what} has shards of empty chunks: it is damaged")


def _whole(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"{shown(repr(number), 40)} is no size")
    return number


def _item_v2(told: Any) -> int:
    return max(1, np.dtype(told if isinstance(told, str) else [tuple(f) for f in told]).itemsize)


def _item_v3(told: Any) -> int:
    if isinstance(told, str):
        bits = re.fullmatch(r"(?:u?int|b?float|complex|r)(\d+)", told)
        return max(1, int(bits[1]) // 8) if bits and len(bits[1]) < 20 else 8
    length = (told.get("configuration") or {}).get("length_bytes", 8)
    return max(1, _whole(length))
