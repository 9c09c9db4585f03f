"""Parameters in one tensor are updated as torch updates them one by one."""

import copy

import pytest
import torch
from torch import nn

from ipot.device import recorded
from ipot.evaluation.evaluate import evaluate
from ipot.run_folder import Run
from ipot.training import checkpoint
from ipot.training.optimizer import Average, make_optimizer, set_rate
from ipot.training.settings import Training
from ipot.training.step import WARM_UP, Ledger, Snapshot
from training.toys import CPU, fit, model, stacked
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("joined", [True, False])
def test_coupled_decay_is_that_of_torchs_adam(joined, device):
    pair = Pair(clip=None, weight_decay=0.1, decay="coupled", device=device)
    if not joined:
        pair.optimizer.part()
    for _ in range(8):
        pair.step()
        pair.assert_same()
    assert pair.optimizer.joined == joined
    other = Pair(clip=None, weight_decay=0.1, device=device)
    for _ in range(8):
        other.step()
    assert not torch.allclose(pair.mine.wide.weight, other.mine.wide.weight)


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

    replay = recorded(work, rehearsals=WARM_UP, before=pair.optimizer.zero_grad)
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


def test_agrees_with_the_recursion_by_hand():
    network = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.constant_(network.weight, 0.0)
    average, mean = Average(network, 0.75), 0.0
    for count, value in enumerate((1.0, -2.0, 5.0, 0.5, 4.0, 4.0, 1.0, *[3.0] * 40), start=1):
        torch.nn.init.constant_(network.weight, value)
        average.update()
        decay = min(0.75, count / (count + 9))
        mean = decay * mean + (1 - decay) * value
        assert average.mean["weight"].item() == pytest.approx(mean, rel=1e-12)


def test_swapping_twice_changes_nothing():
    network = model()
    average = Average(network, 0.9)
    for p in network.parameters():
        p.data.add_(1.0)
    average.update()
    live = [p.clone() for p in network.parameters()]
    mean = [m.clone() for m in average.mean.values()]
    average.swap()
    for p, m in zip(network.parameters(), mean, strict=True):
        assert torch.equal(p, m)
    average.swap()
    for p, before in zip(network.parameters(), live, strict=True):
        assert torch.equal(p, before)
    for m, before in zip(average.mean.values(), mean, strict=True):
        assert torch.equal(m, before)


def test_validation_and_the_best_weights_use_the_average(tmp_path):
    result = fit(tmp_path, average=0.9, epochs=3, validate_every=3)
    run = Run(tmp_path)
    last, _ = checkpoint.load(run.last)
    average, live = (checkpoint.of_prefix(name, last) for name in ("average", "model"))
    best, state = checkpoint.load(run.best)
    assert average.keys() <= best.keys()
    for name, value in average.items():
        assert torch.equal(best[name], value)
    assert any(not torch.equal(live[name], average[name]) for name in average)

    network = model()
    checkpoint.load_weights(network, best, run.best)
    error = evaluate(network, stacked(4, seed=1), device=CPU).relative_l2
    assert error == pytest.approx(result.validation, rel=1e-6)
    assert state["validation"] == result.best_validation == result.validation


def test_averaging_does_not_touch_the_training_itself(tmp_path):
    fit(tmp_path / "plain", validate_every=1)
    fit(tmp_path / "averaged", validate_every=1, average=0.9)
    plain, averaged = (
        checkpoint.of_prefix("model", checkpoint.load(tmp_path / name / "last.safetensors")[0])
        for name in ("plain", "averaged")
    )
    assert all(torch.equal(plain[name], averaged[name]) for name in plain)
