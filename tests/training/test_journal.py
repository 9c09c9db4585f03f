"""What a run says of itself."""

import errno
import json
import os
from typing import ClassVar

import pytest

from ipot.errors import RunError
from ipot.training import checkpoint, journal
from ipot.training.journal import Board, Journal, Progress, duration
from training.toys import fit

ROWS = [{"epoch": epoch, "step": 3 * epoch, "loss": 1 / epoch} for epoch in range(1, 5)]


def written(path, rows=ROWS):
    book = Journal(path)
    for row in rows:
        book.write(row)
    return path


def test_rows_come_back_as_they_went(tmp_path):
    assert journal.read(written(tmp_path / "metrics.jsonl")) == ROWS


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_last_line_cut_short_is_left_out(tmp_path, cut):
    path = written(tmp_path / "metrics.jsonl")
    path.write_bytes(path.read_bytes()[:-cut])
    # Without its line break alone the row is whole.
    assert journal.read(path) == (ROWS if cut == 1 else ROWS[:-1])
    book = Journal(path, resume_step=9)
    book.write(ROWS[3])
    assert journal.read(path) == ROWS


def test_steps_behind_the_checkpoint_are_forgotten(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    book = Journal(path, resume_step=6)
    assert journal.read(path) == ROWS[:2]
    book.write(ROWS[2])
    assert journal.read(path) == ROWS[:3]


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    assert journal.read(tmp_path / "metrics.jsonl") == []


def test_a_row_is_on_disk_at_once(tmp_path):
    book = Journal(tmp_path / "metrics.jsonl")
    book.write(ROWS[0])
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == ROWS[0]


def test_a_journal_that_cannot_be_written(tmp_path):
    book = Journal(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*metrics\.jsonl"):
        book.write(ROWS[0])


def test_what_a_row_holds(tmp_path):
    fit(tmp_path, epochs=3, validate_every=2, learning_rate=0.01, schedule="step")
    rows = journal.read(tmp_path / "metrics.jsonl")
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 3), (2, 6), (3, 9)]
    assert ["validation" in row for row in rows] == [False, True, True]
    for row in rows:
        assert row["learning_rate"] == 0.01
        assert 0 < row["loss"] < 10
        assert row["seconds"] >= 0
        assert row["steps_per_second"] > 0


def test_about_fifty_validations_unless_said_otherwise(tmp_path):
    fit(tmp_path, epochs=110, batch=12)
    rows = journal.read(tmp_path / "metrics.jsonl")
    assert sum("validation" in row for row in rows) == 55


def test_tensorboard_gets_the_numbers(tmp_path, monkeypatch):
    class Recorded:
        points: ClassVar[list] = []

        def add_scalars(self, values, step):
            self.points.append((values, step))

    monkeypatch.setattr(journal, "_tensorboard", lambda folder: Recorded())
    written(tmp_path / "metrics.jsonl", [{**ROWS[1], "note": "text"}])
    assert Recorded.points == [({"loss": 0.5}, 6)]


def test_tensorboard_can_read_its_file(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = Board(tmp_path / "tensorboard")
    board.add_scalars({"loss": 0.5, "seconds": 2}, 3)
    board.add_scalars({"loss": 0.25}, 6)
    seen = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in seen.Scalars("loss")] == [(3, 0.5), (6, 0.25)]
    assert [(event.step, event.value) for event in seen.Scalars("seconds")] == [(3, 2.0)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_disk_that_fails_for_tensorboard_only_ends_tensorboard(
    tmp_path, monkeypatch, number, after
):
    """All its files are written with `_record`, first at the start and then for each number."""
    pytest.importorskip("tensorboard")
    record, calls = journal._record, []

    def failing(**content):
        calls.append(content)
        if len(calls) > after:
            raise OSError(number, os.strerror(number))
        return record(**content)

    monkeypatch.setattr(journal, "_record", failing)
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: Board(folder / "tensorboard"))
    said = []
    book = Journal(tmp_path / "metrics.jsonl", say=said.append)
    for row in ROWS:
        book.write(row)
    assert journal.read(tmp_path / "metrics.jsonl") == ROWS
    assert len(said) == 1
    assert os.strerror(number) in said[0]
    assert len(calls) == after + 1


def test_training_goes_on_where_tensorboard_has_no_place(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: Board(folder / "tensorboard"))
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    fit(tmp_path, epochs=2, quiet=False)
    assert [row["step"] for row in journal.read(tmp_path / "metrics.jsonl")] == [3, 6]
    assert capsys.readouterr().err.count("goes on without TensorBoard") == 1


def test_progress_is_quiet_or_rare(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    for quiet in (True, False):
        progress = Progress(quiet=quiet, every=10.0)
        for second in range(25):
            now[0] = float(second)
            progress.show(f"at {second}")
        progress.show("the end", last=True)
    assert capsys.readouterr().err.split("\n") == ["at 0", "at 10", "at 20", "the end", ""]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1.0, "0 s"),
        (59.4, "59 s"),
        (61.0, "1 min 01 s"),
        (3599.0, "59 min 59 s"),
        (7260.0, "2 h 01 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff\xfe\n", b"12\n", b'{"epoch": 9}\n'])
def test_what_a_power_cut_makes_of_a_line_is_left_out(tmp_path, damage):
    path = written(tmp_path / "metrics.jsonl")
    path.write_bytes(path.read_bytes() + damage)
    assert journal.read(path) == ROWS
    Journal(path, resume_step=12)
    assert journal.read(path) == ROWS


def test_rows_reach_the_disk_before_the_checkpoint_that_is_behind_them(tmp_path, monkeypatch):
    """Or a power cut would leave a checkpoint whose epochs nobody has written down."""
    order, sync, save = [], journal.files.sync, checkpoint.save

    def note_sync(path):
        order.append(path.name)
        sync(path)

    def note_save(path, tensors, state):
        save(path, tensors, state)
        if path.name == "last.safetensors":
            rows = journal.read(tmp_path / "metrics.jsonl")
            order.append(("checkpoint", state["step"], rows[-1]["step"]))

    monkeypatch.setattr(journal.files, "sync", note_sync)
    monkeypatch.setattr(checkpoint, "save", note_save)
    fit(tmp_path, epochs=2, save_seconds=1e9)
    assert ("checkpoint", 6, 6) in order
    begun = [str(name).startswith(".last.safetensors") for name in order].index(True)
    assert order.index("metrics.jsonl") < begun
