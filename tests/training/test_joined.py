"""Parameters in one tensor are updated as torch updates them one by one."""

import copy
import signal

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ipot.training import checkpoint, joined
from ipot.training import step as step_module
from ipot.training.capture import WARM_UP, capture
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.joined import UNIT, JoinedAdamW
from ipot.training.ledger import Ledger
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.step import Step
from ipot.training.trainer import Stopped
from ipot.training.update import Average, make_optimizer, set_rate
from training.toys import CPU, SPEC, Kill, contents, fit, model, packed, stacked

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
MOVING = {"cat", "add_", "mul_", "div_", "copy_", "clone", "split_with_sizes", "_fused_adamw_"}
CLOSE = {"rtol": 1e-5, "atol": 1e-7}


class Net(nn.Module):
    """Sizes that fill no unit, one that fills many shares, and one that learns only if asked."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.narrow = nn.Linear(33, 301), nn.Linear(301, 3)
        self.sometimes = nn.Parameter(torch.ones(5))
        self.last = nn.Parameter(torch.ones(()))

    def forward(self, x, sometimes=False):
        y = self.narrow(self.wide(x).tanh()) * self.last
        return y + self.sometimes.sum() if sometimes else y


class Pair:
    """A network with joined parameters and its twin, updated by torch and clipped by torch."""

    def __init__(self, *, clip=0.5, device="cpu", **settings):
        self.clip, self.device = clip, torch.device(device)
        settings = Training(**{"learning_rate": 1e-2, "weight_decay": 0.1, **settings})
        self.mine, self.twin = Net().to(self.device), Net().to(self.device)
        self.own, self.own_twin = (
            nn.Parameter(torch.linspace(-1, 1, 70, device=self.device)) for _ in range(2)
        )
        group = {"factor": 3.0, "weight_decay": 0.5}
        groups = [{"params": [self.own], **group}]
        self.optimizer = make_optimizer(self.mine, settings, groups, self.device)
        self.ledger = Ledger(clip, self.device)
        self.reference = torch.optim.AdamW(
            [{"params": list(self.twin.parameters())}, {"params": [self.own_twin], **group}],
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.random = torch.Generator().manual_seed(1)

    def differentiate(self, network, own, x, **options):
        for p in (own, *network.parameters()):
            p.grad = None
        (network(x, **options).square().mean() + (own * own.detach().cos()).sum()).backward()

    def step(self, **options):
        x = torch.randn(16, 33, generator=self.random).to(self.device)
        for optimizer in (self.optimizer, self.reference):
            set_rate(optimizer, 1e-2)
        self.differentiate(self.mine, self.own, x, **options)
        update(self.optimizer, self.ledger)
        self.differentiate(self.twin, self.own_twin, x, **options)
        if self.clip is not None:
            twins = [*self.twin.parameters(), self.own_twin]
            nn.utils.clip_grad_norm_(twins, self.clip)
        self.reference.step()

    def pairs(self):
        mine, twins = (
            [p for group in o.param_groups for p in group["params"]]
            for o in (self.optimizer, self.reference)
        )
        return list(zip(mine, twins, strict=True))

    def assert_same(self):
        for p, twin in self.pairs():
            torch.testing.assert_close(p, twin, **CLOSE)
            state, expected = self.optimizer.state.get(p, {}), self.reference.state.get(twin, {})
            assert list(state) == list(expected)
            for name, value in state.items():
                torch.testing.assert_close(value, expected[name], **CLOSE)


def update(optimizer, ledger):
    """What a step does behind its backward pass."""
    one = Step.__new__(Step)
    one.optimizer, one.ledger, one.settings = optimizer, ledger, Training(clip=ledger.clip)
    one.parameters = [p for group in optimizer.param_groups for p in group["params"]]
    one._update(torch.full((), 0.7, device=one.parameters[0].device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.05, 1e6])
def test_steps_are_those_of_torch(clip, weight_decay, device):
    pair = Pair(clip=clip, weight_decay=weight_decay, device=device)
    start = [p.detach().clone() for p, _ in pair.pairs()]
    for _ in range(8):
        pair.step()
        pair.assert_same()
    assert pair.optimizer.joined
    changed = [not torch.equal(p, s) for (p, _), s in zip(pair.pairs(), start, strict=True)]
    assert changed == [p is not pair.mine.sometimes for p, _ in pair.pairs()]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_captured_update_is_that_of_torch(clip):
    pair = Pair(clip=clip, device="cuda")
    x = torch.randn(16, 33, generator=pair.random).to(pair.device)
    set_rate(pair.optimizer, 1e-2)
    set_rate(pair.reference, 1e-2)

    def work():
        pair.differentiate(pair.mine, pair.own, x)
        update(pair.optimizer, pair.ledger)

    replay = capture(work, pair.optimizer.zero_grad, torch.cuda.graph_pool_handle())
    for _ in range(4):
        replay()
    for _ in range(WARM_UP + 4):
        pair.differentiate(pair.twin, pair.own_twin, x)
        if clip is not None:
            nn.utils.clip_grad_norm_([*pair.twin.parameters(), pair.own_twin], clip)
        pair.reference.step()
    pair.assert_same()
    assert pair.optimizer.joined


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
    # The gradients in one; the count of steps, the gradient in pieces, an update for each group.
    moving = [[n for n in part if n in MOVING] for part in (names[:beginning], names[end:])]
    assert moving == [["cat"], ["add_", "split_with_sizes", "_fused_adamw_", "_fused_adamw_"]]
    assert names.count("linalg_vector_norm") == 1


def test_a_parameter_without_a_gradient_is_left_alone():
    pair = Pair()
    for _ in range(3):
        pair.step()
    assert pair.optimizer.joined
    assert torch.equal(pair.mine.sometimes, torch.ones(5))  # not even decayed
    assert pair.mine.sometimes not in pair.optimizer.state


@pytest.mark.parametrize("first", [False, True])
def test_where_other_parameters_have_gradients_the_ordinary_way_is_taken(first):
    pair = Pair()
    for sometimes in (first, first, not first, first, first, not first, not first):
        pair.step(sometimes=sometimes)
        pair.assert_same()
    assert not pair.optimizer.joined
    assert pair.optimizer.gather() is None


def load(optimizer, other):
    """An optimiser's state through the format of checkpoints."""
    tensors = checkpoint.optimizer_tensors(other)
    tensors = {name: value.detach().clone() for name, value in tensors.items()}
    checkpoint.load_optimizer(optimizer, tensors)


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_is_taken_up_and_handed_on(device):
    """A run that was saved without joining goes on with it, and the other way round."""
    pair = Pair(device=device)
    for _ in range(3):
        pair.step()
    mine = checkpoint.optimizer_tensors(pair.optimizer)
    torchs = checkpoint.optimizer_tensors(pair.reference)
    assert mine.keys() == torchs.keys()
    assert {n: (t.shape, t.dtype) for n, t in mine.items()} == {
        n: (t.shape, t.dtype) for n, t in torchs.items()
    }
    there = copy.deepcopy(pair.reference.state_dict())
    load(pair.reference, pair.optimizer)
    checkpoint.load_optimizer(
        pair.optimizer,
        {f"{i}/{n}": v for i, entries in there["state"].items() for n, v in entries.items()},
    )
    for _ in range(3):
        pair.step()
        pair.assert_same()
    assert pair.optimizer.joined
    kept = [entries["exp_avg"] for entries in pair.optimizer.state.values()]
    assert len({t.untyped_storage().data_ptr() for t in kept}) == 1


