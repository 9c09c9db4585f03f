"""Which device is meant, and how much memory was held."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ipot import device
from ipot.errors import Unsupported

CPU = torch.device("cpu")
MIB = 2**-10
"""In GiB, the unit of `peak_memory`."""


def test_names_of_devices():
    assert device.choose("cpu") == CPU
    assert device.choose().type in ("cpu", "cuda")
    with pytest.raises(Unsupported, match="unknown device 'tpu-like'"):
        device.choose("tpu-like")


@pytest.fixture
def counted():
    """Skip where the system does not tell, or does not start anew."""
    device.reset_peak_memory(CPU)
    if device.peak_memory(CPU) is None:
        pytest.skip("/proc/self/status has no VmHWM here")
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("/proc/self/clear_refs cannot be written here")


# In a process of its own: in this one, memory that another test left may go at any moment.
PEAKS = """
import numpy, torch
from ipot import device
cpu = torch.device("cpu")
device.reset_peak_memory(cpu)
print(device.peak_memory(cpu))
large = numpy.ones(200 << 17)  # 200 MiB, beyond what the allocator keeps for itself
del large
print(device.peak_memory(cpu))
device.reset_peak_memory(cpu)
print(device.peak_memory(cpu))
"""


@pytest.mark.usefixtures("counted")
def test_the_peak_outlives_what_made_it_until_it_is_reset():
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True)
    before, after, anew = map(float, done.stdout.split())
    assert 190 * MIB < after - before < 400 * MIB
    assert anew < after - 150 * MIB


def test_where_the_system_does_not_tell(monkeypatch):
    def refuse(self, *args):
        raise OSError

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    device.reset_peak_memory(CPU)
    assert device.peak_memory(CPU) is None
    monkeypatch.setattr(Path, "read_text", lambda self: "VmRSS: 12 kB")
    assert device.peak_memory(CPU) is None
    monkeypatch.setattr(Path, "read_text", lambda self: "Name: x\nVmHWM:\t 2097152 kB\n")
    assert device.peak_memory(CPU) == 2.0


def test_of_a_gpu_the_tensors_are_counted(monkeypatch):
    gpu, calls = torch.device("cuda"), []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", calls.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda place: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "synchronize", calls.append)
    device.reset_peak_memory(gpu)
    device.synchronize(gpu)
    device.synchronize(CPU)
    assert calls == [gpu, gpu]
    assert device.peak_memory(gpu) == 3.0


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 1 TB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_ends_is_seen_whatever_its_type(error):
    assert device.out_of_memory(error)
    told = ValueError("take fewer")
    told.__cause__ = error
    assert device.out_of_memory(told)


def test_other_errors_are_not_about_memory():
    assert not device.out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not device.out_of_memory(ValueError("out of memory is only a word here"))
    assert not device.out_of_memory(None)


def counting(place):
    state, rate = torch.zeros(3, device=place), torch.ones(3, device=place)

    def step() -> None:
        state.add_(rate)

    return state, rate, step


def test_without_a_gpu_a_captured_step_is_itself():
    state, _, step = counting("cpu")
    assert device.captured(step, [state]) is step
    assert state.tolist() == [0.0] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_rehearsals_leave_no_trace_and_replays_read_new_numbers():
    state, rate, step = counting("cuda")
    replay = device.captured(step, [state])
    assert state.tolist() == [0.0] * 3
    replay()
    rate.fill_(5.0)
    replay()
    assert state.tolist() == [6.0] * 3


STAT = """cpu  600 0 0 {idle} 0 0 0 0 0 0
cpu0 100 5 5 {idle} 10 0 0 0 7 0
cpu1 500 0 0 900 0 0 0 0 0 0
cpu12 500 0 0 900 0 0 0 0 0 0
intr 1 2 3
"""


@pytest.fixture
def ticking(monkeypatch):
    """A system that counts, and a clock that is not waited for: while we sleep, the first core was
    idle for a quarter of 400 ticks, and the others, which are not ours, all the time."""
    texts = [STAT.format(idle=880), STAT.replace("100 5 5", "400 5 5").format(idle=980)]
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    monkeypatch.setattr(device.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(device.Path, "read_text", lambda path: texts.pop(0))


@pytest.mark.usefixtures("ticking")
def test_work_of_others_is_counted_on_the_cores_that_are_ours():
    assert device.busy_cores() == (0.75, 1)


def test_where_nothing_is_counted_the_load_is_what_there_is(monkeypatch):
    monkeypatch.setattr(device, "_ticks", lambda cores: None)
    monkeypatch.setattr(device.os, "getloadavg", lambda: (1.5, 0, 0), raising=False)
    assert device.busy_cores()[0] == 1.5


def test_the_system_is_asked():
    busy, cores = device.busy_cores(0.02)
    assert busy >= 0
    assert cores >= 1
