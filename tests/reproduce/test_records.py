"""Records that are whole, and those that are not."""

import json

import pytest

from ipot.errors import RunError
from ipot.recipes import ledger
from ipot.reproduce import plan, records
from ipot.reproduce.items import DARCY
from ipot.reproduce.jobs import Way
from ipot.reproduce.plan import Data

AS_TRAINED = "test data as in training"


def found(*known):
    (result,) = plan.results(plan.chosen(["table1/darcy/ipot"]), known, Data(), Way())
    return result


def test_seeds_are_averaged(record):
    known = [record(DARCY, {AS_TRAINED: e}, seed=s) for s, e in enumerate((0.1, 0.2, 0.3))]
    assert found(*known).errors == (0.1, 0.2, 0.3)
    assert found(*known).state == "3 seeds"
    assert found().state == "not run"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"numerics": 0}, "numerics"),
        ({"data_version": 0}, "version of the data"),
        ({"training": {"epochs": 3}}, "training.epochs"),
    ],
)
def test_what_was_made_otherwise_is_stale_and_left_out(record, changed, named):
    good = record(DARCY, {AS_TRAINED: 0.1})
    if "training" in changed:
        changed = {"training": good["training"] | changed["training"]}
    old = record(DARCY, {AS_TRAINED: 0.9}, seed=1, **changed)
    assert found(old).state == f"stale ({named})"
    assert found(good, old).errors == (0.1,)


def test_a_setting_that_is_newer_than_a_record_had_its_default(record):
    old = record(DARCY, {AS_TRAINED: 0.1})
    training = {k: v for k, v in old["training"].items() if k != "gradient_loss"}
    assert records.stale(old | {"training": training}, DARCY, Way()) == []
    training = {k: v for k, v in old["training"].items() if k != "step_epochs"}
    assert records.stale(old | {"training": training}, DARCY, Way()) == []
    training = {k: v for k, v in old["training"].items() if k != "batch"} | {"batch": 11}
    assert records.stale(old | {"training": training}, DARCY, Way()) == ["training.batch"]


def test_a_run_without_a_number_says_why(record):
    assert found(record(DARCY, {}, outcome="out of memory")).state == "out of memory"


def test_an_edited_or_incomplete_record_is_refused_by_name(record, tmp_path):
    file, whole = tmp_path / "reproduction.json", record(DARCY, {AS_TRAINED: 0.1})
    file.write_text(json.dumps([whole]))
    assert records.read(file) == [whole]
    file.write_text(json.dumps([whole | {"tests": {AS_TRAINED: 0.01}}]))
    with pytest.raises(RunError, match="darcy-ipot-clip=1 / seed 0 was edited"):
        records.read(file)
    less = {name: value for name, value in whole.items() if name != "training"}
    for lost, word in (
        (ledger.sealed(less), "training"),
        ({k: v for k, v in whole.items() if k != ledger.SEAL}, "seal"),
        (ledger.sealed(whole | {"tests": {AS_TRAINED: None}}), "tests"),
    ):
        file.write_text(json.dumps([lost]))
        with pytest.raises(RunError, match=rf"darcy-ipot-clip=1 / seed 0 is incomplete \({word}"):
            records.read(file)