def test_parameters_of_different_ages_are_not_joined():
    pair = Pair()
    for sometimes in (True, True, False):
        pair.step(sometimes=sometimes)
    fresh = Pair()
    for mine, theirs in ((fresh.mine, pair.mine), (fresh.twin, pair.twin)):
        mine.load_state_dict(theirs.state_dict())
    for mine, theirs in ((fresh.own, pair.own), (fresh.own_twin, pair.own_twin)):
        mine.data.copy_(theirs.data)
    load(fresh.optimizer, pair.optimizer)
    load(fresh.reference, pair.reference)
    fresh.step(sometimes=True)
    fresh.assert_same()
    assert not fresh.optimizer.joined
    # One that has seen nothing yet, beside others that have.
    late = Pair()
    late.step()
    load(late.optimizer, late.optimizer)
    late.step(sometimes=True)
    late.assert_same()
    assert not late.optimizer.joined


def test_torchs_own_step_may_come_in_between():
    pair = Pair(clip=None)
    for number in range(6):
        x = torch.randn(16, 33, generator=pair.random)
        pair.differentiate(pair.mine, pair.own, x, sometimes=number == 2)
        pair.differentiate(pair.twin, pair.own_twin, x, sometimes=number == 2)
        for optimizer in (pair.optimizer, pair.reference):
            set_rate(optimizer, 1e-2)
        if number in (2, 3):
            pair.optimizer.step()
        else:
            update(pair.optimizer, pair.ledger)
        pair.reference.step()
        pair.assert_same()
    assert pair.optimizer.joined
    pair.optimizer.step()
    with pytest.raises(RuntimeError, match=r"call gather\(\) before step"):
        pair.optimizer.step(gradient=torch.zeros(3))


