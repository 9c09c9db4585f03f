"""Changes to the structure of other binary files: safetensors, Parquet and GRIB."""

from __future__ import annotations

import json
import struct
from random import Random

from campaign.attacks._mutate import (
    Around,
    Inapplicable,
    Tree,
    content,
    file_mutator,
    interesting_number,
    mutator,
    pick_file,
)
from campaign.attacks._mutate_text import changed_json


@file_mutator("safetensors header", ".safetensors")
def _safetensors(data: bytes, random: Random, around: Around) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [n for n in header if n != "__metadata__"]
    if not names:
        raise Inapplicable
    one, kind = header[random.choice(names)], random.randrange(10)
    if kind == 0:
        one["data_offsets"][random.randrange(2)] += random.choice((-4, 4, -1, 2**40, -(2**40)))
    elif kind == 1:
        one["data_offsets"] = list(header[random.choice(names)]["data_offsets"])
    elif kind == 2:
        one["dtype"] = random.choice(("F32", "F64", "I64", "BF16", "BOOL", "U8", "F8_E4M3", "X"))
    elif kind == 3:
        one["shape"] = random.choice(
            ([], [0], [2**40], [-1], one["shape"][::-1], [1, *one["shape"]])
        )
    elif kind == 4:
        first, second = random.choice(names), random.choice(names)
        header[first], header[second] = header[second], header[first]
    elif kind == 5:
        text = changed_json(json.dumps(header), random)
        return struct.pack("<Q", len(text.encode(errors="replace"))) + (
            text.encode(errors="replace") + rest
        )
    elif kind == 6:
        header["__metadata__"] = random.choice(
            ({"state": "[" * 5000}, {"state": "5"}, {"a": 1}, [])
        )
    elif kind == 7:
        state = header.get("__metadata__", {}).get("state", '{"step": 1}')
        header["__metadata__"] = {"state": changed_json(state, random)}
    elif kind == 8:
        header[random.choice(("more", "", "\0", "/", "model/", "0/exp_avg"))] = dict(one)
    else:
        header.pop(random.choice(names))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


@file_mutator("safetensors numbers", ".safetensors")
def _odd_weights(data: bytes, random: Random, around: Around) -> bytes:
    """Legal files with numbers that no training leaves behind."""
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length
    place = start + random.randrange(max(1, (len(data) - start) // 4)) * 4
    number = random.choice((float("nan"), float("inf"), 3e38, -3e38, 1e-40, 0.0, -1.0))
    count = random.choice((1, 1, 4, 64))
    numbers = (struct.pack("<f", number) * count)[: max(0, len(data) - place)]
    return data[:place] + numbers + data[place + len(numbers) :]


@file_mutator("parquet footer", ".parquet", ".pq")
def _footer(data: bytes, random: Random, around: Around) -> bytes:
    (length,) = struct.unpack("<I", data[-8:-4])
    start, out = len(data) - 8 - length, bytearray(data)
    if random.random() < 0.1:
        out[-8:-4] = interesting_number(random, 4)
    for _ in range(random.choice((1, 1, 2, 6))):
        place = start + random.randrange(length)
        out[place] = random.choice((out[place] ^ 1 << random.randrange(8), 0, 255, 127, 128))
    return bytes(out)


@file_mutator("parquet page header", ".parquet", ".pq")
def _page(data: bytes, random: Random, around: Around) -> bytes:
    out = bytearray(data)
    out[4 + random.randrange(min(40, len(data) - 4))] = random.randrange(256)
    return bytes(out)


@mutator("grib section")
def _grib(tree: Tree, random: Random, around: Around) -> None:
    """Lengths, templates and counts stand at the beginning of each section."""
    name = pick_file(tree, random, ".grib", ".grib2", ".grb")
    data = bytearray(content(tree, name))
    second = data[7] == 2
    place, places = (16, []) if second else (8, [])
    while place + 5 < len(data) and data[place : place + 4] != b"7777":
        places.append(place)
        size = int.from_bytes(data[place : place + (4 if second else 3)], "big")
        if size < 4:
            break
        place += size
    start = random.choice(places)
    size = random.choice((1, 2, 4))
    at = start + random.choice((0, random.randrange(5), random.randrange(34)))
    data[at : at + size] = random.choice((interesting_number(random, size), random.randbytes(size)))
    tree[name] = bytes(data)
