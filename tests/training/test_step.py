"""What a step does, and that all ways to run it are the same mathematics."""

import json
import time

import pytest
import torch

from ipot.evaluation.evaluate import evaluate
from ipot.nn.attention import AttentionBlock
from ipot.training import checkpoint, step
from ipot.training.draws import Draw
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import JoinedAdamW, make_optimizer, set_rate
from ipot.training.settings import Training
from ipot.training.step import Ledger
from training.test_fallback import make, model
from training.toys import CPU, contents, fit, stacked


@pytest.mark.parametrize("joined", [True, False])
def test_clipping_bounds_the_gradient(tmp_path, monkeypatch, joined):
    """Behind one step the first moment is a tenth of the gradient."""
    if not joined:
        monkeypatch.setattr(JoinedAdamW, "join", lambda self, beside: None)
    norms = {}
    for clip in (None, 1e-3):
        path = tmp_path / str(clip)
        fit(path, clip=clip, epochs=1, batch=12)
        last, state = checkpoint.load(path / "last.safetensors")
        assert state["step"] == 1
        moments = [t.flatten() for name, t in last.items() if name.endswith("/exp_avg")]
        norms[clip] = 10 * torch.cat(moments).norm().item()
    assert norms[None] > 1e-2
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-2)


class Weighted(RelativeL2):
    """The loss by a weight that is learnt beside it: its gradient is a view of the loss's own."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def prepare(self, model, data):
        return [{"params": [self.weight]}]

    def __call__(self, model, batch):
        return super().__call__(model, batch) + self.weight.view(())


@pytest.mark.parametrize("joined", [True, False])
def test_clipping_leaves_the_gradient_of_the_loss_alone(tmp_path, monkeypatch, joined):
    """It is kept from step to step."""
    if not joined:
        monkeypatch.setattr(JoinedAdamW, "join", lambda self, beside: None)
    kept, known = [], step.Step._update
    monkeypatch.setattr(
        step.Step, "_update", lambda self, loss: (known(self, loss), kept.append(self._one.item()))
    )
    fit(tmp_path, objective=Weighted(), clip=0.5, epochs=2)
    assert kept == [1.0] * len(kept)
    assert len(kept) > 3


@pytest.mark.parametrize(("clip", "expected"), [(None, 1.0), (10.0, 1.0), (2.5, 2.0), (0.5, 10.0)])
def test_gradients_are_never_made_larger(clip, expected):
    ledger = Ledger(clip, CPU)
    divisor = ledger(torch.tensor(0.7), torch.tensor([3.0, 4.0]))
    assert divisor.item() == pytest.approx(expected, rel=1e-5)
    assert ledger.read() == (pytest.approx(0.7), -1)
    assert ledger.read() == (0.0, -1)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_the_first_loss_that_is_not_finite_is_noted(bad):
    """Though its gradient be finite; later ones say nothing new."""
    ledger = Ledger(None, CPU)
    for loss in (0.5, 0.25, bad, 1.0, -bad):
        ledger(torch.tensor(loss), torch.ones(3))
        if loss == 0.25:
            assert ledger.fault == -1
    assert ledger.fault == 2


def test_a_group_of_the_objective_has_a_rate_of_its_own(tmp_path):
    layer, own = torch.nn.Linear(2, 1), torch.nn.Parameter(torch.ones(3))
    layer.bias.requires_grad_(False)
    groups = [{"params": [own], "factor": 20.0}]
    optimizer = make_optimizer(layer, Training(learning_rate=0.5), groups, CPU)
    assert [g["params"] for g in optimizer.param_groups] == [[layer.weight], [own]]
    for base in (0.5, 0.01):
        set_rate(optimizer, base)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([base, 20 * base])
    # Where rates are tensors, as on a GPU, each is filled and none replaced.
    rates = [torch.tensor(0.0), torch.tensor(0.0)]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    set_rate(optimizer, 0.1)
    assert [r.item() for r in rates] == pytest.approx([0.1, 2.0])
    assert all(g["lr"] is r for g, r in zip(optimizer.param_groups, rates, strict=True))


class Moved(RelativeL2):
    """Two numbers of its own with the same gradient, one at a tenth of the rate."""

    def __init__(self):
        self.fast, self.slow = (torch.nn.Parameter(torch.zeros(())) for _ in range(2))

    def prepare(self, network, data):
        return [{"params": [self.fast]}, {"params": [self.slow], "factor": 0.1}]

    def __call__(self, network, batch):
        return super().__call__(network, batch) + self.fast + self.slow


def test_a_factor_holds_through_a_run_and_its_schedule(tmp_path):
    moved = Moved()
    fit(tmp_path, objective=moved, weight_decay=0.0, epochs=3)
    assert moved.fast < 0
    assert moved.slow.item() == pytest.approx(0.1 * moved.fast.item(), rel=1e-3)


def slow_start(monkeypatch, seconds):
    """Let the first step of a run take its time, as compiling does."""
    work = step.Step.__call__

    def slowly(self, batch, number, rate):
        if number == 0:
            time.sleep(seconds)
        work(self, batch, number, rate)

    monkeypatch.setattr(step.Step, "__call__", slowly)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_what_the_first_step_takes_to_compile_is_not_training(tmp_path, monkeypatch, mode):
    slow_start(monkeypatch, 0.5)
    began = time.monotonic()
    with torch.compiler.set_stance("force_eager"):  # the clock alone is looked at
        result = fit(tmp_path, step=mode)
    whole = time.monotonic() - began
    assert result.step_kind == mode
    if mode == "eager":
        assert result.setup_seconds == 0
        assert result.seconds > 0.5
    else:
        assert 0.5 <= result.setup_seconds < whole
        assert result.seconds < whole - 0.5
    assert json.loads((tmp_path / "result.json").read_text())["setup_seconds"] == (
        result.setup_seconds
    )


def test_a_run_boxed_by_time_is_not_charged_for_compiling(tmp_path, monkeypatch):
    slow_start(monkeypatch, 1.0)
    with torch.compiler.set_stance("force_eager"):
        result = fit(tmp_path, step="compiled", epochs=10_000, minutes=0.5 / 60)
    assert result.setup_seconds >= 1
    assert result.seconds >= 0.5
    assert result.steps > 1


@pytest.mark.compile
def test_compiled_agrees_with_eager(tmp_path, monkeypatch):
    """Blocks to the end, in C++; of all regions that would be 57 files, and a minute and a half."""
    known = torch.nn.Module.compile

    def quickly(self, **options):
        backend = "inductor" if isinstance(self, AttentionBlock) else "aot_eager"
        known(self, **options, backend=backend)

    monkeypatch.setattr(torch.nn.Module, "compile", quickly)
    for mode in ("eager", "compiled"):
        result = fit(tmp_path / mode, step=mode, epochs=10, batch=12, validate_every=5)
        assert (result.step_kind, result.steps) == (mode, 10)
    (eager, _, said), (compiled, _, also) = (contents(tmp_path / k) for k in ("eager", "compiled"))
    for name in eager:
        torch.testing.assert_close(compiled[name], eager[name], atol=1e-4, rtol=1e-3)
    for mine, theirs in zip(said["rows"], also["rows"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], abs=1e-4)


def test_a_replay_is_seen_by_whoever_keeps_something_made_from_the_weights():
    """A captured step changes weights behind torch's back."""
    weight, told = torch.nn.Parameter(torch.ones(3)), []
    one = step.Step.__new__(step.Step)
    one.mode, one.parameters, one.horizon = "graph", [weight], None
    draw = Draw(torch.zeros(2, dtype=torch.long))
    one._graphs = {(draw.sizes, None): (draw, lambda: told.append(weight._version))}
    one._run(draw)
    assert told == [0]
    assert weight._version > 0


