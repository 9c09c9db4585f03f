"""The attack by files finds what it looks for, where the package is broken on purpose."""

import json
import os
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest

from campaign import runner
from campaign.attack import Lost, Place, Verdict
from campaign.attacks import files
from campaign.attacks._mutate import GENERIC, MUTATORS, NEUTRAL, Around, mutated
from campaign.attacks._mutate_text import CANARY
from campaign.attacks._secrets import make_secrets
from campaign.attacks._seeds import SECRET
from ipot.errors import DataError
from ipot.formats import read_cases
from ipot.formats.detect import VTK_OTHERS

pytestmark = pytest.mark.plain  # the shape checker has nothing to check in the campaign


def only(group, *names):
    """The attack of a group with some of its seeds, which are quicker to prepare."""
    attack = files.FilesAttack(group)
    attack.seeds = {name: attack.seeds[name] for name in names}
    return attack


@pytest.fixture
def tried(tmp_path):
    """Tries a case of an attack here, without a process of its own."""
    prepared = {}

    def attempt(attack, door, changes):
        (name,) = attack.seeds
        if name not in prepared:
            prepared[name] = tmp_path / f"shared {name}"
            prepared[name].mkdir()
            attack.prepare(prepared[name])
        scratch = tmp_path / "work" / "scratch"
        shutil.rmtree(scratch.parent, ignore_errors=True)
        scratch.mkdir(parents=True)
        case = {"seed_file": name, "door": door, "changes": changes}
        return attack.run(case, Place(prepared[name], scratch))

    return attempt


def first(attempt, attack, door, change, error, most=200):
    """The first number with which a change ends in an error."""
    for number in range(most):
        try:
            attempt(attack, door, [[change, number]])
        except error as found:
            return str(found)
        except Exception:
            continue
    raise AssertionError(f"{change} never ended in {error.__name__}")


def test_every_format_survives_unchanged_and_most_changes_apply(tmp_path):
    secrets = tmp_path / "secrets"
    make_secrets(secrets)
    groups = ("arrays", "tables", "meshes", "vtk", "published")
    for attack in map(files.FilesAttack, groups):
        for seed in attack.seeds.values():
            folder = tmp_path / attack.group / seed.name
            folder.mkdir(parents=True)
            tree = files.read_tree(seed.make(folder))
            around = Around(secrets, "../secrets", {seed.name: tree})
            for change in {*seed.changes, *GENERIC}:
                made = [mutated(tree, [[change, n]], around) != tree for n in range(5)]
                assert any(made), f"{change} of {seed.name}"
            for change in seed.neutral:
                assert change in NEUTRAL


def test_a_case_says_all_that_is_tried():
    attack = files.FilesAttack("arrays")
    one, two = (attack.draw(Random("5/files/7")) for _ in range(2))
    assert one == two == json.loads(json.dumps(one))
    assert one["seed_file"] in attack.seeds
    assert all(name in MUTATORS for name, _ in one["changes"])
    known = [n for n, _ in one["changes"]]
    assert known == sorted(known, key=lambda name: name in GENERIC)


