"""Parameters in one tensor are updated as torch updates them one by one."""

import copy

import pytest
import torch
from torch import nn

from ipot.training import checkpoint
from ipot.training.capture import WARM_UP, Snapshot, capture
from ipot.training.ledger import Ledger
from ipot.training.settings import Training
from ipot.training.update import make_optimizer, set_rate
from training.toys import CPU
from training.twins import DEVICES, Pair, update


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
    kept = Snapshot([p for p, _ in pair.pairs()] + list(pair.ledger.buffers()), pair.optimizer)
    pair.differentiate(pair.mine, pair.own, torch.full((16, 33), torch.nan))
    update(pair.optimizer, pair.ledger)
    assert not pair.mine.wide.weight.isfinite().any()
    assert pair.ledger.fault == 1
    kept.restore()
    for _ in range(2):
        pair.step()
        pair.assert_same()
    assert pair.ledger.fault == -1


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