def test_the_gradient_of_a_loss_is_one_at_every_step(tmp_path, monkeypatch):
    """It is kept from step to step, and what is added to a loss is given the very same tensor:
    clipping must not reach it."""
    monkeypatch.setattr(JoinedAdamW, "join", lambda self, beside: None)
    work, seen = step.Step._work, []

    def watched(self, batch):
        work(self, batch)
        seen.append((id(self._one), self._one.item()))

    monkeypatch.setattr(step.Step, "_work", watched)
    fit(tmp_path, objective=Moved(), clip=1e-3, epochs=2)
    assert len(seen) > 2
    assert set(seen) == {(seen[0][0], 1.0)}


def test_a_layer_that_is_not_training_stays_so_for_a_run(tmp_path):
    """Through training, validations and scores; a model that is not training at all is trained."""
    network = model()
    network.inner.decoder.eval()
    fit(tmp_path / "one", network=network, epochs=2)
    evaluate(network, stacked())
    assert not any(layer.training for layer in network.inner.decoder.modules())
    assert network.training
    assert all(layer.training for layer in network.inner.processor.modules())
    whole = model().eval()
    fit(tmp_path / "other", network=whole, epochs=1)
    assert all(layer.training for layer in whole.modules())


def test_a_layer_that_is_not_training_stays_so():
    """Beside others that are, in the accelerated twin as in the model."""
    network = model().eval()
    one, _ = make("eager", network=network)
    twin = one.model
    assert twin is not network
    assert not twin.inner.decoder.training
    network.train()
    network.inner.decoder.eval()
    one(one.draws(0), 0, 1e-3)
    for name, layer in twin.named_modules():
        assert layer.training == (not name.startswith("inner.decoder")), name
    assert not any(layer.training for layer in network.inner.decoder.modules())
