"""Power losses: the disk that is assumed, the recorder, and that the attack finds faults."""

import json
import os
import subprocess
import sys
from random import Random

import pytest

from campaign.attack import Lost, Place
from campaign.attacks import _operations, _recording, power
from campaign.attacks._disk import ORDERS, Record

pytestmark = pytest.mark.plain

compiler = pytest.mark.skipif(power.Power().possible() is not None, reason="no C compiler")


class Log:
    """A record, written by hand."""

    def __init__(self, folder, root="/w"):
        self.root, self.path = root, folder / "log"
        self.before = folder / "before"
        self.before.mkdir()
        self.path.write_bytes(b"")

    def tell(self, kind, *names, inode=0, number=0, data=b""):
        paths = "\t".join(f"{self.root}/{name}" if name else self.root for name in names)
        with self.path.open("ab") as file:
            file.write(f"{kind} {inode} {number} {len(data)} {paths}\n".encode() + data)

    def record(self):
        inodes = {p.name: 99 for p in self.before.iterdir()}
        return Record(self.before, inodes, self.path, self.root)


def replaced(log, data, *, synced, named=False):
    """A new file under a temporary name, then under that of the old one."""
    (log.before / "a").write_bytes(b"old")
    log.tell("C", "tmp", inode=1)
    log.tell("W", "tmp", inode=1, data=data)
    if synced:
        log.tell("S", "tmp", inode=1, data=data)
    log.tell("R", "tmp", "a")
    if named:
        log.tell("D", "")


def seen(log, folder, *, at=None, orders=ORDERS):
    """All that may be found under the name."""
    record, found = log.record(), set()
    for chance in range(60):
        for order in orders:
            target = folder / f"{chance}{order}"
            number = record.length - 1 if at is None else at
            record.make(number, order, Random(chance), target)
            found.add((target / "a").read_bytes() if (target / "a").exists() else None)
    return found


def test_what_was_synced_before_its_rename_is_old_or_new(tmp_path):
    log = Log(tmp_path)
    replaced(log, b"new" * 3000, synced=True)
    assert seen(log, tmp_path) == {b"old", b"new" * 3000}


def test_a_name_that_was_synced_lasts(tmp_path):
    log = Log(tmp_path)
    replaced(log, b"new", synced=True, named=True)
    assert seen(log, tmp_path) == {b"new"}
    (tmp_path / "earlier").mkdir()
    assert seen(log, tmp_path / "earlier", at=0) == {b"old"}


def test_what_was_not_synced_may_be_anything(tmp_path):
    log = Log(tmp_path)
    new = b"new" * 3000
    replaced(log, new, synced=False)
    found = seen(log, tmp_path)
    assert {b"old", new, b"", bytes(len(new))} <= found  # nothing and zeros among it
    assert any(new.startswith(part) and 0 < len(part) < len(new) for part in found)


def test_a_journal_keeps_the_order_of_names_and_others_do_not(tmp_path):
    log = Log(tmp_path)
    for inode, name in ((1, "a"), (2, "b")):
        log.tell("C", name, inode=inode)
    record = log.record()
    for order, orderly in (("journal", True), ("any", False)):
        alone = []
        for chance in range(40):
            target = tmp_path / f"{order}{chance}"
            record.make(1, order, Random(chance), target)
            names = {path.name for path in target.iterdir()}
            alone.append(names == {"b"})
        assert any(alone) is not orderly


def test_folders_are_exchanged_moved_and_emptied(tmp_path):
    log = Log(tmp_path)
    log.tell("M", "one")
    log.tell("C", "one/a", inode=1)
    log.tell("W", "one/a", inode=1, data=b"1")
    log.tell("M", "two")
    log.tell("X", "one", "two")
    log.tell("R", "two/a", "one/b")
    log.tell("L", "one/b", "one/c")
    log.tell("U", "one/b")
    log.tell("U", "two")
    log.record().final(tmp_path / "final")
    files = {str(p.relative_to(tmp_path / "final")) for p in (tmp_path / "final").rglob("*")}
    assert files == {"one", "one/c"}
    assert (tmp_path / "final" / "one" / "c").read_bytes() == b"1"


SCRIPT = """
import ctypes, mmap, os, sys
folder, log = sys.argv[1:]
assert ctypes.CDLL(None).ipot_record(folder.encode(), log.encode()) >= 0
os.chdir(folder)
os.mkdir("d")
with open("d/tmp", "wb") as file:
    file.write(b"12345")
    file.flush()
    os.fsync(file.fileno())
os.replace("d/tmp", "d/a")
with open("d/a", "ab") as file:
    file.write(b"678")
handle = os.open("d", os.O_RDONLY)
os.fsync(handle)
with open("m", "w+b") as file:
    file.truncate(8192)
    with mmap.mmap(file.fileno(), 8192) as mapped:
        mapped[5000:5003] = b"map"
with open("gone", "wb") as file:
    os.pwrite(file.fileno(), b"x", 3)
os.unlink("gone")
inside = os.open("d", os.O_RDONLY)
os.rename("a", "b", src_dir_fd=inside, dst_dir_fd=inside)
"""


@compiler
def test_the_recorder_hears_of_every_change(tmp_path):
    library = _recording.compile_recorder(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(work), str(tmp_path / "log")]
    subprocess.run(command, env=os.environ | {"LD_PRELOAD": str(library)}, check=True)
    (tmp_path / "none").mkdir()
    record = Record(tmp_path / "none", {}, tmp_path / "log", str(work))
    record.final(tmp_path / "final")
    for path in (p for p in work.rglob("*") if p.is_file()):
        assert (tmp_path / "final" / path.relative_to(work)).read_bytes() == path.read_bytes()
    assert {p.name for p in (tmp_path / "final").rglob("*")} == {"d", "b", "m"}
    # What was synced lasts; what was appended without may be lost.
    contents = set()
    for chance in range(40):
        target = tmp_path / str(chance)
        record.make(record.length - 1, "journal", Random(chance), target)
        contents |= {p.read_bytes() for p in (target / "d").glob("[ab]")}
    assert b"12345" in contents
    assert b"12345678" in contents
    assert all(content.startswith(b"12345") for content in contents)


@pytest.mark.parametrize("synced", [True, False])
def test_the_attack_finds_what_was_not_synced(shared, tmp_path, synced):
    """A record of generating, in which files are synced before their names, or not."""
    operation, made = _operations.Generate(), tmp_path / "made"
    operation.act(made, shared)
    place = shared / f"{synced}" / "records" / "generate"
    place.mkdir(parents=True)
    log = Log(place, root="/made")
    paths = sorted(str(p.relative_to(made)) for p in made.rglob("*"))
    for inode, name in enumerate(paths, 1):
        if (made / name).is_dir():
            log.tell("M", name)
            continue
        content = (made / name).read_bytes()
        log.tell("C", f"{name}.tmp", inode=inode)
        log.tell("W", f"{name}.tmp", inode=inode, data=content)
        if synced:
            log.tell("S", f"{name}.tmp", inode=inode, data=content)
        log.tell("R", f"{name}.tmp", name)
    (place / "about.json").write_text(json.dumps({"inodes": {}, "root": "/made"}))
    (shared / f"{synced}" / "operations").symlink_to(shared / "operations")
    lost = 0
    for chance in range(60):
        scratch = tmp_path / str(chance)
        scratch.mkdir()
        case = {"operation": "generate", "at": chance / 60, "order": "journal", "chance": chance}
        try:
            power.Power().run(case | {"go on": False}, Place(shared / f"{synced}", scratch))
        except Lost:
            lost += 1
    assert (lost == 0) is synced
