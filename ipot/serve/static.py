"""The page as a folder of plain files that answers in the browser: `ipot serve --export`.

    index.html, page.js, page.css, icon.svg    the page, told to compute by itself
    engine.js                                  runs models; a worker of the page where it may be one
    assets/runtime.wasm.js                     ONNX Runtime
    assets/models.json.js                      what is known of every model
    assets/NAME.PART.onnx.js                   its graphs (`ipot.saved.parts`)
    assets/NAME.sampleK.npz.js                 its test samples; NAME.extras.npz.js: see `extras`
    NOTICES.txt                                the licences of what is bundled

Everything in `assets` is a script that hands over its bytes, compressed and as base64: a page that
was opened from a folder (file://) may load scripts and may not fetch.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ipot import files
from ipot.errors import DataError, IpotError, RunError, Unsupported
from ipot.saved.disk import whole_folder
from ipot.saved.folder import refuse_current
from ipot.serve import page
from ipot.serve.facts import extras_of, facts_of, samples_of
from ipot.serve.limits import Limits
from ipot.serve.models import Served

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""What the page may do: docs/serve.md says why each is there. Nothing may be fetched."""
CHARSET = '<meta charset="utf-8" />'
SERVER = '<meta name="ipot-backend" content="server" />'
WASM = '<meta name="ipot-backend" content="wasm" />'
INDEX, ASSETS = "index.html", "assets"
COPIED = (
    "page.js",
    "page.css",
    "engine.js",
    "icon.svg",
    "NOTICES.txt",
    f"{ASSETS}/runtime.wasm.js",
)
TOLERANCE, ROUNDED = 5e-5, 8e-5
"""How far answers of a graph may be from the model's, relative to the largest of their channel: as
weights are, and with weights rounded to 16 bits, which they are not where that would be farther."""
LOCAL = ("limits", "bounds", "highest_level", "solver")
"""What is said of a model on a server, and is not so in a browser."""


