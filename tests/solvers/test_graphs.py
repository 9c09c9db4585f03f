"""A captured step does what the step does."""

import pytest
import torch

from ipot.solvers.graphs import captured


def counting(device):
    state, rate = torch.zeros(3, device=device), torch.ones(3, device=device)

    def step() -> None:
        state.add_(rate)

    return state, rate, step


def test_without_a_gpu_the_step_is_itself():
    state, _, step = counting("cpu")
    assert captured(step, [state]) is step
    assert state.tolist() == [0.0] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_rehearsals_leave_no_trace_and_replays_read_new_numbers():
    state, rate, step = counting("cuda")
    replay = captured(step, [state])
    assert state.tolist() == [0.0] * 3
    replay()
    rate.fill_(5.0)
    replay()
    assert state.tolist() == [6.0] * 3