def test_a_parameter_that_is_moved_is_noticed():
    pair = Pair()
    pair.step()
    pair.mine.narrow.weight.data = pair.mine.narrow.weight.data.clone()
    for _ in range(2):
        pair.step()
        pair.assert_same()
    assert not pair.optimizer.joined


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


@pytest.mark.parametrize("most", [1, 7, 36, 128])
@pytest.mark.parametrize(
    "places", [[(0, 64)], [(0, 64), (64, 90048)], [(64, 4096), (8192, 8256), (8256, 90048)]]
)
def test_shares_cover_what_is_updated_once(places, most):
    cuts = list(joined._cuts(places, most))
    covered = [i for a, b in cuts for i in range(a, b)]
    assert covered == [i for a, b in places for i in range(a, b)]
    assert all((b - a) % UNIT == 0 for a, b in cuts)
    assert len(cuts) <= most + 2  # a gap may cut a share in two
    if most == 36 and len(places) == 2:
        assert max(b - a for a, b in cuts) == 40 * UNIT


def test_parameters_that_touch_share_their_shares():
    assert list(joined._cuts([(UNIT * i, UNIT * (i + 1)) for i in range(40)], 2)) == [
        (0, 32 * UNIT),
        (32 * UNIT, 40 * UNIT),
    ]


@pytest.mark.parametrize(("built", "most"), [(None, 36), ("12.8", 36), ("13.0", 128)])
def test_shares_are_as_many_as_one_launch_takes(monkeypatch, built, most):
    monkeypatch.setattr(torch.version, "cuda", built)
    assert joined._most() == most


def test_caches_see_that_weights_changed():
    pair = Pair()
    pair.step()
    before = [p._version for p, _ in pair.pairs()]
    pair.step()
    after = [p._version for p, _ in pair.pairs()]
    for (p, _), a, b in zip(pair.pairs(), before, after, strict=True):
        assert (b > a) == (p is not pair.mine.sometimes)


def test_a_gradient_that_is_no_number_spoils_nothing_but_its_step():
    """A step that is tried may diverge, and is undone; what lies between parameters is not."""
    pair = Pair()
    pair.step()
    kept = step_module.Snapshot(
        [p for p, _ in pair.pairs()] + list(pair.ledger.buffers()), pair.optimizer
    )
    pair.differentiate(pair.mine, pair.own, torch.full((16, 33), torch.nan))
    update(pair.optimizer, pair.ledger)
    assert not pair.mine.wide.weight.isfinite().any()
    assert pair.ledger.fault == 1
    kept.restore()
    for _ in range(2):
        pair.step()
        pair.assert_same()
    assert pair.ledger.fault == -1


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


def test_a_group_with_another_update_is_left_to_torch():
    network, own = nn.Linear(4, 4), nn.Parameter(torch.ones(3))
    groups = [{"params": [own], "amsgrad": True}]
    optimizer = make_optimizer(network, Training(), groups, CPU)
    for p in (own, *network.parameters()):
        p.grad = torch.ones_like(p)
    update(optimizer, Ledger(None, CPU))
    assert not optimizer.joined
    assert "max_exp_avg_sq" in optimizer.state[own]


def test_sparse_gradients_are_refused_as_ever():
    network = nn.Embedding(4, 4, sparse=True)
    optimizer = make_optimizer(network, Training(), [], CPU)
    network(torch.tensor([1])).sum().backward()
    assert optimizer.gather() is None
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()


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


def test_a_copy_of_an_optimiser_is_an_ordinary_one():
    pair = Pair(clip=None)
    pair.step()
    there = copy.deepcopy(pair.optimizer)
    assert not there.joined
    for p in there.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    assert there.gather() is None
    before = [p.detach().clone() for p, _ in pair.pairs()]
    there.step()
    assert all(torch.equal(p, b) for (p, _), b in zip(pair.pairs(), before, strict=True))


