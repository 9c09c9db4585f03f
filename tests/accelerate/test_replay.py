"""Questions that come back are captured; what is captured is not asked anew."""

import pytest
import torch

from ipot.accelerate import replay
from ipot.evaluation.predict import predict
from ipot.models.ipot import IPOT, Config
from ipot.samples import Batch
from ipot.spec import Spec

SPEC = Spec(name="none", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),) * 2)
SMALL = Config(latents=8, width=16, blocks=1, heads=2, cross_heads=2)


def question(n=30, seed=0):
    random = torch.Generator().manual_seed(seed)
    points, values = (torch.rand(1, n, k, generator=random) for k in (2, 1))
    return Batch(points=points, values=values, queries=torch.rand(1, 9, 2, generator=random))


@pytest.fixture
def counted(monkeypatch):
    """Capture without a GPU: a replay computes the answer anew, in place, and is counted."""
    calls = []

    def capture(batch, answer):
        inputs = {name: tensor.clone() for name, tensor in replay._tensors(batch).items()}
        out = torch.zeros(1, 1, 9, 1)

        def again():
            calls.append(1)
            out.copy_(answer(Batch(**inputs)))

        return inputs, out, again

    monkeypatch.setattr(replay, "_worth_it", lambda batch: True)
    monkeypatch.setattr(replay, "capture", capture)
    return calls


def ask(model, times, **options):
    answers = []
    for seed in range(times):
        batch = question(seed=seed, **options)
        with torch.inference_mode():
            exact = model(batch)
        answers.append(predict(model, batch))
        torch.testing.assert_close(answers[-1], exact)
    return answers


def test_after_some_patience_answers_come_from_a_graph(counted):
    model = IPOT(SMALL, SPEC).eval()
    ask(model, replay.PATIENCE)
    assert not counted
    answers = ask(model, 3)
    assert len(counted) == 3
    assert not torch.equal(answers[0], answers[1])  # not the graph's own memory


def test_other_sizes_and_other_weights_start_anew(counted):
    model = IPOT(SMALL, SPEC).eval()
    ask(model, replay.PATIENCE + 1)
    assert len(counted) == 1
    ask(model, 1, n=31)
    assert len(counted) == 1
    ask(model, replay.PATIENCE + 1)
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    before = len(counted)
    ask(model, 1)
    assert len(counted) == before


def test_what_cannot_be_captured_goes_on_as_before(counted, monkeypatch):
    tries = []

    def refuse(batch, answer):
        tries.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "capture", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.warns(UserWarning, match="not captured"):
        ask(IPOT(SMALL, SPEC).eval(), replay.PATIENCE + 4)
    assert len(tries) == 1


def test_a_graph_that_does_not_fit_is_done_without(counted, monkeypatch):
    model, tries = IPOT(SMALL, SPEC).eval(), []

    def full(batch, answer):
        tries.append(1)
        with monkeypatch.context() as during:
            during.setattr(IPOT, "encode", lambda *given: _raise(torch.OutOfMemoryError("full")))
            return answer(batch)

    monkeypatch.setattr(replay, "capture", full)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.warns(UserWarning, match="not captured, only slower for it: full"):
        ask(model, replay.PATIENCE + 4)
    assert len(tries) == 1


def _raise(error):
    raise error


def test_nothing_is_kept_on_a_cpu():
    model = IPOT(SMALL, SPEC).eval()
    ask(model, replay.PATIENCE + 2)
    assert model not in replay._seen


def test_a_model_can_be_forgotten(counted):
    model = IPOT(SMALL, SPEC).eval()
    ask(model, 2)
    replay.forget(model)
    assert model not in replay._seen


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
def test_graph_equals_the_model_on_a_gpu():
    model = IPOT(SMALL, SPEC).eval().cuda()
    for seed in range(replay.PATIENCE + 3):
        batch = question(seed=seed).to("cuda")
        with torch.inference_mode():
            exact = model(batch)
        torch.testing.assert_close(predict(model, batch), exact, rtol=1e-3, atol=1e-4)
    assert replay._seen[model].graph is not None


def test_other_devices_and_untracked_weights_are_not_replayed(counted, monkeypatch):
    monkeypatch.undo()  # the real `_worth_it`
    assert not replay._worth_it(question())  # on a CPU
    with torch.inference_mode():
        model = IPOT(SMALL, SPEC).eval()
    assert replay._key(model, question()) is None
    monkeypatch.setattr(replay, "_worth_it", lambda batch: True)
    assert ask(model, 1)


class Unknown(torch.nn.Module):
    """A layer with a weight that nobody knows."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.factor = inner, torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.factor * self.inner(x)


def test_a_model_with_an_unknown_layer_is_not_replayed(counted):
    model = IPOT(SMALL, SPEC).eval()
    model.decoder.head[1] = Unknown(model.decoder.head[1])
    ask(model, replay.PATIENCE + 2)
    assert not counted
    assert model not in replay._seen


def test_a_hook_is_still_called(counted):
    model, called = IPOT(SMALL, SPEC).eval(), []
    ask(model, 2)  # found to be one that repeats
    model.decoder.register_forward_hook(lambda *given: called.append(1))
    ask(model, replay.PATIENCE)
    assert not counted
    assert len(called) >= replay.PATIENCE


def test_all_models_of_known_layers_repeat_and_others_do_not():
    from contracts.cases import CASES

    case = CASES["grid"]()
    for name in ("ipot", "transformer", "perceiver_io"):
        assert replay.repeats(case.build(name, {})), name
    for name in ("relay", "dino", "deeponet"):  # the first searches for neighbours
        assert not replay.repeats(case.build(name, {})), name
