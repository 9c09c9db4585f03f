"""Only a library of this user that is whole is ever loaded."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from ipot import lock
from ipot.accelerate.cpu import build, library_cache
from ipot.errors import IpotError
from tests.accelerate.cpu.test_build import command, without

NOBODY = 65534


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "ipot" / "native"
    library_cache.prepare(found)
    return found


@pytest.fixture
def library(folder):
    """Something that is kept; what is in it does not matter where it is not loaded."""
    (folder / "made").write_bytes(b"compiled" * 100)
    library_cache.keep(folder / "made", folder / "native-x.so")
    (folder / "made").unlink()
    assert library_cache.is_whole(folder / "native-x.so")
    return folder / "native-x.so"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_for_the_user_alone(folder, library):
    assert mode(folder) == mode(library) == 0o700
    folder.chmod(0o775)  # as earlier releases made it, by the umask
    assert not library_cache.is_whole(library)
    library_cache.prepare(folder)
    assert mode(folder) == 0o700
    assert library_cache.is_whole(library)


def test_one_that_everybody_may_write_is_refused(folder, library):
    folder.chmod(0o777)
    with pytest.raises(IpotError, match=f"{folder} can be written by everybody: chmod o-w"):
        library_cache.prepare(folder)
    folder.chmod(0o775)
    library_cache.prepare(folder)


@pytest.mark.parametrize("left", [0, 10, 100, -1])
def test_one_that_is_cut_short_is_not_loaded(library, left, monkeypatch):
    library.write_bytes(library.read_bytes()[:left])
    monkeypatch.setattr(library_cache.ctypes, "CDLL", lambda path: pytest.fail("it was loaded"))
    with pytest.raises(OSError, match="damaged"):
        library_cache.load(library, ())


@pytest.mark.parametrize("place", [5, -1])
def test_nor_one_that_was_changed(library, place):
    content = bytearray(library.read_bytes())
    content[place] ^= 1
    library.write_bytes(content)
    assert not library_cache.is_whole(library)


def test_nor_one_that_others_may_write(library):
    library.chmod(0o720)
    assert not library_cache.is_whole(library)


def test_nor_a_link_nor_a_pipe(library):
    link, pipe = library.with_name("link.so"), library.with_name("pipe.so")
    link.symlink_to(library)
    os.mkfifo(pipe, 0o700)
    assert not library_cache.is_whole(link)
    assert not library_cache.is_whole(pipe)  # nor does it wait for somebody to write


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_nor_one_of_another_user(folder, library):
    os.chown(library, NOBODY, -1)
    assert not library_cache.is_whole(library)
    os.chown(library, 0, -1)
    os.chown(folder, NOBODY, -1)
    assert not library_cache.is_whole(library)
    with pytest.raises(
        IpotError, match=f"{folder} belongs to another user .number {NOBODY}.: remove"
    ):
        library_cache.prepare(folder)
    os.chown(folder, 0, -1)
    os.chown(folder.parent, NOBODY, -1)  # who could put another folder in its place
    with pytest.raises(IpotError, match=f"{folder.parent} belongs to another user"):
        library_cache.prepare(folder)


def test_a_link_in_the_place_of_the_folder(tmp_path, folder):
    other = tmp_path / "other" / "native"
    other.parent.mkdir()
    other.symlink_to(folder)
    with pytest.raises(IpotError, match="a link"):
        library_cache.prepare(other)


def test_folders_around_it_that_everybody_may_write(anew, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("CXX", command(tmp_path / "c++", "echo 1"))
    tmp_path.chmod(0o777)
    without(monkeypatch, caplog, f"{tmp_path} can be written by everybody: chmod o-w")
    assert not list(anew.glob("*"))
    tmp_path.chmod(0o1777)  # as /tmp: nobody can rename what is another's
    library_cache.prepare(anew)


def test_a_workshop_that_a_killed_process_left_is_removed(folder):
    child = os.fork()
    if not child:
        with library_cache.workshop(folder):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(folder.iterdir())) == 1
    with library_cache.workshop(folder) as here:
        assert list(folder.iterdir()) == [here]
        assert mode(here) == 0o700
    assert not list(folder.iterdir())


def killed_in_a_workshop(folder):
    """A process that dies while it compiles, with its lock."""
    child = os.fork()
    if not child:
        with lock.locked(folder, "compiling"), library_cache.workshop(folder) as here:
            (here / "attend.o").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return len(list(folder.iterdir()))


def test_what_a_killed_process_left_goes_though_the_library_is_there(anew, monkeypatch, tmp_path):
    """As where another process made it, or the kill came when it was made."""
    monkeypatch.setenv("CXX", command(tmp_path / "c++", "echo 1"))
    monkeypatch.setattr(library_cache, "load", lambda path, names: library_cache.ctypes.CDLL(None))
    library_cache.prepare(anew)
    assert killed_in_a_workshop(anew) == 2
    with library_cache.workshop(anew) as living:
        assert killed_in_a_workshop(anew) == 3
        assert build.library() is not None
        assert list(anew.iterdir()) == [living]


def test_a_compiler_that_lives_on_makes_nothing_in_a_workshop_that_is_swept(folder, monkeypatch):
    killed_in_a_workshop(folder)
    (left,) = folder.glob(".build*")
    remove = shutil.rmtree

    def with_a_compiler(path, **options):
        with contextlib.suppress(FileNotFoundError):
            (left / "late.o").touch()
        remove(path, **options)

    monkeypatch.setattr(library_cache.shutil, "rmtree", with_a_compiler)
    library_cache.sweep(folder)
    assert not list(folder.glob(".build*"))


# ---- interrupted


def slow_compiler(tmp_path):
    """One that notes its number and does not end; GCC starts others, which must end as well."""
    note = f">> {tmp_path}/pids"
    text = f"[ $1 = --version ] && exit; echo $$ {note}; sleep 60 & echo $! {note}; wait"
    return command(tmp_path / "c++", text)


def gone(pids):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [pid for pid in pids if _runs(pid)]
        if not left:
            return True
        time.sleep(0.02)
    return False


def _runs(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_interrupt_ends_the_compilers_and_leaves_nothing(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", slow_compiler(tmp_path))
    noted = tmp_path / "pids"

    def interrupt():
        while not noted.exists() or not noted.read_text().count("\n") >= 2:
            time.sleep(0.01)
        # As somebody who waits does: again, since Python may lose one as it starts a process.
        while not ended.wait(2):
            os.kill(os.getpid(), signal.SIGINT)

    ended = threading.Event()
    thread = threading.Thread(target=interrupt)
    # A shell that starts tests in the background has them ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            build.library()
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert gone([int(word) for word in noted.read_text().split()])
    assert not list(anew.iterdir())


def test_a_compiler_that_was_killed_is_not_taken_for_one_without_bf16(
    anew,
    monkeypatch,
    caplog,
    tmp_path,
):
    asked = f'echo "$@" >> {tmp_path}/asked; [ $1 = --version ] || kill -9 $$'
    monkeypatch.setenv("CXX", command(tmp_path / "c++", asked))
    without(monkeypatch, caplog, "the compiler failed")
    assert "IPOT_NO_HALVES" not in (tmp_path / "asked").read_text()


@pytest.mark.skipif(build._compiler_or_none() is None, reason="there is no C++ compiler")
def test_two_processes_compile_once(anew, tmp_path, monkeypatch):
    """The second waits for the first, though a process of another moment was killed before."""
    library_cache.prepare(anew)
    known = build._compiler()[0]
    text = f'[ $1 = --version ] || echo x >> {tmp_path}/ran; exec {known} "$@"'
    monkeypatch.setenv("CXX", command(tmp_path / "c++", text))
    code = (
        "from ipot.accelerate.cpu import build; "
        "build.FLAGS = tuple('-O0' if f == '-O3' else f for f in build.FLAGS); "
        "assert build.library() is not None"
    )
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert len(list(anew.iterdir())) == 1
    assert (tmp_path / "ran").read_text().count("x") == len(build.SOURCES) + 1
