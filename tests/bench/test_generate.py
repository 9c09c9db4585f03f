"""Generators, together and one by one."""

from __future__ import annotations

import pytest

from ipot import registry
from ipot.bench import generate
from ipot.bench.measuring import Timing
from ipot.errors import DataError, Unsupported


def small(name):
    return registry.find("problems", name).small()


def test_together_and_one_by_one(terms, monkeypatch):
    problem, asked = small("burgers"), []
    solve = type(problem).generate

    def remember(self, split, indices, **keys):
        asked.append((split, list(indices)))
        return solve(self, split, indices, **keys)

    monkeypatch.setattr(type(problem), "generate", remember)
    ours, plain = generate.measure_generation("burgers", problem, terms, count=3)
    assert ("train", [0, 1, 2]) in asked
    single = [indices for _, indices in asked if len(indices) == 1]
    assert single[:2] == [[0], [1]]
    assert (ours.version, ours.batch, ours.kind) == ("ours", 3, "together")
    assert (plain.version, plain.kind) == ("plain", "one by one, cpu")
    assert ours.samples_per_second == pytest.approx(3000 / ours.ms)
    assert plain.samples_per_second == pytest.approx(3000 / plain.ms)
    assert plain.ratio == pytest.approx(plain.ms / ours.ms)
    assert ours.bytes == 3 * problem.bytes_each(problem.resolution)
    assert ours.flops is None


def test_samples_that_are_cut_from_longer_ones_have_no_plain_version(terms):
    rows = generate.measure_generation("era5_synthetic", small("era5_synthetic"), terms, count=2)
    assert [row.version for row in rows] == ["ours"]
    assert rows[0].ratio == 1
    assert "cut from longer ones" in rows[0].notes[0]


def test_what_cannot_be_generated():
    with pytest.raises(Unsupported, match="sst is measured"):
        generate.check_generation("sst", small("sst"), None)
    for count in (0, -1, 10**7):
        with pytest.raises(DataError, match="--count must lie in 1 to 1e6"):
            generate.check_generation("darcy", small("darcy"), count)


def test_few_on_a_cpu(terms):
    ours, _ = generate.measure_generation("burgers", small("burgers"), terms)
    assert ours.batch == generate.ON_A_CPU


def test_one_by_one_is_scaled_to_as_many(terms, monkeypatch):
    times = iter([Timing.of([8.0]), Timing.of([3.0])])
    monkeypatch.setattr(generate, "time_calls", lambda *args, **keys: next(times))
    ours, plain = generate.measure_generation("burgers", small("burgers"), terms, count=5)
    assert (ours.ms, plain.ms) == (8.0, 15.0)
    assert plain.samples_per_second == pytest.approx(1000 / 3)
