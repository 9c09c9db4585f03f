"""One process at a time in a folder, and nobody blocked by the dead."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import socket
import threading

import pytest

from ipot import files, lock
from ipot.errors import Busy, RunError
from ipot.lock import locked


@contextlib.contextmanager
def in_another_process(action):
    """A forked process that has done `action` and then waits; killed at the end."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            action(lambda: os.write(told, b"x"))
        finally:
            os._exit(1)
    try:
        assert os.read(ready, 1) == b"x"
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def holding(folder):
    def action(ready):
        with locked(folder, "training"):
            ready()
            signal.pause()

    return in_another_process(action)


def attempt(folder):
    """Whether another process could have the lock now."""
    child = os.fork()
    if not child:
        try:
            with locked(folder, "trying"):
                os._exit(0)
        except Busy:
            os._exit(3)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture(params=["system", "file"])
def kind(request, monkeypatch, caplog):
    """By locks of the system, and as on a file system that has none."""

    def refuse(*given):
        raise OSError(errno.ENOLCK, "No locks available")

    if request.param == "file":
        monkeypatch.setattr(fcntl, "lockf", refuse)
    return request.param


def test_another_process_is_refused_and_told_who_has_it(tmp_path, kind):
    with holding(tmp_path) as child, pytest.raises(Busy) as busy, locked(tmp_path, "x"):
        pass
    words = str(busy.value)
    assert f"process {child} on {socket.gethostname()} (training since 2" in words
    assert str(tmp_path) in words


def test_a_killed_process_blocks_nobody(tmp_path, kind):
    with holding(tmp_path) as child:
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # still a zombie
        assert list(tmp_path.iterdir())
        with locked(tmp_path, "x"):
            assert not attempt(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path, kind):
    with holding(tmp_path) as child:
        lock.sweep(tmp_path)
        assert not attempt(tmp_path)
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert list(tmp_path.iterdir())
        lock.sweep(tmp_path)
    assert not list(tmp_path.iterdir())
    lock.sweep(tmp_path / "not there")
    assert not list(tmp_path.iterdir())


def _take(folder):
    with locked(folder, "x"):
        pass


@pytest.mark.parametrize("tidy", [lock.sweep, _take])
def test_temporary_files_of_killed_processes_go_with_their_locks(tmp_path, tidy):
    def write(ready):
        with locked(tmp_path, "writing"), files.atomic(tmp_path / "a.json"):
            ready()
            signal.pause()

    with in_another_process(write) as child:
        kept = {
            files.temporary_name(tmp_path / "mine").name,
            ".b.json.00000000-1-1-00000000.tmp",  # of a process of another machine
            ".c.json.abcdefgh.tmp",  # of an earlier release
            ".d.json.tmp",
            "e.json",
        }
        for name in kept:
            (tmp_path / name).touch()
        lock.sweep(tmp_path)
        assert len(os.listdir(tmp_path)) == len(kept) + 2  # the other process still writes
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        tidy(tmp_path)
    assert set(os.listdir(tmp_path)) == kept


def test_an_interrupt_while_a_folder_is_tidied_up_leaves_no_lock(tmp_path, monkeypatch):
    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sweep_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _take(tmp_path)
    assert not list(tmp_path.iterdir())
    assert not lock._held


def test_what_a_kill_leaves_is_nothing_and_all_else_is_something(tmp_path):
    for name in (".lock", ".lock-owner", files.temporary_name(tmp_path / "config.json").name):
        (tmp_path / name).touch()
    assert lock.is_blank(tmp_path)
    for name in ("config.json", ".config.json.tmp", ".locked", ".hidden"):
        (tmp_path / name).touch()
        assert not lock.is_blank(tmp_path)
        (tmp_path / name).unlink()


def test_a_folder_that_was_made_for_nothing_is_gone(tmp_path):
    with locked(tmp_path / "a" / "b", "x"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "a" / "b", "x"):
        (tmp_path / "a" / "b" / "file").touch()
    assert [p.name for p in tmp_path.rglob("*")] == ["a", "b", "file"]


