"""Times and memory of calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ipot.bench import measuring
from ipot.bench.measuring import Timing
from ipot.device import peak_memory

CPU = torch.device("cpu")


class Watch:
    """A clock that only calls move on."""

    def __init__(self, costs):
        self.now, self.costs, self.calls = 0.0, costs, 0

    def perf_counter(self):
        return self.now

    def __call__(self):
        self.now += self.costs[min(self.calls, len(self.costs) - 1)]
        self.calls += 1


@pytest.fixture
def watch(monkeypatch):
    def make(*costs):
        made = Watch(costs)
        monkeypatch.setattr(measuring.time, "perf_counter", made.perf_counter)
        return made

    return make


def test_quartiles():
    found = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.ms, found.low, found.high, found.best, found.calls) == (3, 2, 4, 1, 5)
    assert Timing.of([7.0]) == Timing(ms=7.0, low=7.0, high=7.0, best=7.0, calls=1)
    assert found.scaled(2.5) == Timing(ms=7.5, low=5.0, high=10.0, best=2.5, calls=5)


def test_the_warm_up_does_not_count(watch):
    # A slow first call is set-up: it leaves as much time for the others as a quick one.
    call = watch(50.0, 0.125)
    found = measuring.time_calls(call, CPU, seconds=2.0)
    assert (found.ms, found.best, found.calls) == (125, 125, 16)
    # Calls that get quicker for a while, as where something is captured later, are warm-up too.
    call = watch(1.0, *[0.03125] * 6, 0.0078125)
    found = measuring.time_calls(call, CPU, seconds=2.0)
    assert (found.ms, found.calls) == (7.8125, 256)
    assert call.calls == 2 + measuring.WARM_UP + 256


def test_as_many_calls_as_there_is_time_for(watch):
    assert measuring.time_calls(watch(1e-3), CPU, seconds=60.0).calls == measuring.MOST
    assert measuring.time_calls(watch(1e-3), CPU, seconds=60.0, most=7).calls == 7
    slow = watch(100.0)
    assert measuring.time_calls(slow, CPU, seconds=1.0) == Timing.of([1e5])
    assert slow.calls == 2  # set-up, and one that there is no time to repeat


def test_memory_above_what_is_held():
    if peak_memory(CPU) is None or not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not tell")
    kept = torch.ones(2**25)  # 128 MiB, which are held all along
    found = measuring.peak_of(lambda: torch.ones(2**26).sum(), CPU)  # 256 MiB
    assert found.above == pytest.approx(0.25, abs=0.03)
    assert found.peak > 0.37
    assert kept.sum() == 2**25


def test_unknown_memory_stays_unknown(monkeypatch):
    monkeypatch.setattr(measuring, "peak_memory", lambda device: None)
    assert measuring.memory_since(1.0, CPU) == measuring.Memory(peak=None, above=None)
    monkeypatch.setattr(measuring, "peak_memory", lambda device: 3.0)
    assert measuring.memory_since(None, CPU) == measuring.Memory(peak=3.0, above=None)
    assert measuring.memory_since(1.0, CPU) == measuring.Memory(peak=3.0, above=2.0)
    assert measuring.memory_since(4.0, CPU) == measuring.Memory(peak=3.0, above=0.0)


def test_free_memory_is_less_than_there_is():
    free = measuring.free_memory(CPU)
    if free is None:
        pytest.skip("this system does not tell")
    total = measuring._kilobytes(Path("/proc/meminfo"), "MemTotal")
    assert 0 < free < total


def test_ceilings_count_both_ways_of_a_copy(monkeypatch):
    monkeypatch.setitem(measuring.SIZES, "cpu", (1000, 10))
    found = Timing(ms=9.0, low=9.0, high=9.0, best=2.0, calls=3)
    monkeypatch.setattr(measuring, "time_calls", lambda call, device, seconds: (call(), found)[1])
    top = measuring.measure_ceilings(CPU)
    assert top.bytes == pytest.approx(2 * 1000 / 2e-3)
    assert top.flops == pytest.approx(2 * 10**3 / 2e-3)
    assert top.dtype == "float32"
