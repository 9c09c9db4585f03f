"""The attacks by failing disks and clocks find what is broken on purpose."""

import contextlib
import errno
import os
import time

import pytest
from safetensors.torch import save_file

from campaign.attack import Lost
from campaign.attacks import _mounts, _operations, _seccomp, disks
from campaign.attacks._victim import Foreign, Victim
from ipot import files
from ipot.data.store import Store
from ipot.errors import DataError

pytestmark = pytest.mark.plain

filters = pytest.mark.skipif(_seccomp.why_not() is not None, reason="no seccomp filters")
mounts = pytest.mark.skipif(_mounts.why_not() is not None, reason="nothing can be mounted")


@pytest.fixture
def attack(attempt):
    def run(operation, *changes, attack=disks.Disks, **more):
        attempt(attack(), operation, *changes, **more)

    return run


FAULTS = {
    "too large": {"by": "size error", "at": 1000},
    "once": {"by": "event", "at": 0.5, "errno": errno.ENOSPC, "once": True},
    "full": {"by": "event", "at": 0.5, "errno": errno.ENOSPC},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_what_is_handled_is_no_finding(attack, fault):
    attack("generate", fault)


def test_errors_of_the_system_are_found(attack, monkeypatch):
    monkeypatch.setattr(Store, "_write", lambda self, path, arrays: save_file(arrays, path))
    with pytest.raises(Foreign, match="SafetensorError"):
        attack("generate", FAULTS["too large"])


def test_a_damaged_old_state_is_found(attack, monkeypatch, unsafe):
    monkeypatch.setattr(files, "atomic", unsafe)
    with pytest.raises(Lost, match="neither the old one nor the new one"):
        attack("predict npy", {"by": "size error", "at": 1000})


@pytest.mark.parametrize("how", ["removed", "a file"])
def test_a_folder_that_vanishes_is_met(attack, monkeypatch, how):
    act = _operations.Generate.act

    def careless(self, folder, shared):
        act(self, folder, shared)
        (folder / "note.txt").write_text("it is there, is it not?")

    with contextlib.suppress(Foreign):  # whatever the package makes of it
        attack("generate", {"by": "event", "at": 0.5, "vanish": how})
    monkeypatch.setattr(
        _operations.Generate, "act", lambda *given: os.listdir(given[1]) and careless(*given)
    )
    with pytest.raises((Foreign, Lost)):
        attack("generate", {"by": "event", "at": 0.5, "vanish": how})


@filters
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_system_calls_fail_but_for_one_file(tmp_path, number):
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    spared = os.open(tmp_path / "spared", os.O_WRONLY | os.O_CREAT)
    child = os.fork()
    if child == 0:
        _seccomp.fail(number, spare=spared)
        calls = {
            errno.ENOSPC: lambda: os.write(file, b"x"),
            errno.EIO: lambda: os.fsync(file),
            errno.EROFS: lambda: os.open(tmp_path / "new", os.O_WRONLY | os.O_CREAT),
        }
        try:
            calls[number]()
        except OSError as error:
            os.write(spared, str(error.errno).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "spared").read_text() == str(number)


@mounts
def test_a_small_disk_is_met(attack, monkeypatch, tmp_path, unsafe):
    attack("generate", {"by": "tmpfs", "at": 8192})
    assert not list((tmp_path / "work").iterdir())  # nobody else has seen it
    (tmp_path / "work").rmdir()
    monkeypatch.setattr(files, "atomic", unsafe)
    with pytest.raises(Lost):
        attack("predict npy", {"by": "tmpfs", "at": 4096})


@mounts
def test_a_read_only_disk_is_met(attack, monkeypatch, tmp_path):
    fault = {"by": "read-only"}
    attack("generate", {"by": "size error", "at": 1000}, fault)
    (tmp_path / "work").rmdir()  # where the disk was, which nobody else has seen
    act = _operations.Generate.act

    def careless(self, folder, shared):
        (folder / "note.txt").write_text("who would forbid that?")
        act(self, folder, shared)

    monkeypatch.setattr(_operations.Generate, "act", careless)
    with pytest.raises(Foreign, match="Read-only file system"):
        attack("generate", fault)


def test_a_clock_that_is_trusted_is_found(attack, monkeypatch):
    clock = {"attack": disks.Clocks, "hurt": {"by": "none"}}
    attack("generate", [0, -86400], [1, 1e6], **clock)
    act = _operations.Generate.act

    def trusting(self, folder, shared):
        began = time.time()
        act(self, folder, shared)
        if time.time() < began:
            raise DataError("time went backwards")

    monkeypatch.setattr(_operations.Generate, "act", trusting)
    with pytest.raises(Lost, match="did not come to its end when the clock jumped"):
        attack("generate", [1, -86400], **clock)


def test_a_clock_jumps_at_a_reading(tmp_path):
    def read():
        first, second = time.time(), time.time()
        raise DataError(str(round((second - first) / 3600)))

    ended = Victim(read, tmp_path, {"by": "none", "clock": [[1, 7200]]}).wait()
    assert ended.said == "DataError: 2"
