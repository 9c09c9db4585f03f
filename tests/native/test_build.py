"""A library that is compiled where it runs, and what happens where it cannot be."""

import logging
import stat
import subprocess
import sys

import pytest
import torch

from ipot.native import build
from ipot.nn.paths import attend

SCORES = torch.randn(1, 300, 16), torch.randn(2, 400, 32)


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """As on a machine where nothing was compiled yet, and as before behind it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(build.OFF, raising=False)
    build._tried.cache_clear()
    yield tmp_path / "ipot" / "native"
    build._tried.cache_clear()


def command(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def without(monkeypatch, caplog, reason):
    """There is no library, the log says why in one line, and attention works all the same."""
    with caplog.at_level(logging.WARNING, "ipot"):
        assert build.library() is None
        assert build.library() is None
    assert reason in build.why_not()
    assert [r.getMessage() for r in caplog.records if "compiled kernels" in r.getMessage()] == [
        f"attention on the CPU runs without compiled kernels: {build.why_not()} "
        "(IPOT_NATIVE=0 for no more attempts)"
    ]
    assert attend(*SCORES, 2).shape == (2, 300, 16)


def test_without_a_compiler(anew, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    without(monkeypatch, caplog, "there is no C++ compiler (no-such-compiler)")


def test_a_compiler_that_fails(anew, monkeypatch, caplog, tmp_path):
    broken = command(tmp_path / "c++", 'echo "unknown option" >&2; exit 3')
    monkeypatch.setenv("CXX", broken)
    without(monkeypatch, caplog, "the compiler failed: unknown option")
    assert not list(anew.iterdir())


def test_a_compiler_that_makes_nonsense(anew, monkeypatch, caplog, tmp_path):
    script = 'while [ "$1" != -o ]; do [ $# = 0 ] && exit; shift; done; echo nonsense > "$2"'
    monkeypatch.setenv("CXX", command(tmp_path / "c++", script))
    without(monkeypatch, caplog, "")


def test_a_compiler_that_does_not_end(anew, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(build, "SECONDS", 0.2)
    monkeypatch.setenv("CXX", command(tmp_path / "c++", "exec sleep 5"))
    without(monkeypatch, caplog, "the compiler took more than 0.2 s")


def test_a_folder_that_cannot_be_made(anew, monkeypatch, caplog, tmp_path):
    if build._compiler_or_none() is None:
        pytest.skip("there is no C++ compiler")
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    without(monkeypatch, caplog, "Not a directory")


def test_it_can_be_left_out(anew, monkeypatch, caplog):
    monkeypatch.setenv("IPOT_NATIVE", "0")
    assert build.library() is None
    assert build.why_not() == "IPOT_NATIVE=0"
    assert not caplog.records  # who asked for it needs no word of it


@pytest.fixture
def compiler():
    if build._compiler_or_none() is None:
        pytest.skip("there is no C++ compiler")


@pytest.mark.usefixtures("compiler")
def test_a_compiler_with_words_behind_it(anew, monkeypatch):
    monkeypatch.setenv("CXX", " ".join([*build._compiler(), "-DNOTHING"]))
    assert build.library() is not None


@pytest.mark.usefixtures("compiler")
def test_a_library_without_the_kernels_is_made_again(anew, tmp_path, caplog):
    anew.mkdir(parents=True)
    target, source = build._target(), tmp_path / "other.cpp"
    source.write_text('extern "C" int other() { return 1; }')
    flags = ["-shared", "-fPIC", "-o", str(target)]
    subprocess.run([*build._compiler(), *flags, str(source)], check=True)
    # This process has the other one under that name for good; the next will find a whole one.
    without(None, caplog, "lacks ipot_attend")
    assert target.stat().st_size > 100_000


@pytest.mark.usefixtures("compiler")
def test_it_is_compiled_once(anew, monkeypatch):
    assert build.library() is not None
    (made,) = anew.iterdir()
    before = made.stat().st_mtime_ns
    build._tried.cache_clear()
    ran, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: ran.append(a[0]) or run(*a, **k))
    assert build.library() is not None
    assert [c[1:] for c in ran] == [["--version"]]
    assert made.stat().st_mtime_ns == before


@pytest.mark.usefixtures("compiler")
def test_other_flags_make_another_library(anew, monkeypatch):
    first = build._target()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    second = build._target()
    monkeypatch.setattr(build, "_processor", lambda: "another one")
    assert len({first, second, build._target()}) == 3


@pytest.mark.usefixtures("compiler")
def test_a_damaged_library_is_made_again(anew):
    anew.mkdir(parents=True)
    target = build._target()
    target.write_bytes(b"cut short")
    assert build.library() is not None
    assert target.stat().st_size > 1000


@pytest.mark.usefixtures("compiler")
def test_processes_may_start_at_once(anew):
    code = "from ipot.native import build; assert build.library() is not None"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert len(list(anew.iterdir())) == 1
