"""A folder is written whole or not at all, and nothing of the user's is ever removed."""

import os
import resource
import threading

import pytest
import torch

from ipot import files
from ipot.errors import RunError
from ipot.lock import locked
from ipot.saved import disk, folder
from ipot.saved.folder import read_folder, write_folder
from saved.folders import SPEC, saved
from saved.small import BOX, config, facts, model


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(place):
    other = model(SPEC, seed=1)
    with pytest.raises(RunError, match=r"holds a saved model.*overwrite=True"):
        write_folder(place, other, saved())
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)
    write_folder(place, other, saved(bounds=None), overwrite=True)
    assert torch.equal(read_folder(place)[0].output_mean, other.output_mean)
    assert not (place / "bounds.safetensors").exists()
    assert os.listdir(place.parent) == ["model"]


def test_nothing_of_the_users_is_ever_removed(tmp_path, place):
    (place / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds notes\.txt besides"):
        write_folder(place, model(SPEC), saved(), overwrite=True)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.png").touch()
    with pytest.raises(RunError, match=r"other things \(cat\.png\)"):
        write_folder(photos, model(SPEC), saved(), overwrite=True)
    with pytest.raises(RunError, match="is a file"):
        write_folder(place / "notes.txt", model(SPEC), saved(), overwrite=True)
    assert (place / "notes.txt").read_text() == "mine"
    assert (photos / "cat.png").exists()


def test_the_run_that_a_model_comes_from_stays_in_its_folder(tmp_path):
    place = tmp_path / "m"
    (place / "training").mkdir(parents=True)
    (place / "training" / "last").write_text("weights")
    for _ in range(2):
        write_folder(place, model(SPEC), saved(), overwrite=True)
        assert (place / "training" / "last").read_text() == "weights"
        read_folder(place)
    assert os.listdir(tmp_path) == ["m"]


def test_an_empty_folder_and_a_link_to_a_model_will_do(tmp_path, place):
    (tmp_path / "empty").mkdir()
    read_folder(write_folder(tmp_path / "empty", model(SPEC), saved()))
    link = tmp_path / "link"
    link.symlink_to(place)
    write_folder(link, model(SPEC, seed=1), saved(), overwrite=True)
    assert link.is_symlink()
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC, seed=1).output_mean)


@pytest.mark.parametrize("what", [OSError("disk"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch, what, there):
    place = tmp_path / "m"
    if there:
        write_folder(place, model(SPEC), saved())

    def interrupted(*given):
        raise what

    monkeypatch.setattr(folder.files, "write_text", interrupted)
    with pytest.raises((RunError, type(what))):
        write_folder(place, model(SPEC, seed=1), saved(), overwrite=True)
    assert os.listdir(tmp_path) == (["m"] if there else [])
    if there:
        assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path, place, monkeypatch):
    rename, count = os.rename, 0

    def second_fails(source, target):
        nonlocal count
        count += 1
        if count == 2:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(disk, "_exchange", lambda *paths: False)
    monkeypatch.setattr(disk.os, "rename", second_fails)
    with pytest.raises(RunError, match="cannot write"):
        write_folder(place, model(SPEC, seed=1), saved(), overwrite=True)
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)
    assert os.listdir(tmp_path) == ["model"]


def test_a_full_disk_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        with pytest.raises(RunError, match="cannot write"):
            write_folder(tmp_path / "m", model(SPEC), saved())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_a_model_that_could_not_be_read_is_not_written(tmp_path):
    diverged = model(SPEC)
    diverged.inner.encoder.latents.data[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"encoder\.latents is not finite"):
        write_folder(tmp_path / "m", diverged, saved())
    with pytest.raises(RunError, match="do not fit"):
        write_folder(tmp_path / "m", model(SPEC), saved(model=config(latents=5)))
    endless = facts(domain=((0.0, float("inf")), BOX[1]))
    odd = model(endless, local=False)
    with pytest.raises(RunError, match=r"domain\[0\]\[1\] is inf"):
        write_folder(tmp_path / "m", odd, saved(spec=endless, model=odd.config))
    assert os.listdir(tmp_path) == []


# ---- killed on the way


def killed(action):
    """Run something in a process of its own, which ends without a word where `kill` is called."""
    child = os.fork()
    if not child:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(*given, **named):
    os._exit(9)


