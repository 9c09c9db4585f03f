"""Changes to HDF5 files through their library: what a bit flip would never hit upon."""

from __future__ import annotations

from random import Random
from typing import Any

import h5py
import numpy as np

from campaign.attacks._mutate import Around, Inapplicable, file_mutator

ENDINGS = (".h5", ".hdf5", ".nc", ".mat", ".cgns")
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def hdf5_mutator(name: str) -> Any:
    """Register a change of an open file."""

    def register(change: Any) -> Any:
        def changed(data: bytes, random: Random, around: Around) -> bytes:
            start = data.find(SIGNATURE, 0, 4096)
            if start < 0:
                raise Inapplicable
            # Behind a block of its own, as in MATLAB's files, HDF5 counts from the signature.
            handle = h5py.h5f.open_file_image(data[start:], h5py.h5f.ACC_RDWR)
            with h5py.File(handle) as file:
                change(file, random, around)
                file.flush()
                image = file.id.get_file_image()
            return data[:start] + image

        return file_mutator(name, *ENDINGS)(changed)

    return register


def names_of(file: h5py.File, *, datasets: bool = True) -> list[str]:
    """Everything in a file that can be replaced."""
    found: list[str] = []
    file.visititems(
        lambda name, item: (
            found.append(name) if isinstance(item, h5py.Dataset) == datasets else None
        )
    )
    return sorted(found)


def _one(file: h5py.File, random: Random) -> str:
    return random.choice(names_of(file))


def _refuse_elsewhere(item: h5py.Dataset) -> None:
    """Leave arrays alone whose numbers lie in other files: to read one and store it again would
    copy a secret into the case, which may then come back; to write to one would change the secret.
    """
    plan = item.id.get_create_plist()
    if plan.get_external_count() or plan.get_layout() == h5py.h5d.VIRTUAL:
        raise Inapplicable


def _attributes(item: Any) -> dict[str, Any]:
    found = {}
    for key in item.attrs:
        try:
            found[key] = item.attrs[key]
        except OSError:  # of a type that h5py has no word for
            continue
    return found


def _replaced(file: h5py.File, name: str, make: Any) -> None:
    """Another thing under the same name, with the same attributes."""
    kept = {k: v for k, v in _attributes(file[name]).items() if k not in _SCALES}
    del file[name]
    make(name)
    try:
        for key, value in kept.items():
            file[name].attrs[key] = value
    except (KeyError, OSError, TypeError):  # a link that leads nowhere has no attributes
        pass


_SCALES = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS")


@hdf5_mutator("hdf5 link")
def _link(file: h5py.File, random: Random, around: Around) -> None:
    name = _one(file, random)
    secret = around.secret(random, "secret.h5").removeprefix("file://")
    shape = file[name].shape
    aim = f"/{len(shape)}d"
    links = (
        h5py.ExternalLink(secret, aim),
        h5py.ExternalLink(secret, "/"),
        h5py.ExternalLink("no-such.h5", "/a"),
        h5py.SoftLink("/nowhere"),
        h5py.SoftLink(f"/{name}"),
        h5py.SoftLink("/"),
        h5py.SoftLink(f"/{random.choice(names_of(file))}"),
    )
    link = random.choice((*links, links[0], links[0]))
    del file[name]
    file[name] = link


@hdf5_mutator("hdf5 storage elsewhere")
def _external(file: h5py.File, random: Random, around: Around) -> None:
    name = _one(file, random)
    old = file[name]
    shape, dtype = old.shape, old.dtype
    raw = around.secret(random, "secret.raw").removeprefix("file://")
    if not shape or dtype.kind not in "fiu":
        raise Inapplicable

    def virtual(name: str) -> None:
        source = around.secret(random, "secret.h5").removeprefix("file://")
        layout = h5py.VirtualLayout(shape=shape, dtype=dtype)
        source = random.choice((source, ".", "no-such.h5"))
        inside = f"{len(shape)}d" if source != "." else random.choice(names_of(file))
        layout[...] = h5py.VirtualSource(source, inside, shape=shape)
        file.create_virtual_dataset(name, layout)

    def stored(name: str) -> None:
        file.create_dataset(name, shape, "<f4", external=[(raw, 0, h5py.h5f.UNLIMITED)])

    _replaced(file, name, random.choice((virtual, stored)))


TYPES: tuple[Any, ...] = (
    *("<f2", ">f8", "<f4", "<i8", "u1", "S8", "<c16", "V8", bool),
    *(h5py.string_dtype(), h5py.vlen_dtype("<f8"), h5py.ref_dtype, h5py.regionref_dtype),
    *(h5py.enum_dtype({"a": 1}), [("a", "<f8"), ("b", "i4")], np.dtype(("<f8", (2,)))),
)


