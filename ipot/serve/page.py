"""The built page: static files by their names, of which there is a list, so that no name is ever a
path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".npz": "application/x-npz",
    ".onnx": "application/octet-stream",
    ".bin": "application/octet-stream",
}
PLAIN = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>ipot</title>
<h1>ipot serve</h1>
<p>The server runs, and this copy of ipot has no page: only its API answers.</p>
<ul>
<li><a href="v1/models">the models</a></li>
<li><a href="openapi.json">what can be asked (OpenAPI)</a></li>
<li><a href="healthz">whether it is ready</a></li>
</ul>
</html>
"""


@dataclass(frozen=True)
class File:
    """A file of the page."""

    content: bytes
    kind: str
    mark: str
    """Changes with the content: a browser that has it asks whether it is still this one."""


def read_page(folder: Path = PAGE) -> dict[str, File]:
    """The files of the page by their names below it; `` is the page itself."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and path.suffix in KINDS and not path.is_symlink():
            found[path.relative_to(folder).as_posix()] = _file(path.read_bytes(), path.suffix)
    found[""] = found.get("index.html") or _file(PLAIN.encode(), ".html")
    return found


def _file(content: bytes, suffix: str) -> File:
    mark = hashlib.blake2b(content, digest_size=12).hexdigest()
    return File(content, KINDS[suffix], f'"{mark}"')
