"""docs/reproduction.md is what the ledger gives."""

import runpy
from pathlib import Path

import pytest

from ipot.reproduce import records, tables
from ipot.reproduce.items import DARCY, Job
from ipot.reproduce.jobs import Way

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "reproduction_page.py"))
AS_TRAINED = "test data as in training"


def test_the_page_agrees_with_the_ledger():
    page = TOOL["PAGE"].read_text()
    assert TOOL["written"](page, records.read(TOOL["LEDGER"])) == page


def test_a_record_changes_its_cell_and_no_other(record):
    page = TOOL["PAGE"].read_text()
    before = TOOL["written"](page, [])
    known = [record(DARCY, {AS_TRAINED: e}, seed=s) for s, e in enumerate((0.1, 0.3))]
    after = TOOL["written"](page, known)
    gone = set(before.splitlines()) - set(after.splitlines())
    assert gone
    assert all("darcy" in line or line.startswith(("| ipot", "|")) for line in gone)
    (row,) = [line for line in after.splitlines() if line.startswith("| table1/darcy/ipot")]
    assert "2.00e-01 ± 1e-01" in row
    assert "2 seeds" in row
    (row,) = [line for line in after.splitlines() if line.startswith("| figure3/darcy/50%")]
    assert "| not run |" in row


def test_a_page_without_a_block_is_refused():
    page = TOOL["PAGE"].read_text().replace("<!-- block: table2 -->", "")
    with pytest.raises(SystemExit, match="table2"):
        TOOL["written"](page, [])


def test_budgets_and_stand_ins_are_labelled(record):
    from ipot.reproduce import plan

    known = [record(Job(problem="era5_synthetic"), {AS_TRAINED: 0.5}, way=Way(minutes=2))]
    cells = plan.chosen(["table1/era5"])
    results = plan.results(cells, known, plan.Data(), Way())
    assert "5.00e-01 [2 min]† (6.64e-03)" in tables.markdown("table1", results)
    latex = tables.latex("table1", results)
    assert r"5.00e-01 [2 min]$^\dagger$ (6.64e-03) \\" in latex
    assert "_" not in latex.replace(r"\_", "")
