"""Parameters in one tensor: where each lies, what stays where it is, and how they part again."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ipot.training import joined_parameters
from ipot.training.joined_parameters import UNIT
from ipot.training.optimizer import Average, make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Ledger
from training.toys import CPU, fit, model
from training.twins import CLOSE, Net, Pair, parted, update


def test_every_parameter_begins_at_a_unit_and_has_its_place():
    network = Net()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = make_optimizer(network, Training(), [], CPU)
    starts = {}
    for name, p in network.named_parameters():
        assert torch.equal(p, before[name])
        assert p.is_leaf
        assert p.storage_offset() % UNIT == 0
        starts[p.storage_offset()] = p.storage_offset() + p.numel()
    ends = sorted(starts.values())
    assert all(end <= start for end, start in zip(ends, sorted(starts)[1:], strict=False))
    assert optimizer.joined
    assert len({p.untyped_storage().data_ptr() for p in network.parameters()}) == 1


def test_a_parameter_that_is_moved_is_noticed():
    pair = Pair()
    pair.step()
    pair.mine.narrow.weight.data = pair.mine.narrow.weight.data.clone()
    for _ in range(2):
        pair.step()
        pair.assert_same()
    assert not pair.optimizer.joined


def sequential(*layers):
    return nn.Sequential(*layers)


def share_memory():
    network = sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight.data = network[0].weight.data
    return network


def share_with_buffer():
    network = nn.Linear(4, 4)
    network.register_buffer("seen", network.weight.detach()[1:, ::2])
    return network


def transposed():
    network = nn.Linear(4, 5)
    network.weight.data = network.weight.data.T.contiguous().T
    return network


def empty():
    network = nn.Linear(4, 4)
    network.none = nn.Parameter(torch.zeros(0, 3))
    return network


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(4, 4).double(),
        lambda: nn.Linear(4, 4).bfloat16(),
        lambda: sequential(nn.Linear(4, 4), nn.Linear(4, 4).double()),
        share_memory,
        share_with_buffer,
        transposed,
        empty,
    ],
)
def test_what_does_not_fit_together_stays_where_it_is(make):
    network = make()
    addresses = [p.data_ptr() for p in network.parameters()]
    optimizer = make_optimizer(network, Training(clip=0.5), [], CPU)
    assert not optimizer.joined
    assert [p.data_ptr() for p in network.parameters()] == addresses
    for p in network.parameters():
        p.grad = torch.ones_like(p)
    before = [p.detach().clone() for p in network.parameters() if p.numel()]
    if len({p.dtype for p in network.parameters()}) == 1:
        update(optimizer, Ledger(0.5, CPU))
        after = [p for p in network.parameters() if p.numel()]
        assert all(not torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_modules_may_share_a_parameter():
    networks = []
    for _ in range(2):
        torch.manual_seed(0)
        network = sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        network[2].weight = network[0].weight
        networks.append(network)
    mine, twin = networks
    optimizer = make_optimizer(mine, Training(), [], CPU)
    reference = torch.optim.AdamW(
        twin.parameters(), lr=Training().learning_rate, weight_decay=Training().weight_decay
    )
    for _ in range(3):
        for network in networks:
            network.zero_grad()
            network(torch.ones(1, 4)).square().sum().backward()
        update(optimizer, Ledger(None, CPU))
        reference.step()
    assert optimizer.joined
    assert mine[2].weight is mine[0].weight
    for p, expected in zip(mine.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, expected, **CLOSE)


def test_a_second_optimiser_joins_again():
    network = Net()
    for _ in range(2):
        optimizer = make_optimizer(network, Training(), [], CPU)
        assert optimizer.joined
        for p in network.parameters():
            p.grad = torch.ones_like(p)
        before = [p.detach().clone() for p in network.parameters()]
        update(optimizer, Ledger(None, CPU))
        assert all(not torch.equal(p, b) for p, b in zip(network.parameters(), before, strict=True))


def test_parted_parameters_have_memory_of_their_own():
    pair = Pair()
    pair.step()
    parameters = [p for p, _ in pair.pairs()]
    assert not parted(parameters)
    before = [p.detach().clone() for p in parameters]
    pair.optimizer.part()
    assert parted(parameters)
    assert all(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))
    pair.step()
    pair.assert_same()


def test_a_run_leaves_a_model_with_parameters_apart(tmp_path):
    network = model()
    fit(tmp_path, network=network)
    assert parted(network.parameters())


@pytest.mark.parametrize("frozen", [False, True])
def test_an_average_of_joined_weights_is_the_same(frozen):
    networks = [Net(), Net()]
    for network in networks:
        network.last.requires_grad_(not frozen)
    optimizer = make_optimizer(networks[0], Training(), [], CPU)
    assert optimizer.joined
    averages = [Average(network, 0.75) for network in networks]
    random = torch.Generator().manual_seed(2)
    for _ in range(4):
        for p, twin in zip(*(n.parameters() for n in networks), strict=True):
            p.data.copy_(twin.data.copy_(torch.randn(p.shape, generator=random)))
        for average in averages:
            average.update()
    mine, expected = (average.mean for average in averages)
    assert list(mine) == list(expected)
    for name, value in mine.items():
        torch.testing.assert_close(value, expected[name], **CLOSE)
    memories = {value.untyped_storage().data_ptr() for value in mine.values()}
    assert len(memories) == (2 if frozen else 1)
    live = [p.detach().clone() for p in networks[0].parameters()]
    versions = [p._version for p in networks[0].parameters()]
    averages[0].swap()
    for p, name, before in zip(networks[0].parameters(), mine, versions, strict=True):
        torch.testing.assert_close(p.detach(), expected[name], **CLOSE)
        assert p._version > before
    averages[0].swap()
    assert all(torch.equal(p, b) for p, b in zip(networks[0].parameters(), live, strict=True))


def test_copies_lie_as_the_tensors_do():
    whole = torch.arange(24.0)
    tensors = [whole[2:8].view(2, 3).T, torch.ones(3, 2).T, whole[10:14], torch.zeros(0)]
    made, vectors = joined_parameters.copies(tensors)
    for mine, theirs in zip(made, tensors, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
    assert [held for *_, held in vectors] == [2, 1, 1]
    assert [len(copied) for copied, *_ in vectors] == [12, 6, 0]
    assert made[0].untyped_storage().data_ptr() == made[2].untyped_storage().data_ptr()
    made[0].zero_()
    assert whole.sum() == 276


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
    runs = joined_parameters._runs(places)
    cuts = list(joined_parameters._cuts(runs, most))
    covered = [i for a, b in cuts for i in range(a, b)]
    assert covered == [i for a, b in places for i in range(a, b)]
    assert all((b - a) % UNIT == 0 for a, b in cuts)
    assert len(cuts) <= max(most, len(runs))
    if most == 36 and len(places) == 2:
        assert max(b - a for a, b in cuts) == 40 * UNIT


def test_a_gap_does_not_cost_a_launch():
    """Most models have a parameter without a gradient, and torch takes 36 shares in one."""
    cuts = list(
        joined_parameters._cuts([(0, 100 * 64), (101 * 64, 4000 * 64)], joined_parameters.MOST)
    )
    assert 34 <= len(cuts) <= 36


def test_places_that_touch_are_one():
    touching = [(UNIT * i, UNIT * (i + 1)) for i in range(40)]
    assert joined_parameters._runs([*touching, (UNIT * 41, UNIT * 50)]) == [
        (0, 40 * UNIT),
        (41 * UNIT, 50 * UNIT),
    ]
