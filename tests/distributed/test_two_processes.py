"""Two processes with half the batch each are one process with the whole batch."""

import pytest
import torch
from training.toys import contents, fit, relay

from distributed.scenarios import FIXED, SHORT, STEPS, together
from ipot.training import checkpoint


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def said(root):
    return together(root)


def assert_close(path, other):
    """All weights, moments and averages, and the journal."""
    (last, best, rest), (other_last, other_best, other_rest) = contents(path), contents(other)
    for mine, theirs in ((last, other_last), (best, other_best)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], theirs[name], atol=1e-6, rtol=1e-6)
    for mine, theirs in zip(rest["rows"], other_rest["rows"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("data", ["stacked", "ragged"])
def test_they_follow_one_process(said, root, tmp_path, data):
    alone = fit(tmp_path, data=data, **STEPS)
    assert alone.steps == 12
    for answer in said:
        result = answer[f"equal_{data}"]
        assert result["steps"] == 12
        assert result["validation"] == pytest.approx(alone.validation, rel=1e-6)
        assert result["loss"] == pytest.approx(alone.loss, rel=1e-6)
    assert_close(root / data, tmp_path)


def test_relays_follow_one_process(said, root, tmp_path):
    alone = (
        fit(tmp_path / "relay", data="ragged", network=relay("ragged"), **STEPS),
        fit(tmp_path / "relay_fixed", network=relay(), **FIXED),
    )
    for answer in said:
        for result, one in zip(answer["equal_relay"], alone, strict=True):
            assert result["steps"] == one.steps == 12
            assert result["loss"] == pytest.approx(one.loss, rel=1e-6)
    for name in ("relay", "relay_fixed"):
        assert_close(root / name, tmp_path / name)


def test_only_the_first_writes(said, root):
    rows = contents(root / "stacked")[2]["rows"]
    assert [row["epoch"] for row in rows] == list(range(1, 5))
    names = {path.name for path in (root / "stacked").iterdir()}
    assert names == {"last.safetensors", "best.safetensors", "metrics.jsonl", "result.json"}


def test_a_signal_to_one_stops_both_and_they_go_on(said, root, tmp_path):
    assert [answer["stopped"] for answer in said] == [[15, 9], [15, 9]]
    fit(tmp_path, **SHORT)
    assert_close(root / "stopped", tmp_path)


def test_a_loss_that_is_not_finite_in_one_is_told_by_both(said, root):
    assert [answer["poisoned"] for answer in said] == [5, 5]
    tensors, state = checkpoint.load(root / "poisoned" / "last.safetensors")
    assert state["step"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_a_batch_that_does_not_divide_is_refused_by_both(said):
    for answer in said:
        assert answer["indivisible"] == "a batch of 3 does not divide among 2 processes"


def test_flags_are_shared(said):
    assert [answer["flags"] for answer in said] == [
        [False, True, True, True, 2],
        [False, True, True, False, 2],
    ]
