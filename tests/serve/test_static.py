"""A page without a server is written whole or not at all; what cannot go into one is refused."""

import base64
import errno
import gzip
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ipot
from ipot.commands import serve as command
from ipot.errors import DataError, RunError, Unsupported
from ipot.recipes.experiment import build
from ipot.saved import parts
from ipot.saved.parts import Parts
from ipot.serve import page, static
from ipot.serve.models import Served
from serve.small import untrained


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A small model with two samples, as it is served."""
    folder = tmp_path_factory.mktemp("static") / "darcy"
    untrained("darcy").save(folder)
    x = np.random.default_rng(0).random((2, 20, 2))
    samples = folder / "samples.npz"
    np.savez(samples, points=x[0], values=x[..., :1].astype(np.float16))
    how = {"device": "cpu"}
    return Served("darcy", folder, "darcy", "Darcy flow", samples=samples, how=how)


@pytest.fixture
def quick(monkeypatch):
    """Graphs that are made in no time, and answer nothing."""

    def write(model, spec, folder, **how):
        (folder / "encode.onnx").write_bytes(b"a graph" * 100)
        return Parts({"encode": folder / "encode.onnx"}, {"queries": 2}, (), 1e-6)

    monkeypatch.setattr(parts, "write_parts", write)


def asset(folder, name):
    """The bytes that a script hands over."""
    text = (folder / "assets" / f"{name}.js").read_text("ascii")
    told, packed = re.fullmatch(r'ipotAsset\("([^"]*)","([^"]*)"\);\n', text).groups()
    assert told == name
    return gzip.decompress(base64.b64decode(packed))


def test_what_is_in_the_folder(served, quick, tmp_path):
    folder, said = tmp_path / "page", []
    found = static.export_page([served], folder, say=said.append)
    assert found["models"] == ["darcy"]
    assert found["bytes"] == sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert re.fullmatch(r"darcy: \d+\.\d MB, answers within 1\.0e-06 of the model", said[0])
    assert {p.name for p in folder.iterdir()} == {
        *("index.html", "page.js", "page.css", "engine.js", "icon.svg", "NOTICES.txt", "assets")
    }
    assert asset(folder, "darcy.encode.onnx") == b"a graph" * 100
    facts = json.loads(asset(folder, "models.json"))[0]
    assert (facts["name"], facts["problem"], facts["samples"]) == ("darcy", "darcy", 2)
    assert not facts["solver"]
    assert not facts["extras"]
    assert facts["graph"]["columns"] == {"queries": 2}
    assert facts["graph"]["at"] == [1]
    assert str(served.folder) not in json.dumps(facts)
    with np.load(io.BytesIO(asset(folder, "darcy.sample1.npz"))) as sample:
        assert sample["values"].dtype == np.float16  # which they were, and lose nothing by
        assert sample["points"].dtype == np.float32
        np.testing.assert_array_equal(sample["values"], static.samples_of(served)[1]["values"])
    assert asset(folder, "runtime.wasm")[:4] == b"\0asm"
    umask = os.umask(0)
    os.umask(umask)
    assert (folder / "assets").stat().st_mode & 0o777 == 0o777 & ~umask


def test_the_html_says_what_the_page_may_do(served, quick, tmp_path):
    static.export_page([served], tmp_path / "page")
    html = (tmp_path / "page" / "index.html").read_text()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    told = dict(part.split(" ", 1) for part in policy[1].split("; "))
    assert told["default-src"] == "'none'"
    assert told["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert "connect-src" not in told
    # The page about it says why each is there.
    known = (Path(__file__).parents[2] / "docs" / "static-page.md").read_text()
    sources = re.findall(
        r"^\| `([^`]*)` \|", known.split("## What the page may do")[1], re.MULTILINE
    )
    assert "; ".join(sources).replace("; 'wasm", " 'wasm") == policy[1]
    # It holds for what follows it, so nothing that loads may stand before.
    assert not re.search(r"<(script|link|style|img)", html[: policy.start()])
    assert 'name="ipot-backend" content="wasm"' in html
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|style=|https?://", html)


def test_the_same_page_is_the_same_bytes(served, quick, tmp_path):
    for name in ("one", "two"):
        static.export_page([served], tmp_path / name)
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("one", "two")
    )
    assert one == two


def test_only_a_page_makes_room(served, quick, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()  # an empty one is as good as none
    static.export_page([served], folder)
    with pytest.raises(DataError, match=r"holds a page already: .*--overwrite"):
        static.export_page([served], folder)
    (folder / "index.html").write_text("changed")
    static.export_page([served], folder, overwrite=True)
    assert "changed" not in (folder / "index.html").read_text()
    (folder / "thesis.txt").write_text("years")
    with pytest.raises(DataError, match=r"other things \(thesis\.txt\), which would be lost"):
        static.export_page([served], folder, overwrite=True)
    assert (folder / "thesis.txt").read_text() == "years"
    with pytest.raises(DataError, match="is a file"):
        static.export_page([served], folder / "thesis.txt", overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("a site")
    with pytest.raises(DataError, match=r"other things \(index\.html\)"):
        static.export_page([served], other, overwrite=True)


@pytest.mark.parametrize("written", [0, 1, 2, 4])
def test_a_full_disk_leaves_nothing(served, quick, tmp_path, monkeypatch, written):
    before = tmp_path / "before"
    static.export_page([served], before)
    content = (before / "index.html").read_bytes()
    kept, count = static.write_asset, [0]

    def full(*given):
        count[0] += 1
        if count[0] > written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept(*given)

    monkeypatch.setattr(static, "write_asset", full)
    if written == 4:
        static.export_page([served], tmp_path / "page")
        assert (tmp_path / "page" / "index.html").is_file()
        return
    for folder in (tmp_path / "page", before):
        count[0] = 0
        with pytest.raises(RunError, match=r"cannot write .*No space left.*is as before"):
            static.export_page([served], folder, overwrite=True)
    assert (before / "index.html").read_bytes() == content
    assert {p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")} == {"before"}


def test_packages_that_are_missing_are_named(served, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RunError, match=r"--export needs onnx: pip install 'ipot\[export\]'"):
        static.export_page([served], tmp_path / "page")
    assert not list(tmp_path.iterdir())


def test_a_copy_without_the_page_says_so(served, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "none")
    with pytest.raises(RunError, match=r"no page to export: index\.html, page\.js"):
        static.export_page([served], tmp_path / "page")


def test_a_model_that_cannot_go_is_refused_by_name(tmp_path):
    settings = ipot.experiment("darcy", "fno")
    settings = replace(
        settings,
        model=replace(settings.model, width=4, modes=(2,), layers=1),
        problem=replace(settings.problem, size=33, resolution=17),
    )
    ipot.Surrogate.of_experiment(build(settings), settings).save(tmp_path / "bound")
    told = Served("bound", tmp_path / "bound", "darcy", how={"device": "cpu"})
    said = r"bound does not go into a page: fno cannot be exported: it needs .*grid"
    with pytest.raises(Unsupported, match=said):
        static.export_page([told], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_graphs_that_are_off_are_refused_by_name(served, tmp_path, monkeypatch):
    def write(*given, **how):
        raise RunError("ipot cannot be exported: its graph differs from it by 1.00e-03")

    monkeypatch.setattr(parts, "write_parts", write)
    with pytest.raises(RunError, match=r"darcy does not go into a page: .* differs"):
        static.export_page([served], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"holds no config\.json"):
        command.main([str(tmp_path / "empty"), "--export", str(tmp_path / "page")])
    assert not (tmp_path / "page").exists()


def test_a_damaged_model_is_told_before_any_work(served, tmp_path):
    untrained("darcy").save(tmp_path / "damaged")
    weights = tmp_path / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    told = Served("damaged", tmp_path / "damaged", how={"device": "cpu"})
    with pytest.raises(RunError, match=r"model damaged cannot be loaded.*damaged or cut short"):
        static.export_page([served, told], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_the_command(served, quick, tmp_path, capsys):
    folder = tmp_path / "page"
    command.main([str(served.folder), "--export", str(folder)])
    said = capsys.readouterr()
    assert not said.out
    assert re.search(rf"{re.escape(str(folder))}: .*MiB; open index\.html in a browser", said.err)
    with pytest.raises(DataError, match="--overwrite"):
        command.main([str(served.folder), "--export", str(folder)])
    command.main([str(served.folder), "--export", str(folder), "--overwrite", "--quiet"])
    assert not capsys.readouterr().err
    assert Path(folder / "assets" / "darcy.sample0.npz.js").is_file()
