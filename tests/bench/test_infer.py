"""Answers for one sample, by several versions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ipot.bench import infer
from ipot.bench.counts import Work
from ipot.bench.infer import Question
from ipot.bench.measuring import Ceilings, Memory
from ipot.errors import DataError, UnknownName

CPU = torch.device("cpu")
ANSWER = infer.answer
ASKED = Question(problem="darcy", preset="paper", points=300, small=True)


@pytest.fixture
def uncounted(monkeypatch):
    """Counting takes longer than these answers, and is tested elsewhere."""
    work = Work(flops=1e6, bytes=1e6)
    monkeypatch.setattr(infer, "inference_work", lambda *args, **keys: work)


def test_every_version_has_a_row(terms, monkeypatch):
    monkeypatch.setattr(infer, "SOME", 64)
    against = ["plain", "transformer", "fno", "deeponet"]
    rows = infer.measure_inference(ASKED, terms, against=against)
    assert [row.version for row in rows] == ["ours", *against]
    ours, plain, transformer, fno, deeponet = rows
    for row in rows[:4]:
        assert row.ms > 0
        assert row.reason == ""
        assert row.ns_per_point == pytest.approx(1e6 * row.ms / row.points)
        assert row.ratio == pytest.approx(row.ms / ours.ms)
        assert row.precision == "float32"
        assert row.of_flops == pytest.approx(row.flops / (1e-3 * row.ms) / 1e12)
    assert (ours.points, fno.points) == (300, 17 * 17)
    assert ours.flops == plain.flops
    assert transformer.flops > ours.flops
    assert ours.difference < 1e-5
    assert plain.difference is None
    assert "bound to the 289 input points" in deeponet.reason
    assert deeponet.ms is None


@pytest.mark.usefixtures("uncounted")
def test_ours_differs_from_the_plain_version_where_it_does(terms, monkeypatch):
    monkeypatch.setattr(infer, "SOME", 64)
    whole = infer.plain_model.forward
    monkeypatch.setattr(infer.plain_model, "forward", lambda *args: 0.5 * whole(*args))
    ours, *_ = infer.measure_inference(ASKED, terms, against=[])
    assert ours.difference == pytest.approx(1.0, rel=1e-5)


def test_queries_of_their_own(terms):
    asked = replace(ASKED, queries=900)
    ours, plain, fno = infer.measure_inference(asked, terms, against=["plain", "fno"])
    assert (ours.points, ours.queries) == (plain.points, plain.queries) == (300, 900)
    assert ours.ns_per_point == pytest.approx(1e6 * ours.ms / 900)
    assert "answers at its input points" in fno.reason


@pytest.mark.usefixtures("uncounted")
def test_several_samples_at_a_time(terms):
    ours, plain = infer.measure_inference(replace(ASKED, batch=4), terms)
    for row in (ours, plain):
        assert (row.batch, row.points) == (4, 300)
        assert row.ns_per_point == pytest.approx(1e6 * row.ms / 1200)
    assert ours.difference < 1e-5


@pytest.mark.usefixtures("uncounted")
def test_a_rollout(terms):
    asked = replace(ASKED, problem="navier_stokes", points=64)
    ours, plain = infer.measure_inference(asked, terms)
    assert ours.steps == plain.steps == 10
    assert ours.difference < 1e-5


@pytest.mark.usefixtures("uncounted")
def test_a_version_that_would_take_minutes(terms):
    slow = replace(terms, top=Ceilings(flops=1e4, bytes=1e11, dtype="float32"))
    ours, plain = infer.measure_inference(ASKED, slow)
    assert ours.ms > 0
    assert plain.reason.startswith("left out: about")
    assert plain.reason.endswith("s a call by its arithmetic")


@pytest.mark.usefixtures("uncounted")
def test_a_version_that_would_take_too_much_memory(terms, monkeypatch):
    monkeypatch.setattr(infer, "FEW", 100)
    sizes = []

    def measured(call, device):
        call()
        return Memory(peak=9.0, above=2.0)

    def question(spec, points, *args, **keys):
        sizes.append(points)
        return make(spec, points, *args, **keys)

    make = infer.random_question
    monkeypatch.setattr(infer, "random_question", question)
    monkeypatch.setattr(infer, "peak_of", measured)
    monkeypatch.setattr(infer, "free_memory", lambda device: 7.0)
    ours, plain = infer.measure_inference(ASKED, terms)
    # 100 points take 2 GiB, so 300 take 6, which is more than four fifths of what is free.
    assert plain.reason == "left out: about 6 GiB needed, 7 GiB are free"
    assert ours.ms > 0
    assert 100 in sizes
    monkeypatch.setattr(infer, "free_memory", lambda device: 8.0)
    _, plain = infer.measure_inference(ASKED, terms)
    assert plain.reason == ""


def failing(version, error):
    """Measuring that fails for one version."""

    def made(model, settings, device, *, plainly=False):
        def fail(batch):
            raise error

        found = "plain" if plainly else "ours" if model.name == "ipot" else model.name
        return fail if found == version else ANSWER(model, settings, device, plainly=plainly)

    return made


@pytest.mark.usefixtures("uncounted")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"),
        (RuntimeError("index out of range\nand more"), "index out of range"),
    ],
)
def test_a_rival_that_fails_stays_in_the_table(terms, monkeypatch, error, reason):
    monkeypatch.setattr(infer, "answer", failing("plain", error))
    monkeypatch.setattr(infer, "_differences", lambda *args: (0.0, 0.0))
    ours, plain = infer.measure_inference(ASKED, terms)
    assert plain.reason == reason
    assert ours.reason == ""


@pytest.mark.usefixtures("uncounted")
def test_ours_may_run_out_of_memory_and_nothing_else(terms, monkeypatch):
    monkeypatch.setattr(infer, "answer", failing("ours", MemoryError()))
    ours, plain = infer.measure_inference(ASKED, terms)
    assert ours.reason == "out of memory"
    assert plain.ms > 0
    assert plain.ratio is None
    monkeypatch.setattr(infer, "answer", failing("ours", RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        infer.measure_inference(ASKED, terms)


def test_rivals():
    assert infer.rivals(["plain", "FNO", "perceiver-io", "plain"]) == [
        "plain",
        "fno",
        "perceiver_io",
    ]
    assert infer.rivals(["none"]) == infer.rivals([]) == infer.rivals(["ipot"]) == []
    with pytest.raises(UnknownName, match=r"unknown version 'fnoo'.*plain, deeponet"):
        infer.rivals(["plain", "fnoo"])


def test_questions_that_cannot_be_asked(monkeypatch):
    infer.check_question(ASKED, CPU)
    with pytest.raises(UnknownName, match="darcy"):
        infer.check_question(replace(ASKED, problem="darci"), CPU)
    with pytest.raises(UnknownName, match="default, paper"):
        infer.check_question(replace(ASKED, preset="best"), CPU)
    monkeypatch.setattr("ipot.bench.samples.free_memory", lambda device: 1e-6)
    with pytest.raises(DataError, match="300 points and 300 queries of darcy"):
        infer.check_question(ASKED, CPU)
