"""What a joined update is made of: the shares of torch's kernel, and few operations."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ipot.training import joined_plan
from ipot.training.joined_memory import UNIT
from training.twins import Pair

MOVING = {"cat", "add_", "mul_", "div_", "copy_", "clone", "_fused_adamw_"}


@pytest.mark.parametrize("clip", [None, 0.5])
def test_an_update_is_a_handful_of_operations(clip):
    pair = Pair(clip=clip)
    pair.step()
    pair.differentiate(pair.mine, pair.own, torch.ones(16, 33))
    names = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.overloadpacket.__name__)
            return func(*args, **kwargs or {})

    with Watch():
        gradient = pair.optimizer.gather()
        divisor = pair.ledger(torch.tensor(0.7), gradient)
        pair.optimizer.step(gradient=gradient, divisor=divisor)
    beginning, end = names.index("linalg_vector_norm"), len(names) - names[::-1].index("add_") - 1
    # The gradients in one; the count of steps, an update for each group.
    moving = [[n for n in part if n in MOVING] for part in (names[:beginning], names[end:])]
    assert moving == [["cat"], ["add_", "_fused_adamw_", "_fused_adamw_"]]
    assert names.count("linalg_vector_norm") == 1


@pytest.mark.parametrize("most", [1, 7, 36, 128])
@pytest.mark.parametrize(
    "places", [[(0, 64)], [(0, 64), (64, 90048)], [(64, 4096), (8192, 8256), (8256, 90048)]]
)
def test_shares_cover_what_is_updated_once(places, most):
    runs = joined_plan._runs(places)
    cuts = list(joined_plan._cuts(runs, most))
    covered = [i for a, b in cuts for i in range(a, b)]
    assert covered == [i for a, b in places for i in range(a, b)]
    assert all((b - a) % UNIT == 0 for a, b in cuts)
    assert len(cuts) <= max(most, len(runs))
    if most == 36 and len(places) == 2:
        assert max(b - a for a, b in cuts) == 40 * UNIT


def test_a_gap_does_not_cost_a_launch():
    """Most models have a parameter without a gradient, and torch takes 36 shares in one."""
    cuts = list(joined_plan._cuts([(0, 100 * 64), (101 * 64, 4000 * 64)], joined_plan.MOST))
    assert 34 <= len(cuts) <= 36


def test_places_that_touch_are_one():
    touching = [(UNIT * i, UNIT * (i + 1)) for i in range(40)]
    assert joined_plan._runs([*touching, (UNIT * 41, UNIT * 50)]) == [
        (0, 40 * UNIT),
        (41 * UNIT, 50 * UNIT),
    ]