def parted(parameters):
    return all(p.untyped_storage().nbytes() == p.numel() * 4 for p in parameters)


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
    made, vectors = joined.copies(tensors)
    for mine, theirs in zip(made, tensors, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
    assert [held for *_, held in vectors] == [2, 1, 1]
    assert [len(copied) for copied, *_ in vectors] == [12, 6, 0]
    assert made[0].untyped_storage().data_ptr() == made[2].untyped_storage().data_ptr()
    made[0].zero_()
    assert whole.sum() == 276


@pytest.mark.parametrize("order", [(False, False), (True, True), (True, False), (False, True)])
def test_a_run_is_the_same_with_and_without_and_changes_over(tmp_path, monkeypatch, order):
    """Two halves of a run, each with joined parameters or without."""
    settings = {"average": 0.9, "clip": 0.1, "epochs": 4, "validate_every": 1}
    fit(tmp_path / "whole", **settings)
    join, seen = JoinedAdamW.join, []

    def perhaps(self, beside=()):
        if order[len(seen)]:
            join(self, beside)
        seen.append(self.joined)

    monkeypatch.setattr(JoinedAdamW, "join", perhaps)
    with pytest.raises(Stopped):
        fit(tmp_path / "halves", objective=Kill(5, signal.SIGTERM), **settings)
    fit(tmp_path / "halves", **settings)
    assert seen == list(order)
    (last, best, said), (other, also, told) = (
        contents(tmp_path / name) for name in ("whole", "halves")
    )
    for mine, theirs in ((last, other), (best, also)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(theirs[name], mine[name], rtol=1e-4, atol=1e-6)
    assert [row["step"] for row in said["rows"]] == [row["step"] for row in told["rows"]]


def make_step(kind, data, objective):
    network, settings = model(), Training(batch=4, step=kind)
    return Step(
        network,
        objective,
        make_optimizer(network, settings, list(objective.prepare(network, data)), CPU),
        Draws(data, SPEC, settings),
        settings,
        device=CPU,
        precision="float32",
        kind=kind,
        world=World(),
    )


class Fitful(RelativeL2):
    """A number of its own that learns from batches with few points alone."""

    def __init__(self, most):
        self.most, self.own = most, nn.Parameter(torch.ones(3))

    def prepare(self, network, data):
        return [{"params": [self.own]}]

    def __call__(self, network, batch):
        loss = super().__call__(network, batch)
        return loss + self.own.square().sum() if batch.values.shape[1] <= self.most else loss


def test_sizes_with_other_gradients_are_captured_again(monkeypatch):
    """What was captured with joined parameters does not know that their steps differ."""
    captured = []

    def run_at_once(work, forget, pool):
        work()
        work()
        forget()
        captured.append(made[-1].optimizer.joined)
        return work

    monkeypatch.setattr(step_module, "no_compiler", lambda device: None)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: None)
    monkeypatch.setattr(step_module, "capture", run_at_once)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    made = []
    data = packed(40)
    sizes = sorted({data.gather(e.index, e.box).values.shape[1] for e in examples(data)})
    assert len(sizes) > 1
    for kind in ("graph", "eager"):
        made.append(make_step(kind, data, Fitful(sizes[0])))
        for number in range(8):
            made[-1](made[-1].draws(number), number, 1e-3)
    graph, eager = made
    count = len(examples(data))
    assert len(captured) == 2 * count
    assert captured[0]
    assert not any(captured[count:])
    for mine, theirs in zip(graph.parameters, eager.parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
        state, expected = graph.optimizer.state[mine], eager.optimizer.state[theirs]
        assert state["step"] == expected["step"]


def examples(data):
    return list(Draws(data, SPEC, Training(batch=4)).examples())


def test_steps_of_the_trainer_are_joined():
    step = make_step("eager", stacked(), RelativeL2())
    for number in range(2):
        step(step.draws(number), number, 1e-3)
    state = step.optimizer.state.values()
    assert step.optimizer.joined
    assert len({entries["exp_avg"].untyped_storage().data_ptr() for entries in state}) == 1
    step.close()
    assert parted(step.parameters)


def test_torchs_own_step_is_seen_by_caches_too():
    pair = Pair()
    pair.differentiate(pair.mine, pair.own, torch.randn(4, 33))
    before = [p._version for p in pair.mine.parameters()]
    pair.optimizer.step()
    after = [p._version for p in pair.mine.parameters()]
    assert all(b > a for a, b in zip(before, after, strict=True))


def test_a_group_that_is_added_later_goes_the_ordinary_way():
    pair = Pair()
    late = nn.Parameter(torch.ones(3))
    pair.optimizer.add_param_group({"params": [late]})
    pair.differentiate(pair.mine, pair.own, torch.randn(4, 33))
    late.grad = torch.ones(3)
    assert pair.optimizer.gather() is None
    pair.optimizer.step()
    assert (late < 1).all()