def test_formats_without_their_library_are_left_out(tmp_path, monkeypatch):
    """One that is not there, and one that is installed and cannot be imported."""
    (tmp_path / "halfthere.py").write_text("raise OSError('cannot load libffi.so')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = next(s for s in files.ALL_SEEDS if s.name == "npy")
    absent = replace(whole, name="absent", needs=("notthere_at_all.part",))
    broken = replace(whole, name="broken", needs=("halfthere.part",))
    monkeypatch.setattr(files, "ALL_SEEDS", (whole, absent, broken))
    attack = files.FilesAttack("arrays")
    assert attack.possible() is None
    assert attack.left_out() == {
        "absent": "notthere_at_all.part: not installed",
        "broken": "halfthere.part: OSError: cannot load libffi.so",
    }
    assert {attack.draw(Random(i))["seed_file"] for i in range(20)} == {"npy"}
    (tmp_path / "shared").mkdir()
    attack.prepare(tmp_path / "shared")
    monkeypatch.setattr(files, "ALL_SEEDS", (absent, broken))
    assert (
        files.FilesAttack("arrays").possible() == "no library is installed that reads these formats"
    )


def test_all_kinds_that_go_through_vtk_are_attacked(tmp_path):
    """A kind that is opened and not attacked would be one that nobody has looked at."""
    pytest.importorskip("pyvista")
    made = {
        seed.name: seed.make(_empty(tmp_path / seed.name))
        for seed in files.FilesAttack("vtk").seeds.values()
    }
    found = {p.suffix for place in made.values() for p in (place, *place.glob("*"))}
    alike = {".encas": ".case", ".e": ".exo"}  # other names of the same kinds
    # Lists of pieces of each kind are read by the same code as those of two.
    alike |= dict.fromkeys((".pvtp", ".pvts", ".pvtr"), ".pvtu")
    assert {alike.get(suffix, suffix) for suffix in VTK_OTHERS} <= found
    (field,) = read_cases(made["exodus"])[0].fields.items()
    assert (field[0], field[1].tolist()) == ("a", [0.5, 1.5, 2.5, 3.5])


def _empty(folder):
    folder.mkdir()
    return folder


def test_shares_are_those_of_the_plan():
    assert sum(attack.share for attack in files.ATTACKS) == 20


def test_the_package_as_it_is_survives_what_changes_nothing():
    case = {"seed_file": "npz", "door": "dataset", "changes": [["zip packed otherwise", 1]]}
    assert runner.replay(only("arrays", "npz"), case).verdict is Verdict.SURVIVED


def test_another_answer_to_the_same_content_is_lost(tried, monkeypatch):
    attack = only("arrays", "npz")
    tried(attack, "read", [["same", 0]])
    from ipot.formats import numpy_files as arrays

    honest = arrays.read_archive
    monkeypatch.setattr(
        arrays, "read_archive", lambda path: {n: a + 1 for n, a in honest(path).items()}
    )
    with pytest.raises(Lost, match="another answer"):
        tried(attack, "read", [["same", 0]])


def test_an_array_that_fails_its_checksum_is_lost(tried, monkeypatch):
    import zipfile

    attack = only("arrays", "npz")
    monkeypatch.setattr(zipfile.ZipExtFile, "_update_crc", lambda *given: None)
    assert "checksum" in first(tried, attack, "read", "flip bits", Lost)


def test_code_that_a_file_names_is_found(tried, monkeypatch):
    attack = only("arrays", "npy")
    tried(attack, "npy", [])
    honest = np.load
    monkeypatch.setattr(np, "load", lambda path, **options: honest(path, allow_pickle=True))
    assert "imported code" in first(tried, attack, "npy", "npy header", Lost)


def test_code_that_a_saved_model_names_is_found(tried, monkeypatch, tmp_path):
    from ipot import trust

    attack = only("runs", "saved")
    tried(attack, "read saved", [])
    monkeypatch.setattr(trust, "named_in_file", lambda kind, name, file, **_: name)
    tree, around = attack._tree(tmp_path, "saved"), Around(tmp_path, "..")
    wanted = f'"model": {{"name": "{CANARY}"'.encode()
    naming = next(
        n for n in count() if wanted in mutated(tree, [["json", n]], around)["model/config.json"]
    )
    with pytest.raises(Lost, match="imported code"):
        tried(attack, "read saved", [["json", naming]])


def test_numbers_of_other_files_are_found(tried, monkeypatch):
    """Whatever guards the reader has, a link that is followed shows the secret."""
    attack = only("hdf5", "hdf5 plain")
    tried(attack, "read", [])

    def followed(path, seed):
        with h5py.File(path, "r") as file:
            for name in list(file):
                if isinstance(item := file.get(name), h5py.Dataset):
                    yield name, item[()]

    monkeypatch.setitem(files.ALL_DOORS, "read", followed)
    assert "outside" in first(tried, attack, "read", "hdf5 link", Lost)
    assert "outside" in first(tried, attack, "read", "hdf5 storage elsewhere", Lost)


def test_what_is_written_elsewhere_is_found(tried, monkeypatch):
    attack = only("arrays", "npz")

    def littering(path, seed):
        (path.parents[1] / "litter").write_text("x")
        yield "a", np.zeros(1)

    tried(attack, "read", [])
    monkeypatch.setitem(files.ALL_DOORS, "read", littering)
    with pytest.raises(Lost, match="wrote"):
        tried(attack, "read", [])


def test_an_error_that_is_not_told_is_foreign(monkeypatch):
    attack = only("tables", "csv")

    def fragile(path, seed):
        text = Path(path).read_text().splitlines()
        yield "a", np.array([[float(cell) for cell in line.split(",")] for line in text[1:]])

    monkeypatch.setitem(files.ALL_DOORS, "read", fragile)
    case = {"seed_file": "csv", "door": "read", "changes": [["table cell", n] for n in range(9)]}
    assert runner.replay(attack, case).verdict is Verdict.FOREIGN


def test_a_refusal_is_no_finding(tried):
    attack = only("meshes", "vtu ascii")
    assert "vtu" in first(tried, attack, "read", "truncate", DataError)


def test_files_are_tried_by_the_forked_server(monkeypatch):
    """A library that crashes does so in a child of the server, and the case goes on."""
    from ipot.data.guard import hdf5

    honest = hdf5.look

    def fragile(path):
        return honest(path) if b"\x89HDF" in Path(path).read_bytes()[:4] else os.abort()

    monkeypatch.setattr(hdf5, "look", fragile)
    attack = only("hdf5", "hdf5 plain")
    monkeypatch.setitem(files.ALL_DOORS, "read", _crashing)
    outcome = runner.replay(attack, {"seed_file": "hdf5 plain", "door": "read", "changes": []})
    assert outcome.verdict is Verdict.REFUSED
    assert "SIGABRT" in outcome.said


def _crashing(path, seed):
    from ipot.data.guard import trial

    if "scratch" in path.parts and "copy" not in path.parts:
        path.write_bytes(b"nothing")
    trial.tried("ipot.data.guard.hdf5:look", path)
    yield "a", np.zeros(1)


@pytest.mark.parametrize("door", ["count", "fetch"])
def test_a_store_is_made_whole_again(tried, door):
    attack = only("runs", "store")
    tried(attack, door, [["truncate", 3]])


def test_damaged_samples_of_a_store_are_lost(tried, monkeypatch):
    from ipot.data import store

    attack = only("runs", "store")
    tried(attack, "fetch", [])
    honest = store._read

    def doubled(folder, count):
        return {name: rows * float("nan") for name, rows in honest(folder, count).items()}

    monkeypatch.setattr(store, "_read", doubled)
    with pytest.raises(Lost, match="not finite"):
        tried(attack, "fetch", [])


def test_the_secret_is_one_that_every_precision_holds():
    assert float(np.float32(SECRET)) == SECRET


def test_no_change_reads_or_writes_what_lies_elsewhere(tmp_path):
    """A secret that is copied into the file itself would come back as the file's own numbers."""
    make_secrets(tmp_path / "secrets")
    path, secret = tmp_path / "a.h5", tmp_path / "secrets" / "secret.raw"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (8, 9), "<f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    tree, before = {"a.h5": path.read_bytes()}, secret.read_bytes()
    around = Around(tmp_path / "secrets", "../secrets", {})
    for change in ("hdf5 chunks and filters", "hdf5 values"):
        for number in range(10):
            assert mutated(tree, [[change, number]], around) == tree
    assert secret.read_bytes() == before


def test_a_refused_bomb_may_take_what_its_numbers_need():
    attack = only("arrays", "npz")
    case = {"seed_file": "npz", "door": "dataset", "changes": [["truncate", 1]]}
    assert attack.needs(case) == 0
    case["changes"].append(["zip bomb", 1])
    assert attack.needs(case) == 5 * 72 * 2**20
