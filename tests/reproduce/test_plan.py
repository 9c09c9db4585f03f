"""What is asked for, what is left of it, and how it is divided."""

import pytest

from ipot.errors import UnknownName, Unsupported
from ipot.reproduce import plan, records
from ipot.reproduce.items import CELLS, DARCY, Job
from ipot.reproduce.jobs import Way
from ipot.reproduce.plan import Data

AS_TRAINED = "test data as in training"


def darcy(*words, seeds=(0,)):
    return plan.tasks(plan.chosen(words), Data(), Way(), seeds)


def test_items_rows_and_cells_can_be_named():
    assert len(plan.chosen(["all"])) == len(CELLS)
    assert {c.row for c in plan.chosen(["table1/darcy"])} == {"darcy"}
    assert [c.name for c in plan.chosen(["table1/darcy/ipot"])] == ["table1/darcy/ipot"]
    assert len(plan.chosen(["table2", "table2/4deg"])) == len(plan.chosen(["table2"]))


def test_an_unknown_item_is_told_what_is_near():
    with pytest.raises(UnknownName, match="table1/darcy/ffno"):
        plan.chosen(["table1/darcy/ffn"])
    with pytest.raises(UnknownName, match="shallow-water"):
        plan.chosen(["table9"])


def test_cells_share_runs():
    (task,) = darcy("table1/darcy/ipot", "figure3/darcy")
    assert [cell.item for cell in task.cells] == ["table1", "figure3", "figure3", "figure3"]


def test_ipot_comes_first_and_measurements_last():
    models = [task.job.model if task.job else "-" for task in darcy("all")]
    assert models == sorted(models, key=lambda m: (m == "-", m != "ipot"))


def test_shards_are_all_of_it_once():
    whole = darcy("table1", seeds=(0, 1))
    parts = [plan.shard(whole, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(t.identity for part in parts for t in part) == sorted(t.identity for t in whole)
    for wrong in ("0/3", "4/3", "2", "a/b"):
        with pytest.raises(Unsupported, match="--shard must be I/N"):
            plan.shard(whole, wrong)


def test_what_is_in_the_ledger_is_not_run_again(record):
    (task,) = darcy("table1/darcy/ipot", "figure3/darcy")
    assert plan.left(task, []) == task
    some = record(DARCY, {AS_TRAINED: 0.02})
    rest = plan.left(task, [some])
    assert [cell.name for cell in rest.cells] == ["figure3/darcy/50%", "figure3/darcy/25%"]
    done = record(DARCY, {cell.asks: 0.02 for cell in task.cells})
    assert plan.left(task, [done]) is None
    assert plan.left(task, [record(DARCY, done["tests"], seed=1)]) == task
    assert plan.left(task, [record(DARCY, done["tests"], numerics=0)]) == task
    budget = record(DARCY, done["tests"], way=Way(minutes=2))
    assert plan.left(task, [budget]) == task


def test_what_diverged_stays_so_and_missing_memory_is_tried_again(record):
    (task,) = darcy("table1/darcy/ipot")
    lost = record(DARCY, {}, outcome="diverged: the loss was not finite at step 7")
    assert plan.left(task, [lost]) is None
    assert plan.left(task, [record(DARCY, {}, outcome="out of memory")]) == task


def test_missing_data_are_told_with_what_stands_in():
    (sentence,) = Data().missing(plan.chosen(["table2"]))
    assert "ipot era5" in sentence
    assert "era5_synthetic stands in" in sentence
    assert not Data(files={"era5": "here"}).missing(plan.chosen(["table2"]))


def test_the_published_schedule_comes_before_any_budget(record):
    cells = plan.chosen(["table1/darcy/ipot"])
    short = record(DARCY, {AS_TRAINED: 0.5}, way=Way(minutes=1))
    longer = record(DARCY, {AS_TRAINED: 0.3}, way=Way(minutes=2))
    (found,) = plan.results(cells, [short, longer], Data(), Way())
    assert (found.errors, found.way) == ((0.3,), "2 min")
    whole = record(DARCY, {AS_TRAINED: 0.1})
    (found,) = plan.results(cells, [short, longer, whole], Data(), Way())
    assert (found.errors, found.way) == ((0.1,), "")


def test_real_files_come_before_a_stand_in(record):
    cells = plan.chosen(["table1/era5/ipot"])
    made_up = record(Job(problem="era5_synthetic"), {AS_TRAINED: 0.5})
    (found,) = plan.results(cells, [made_up], Data(), Way())
    assert (found.errors, found.stand_in) == ((0.5,), "era5_synthetic")
    real = record(Job(problem="era5", files="here"), {AS_TRAINED: 0.1})
    (found,) = plan.results(cells, [made_up, real], Data(), Way())
    assert (found.errors, found.stand_in) == ((0.1,), "")
    assert records.stale(real, Job(problem="era5", files="there"), Way()) == []