def export_page(
    models: Sequence[Served],
    folder: Path,
    *,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write a page for some models; the folder has its name when all of it is there.

    With `overwrite` a page that was exported before makes room, and nothing else ever does.
    """
    need_export()
    target = Path(os.path.realpath(folder))
    refuse_target(target, overwrite=overwrite)
    index = _index()
    for served in models:  # what cannot go is told before any work
        _checked(served)
    try:
        files.make_folder(target.parent)

        def again() -> None:
            refuse_target(target, overwrite=overwrite)

        with whole_folder(target, check=again) as made:
            (made / ASSETS).mkdir()
            for name in COPIED:
                (made / name).write_bytes((page.PAGE / name).read_bytes())
            facts = []
            for served in models:
                facts.append(_write_model(served, made / ASSETS))
                size = sum(p.stat().st_size for p in made.glob(f"{ASSETS}/{served.name}.*"))
                gap = facts[-1]["graph"]["difference"]
                say(f"{served.name}: {size / 1e6:.1f} MB, answers within {gap:.1e} of the model")
            write_asset(made / ASSETS, "models.json", json.dumps(facts).encode())
            (made / INDEX).write_text(index, encoding="utf-8")
            size = sum(p.stat().st_size for p in made.rglob("*") if p.is_file())
    except OSError as error:
        raise RunError(
            f"cannot write {target}: {error.strerror or error}. What was there is as before."
        ) from error
    return {"path": str(target), "bytes": size, "models": [served.name for served in models]}


def need_export() -> None:
    """Refuse where what writes graphs is not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise RunError(
                f"ipot serve --export needs {name}: pip install 'ipot[export]' brings it"
            ) from error


def refuse_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds something, unless it is a page that is to be replaced."""
    refuse_current(target, "--export ")
    if not target.exists():
        return
    if not target.is_dir():
        raise DataError(f"--export {target} is a file: name a folder")
    there = sorted(path.name for path in target.iterdir())
    if not there:
        return
    known = {INDEX, ASSETS, *(name for name in COPIED if "/" not in name)}
    if not (target / ASSETS / "models.json.js").is_file() or not set(there) <= known:
        others = [name for name in there if name not in known] or there
        raise DataError(
            f"--export {target} holds other things ({', '.join(others[:4])}), which would be lost: "
            "name another folder"
        )
    if not overwrite:
        raise DataError(
            f"--export {target} holds a page already: name another folder, or add --overwrite to "
            "write over it"
        )


def _index() -> str:
    """The page's HTML, which computes by itself and says what it may do."""
    missing = [name for name in (INDEX, *COPIED) if not (page.PAGE / name).is_file()]
    if missing:
        raise RunError(f"this copy of ipot has no page to export: {', '.join(missing)} is missing")
    html = (page.PAGE / INDEX).read_text(encoding="utf-8")
    if html.count(CHARSET) != 1 or html.count(SERVER) != 1:
        raise RunError(f"{page.PAGE / INDEX} is not the page that was built: install ipot again")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    # Behind the line with the policy, and not before, everything is held to it.
    return html.replace(CHARSET, f"{CHARSET}\n    {policy}").replace(SERVER, WASM)


def _checked(served: Served) -> None:
    """Refuse a model that cannot be loaded, or that is no function of plain tensors."""
    from ipot.saved.graph import refuse_structure

    try:
        model = served.model()
    except IpotError as error:
        raise RunError(str(error)) from error
    with _named(served):
        refuse_structure(model.model)


@contextmanager
def _named(served: Served) -> Iterator[None]:
    """What a model is refused for, with its name."""
    try:
        yield
    except Unsupported as error:
        raise Unsupported(f"{served.name} does not go into a page: {error}") from error
    except RunError as error:
        raise RunError(f"{served.name} does not go into a page: {error}") from error


def _write_model(served: Served, assets: Path) -> dict[str, Any]:
    """The files of a model, and what the page is told of it."""
    from ipot.saved.parts import write_parts
    from ipot.surrogate.inputs import times_of

    model = served.model()
    spec, layout = model.spec, model.layout
    with tempfile.TemporaryDirectory(prefix="ipot-export-") as place:
        with _named(served):
            parts = write_parts(
                model.model,
                spec,
                Path(place),
                points=not layout.alone,
                tolerance=TOLERANCE,
                rounded=ROUNDED,
            )
        for part, path in parts.files.items():
            write_asset(assets, f"{served.name}.{part}.onnx", path.read_bytes())
    samples = samples_of(served)
    for k, sample in enumerate(samples):
        write_asset(assets, f"{served.name}.sample{k}.npz", _npz(sample))
    extras = extras_of(served)
    if extras is not None:
        write_asset(assets, f"{served.name}.extras.npz", _npz(extras))
    told = {k: v for k, v in facts_of(served, Limits()).items() if k not in LOCAL}
    return told | {
        "bounds": False,
        "solver": False,
        "extras": extras is not None,
        "graph": {
            "parts": list(parts.files),
            "columns": parts.inputs,
            "states": list(parts.states),
            "scalings": {
                name: {"offset": list(held.offset), "scale": list(held.scale)}
                for name, held in layout.scalings().items()
            },
            "at": [round(time / spec.dt) for time in times_of(spec, layout)],
            "timed": layout.timed,
            "flat": layout.flat_targets,
            "difference": parts.difference,
        },
    }


def write_asset(folder: Path, name: str, content: bytes) -> None:
    """Bytes as a script that hands them over."""
    # No time in it: the same page is the same bytes.
    packed = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    text = f"ipotAsset({json.dumps(name)},{json.dumps(packed)});\n"
    (folder / f"{name}.js").write_text(text, encoding="ascii")


def _npz(arrays: dict[str, Any]) -> bytes:
    """Arrays as an archive; those that half precision holds as they are, in that."""
    buffer, found = io.BytesIO(), {}
    for name, array in arrays.items():
        whole = np.asarray(array)
        if whole.dtype.kind == "f" and whole.ndim:
            with np.errstate(over="ignore"):
                half = whole.astype(np.float16)
            whole = half if np.array_equal(half, whole) else whole
        found[name] = whole
    np.savez(buffer, allow_pickle=False, **found)
    return buffer.getvalue()