def test_a_thread_may_take_it_again_and_another_may_not(tmp_path, kind):
    said = []

    def other():
        try:
            with locked(tmp_path, "y"):
                said.append("had it")
        except Busy as busy:
            said.append(str(busy))

    with locked(tmp_path, "x"):
        with locked(tmp_path, "inside"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not attempt(tmp_path)  # the lock has outlived both
    assert "another thread of this process (x since" in said[0]
    assert attempt(tmp_path)


def test_children_do_not_keep_it(tmp_path):
    """As workers of a data loader that outlive their killed parent."""

    def action(ready):
        with locked(tmp_path, "training"):
            if not os.fork():
                signal.pause()
            ready()
            signal.pause()

    with in_another_process(action) as child:
        assert not attempt(tmp_path)
        grandchildren = process_children(child)
        try:
            os.kill(child, signal.SIGKILL)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            assert attempt(tmp_path)
        finally:
            for pid in grandchildren:
                os.kill(pid, signal.SIGKILL)


def process_children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def test_a_forked_process_that_leaves_the_block_releases_nothing(tmp_path):
    with locked(tmp_path, "x"):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException), contextlib.ExitStack() as stack:
                stack.callback(lambda: [lock._leave(h) for h in kept])
                kept = [*lock._held.values()]
            os._exit(0)
        os.waitpid(child, 0)
        assert not attempt(tmp_path)
        assert (tmp_path / lock.NAME).exists()


def test_waiting_says_for_whom_and_ends(tmp_path, caplog):
    with holding(tmp_path) as child, caplog.at_level(logging.WARNING, "ipot"):
        threading.Timer(0.1, os.kill, (child, signal.SIGKILL)).start()
        with locked(tmp_path, "x", wait=True):
            pass
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"waiting for process {child} on ")


def test_patience_ends(tmp_path):
    with (
        holding(tmp_path),
        pytest.raises(Busy),
        locked(tmp_path, "x", wait=True, patience=0.05),
    ):
        pass


def test_locks_hold_while_the_folder_is_renamed(tmp_path):
    with locked(tmp_path / "a", "x"):
        (tmp_path / "a").rename(tmp_path / "b")
        with locked(tmp_path / "b", "inside"):
            assert not attempt(tmp_path / "b")


def test_a_link_in_its_place_is_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / lock.NAME).symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="cannot write to"), locked(tmp_path / "run", "x"):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_nonsense_in_the_file_does_not_matter(tmp_path):
    (tmp_path / lock.NAME).write_bytes(b"\xff{")
    with locked(tmp_path, "x"):
        found = json.loads((tmp_path / lock.NAME).read_text())
    assert found["pid"] == os.getpid()


def test_without_locks_a_file_of_another_machine_is_respected(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "fcntl", None)
    owner = {
        "pid": 1,
        "host": "far",
        "doing": "training",
        "since": "2020",
        "token": "0" * 8 + "-1-1",
    }
    (tmp_path / ".lock-owner").write_text(json.dumps(owner))
    with pytest.raises(Busy, match=r"process 1 on far.*remove .*lock-owner"), locked(tmp_path, "x"):
        pass
    owner["token"] = f"{files.machine()}-{os.getpid()}-1"  # the number was used again
    (tmp_path / ".lock-owner").write_text(json.dumps(owner))
    with locked(tmp_path, "x"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_wrong_clock_does_not_matter(tmp_path, monkeypatch):
    """Who lives is told by process and start, not by the time of day."""
    with holding(tmp_path):
        monkeypatch.setattr(lock.time, "time", lambda: 4e9)
        with pytest.raises(Busy), locked(tmp_path, "x"):
            pass


def test_a_process_is_told_from_a_later_one_with_its_number():
    me = files.process_token()
    assert files.process_alive(me) is True
    machine, pid, began = me.split("-")
    assert files.process_alive(f"{machine}-{pid}-{int(began) + 1}") is False
    assert files.process_alive(f"00000000-{pid}-{began}") is None
    assert files.process_alive("nonsense") is None
    assert files.process_alive(f"{machine}-{2**40}-1") is False
