"""Growth with the number of points."""

from __future__ import annotations

import pytest

from ipot.bench import infer, scale
from ipot.bench.counts import Work
from ipot.bench.infer import Question
from ipot.bench.rows import Row
from ipot.errors import DataError

ASKED = Question(problem="darcy", preset="paper", points=1, small=True)


def row(version, points, ms, gib=None, **more):
    return Row(problem="p", version=version, points=points, ms=ms, above_gib=gib, **more)


def test_sizes():
    assert scale.sizes(1e3, 1e6, 1) == [1000, 10_000, 100_000, 1_000_000]
    assert scale.sizes(1e3, 1e4, 2) == [1000, 3162, 10_000]
    assert scale.sizes(500.0, 6000.0, 1) == [500, 5000]
    assert scale.sizes(7.0, 7.0, 3) == [7]
    assert scale.sizes(1e3, 1e8, 1)[-1] == 10**8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1e4, 1e3, 1), "--from 10000 is more than --to 1000"),
        ((0.0, 1e3, 1), "--from must be"),
        ((1e3, 2e9, 1), "--to must be at most"),
        ((1e3, 1e4, 0), "--per-decade must lie in 1 to 100"),
    ],
)
def test_sizes_that_are_none(arguments, message):
    with pytest.raises(DataError, match=message):
        scale.sizes(*arguments)


def test_slopes_are_those_of_the_largest_sizes():
    line = [(10**k, 3.0 * 10**k) for k in range(1, 5)]
    assert scale.slope(line) == pytest.approx(1.0)
    square = [(2**k, 5.0 * 4**k) for k in range(4)]
    assert scale.slope(square) == pytest.approx(2.0)
    # A constant at first, and a line behind it.
    assert scale.slope([(1, 7.0), (3, 7.0), *line[1:]]) == pytest.approx(1.0)


def test_no_slope_from_fewer_than_three_sizes():
    line = [(10**k, 3.0 * 10**k) for k in range(1, 4)]
    assert scale.slope(line) == pytest.approx(1.0)
    for few in (line[:2], line[:1], []):
        assert scale.slope(few) is None


def test_drift_is_the_largest_departure_from_a_million_on():
    pairs = [(10**5, 900.0), (10**6, 1000.0), (10**7, 10_500.0), (10**8, 92_000.0)]
    assert scale.drift(pairs) == pytest.approx(-0.08)
    assert scale.drift(pairs[:3]) == pytest.approx(0.05)
    assert scale.drift(pairs[:2]) is None


def test_a_summary():
    rows = [row("ours", 10**k, 2.0 * 10**k, 1.0) for k in (5, 6, 7)]
    rows += [row("plain", 10**5, 1.0, 1.0), row("plain", 10**6, None, reason="out of memory")]
    found = scale.summary(rows)
    assert found["time_slope"] == {"ours": pytest.approx(1.0), "plain": None}
    assert found["memory_slope"] == {"ours": pytest.approx(0.0, abs=1e-12), "plain": None}
    assert found["drift"] == pytest.approx(0.0)


def test_one_that_was_left_out_is_not_tried_again(terms, monkeypatch):
    asked = []

    def measured(question, terms, *, against):
        asked.append((question.points, tuple(against)))
        lost = [v for v in against if v == "transformer" and question.points > 10]
        return [
            row("ours", question.points, 1.0),
            *(row(v, question.points, None, reason="left out") for v in lost),
            *(row(v, question.points, 2.0) for v in against if v not in lost),
        ]

    monkeypatch.setattr(scale, "measure_inference", measured)
    rows = scale.measure_scaling(ASKED, [1000, 10, 100], terms)
    both = ("plain", "transformer")
    assert asked == [(10, both), (100, both), (1000, ("plain",))]
    lost = [(r.points, r.reason) for r in rows if r.version == "transformer" and r.ms is None]
    assert lost == [(100, "left out"), (1000, "left out")]
    assert len(rows) == 9


def test_measured_for_once(terms, monkeypatch):
    work = Work(flops=1e6, bytes=1e6)
    monkeypatch.setattr(infer, "inference_work", lambda *args, **keys: work)
    monkeypatch.setattr(infer, "SOME", 64)
    rows = scale.measure_scaling(ASKED, [50, 100], terms, against=["plain"])
    assert [(r.version, r.points) for r in rows] == [
        *(("ours", 50), ("plain", 50)),
        *(("ours", 100), ("plain", 100)),
    ]
    assert scale.summary(rows)["time_slope"] == {"ours": None, "plain": None}