@pytest.mark.parametrize("moment", ["_flush", "_take_place", "rename", "_sync", "rmtree"])
@pytest.mark.parametrize("there", [False, True])
def test_a_kill_leaves_the_old_or_the_new(tmp_path, monkeypatch, moment, there):
    """At whichever moment, the name has all of one of them, and the run is somewhere."""
    place = tmp_path / "m"
    if there:
        (place / "training").mkdir(parents=True)
        (place / "training" / "last").write_text("weights")
        (place / "version").write_text("old")

    def write():
        owner = {"rename": disk.os, "rmtree": disk.shutil}.get(moment, disk)
        monkeypatch.setattr(owner, moment, kill)
        with disk.whole_folder(place, keep=("training",)) as new:
            (new / "version").write_text("new")
            (new / "weights").write_text("new")

    assert killed(write) == 9
    if there or place.exists():
        version = (place / "version").read_text()
        assert (place / "weights").exists() == (version == "new")
        assert version == "new" or moment in ("_flush", "_take_place", "_sync")
    if there:
        assert [p.read_text() for p in tmp_path.rglob("last")] == ["weights"]
    with disk.whole_folder(place, keep=("training",)) as new:  # what was left is not in the way
        (new / "version").write_text("newer")
    assert (place / "version").read_text() == "newer"


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_to_stay_is_not_lost_where_it_cannot_go_over(tmp_path, monkeypatch, at_once):
    place, rename = tmp_path / "m", os.rename
    (place / "training").mkdir(parents=True)

    def stuck(source, target):
        if source.name == "training":
            raise OSError("stuck")
        rename(source, target)

    monkeypatch.setattr(disk.os, "rename", stuck)
    if not at_once:
        monkeypatch.setattr(disk, "_exchange", lambda *paths: False)
    with pytest.raises(OSError, match="stuck"), disk.whole_folder(place, keep=("training",)):
        pass
    assert len(list(tmp_path.rglob("training"))) == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_kill_left_is_put_in_order_by_the_next(tmp_path, monkeypatch, at_once):
    """The run that had not gone over yet is back in its place, and the hidden folder gone."""
    place = tmp_path / "m"
    (place / "training").mkdir(parents=True)
    (place / "training" / "last").write_text("weights")
    rename = os.rename

    def write():
        if not at_once:
            monkeypatch.setattr(disk, "_exchange", lambda *paths: False)
        moved = []

        def dies(source, target):
            moved.append(source)
            if len(moved) == (1 if at_once else 2):
                kill()
            rename(source, target)

        monkeypatch.setattr(disk.os, "rename", dies)
        with disk.whole_folder(place, keep=("training",)) as new:
            (new / "version").write_text("new")

    assert killed(write) == 9
    assert not (place / "training").exists()
    disk.recover(place, ("training",))
    assert (place / "training" / "last").read_text() == "weights"
    with disk.whole_folder(place, keep=("training",)) as new:
        (new / "version").write_text("newer")
    assert (place / "training" / "last").read_text() == "weights"
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("tidy", ["reader", "writer"])
def test_a_run_is_put_back_that_was_moved_before_the_machine_was_started_anew(tmp_path, tidy):
    """Its process cannot be asked after, but nobody else has the lock."""
    place = tmp_path / "m"
    place.mkdir()
    left = tmp_path / ".m.00000000-1-1-00000000.tmp"
    (left / "training").mkdir(parents=True)
    disk.recover(place, ("training",))
    assert left.exists()  # without the lock, somebody on another machine may be at work
    if tidy == "reader":
        disk.recover_run(place, ("training",))
    else:
        with disk.whole_folder(place, keep=("training",)):
            pass
    assert os.listdir(tmp_path) == ["m"]
    assert os.listdir(place) == ["training"]


def test_two_that_save_in_one_place_take_turns(tmp_path, monkeypatch):
    begun, recover = threading.Event(), disk.recover

    def noted(*given, **options):
        begun.set()
        recover(*given, **options)

    monkeypatch.setattr(disk, "recover", noted)
    other = threading.Thread(target=write_folder, args=(tmp_path / "m", model(SPEC), saved()))
    with locked(tmp_path, "saving", name=".m.lock"):
        other.start()
        assert not begun.wait(0.2)
    other.join()
    assert begun.is_set()
    read_folder(tmp_path / "m")


def test_a_run_is_not_moved_while_somebody_saves(tmp_path):
    place = tmp_path / "m"
    place.mkdir()
    left = tmp_path / ".m.00000000-1-1-00000000.tmp"
    (left / "training").mkdir(parents=True)
    with locked(tmp_path, "saving", name=".m.lock"):
        thread = threading.Thread(target=disk.recover_run, args=(place, ("training",)))
        thread.start()
        thread.join()
    assert (left / "training").exists()


def test_a_new_folder_has_its_name_on_disk_before_anything_is_moved(tmp_path, monkeypatch):
    """Otherwise a power cut may keep the move of the run, and not the folder it was moved to."""
    place, done = tmp_path / "m", []
    (place / "training").mkdir(parents=True)
    sync, take = files.sync, disk._take_place
    monkeypatch.setattr(files, "sync", lambda path: (done.append(path), sync(path)))
    monkeypatch.setattr(disk, "_take_place", lambda *given: (done.append("moved"), take(*given)))
    with disk.whole_folder(place, keep=("training",)):
        pass
    assert tmp_path in done[: done.index("moved")]
    assert done[done.index("moved") :] == ["moved", place, tmp_path]


def test_a_folder_that_another_process_wrote_meanwhile_is_not_replaced(tmp_path):
    """Both saw that nothing was there; the second to have its turn is refused."""
    place = tmp_path / "m"

    with pytest.MonkeyPatch.context() as patch:

        def first():
            patch.undo()
            write_folder(place, model(SPEC), saved())

        def text(*given, **named):
            assert killed(first) == 0
            return "text"

        patch.setattr(folder, "card", text)
        with pytest.raises(RunError, match="holds a saved model"):
            write_folder(place, model(SPEC, seed=1), saved())
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)


def test_a_folder_in_which_somebody_trains_is_not_replaced(tmp_path):
    place, said = tmp_path / "m", []

    def other():
        try:
            write_folder(place, model(SPEC), saved(), overwrite=True)
        except RunError as error:
            said.append(str(error))

    with locked(place / "training", "training"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert "(training since" in said[0]
        write_folder(place, model(SPEC), saved(), overwrite=True)  # who trains may save, too
    assert sorted(os.listdir(tmp_path)) == ["m"]
