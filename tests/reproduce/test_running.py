"""`ipot reproduce` on small problems: run, stopped, gone on with, refused."""

import json
from pathlib import Path

import pytest

from ipot.cli import main
from ipot.errors import Diverged
from ipot.evaluation.evaluate import Scores
from ipot.recipes import ledger
from ipot.reproduce import records, running
from ipot.reproduce.items import CELLS, DARCY, Job

WORDS = ["table1/darcy/ipot", "figure3/darcy"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def reproduce(store, tmp_path, capsys):
    def call(*words, code=0, out="out"):
        flags = ["--small", "--device", "cpu", "--data", str(store), "--out", str(tmp_path / out)]
        assert main(["reproduce", *words, *flags]) == code
        said = capsys.readouterr()
        return said.out + said.err

    return call


def known(folder: Path) -> list[records.Record]:
    return records.read(folder / "reproduction-ledger.json")


def test_cells_are_run_once_and_written_in_every_form(reproduce, tmp_path, monkeypatch):
    said = reproduce(*WORDS)
    assert "1 of 1 runs are left" in said
    assert said.index("darcy-ipot-clip=1 / small / seed 0") < said.index("epoch 2/2")
    out = tmp_path / "out"
    (record,) = known(out)
    assert set(record["tests"]) == {
        "test data as in training",
        "50 % of the inputs",
        "25 % of the inputs",
    }
    assert record["parameters"] > 1000
    assert "table1/darcy/ipot" in (out / "reproduction.md").read_text()
    assert r"\begin{tabular}" in (out / "reproduction.tex").read_text()
    cells = json.loads((out / "reproduction.json").read_text())
    assert cells[0]["published"]["error"] == 0.0173
    assert cells[0]["mean"] == record["tests"]["test data as in training"]
    pictures = sorted(path.name for path in (out / "figures").iterdir())
    assert pictures == [f"figure3-darcy-{share}.png" for share in (100, 25, 50)]

    monkeypatch.setattr(running, "run", lambda *a, **k: pytest.fail("trained again"))
    assert "0 of 1 runs are left" in reproduce(*WORDS)
    assert known(out) == [record]


@pytest.mark.slow
def test_the_whole_first_table_in_small(reproduce, tmp_path):
    reproduce("table1", "--quiet")
    cells = json.loads((tmp_path / "out" / "reproduction.json").read_text())
    without = {cell["cell"] for cell in cells if cell["mean"] is None}
    assert without == {"table1/elasticity/fno"}
    assert len(cells) == len([cell for cell in CELLS if cell.item == "table1"])


def test_after_a_kill_the_same_command_goes_on(reproduce, tmp_path, monkeypatch):
    def killed(*given, **options):
        raise KeyboardInterrupt

    whole = running.ask_model
    monkeypatch.setattr(running, "ask_model", killed)
    assert "the same command goes on: ipot reproduce" in reproduce(*WORDS, code=130)
    assert not known(tmp_path / "out")
    folder = next((tmp_path / "out").glob("runs/darcy-ipot-clip=1/*/seed-0-*"))
    trained = (folder / "result.json").read_text()
    monkeypatch.setattr(running, "ask_model", whole)
    reproduce(*WORDS)
    assert (folder / "result.json").read_text() == trained
    assert len(known(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Diverged(7, "not finite"), "diverged: the loss was not finite at step 7"),
        (MemoryError(), "out of memory"),
    ],
)
def test_a_run_that_fails_is_recorded_as_that(reproduce, tmp_path, monkeypatch, error, outcome):
    def fails(*given, **options):
        raise error

    monkeypatch.setattr(running, "run", fails)
    assert outcome in reproduce("table1/darcy/ipot")
    (record,) = known(tmp_path / "out")
    assert (record["outcome"], record["tests"]) == (outcome, {})
    (cell,) = json.loads((tmp_path / "out" / "reproduction.json").read_text())
    assert (cell["state"], cell["mean"]) == (outcome, None)


