"""The ledger: what a record holds, runs known again, and the page that is made from it."""

import json
import runpy
import threading
from pathlib import Path

import pytest

from ipot.cli import main
from ipot.errors import RunError
from ipot.lock import locked
from ipot.recipes import ledger

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "accuracy_tables.py"))
TINY = [
    *("--problem.size", "29", "--problem.resolution", "15", "--quiet"),
    *("--model.latents", "8", "--model.width", "16", "--model.blocks", "1"),
    *("--model.heads", "2", "--model.cross-heads", "2", "--model.bins", "4"),
    *("--count.train", "8", "--count.validation", "4", "--count.test", "4"),
    *("--training.epochs", "2", "--training.batch", "4", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Two seeds trained and recorded, the first one scored in two ways."""
    root = tmp_path_factory.mktemp("ledger")
    file, data = str(root / "results" / "runs.json"), ["--data", str(root / "data")]
    words = ["train", "darcy", "ipot", "--out", str(root / "runs"), "--seeds", "0", "1"]
    assert main([*words, *data, *TINY, "--record", file]) == 0
    first = [str(root / "runs" / "seed-0"), *data, "--device", "cpu", "--record", file]
    assert main(["evaluate", *first]) == 0
    assert main(["evaluate", *first, "--keep", "0.5"]) == 0
    return Path(file)


def test_a_record_has_all_that_a_number_needs(kept):
    one, two = ledger.read(kept)
    assert (one["seed"], two["seed"]) == (0, 1)
    assert one["command"].startswith("ipot train darcy ipot --out")
    assert one["commit"] == ledger.commit()
    assert one["torch"]
    assert one["machine"]
    assert one["problem"]["name"] == "darcy"
    assert one["data"]["train"] == 8
    assert one["training"]["epochs"] == one["epochs"] == 2
    assert one["seconds"] > 0
    assert one["gib"] > 0
    assert one["curve"][-1][1] == pytest.approx(one["validation"], rel=1e-2)
    assert set(one["tests"]) == {ledger.AS_TRAINED, "50 % of the inputs"}
    assert two["tests"] == {}


def test_two_that_write_a_ledger_lose_nothing(tmp_path, monkeypatch):
    """The second one reads only when the first has written."""
    file, reading, read = tmp_path / "runs.json", threading.Event(), ledger.read

    def noted(path):
        if threading.current_thread() is other:
            reading.set()
        return read(path)

    monkeypatch.setattr(ledger, "read", noted)
    mine, theirs = ({"id": name, "tests": {}} for name in ("mine", "theirs"))
    other = threading.Thread(target=ledger.add, args=(file, [theirs]))
    with locked(tmp_path, "writing a ledger"):
        other.start()
        assert not reading.wait(0.2)
        ledger.add(file, [mine])
    other.join()
    assert [record["id"] for record in read(file)] == ["mine", "theirs"]


def test_a_run_is_recorded_once(kept, tmp_path):
    again, before = tmp_path / "again.json", ledger.read(kept)
    ledger.add(again, before)
    ledger.add(again, [before[0] | {"tests": {"filled": 0.5}, "commit": "later", "command": None}])
    one, two = ledger.read(again)
    assert one == ledger.sealed(before[0] | {"tests": before[0]["tests"] | {"filled": 0.5}})
    assert two == before[1]
    assert not list(tmp_path.glob("*lock*"))


def test_a_record_that_was_edited_is_refused_by_name(kept, tmp_path):
    file = tmp_path / "edited.json"
    records = ledger.read(kept)
    name = ledger.AS_TRAINED
    records[0]["tests"][name] /= 2
    file.write_text(json.dumps(records))
    with pytest.raises(RunError, match=f"record {records[0]['id']} was edited"):
        ledger.read(file)


def test_the_commit_may_be_told(monkeypatch):
    monkeypatch.setenv("IPOT_COMMIT", "abc1234")
    assert ledger.commit() == "abc1234"


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"id": 3, "tests": {}}]', "[{"])
def test_what_is_no_ledger_is_refused_before_any_time_is_spent(content, tmp_path, capsys):
    file = tmp_path / "runs.json"
    file.write_text(content)
    with pytest.raises(RunError, match="ledger"):
        ledger.read(file)
    out = tmp_path / "run"
    assert main(["train", "darcy", "ipot", "--out", str(out), *TINY, "--record", str(file)]) == 1
    assert not out.exists()
    assert file.read_text() == content


def test_a_run_that_has_not_ended_has_no_record(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(RunError, match="has not ended"):
        ledger.record_of(tmp_path)


def test_seeds_are_one_row_with_their_spread(kept):
    records = ledger.read(kept)
    name = ledger.AS_TRAINED
    for record, error in zip(records, (0.1, 0.3), strict=True):
        record["tests"][name] = error
    other = json.loads(json.dumps(records[0]))
    other["training"]["gradient_loss"], other["tests"] = 0.5, {name: 0.15}
    page = TOOL["tables"]([*records, other])
    (row,) = [line for line in page.splitlines() if "0.2 ± 0.1" in line]
    assert row.startswith("| 0 | `ipot` | ")
    assert "| 2 | 2 |" in row
    (better,) = [line for line in page.splitlines() if "gradient loss 0.5" in line]
    assert page.index(better) < page.index(row)
    assert "50 % of the inputs" in page
    assert page.count("## darcy") == 1
    assert "8 training samples" in page


def test_the_page_agrees_with_the_ledger():
    page, runs = TOOL["PAGE"].read_text(), ledger.read(TOOL["LEDGER"])
    assert TOOL["written"](page, runs) == page


def test_the_figures_show_the_numbers_of_the_ledger():
    for problem, lines in TOOL["curves"](ledger.read(TOOL["LEDGER"])).items():
        path = TOOL["PAGE"].parent / TOOL["FIGURES"] / f"{problem}.png"
        assert TOOL["drawn"](path) == TOOL["digest"](lines), "run python tools/accuracy_tables.py"


def test_a_figure_is_stale_once_a_number_changes(kept, tmp_path):
    records = ledger.read(kept)
    (lines,) = TOOL["curves"](records).values()
    assert len(lines) == len(records)
    TOOL["draw"](lines, tmp_path / "one.png")
    assert TOOL["drawn"](tmp_path / "one.png") == TOOL["digest"](lines)
    next(iter(lines.values()))[0][1] += 1e-3
    assert TOOL["drawn"](tmp_path / "one.png") != TOOL["digest"](lines)
    assert TOOL["drawn"](tmp_path / "none.png") is None
