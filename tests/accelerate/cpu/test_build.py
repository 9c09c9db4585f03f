"""A library that is compiled where it runs, and what happens where it cannot be."""

import logging
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ipot.accelerate.attention import attend, path_of
from ipot.accelerate.cpu import build, library_cache
from ipot.bench.rows import lacks
from tests.accelerate.models import target

SCORES = torch.randn(1, 300, 16), torch.randn(2, 400, 32)


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
    assert attend(target(), *SCORES, 2).shape == (2, 300, 16)


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


@pytest.mark.parametrize("script", ["exec sleep 5", "[ $1 = --version ] || exec sleep 5"])
def test_a_compiler_that_does_not_end(anew, monkeypatch, caplog, tmp_path, script):
    monkeypatch.setattr(build, "SECONDS", 0.5)
    monkeypatch.setenv("CXX", command(tmp_path / "c++", script))
    without(monkeypatch, caplog, "the compiler took more than 0.5 s")


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
def test_a_compiler_with_words_behind_it(anew, monkeypatch, tmp_path):
    known = shlex.join(build._compiler())
    text = f'[ "$1 $2" = "-one -two" ] || exit 3; shift 2; exec {known} "$@"'
    monkeypatch.setenv("CXX", command(tmp_path / "c++", text) + " -one -two")
    assert build.library() is not None


@pytest.mark.usefixtures("compiler")
def test_a_library_of_somebody_else_is_not_loaded_but_made_again(anew, tmp_path):
    anew.mkdir(parents=True)
    target, source, ran = build._target(), tmp_path / "other.cpp", tmp_path / "ran"
    source.write_text(
        "#include <cstdio>\n"
        f'struct A {{ A() {{ std::fopen("{ran}", "w"); }} }} a;\n'
        'extern "C" int ipot_attend() { return 1; }'
    )
    flags = ["-shared", "-fPIC", "-o", str(target)]
    subprocess.run([*build._compiler(), *flags, str(source)], check=True)
    assert build.library() is not None
    assert not ran.exists()
    assert library_cache.is_whole(target)


@pytest.mark.usefixtures("compiler")
def test_a_library_without_the_kernels_is_said(anew, tmp_path, caplog, monkeypatch):
    """As after a change of the sources that forgot one: there is no use in making it again."""
    monkeypatch.setattr(build, "KERNELS", (*build.KERNELS, "ipot_forgotten"))
    without(None, caplog, "lacks ipot_forgotten")


@pytest.mark.usefixtures("compiler")
def test_it_is_compiled_once(anew, monkeypatch):
    ran = []

    class Noted(subprocess.Popen):
        def __init__(self, given, **options):
            ran.append(given)
            super().__init__(given, **options)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    assert build.library() is not None
    (made,) = anew.iterdir()
    # Under another name until it is whole, so that nobody loads half of it.
    written = [Path(c[c.index("-o") + 1]) for c in ran if "-o" in c]
    assert len(written) == len(build.SOURCES) + 1
    assert made not in written
    before = made.stat().st_mtime_ns
    build._tried.cache_clear()
    ran.clear()
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
@pytest.mark.parametrize("name", [*build.SOURCES, *build.HEADERS])
def test_another_source_makes_another_library(anew, monkeypatch, tmp_path, name):
    first, copy = build._target(), tmp_path / "copy"
    shutil.copytree(build.HERE, copy)
    monkeypatch.setattr(build, "HERE", copy)
    assert build._target() == first
    (copy / name).write_text((copy / name).read_text() + "// changed\n")
    assert build._target() != first


@pytest.mark.usefixtures("compiler")
def test_a_processor_without_products_in_bf16(anew, monkeypatch):
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-U__AVX512BF16__"))
    assert build.library() is not None
    assert build.why_not() is None
    assert "AVX512-BF16" in build.why_not_bf16()
    assert lacks(torch.device("cpu")) == ()
    (line,) = lacks(torch.device("cpu"), "bf16")
    assert line == f"without compiled kernels in bf16: {build.why_not_bf16()}"
    exact = attend(target(), *SCORES, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert path_of(target(), *SCORES, 2) == "fused"
        rounded = attend(target(), *SCORES, 2)
    assert (rounded - exact).norm() < 0.02 * exact.norm()


@pytest.mark.usefixtures("compiler")
def test_a_compiler_that_knows_no_bf16_leaves_the_other_kernels(anew, monkeypatch, tmp_path):
    known = shlex.join(build._compiler())
    text = 'case "$*" in *-DIPOT_NO_HALVES*|*--version*) exec ' + known + ' "$@";; esac; exit 1'
    monkeypatch.setenv("CXX", command(tmp_path / "c++", text))
    assert build.library() is not None
    assert build.why_not() is None
    assert "AVX512-BF16" in build.why_not_bf16()


def test_without_a_library_there_is_none_in_bf16_either(anew, monkeypatch):
    monkeypatch.setenv("IPOT_NATIVE", "0")
    assert build.why_not_bf16() == build.why_not() == "IPOT_NATIVE=0"
    assert lacks(torch.device("cpu"), "bf16") == ("without compiled kernels: IPOT_NATIVE=0",)


def test_all_that_is_compiled_is_known():
    names = {path.name for path in build.HERE.iterdir() if path.suffix in (".cpp", ".h")}
    assert names == {*build.SOURCES, *build.HEADERS}


def test_another_compiler_makes_another_library(anew, monkeypatch, tmp_path):
    found = []
    for version in (12, 13):
        monkeypatch.setenv("CXX", command(tmp_path / "c++", f"echo {version}"))
        found.append(build._target())
    assert found[0] != found[1]


def test_any_compiler_will_do(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build._compiler_or_none() is None
    for name in ("c++", "clang++", "g++"):  # the later one is the better known
        only = command(tmp_path / name, "exit")
        assert build._compiler_or_none() == [only]


def test_a_compiler_that_fails_without_a_word(anew, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("CXX", command(tmp_path / "c++", "exit 3"))
    without(monkeypatch, caplog, "the compiler failed: 3")


def test_an_empty_name_of_a_folder_is_none(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert build._folder() == Path.home() / ".cache" / "ipot" / "native"


def test_what_tells_processors_apart(monkeypatch):
    def told(text):
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
        return build._processor()

    one = told("model name : A\nflags : avx2\ncpu MHz : 1000\n")
    assert told("model name : A\nflags : avx2\ncpu MHz : 2000\n") == one
    others = [
        "model name : B\nflags : avx2\n",
        "model name : A\nflags : avx2 avx512f\n",
        "CPU part : 0xd40\nFeatures : asimd\n",
        "CPU part : 0xd40\nFeatures : asimd sve\n",
        "CPU part : 0xd41\nFeatures : asimd\n",
    ]
    assert len({one, *map(told, others)}) == 1 + len(others)


@pytest.mark.usefixtures("compiler")
def test_a_damaged_library_is_made_again(anew):
    anew.mkdir(parents=True)
    target = build._target()
    target.write_bytes(b"cut short")
    assert build.library() is not None
    assert target.stat().st_size > 1000


@pytest.mark.usefixtures("compiler")
def test_processes_may_start_at_once(anew):
    code = (
        f"from ipot.accelerate.cpu import build; build.FLAGS = {build.FLAGS!r}; "
        "assert build.library() is not None"
    )
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert len(list(anew.iterdir())) == 1