@hdf5_mutator("hdf5 type")
def _type(file: h5py.File, random: Random, around: Around) -> None:
    name = _one(file, random)
    shape = file[name].shape
    kind = random.choice(TYPES)
    _replaced(file, name, lambda name: file.create_dataset(name, shape, kind))


@hdf5_mutator("hdf5 shape")
def _shape(file: h5py.File, random: Random, around: Around) -> None:
    name = _one(file, random)
    shape, dtype = file[name].shape, file[name].dtype
    large = (random.choice((2**16, 2**31, 2**40)), *shape[1:])
    shapes: tuple[Any, ...] = (
        *((), (0,), (0, *shape[1:]), shape[::-1], (1, *shape), shape[1:], (*shape, 1)),
        *((shape[0] + 1 if shape else 3, *shape[1:]), None, large, large, (1,) * 32),
    )
    chosen = random.choice(shapes)
    options: dict[str, Any] = {}
    if chosen is None:
        _replaced(file, name, lambda name: file.create_dataset(name, data=h5py.Empty(dtype)))
        return
    if chosen and random.random() < 0.5:
        options = {"chunks": tuple(max(1, min(n, 2**16)) for n in chosen)}
        if random.random() < 0.5:
            options["compression"] = "gzip"
    fill = random.choice((0, 1, None))
    _replaced(
        file, name, lambda n: file.create_dataset(n, chosen, dtype, fillvalue=fill, **options)
    )


@hdf5_mutator("hdf5 chunks and filters")
def _filters(file: h5py.File, random: Random, around: Around) -> None:
    name = _one(file, random)
    _refuse_elsewhere(file[name])
    data = file[name][()]
    if np.ndim(data) == 0:
        raise Inapplicable
    ways: tuple[dict[str, Any], ...] = (
        *({"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True, "compression": 9}),
        *({"fletcher32": True}, {"scaleoffset": 2}, {"chunks": (1,) * np.ndim(data)}),
        {"maxshape": (None,) * np.ndim(data)},
    )
    _replaced(file, name, lambda n: file.create_dataset(n, data=data, **random.choice(ways)))


@hdf5_mutator("hdf5 values")
def _values(file: h5py.File, random: Random, around: Around) -> None:
    item = file[_one(file, random)]
    if item.dtype.kind not in "fiu" or not item.size:
        raise Inapplicable
    _refuse_elsewhere(item)
    data = item[()]
    odd = (np.nan, np.inf, 1e300, -1, 0, 2**31)
    flat = np.ravel(data).copy()
    with np.errstate(all="ignore"):
        flat[random.randrange(flat.size)] = np.array(random.choice(odd)).astype(item.dtype)
    item[...] = flat.reshape(item.shape)


@hdf5_mutator("hdf5 names")
def _names(file: h5py.File, random: Random, around: Around) -> None:
    name = random.choice(names_of(file) + names_of(file, datasets=False))
    kind = random.randrange(5)
    if kind == 0:
        del file[name]
    elif kind == 1:
        other = random.choice((f"{name}/x", f"{name}2", "ä", "a" * 1000, "..", "x y\n", "-name"))
        file.move(name, other)
    elif kind == 2:
        file[f"{name}_again"] = file[name]
    elif kind == 3:
        groups = [*names_of(file, datasets=False), "/"]
        file[f"{random.choice(groups)}/loop"] = file["/"]
    else:
        del file[name]
        file.create_group(name)


@hdf5_mutator("hdf5 attributes")
def _attribute(file: h5py.File, random: Random, around: Around) -> None:
    places: list[Any] = [file, *(file[n] for n in names_of(file))]
    places += [file[n] for n in names_of(file, datasets=False)]
    with_some = [p for p in places if len(p.attrs)] or places
    item = random.choice(with_some)
    keys = [*item.attrs, "units", "names", "_FillValue", "scale_factor", "add_offset", "axis"]
    key = random.choice(keys)
    odd: tuple[Any, ...] = (
        *("", "x" * 3000, "ä", b"\xff\xfe", 0, -1, 2**63 - 1, np.nan, [1, 2, 3], np.zeros((2, 2))),
        *(np.array([]), h5py.Empty("f8"), ["a", "b"], item.ref, np.array([(1,)], [("a", "i4")])),
        *("days since never", "seconds since 1970-01-01", 0.0, 1e-300, 1e300, True, np.bytes_("x")),
    )
    if random.random() < 0.2 and key in item.attrs:
        del item.attrs[key]
    else:
        item.attrs[key] = random.choice(odd)
