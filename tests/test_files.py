"""Files are whole or absent."""

import errno
import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from ipot import files
from ipot.errors import DiskError


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a" / "result.json"
    files.write_json(path, {"x": 1})

    def half() -> None:
        with files.atomic(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power"):
        half()
    assert json.loads(path.read_text()) == {"x": 1}
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


def test_nothing_appears_under_the_name_before_the_end(tmp_path):
    path = tmp_path / "weights"
    with files.atomic(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "new"


def test_a_failing_replace_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write_text(path, "old")

    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a", "x")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_free_bytes_of_a_folder_that_does_not_exist_yet(tmp_path):
    assert files.free_bytes(tmp_path / "not" / "yet") > 0


# ---- what is left by others


def dead_token():
    child = os.fork()
    if not child:
        os._exit(0)
    token = f"{files.machine()}-{child}-{files._began(os.getpid())}"
    os.waitpid(child, 0)
    return token


def test_what_the_dead_have_left_is_swept_and_what_the_living_write_is_not(tmp_path):
    path = tmp_path / "a.json"
    dead = tmp_path / f".a.json.{dead_token()}-00000000.tmp"
    living = files.temporary_name(path)
    far = tmp_path / ".a.json.00000000-1-1-00000000.tmp"
    old_release = tmp_path / ".a.json.abcdefg_.tmp"
    of_others = [tmp_path / ".b.json.x.tmp", tmp_path / ".a.json.mine.tmp", tmp_path / "a.tmp"]
    kept = [living, far, old_release, *of_others]
    for p in (dead, *kept):
        p.touch()
    files.write_text(path, "new")
    assert not dead.exists()
    assert all(p.exists() for p in kept)
    for p in (far, old_release):
        os.utime(p, (0, 0))
    files.write_text(path, "newer")
    assert sorted(tmp_path.iterdir()) == sorted([path, living, *of_others])


def test_a_killed_writer_leaves_nothing_for_long(tmp_path):
    path = tmp_path / "weights"
    child = os.fork()
    if not child:
        with files.atomic(path) as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [p.suffix for p in tmp_path.iterdir()] == [".tmp"]
    files.write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]


def test_long_names_have_temporary_ones_too(tmp_path):
    path = tmp_path / ("ü" * 120 + ".json")
    files.write_text(path, "x")
    assert path.read_text() == "x"


# ---- the disk


@pytest.fixture
def calls(monkeypatch):
    """What is told to the disk, in order: ("sync" | "replace" | "mkdir", name)."""
    told, fsync, replace, mkdir = [], os.fsync, os.replace, Path.mkdir

    def note_sync(handle):
        told.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def note_replace(source, target):
        told.append(("replace", Path(target).name))
        replace(source, target)

    def note_mkdir(self, *given, **named):
        mkdir(self, *given, **named)
        told.append(("mkdir", self.name))

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(Path, "mkdir", note_mkdir)
    return told


def test_names_are_on_disk_and_not_only_contents(tmp_path, calls):
    files.write_text(tmp_path / "a" / "b" / "c", "x")
    kinds = [(what, name if not name.endswith(".tmp") else "tmp") for what, name in calls]
    assert kinds == [
        ("mkdir", "a"),
        ("sync", tmp_path.name),
        ("mkdir", "b"),
        ("sync", "a"),
        ("sync", "tmp"),
        ("replace", "c"),
        ("sync", "b"),
    ]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_told_in_words_and_keeps_the_old(tmp_path, monkeypatch, number):
    path = tmp_path / "a"
    files.write_text(path, "old")

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=rf"{path}: {os.strerror(number)}.*Make room") as error:
        files.write_text(path, "new")
    assert error.value.errno == number
    assert isinstance(error.value, OSError)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_limit_on_the_size_of_files(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(DiskError, match="File too large"):
            files.write_text(tmp_path / "a", "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_goes_while_a_file_is_written(tmp_path, replaced):
    path = tmp_path / "run" / "result.json"

    def write():
        with files.atomic(path) as temporary:
            shutil.rmtree(path.parent)
            if replaced:
                path.parent.touch()
            temporary.write_text("new")

    with pytest.raises(DiskError, match=rf"{path}: no folder there.*Restore"):
        write()


@pytest.mark.parametrize("inner", ["a.json", "deeper/a.json"])
def test_a_file_where_the_folder_should_be(tmp_path, inner):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(DiskError, match="no folder there"):
        files.write_text(tmp_path / "run" / inner, "new")
    assert (tmp_path / "run").read_text() == "a file"


def test_another_file_that_a_block_misses_is_not_explained(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(FileNotFoundError) as error, files.atomic(path):
        (tmp_path / "missing").read_text()
    assert not isinstance(error.value, DiskError)
