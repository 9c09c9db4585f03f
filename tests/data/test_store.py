"""The store: resumed, extended, never served half."""

import errno
import os
from pathlib import Path

import pytest
import torch

from ipot import files
from ipot.data.store import Store, fingerprint
from ipot.errors import StoreError

RECIPE = {"problem": "toy", "settings": {"a": 1.0}, "seed": 0}


class Maker:
    """Sample i is filled with i; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[range] = []

    def __call__(self, indices: range) -> dict[str, torch.Tensor]:
        self.asked.append(indices)
        rows = torch.tensor(list(indices), dtype=torch.float32)
        return {"u": rows.view(-1, 1).expand(-1, 50), "positive": rows > 1}


@pytest.fixture
def make() -> Maker:
    return Maker()


def fetch(store: Store, count: int, make, **options) -> list[int]:
    found = store.fetch(RECIPE, count, make, piece=options.pop("piece", 4), **options)
    assert found["u"].shape == (count, 50)
    assert found["positive"].tolist() == [i > 1 for i in range(count)]
    return found["u"][:, 0].long().tolist()


def pieces(store: Store) -> list[Path]:
    return sorted(store.folder(RECIPE).glob("*.safetensors"))


def test_pieces_are_made_once_and_read_afterwards(tmp_path, make):
    store, told = Store(tmp_path), []
    assert fetch(store, 10, make, report=lambda *a: told.append(a)) == list(range(10))
    assert make.asked == [range(4), range(4, 8), range(8, 10)]
    assert told == [(0, 10, 0), (4, 10, 0), (8, 10, 0), (10, 10, 0)]
    assert fetch(store, 10, make) == list(range(10))
    assert fetch(store, 5, make) == list(range(5))
    assert len(make.asked) == 3
    assert store.count(RECIPE) == 10


def test_a_lock_that_a_kill_left_goes_when_all_samples_are_there(tmp_path, make):
    store = Store(tmp_path)
    fetch(store, 3, make)
    (store.folder(RECIPE) / ".lock").write_text("{}")
    fetch(store, 3, make)
    assert not (store.folder(RECIPE) / ".lock").exists()


def test_a_larger_count_goes_on_where_the_smaller_ended(tmp_path, make):
    store = Store(tmp_path)
    fetch(store, 3, make)
    assert fetch(store, 9, make) == list(range(9))
    assert make.asked == [range(3), range(3, 7), range(7, 9)]


def test_a_crash_loses_only_the_piece_in_hand(tmp_path, make):
    store = Store(tmp_path)

    def crash(indices):
        if indices.start >= 4:
            raise RuntimeError("killed")
        return make(indices)

    with pytest.raises(RuntimeError, match="killed"):
        fetch(store, 10, crash)
    assert store.count(RECIPE) == 4
    assert fetch(store, 10, make) == list(range(10))
    assert make.asked == [range(4), range(4, 8), range(8, 10)]


@pytest.mark.parametrize("left", [0, 5, 100, -1], ids=["empty", "header", "half", "last byte"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_truncated_piece_is_made_again(tmp_path, make, left, which):
    store = Store(tmp_path)
    fetch(store, 10, make)
    path = pieces(store)[which]
    path.write_bytes(path.read_bytes()[:left])
    assert store.count(RECIPE) == 4 * which
    assert fetch(store, 10, make) == list(range(10))
    assert range(4 * which, 4 * which + 4) in make.asked[3:]


def test_pieces_cut_differently_still_fit_together(tmp_path, make):
    store = Store(tmp_path)
    fetch(store, 10, make, piece=4)
    pieces(store)[1].unlink()
    assert fetch(store, 12, make, piece=5) == list(range(12))
    assert fetch(store, 12, make, piece=2) == list(range(12))


def test_what_a_killed_process_left_goes_when_all_is_there(tmp_path, make):
    store = Store(tmp_path)
    fetch(store, 4, make)
    before = sorted(store.folder(RECIPE).iterdir())
    child = os.fork()
    if not child:
        with files.atomic(store.folder(RECIPE) / "recipe.json"):
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list(store.folder(RECIPE).iterdir())) == len(before) + 1
    fetch(store, 4, make)
    assert sorted(store.folder(RECIPE).iterdir()) == before


def test_only_whole_pieces_are_served(tmp_path, make):
    store = Store(tmp_path)
    fetch(store, 4, make)
    for name in (".00000004-00000008.safetensors.x1.tmp", "notes.txt", "old-copy.safetensors"):
        (store.folder(RECIPE) / name).write_bytes(pieces(store)[0].read_bytes())
    assert store.count(RECIPE) == 4
    assert fetch(store, 6, make) == list(range(6))


def test_a_full_disk_keeps_what_was_made(tmp_path, make, monkeypatch):
    store, write = Store(tmp_path), Path.write_bytes

    def full(path, content):
        if "00000004-" in path.name:
            write(path, content[:4])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"No space left.*kept.*--data"):
        fetch(store, 10, make)
    monkeypatch.undo()
    names = {p.name for p in store.folder(RECIPE).iterdir()}
    assert names == {"recipe.json", "00000000-00000004.safetensors"}
    assert fetch(store, 10, make) == list(range(10))
    assert make.asked.count(range(4)) == 1


def test_a_root_that_cannot_be_written_is_said_before_the_work(tmp_path, make):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"cannot write to the data folder .*IPOT_DATA"):
        fetch(Store(tmp_path / "file" / "data"), 4, make)
    assert make.asked == []


def test_too_little_space_is_refused_before_the_work(tmp_path, make, monkeypatch):
    monkeypatch.setattr(files, "free_bytes", lambda _: 1000)
    with pytest.raises(StoreError, match=r"GB are needed.*GB are free"):
        fetch(Store(tmp_path), 10, make, bytes_each=101)
    assert make.asked == []
    fetch(Store(tmp_path), 8, make, bytes_each=100)
    assert fetch(Store(tmp_path), 10, make, bytes_each=400) == list(range(10))


def test_a_maker_that_gives_too_few_is_not_believed(tmp_path):
    with pytest.raises(StoreError, match="4"):
        Store(tmp_path).fetch(RECIPE, 4, lambda _: {"u": torch.zeros(3, 50)}, piece=4)


def test_any_change_of_a_recipe_is_another_folder(tmp_path):
    changed = [
        RECIPE,
        {**RECIPE, "seed": 1},
        {**RECIPE, "settings": {"a": 1.0000001}},
        {**RECIPE, "problem": "other"},
    ]
    assert len({Store(tmp_path).folder(r) for r in changed}) == 4
    assert fingerprint(dict(reversed(RECIPE.items()))) == fingerprint(RECIPE)


def test_the_root_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("IPOT_DATA", str(tmp_path / "a"))
    assert Store().root == tmp_path / "a"
    monkeypatch.delenv("IPOT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store().root == tmp_path / "ipot"
    assert Store("b").root == Path("b")


def test_a_field_that_lost_its_name_is_told_of(tmp_path):
    store = Store(tmp_path)
    fields = store.fetch(RECIPE, 4, lambda i: {"u": torch.zeros(len(i), 5)}, piece=4)
    with pytest.raises(StoreError, match=r"no field 'v', only 'u': they are damaged. Remove"):
        fields["v"]
