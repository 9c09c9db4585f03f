"""The page that is committed is what its sources make, with the licences of all that is in it."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB, PAGE = ROOT / "web", ROOT / "ipot" / "serve" / "page"
BUILT = json.loads((PAGE / "built.json").read_text())
AGAIN = "run `npm ci && npm run build` in web/, and commit what it writes"


def hashes(folder):
    """What web/build.mjs notes of a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
        and "node_modules" not in path.relative_to(folder).parts
        and path.name != "built.json"
    }


def test_what_is_built_is_what_the_build_wrote():
    assert hashes(PAGE) == BUILT["files"], AGAIN


def test_the_sources_are_those_that_it_was_built_from():
    if not WEB.is_dir():
        pytest.skip(f"{WEB} is not there: the sources of the page belong to a checkout")
    found = hashes(WEB)
    changed = {n for n in found | BUILT["sources"] if found.get(n) != BUILT["sources"].get(n)}
    assert not changed, AGAIN


def test_licences_of_what_is_bundled():
    notices = (PAGE / "NOTICES.txt").read_text()
    assert (ROOT / "LICENSE").read_text().strip() in notices
    runtime = re.search(r"ONNX Runtime Web v([\d.]+)", (PAGE / "engine.js").read_text())[1]
    assert f"\nonnxruntime-web {runtime}\n" in notices
    assert "Copyright (c) Microsoft Corporation" in notices
    # Names that the WASM itself has in it, of libraries whose licences ask to be passed on.
    text = (PAGE / "assets" / "runtime.wasm.js").read_text("ascii")
    wasm = gzip.decompress(base64.b64decode(re.search(r',"([^"]*)"', text)[1]))
    for mark, name in (
        (b"google/protobuf", "Protocol Buffers"),
        (b"abseil_cpp", "Abseil"),
        (b"Eigen", "Eigen"),
        (b"re2/compile", "RE2"),
        (b"flatbuffers", "FlatBuffers"),
        (b"nlohmann", "JSON for Modern C++"),
    ):
        assert mark in wasm
        assert f"\n{name}\n" in notices


def test_the_lock_has_the_version_that_is_bundled():
    if not WEB.is_dir():
        pytest.skip(f"{WEB} is not there: the sources of the page belong to a checkout")
    locked = json.loads((WEB / "package-lock.json").read_text())["packages"]
    version = locked["node_modules/onnxruntime-web"]["version"]
    assert f"ONNX Runtime Web v{version}" in (PAGE / "engine.js").read_text()
