"""What a kernel reads is made once, and again when a weight has changed."""

import torch
from torch import nn

from ipot.nn import ready


def made(calls):
    def make(*modules, dtype):
        calls.append(dtype)
        return object()

    return make


def test_prepared_once_for_as_long_as_no_weight_changes():
    calls, norm, linear = [], nn.LayerNorm(3), nn.Linear(3, 2)
    first = ready._prepared(made(calls), norm, linear)
    assert ready._prepared(made(calls), norm, linear) is first
    assert len(calls) == 1


def test_any_change_of_a_weight_is_seen():
    calls, norm, linear = [], nn.LayerNorm(3), nn.Linear(3, 2)
    optimizer = torch.optim.SGD([*norm.parameters(), *linear.parameters()], lr=0.1)

    def step():
        linear(norm(torch.ones(1, 3))).sum().backward()
        optimizer.step()

    changes = (
        step,
        lambda: norm.load_state_dict({k: v + 1 for k, v in norm.state_dict().items()}),
        lambda: linear.to(torch.float64),
        # As a captured step does it, which torch does not see by itself.
        lambda: torch.autograd.graph.increment_version(list(linear.parameters())),
    )
    for number, change in enumerate(changes, 1):
        ready._prepared(made(calls), norm, linear)
        assert len(calls) == number
        change()
    ready._prepared(made(calls), norm, linear)
    assert len(calls) == len(changes) + 1


def test_weights_that_do_not_tell_are_prepared_every_time():
    with torch.inference_mode():
        norm, linear = nn.LayerNorm(3), nn.Linear(3, 2)
    calls = []
    for _ in range(2):
        ready._prepared(made(calls), norm, linear)
    assert len(calls) == 2


def test_nothing_is_ready_on_a_cpu():
    assert ready.project_points(None, None, None, nn.Linear(3, 2), torch.zeros(1, 4, 2)) is None