def test_measurements_and_what_cannot_be_run(reproduce, tmp_path):
    said = reproduce("interpolated", "figure5/ipot-256", "table1/elasticity/fno")
    assert "table1/elasticity/fno is left out: elasticity has no grid" in said
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == {"figure5.png", "interpolated-masked-land-cubic.png"}
    one, two = sorted(known(tmp_path / "out"), key=lambda r: r["job"])
    assert [row["points"] for row in one["rows"]] == [1000, 2000]
    (error,) = two["tests"].values()
    assert 0 < error < 1


def test_spans_of_time_are_plain_means_of_squares():
    cells = [cell for cell in CELLS if cell.frames and cell.column == "ipot"]
    scores = Scores(
        relative_l2=1.0,
        per_sample=[1.0],
        per_time=[],
        per_channel=[],
        rmse_per_time=[],
        mse_per_time=[float(t) for t in range(1, 40)],
    )
    # Frames 1 to 9, 10 to 19, 20 to 29, 30 to 39.
    assert [running.score(cell, scores) for cell in cells] == [5.0, 14.5, 24.5, 34.5]


def test_the_list_has_a_command_for_every_cell(reproduce, capsys):
    cells = json.loads(reproduce("--list", "--json"))
    assert len(cells) == len(CELLS)
    assert all(cell["command"].startswith("ipot reproduce ") for cell in cells)
    states = {cell["cell"]: cell["state"] for cell in cells}
    assert states.pop("table1/elasticity/fno").startswith("cannot: ")
    assert set(states.values()) == {"not run"}


def test_the_printed_list_has_a_line_for_every_cell(reproduce):
    printed = reproduce("--list")
    first = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert [w for w in first if "/" in w and not w.endswith(":")] == [cell.name for cell in CELLS]


def test_more_cells_of_a_run_are_added_to_its_record(reproduce, tmp_path, monkeypatch):
    reproduce("table1/darcy/ipot")
    (before,) = known(tmp_path / "out")
    reproduce("figure3/darcy/50%")
    (after,) = known(tmp_path / "out")
    assert before["tests"].items() < after["tests"].items()
    assert {k: after[k] for k in before if k not in ("tests", "seal")} == {
        k: before[k] for k in before if k not in ("tests", "seal")
    }


def test_ledgers_of_other_machines_are_taken_over(record, tmp_path, capsys):
    files = [tmp_path / name for name in ("mine.json", "theirs.json")]
    error = "test data as in training"
    airfoil = Job(problem="airfoil")
    ledger.add(files[0], [record(DARCY, {error: 0.1})])
    ledger.add(files[1], [record(DARCY, {error: 0.2}), record(airfoil, {error: 0.3})])
    words = ["reproduce", "--record", str(files[0]), "--merge", str(files[1])]
    assert main(words) == 0
    assert [r["tests"][error] for r in records.read(files[0])] == [0.2, 0.3]
    assert main([*words[:-1], str(tmp_path / "none.json")]) == 1
    assert "no such file" in capsys.readouterr().err
    files[1].write_text(files[1].read_text().replace("0.3", "0.1"))
    assert main(words) == 1
    assert "airfoil-ipot / seed 0 was edited" in capsys.readouterr().err
    assert len(records.read(files[0])) == 2


def test_wrong_words_are_refused(reproduce):
    assert "table1/darcy/ipot" in reproduce("table1/darcy/ipo", code=2)
    assert "name what to reproduce" in reproduce(code=2)
    assert "PROBLEM=FOLDER" in reproduce("table1", "--files", "moon=here", code=1)


def test_settings_are_printed_without_a_run(capsys):
    assert main(["reproduce", "settings"]) == 0
    said = capsys.readouterr().out
    assert "burgers" in said
    assert "[64, 128]" in said
    assert "0.5 every 250 epochs" in said
