"""A step with what a fixed mesh gives is the step without it, and nothing of it is left behind."""

import copy
import pickle
import weakref
from dataclasses import replace

import pytest
import torch
from ipot.nn.paths import attention_path
from ipot.training.fixed import FixedMesh
from torch import nn
from training.toys import CPU, SPEC, TINY, model, packed, ragged, stacked

from ipot.data.dataset import Stacked
from ipot.errors import DataError
from ipot.models import _attentive
from ipot.models.transformer import Config as TransformerConfig
from ipot.models.transformer import Transformer
from ipot.nn import fourier
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Step

PLAIN = replace(TINY, lifted=False, decoder="narrow", local=False)
CONFIGS = {"lifted": TINY, "plain": PLAIN}


def shuffled(network):
    """With norms that are not at their start, where their affine part does nothing."""
    torch.manual_seed(1)
    for layer in network.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.normal_(layer.weight, 1.0, 0.5)
            nn.init.normal_(layer.bias)
    return network


def parts(config=PLAIN, *, data=None, dtype=torch.float64, **settings):
    """A model, and the draws that it is trained by."""
    data = (data or stacked()).astype(dtype)
    network = shuffled(model(config=config)).to(dtype)
    return network, Draws(data, SPEC, Training(**{"batch": 4, **settings}))


def loss_and_gradients(network, draws, number=0):
    network.zero_grad()
    loss = RelativeL2()(network, draws.gather(draws(number)))
    loss.backward()
    # A norm of one channel leaves nothing of its input, and its scale has no gradient.
    found = (torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters())
    return [loss.detach(), *(gradient.clone() for gradient in found)]


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)


def keeps(network):
    return [
        part.position.keeps is not None for part in (network.inner.encoder, network.inner.decoder)
    ]


@pytest.fixture
def computed(monkeypatch):
    """How many points features are computed for, each time."""
    counts, compute = [], fourier.FourierFeatures._in_place

    def counted(self, x):
        counts.append(x.shape[-2])
        return compute(self, x)

    monkeypatch.setattr(fourier.FourierFeatures, "_in_place", counted)
    return counts


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("settings", [{}, {"augment": True}, {"batch": 1}])
def test_loss_and_gradients_are_those_of_a_step_without(computed, name, settings):
    network, draws = parts(CONFIGS[name], **settings)
    expected = loss_and_gradients(network, draws)
    fixed = FixedMesh(network, draws, cast=False)
    assert keeps(network) == [True, True]
    computed.clear()
    for _ in range(2):
        assert_close(loss_and_gradients(network, draws), expected)
    assert computed == []
    fixed.release()
    assert keeps(network) == [False, False]
    assert_close(loss_and_gradients(network, draws), expected)
    assert computed == [12, 12]


def test_a_model_with_parameters_and_one_without_inducing_points():
    spec = replace(SPEC, parameters=("p",))
    data = stacked().data
    data = Stacked(replace(data, parameters=torch.rand(data.size, 1))).astype(torch.float64)
    draws = Draws(data, spec, Training(batch=4))
    sizes = {"width": 16, "blocks": 1, "heads": 2, "cross_heads": 2, "bins": (3,)}
    config = TransformerConfig(**sizes, lifted=False, decoder="narrow", local=False)
    other = Transformer(config, SPEC).double()
    cases = [(shuffled(model(spec, PLAIN)).double(), draws), (other, parts()[1])]
    for network, of in cases:
        expected = loss_and_gradients(network, of)
        FixedMesh(network, of, cast=False)
        assert_close(loss_and_gradients(network, of), expected)


def test_by_the_book_nothing_is_taken_from_what_is_kept():
    network, draws = parts()
    expected = loss_and_gradients(network, draws)
    FixedMesh(network, draws, cast=False)
    for part in (network.inner.encoder, network.inner.decoder):
        part.position.keeps.operand.zero_()
    assert not torch.allclose(loss_and_gradients(network, draws)[0], expected[0])
    with attention_path("plain"):
        assert_close(loss_and_gradients(network, draws), expected)
    with torch.no_grad():
        loss = RelativeL2()(network, draws.gather(draws(0)))
    torch.testing.assert_close(loss, expected[0])


@pytest.mark.parametrize("name", CONFIGS)
def test_rounded_for_autocast_it_is_as_exact(name):
    network, draws = parts(CONFIGS[name], dtype=torch.float32)
    exact = loss_and_gradients(network, draws)

    def off():
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            found = loss_and_gradients(network, draws)
        size = sum(e.square().sum() for e in exact)
        return (
            sum((f - e).square().sum() for f, e in zip(found, exact, strict=True)) / size
        ).sqrt()

    before = off()
    FixedMesh(network, draws, cast=True)
    kept = network.inner.encoder.position.keeps
    assert kept.operand.dtype == torch.bfloat16
    # Beside values, before a norm, nothing is rounded.
    assert [t.dtype for t in (kept.features, kept.sums) if t is not None] == (
        [torch.float32] * 2 if name == "plain" else []
    )
    assert off() < 1.5 * before < 0.1
    # A step that is not rounded does not take what is.
    assert_close(loss_and_gradients(network, draws), exact, 1e-5)


def test_layers_with_hooks_are_called_as_modules():
    network, draws = parts()
    expected, seen = loss_and_gradients(network, draws), []
    FixedMesh(network, draws, cast=False)
    queries, inputs = network.inner.decoder.block.attend, network.inner.encoder.block.attend
    hooked = [inputs.norm_context, inputs.to_key_value, queries.norm, queries.to_query]
    for layer in hooked:
        layer.register_forward_hook(lambda module, given, out: seen.append(module))
    assert_close(loss_and_gradients(network, draws), expected)
    assert seen == hooked


def scattered():
    """A mesh that is no grid: a symmetry moves it."""
    return Stacked(replace(stacked().data, grid=None, query_grid=None))


def one_each():
    """Every sample with points of its own."""
    data = stacked().data
    return Stacked(replace(data, points=data.points.repeat(data.size, 1, 1)))


@pytest.mark.parametrize(
    ("expected", "data", "settings"),
    [
        ([True, True], scattered(), {}),
        ([False, False], scattered(), {"augment": True}),
        ([False, True], stacked(), {"points": 0.5}),
        ([True, False], stacked(), {"queries": 0.5}),
        ([False, True], one_each(), {}),
        ([False, False], stacked(1), {}),
        ([False, False], ragged(), {}),
        ([False, False], packed(), {}),
    ],
)
def test_nothing_is_kept_of_what_changes(expected, data, settings):
    network, draws = model(config=PLAIN), Draws(data, SPEC, Training(batch=4, **settings))
    FixedMesh(network, draws, cast=False)
    assert keeps(network) == expected


def test_nothing_is_kept_that_is_too_large_or_that_does_not_tell_of_changes(monkeypatch):
    network, draws = parts()
    # Twelve points with six features, in float64 and rounded.
    monkeypatch.setattr(_attentive, "MOST_KEPT", 12 * 6 * 10 - 1)
    FixedMesh(network, draws, cast=False)
    assert keeps(network) == [False, False]
    monkeypatch.setattr(_attentive, "MOST_KEPT", 12 * 6 * 10)
    data = draws.data.data
    with torch.inference_mode():
        points = data.points.clone()
    other = Stacked(replace(data, points=points), check=False)
    FixedMesh(network, Draws(other, SPEC, draws.settings), cast=False)
    assert keeps(network) == [False, True]


def test_points_of_another_dimension_are_left_to_who_refuses_them():
    network, _ = parts()
    data = stacked().astype(torch.float64).data
    flat = Stacked(replace(data, points=data.points.expand(-1, -1, 2)))
    draws = Draws(flat, SPEC, Training(batch=4))
    FixedMesh(network, draws, cast=False)
    assert keeps(network) == [False, True]
    with pytest.raises(DataError):
        loss_and_gradients(network, draws)


def test_memory_is_freed_at_the_end():
    network, draws = parts()
    fixed = FixedMesh(network, draws, cast=False)
    kept = [weakref.ref(position.keeps.operand) for position in fixed.positions]
    loss_and_gradients(network, draws)
    network.float()  # whatever was captured before still reads it
    assert keeps(network) == [False, False]
    assert None not in [ref() for ref in kept]
    fixed.release()
    assert [ref() for ref in kept] == [None, None]


def test_a_model_that_keeps_nothing_is_left_alone():
    other = nn.Linear(2, 1)
    fixed = FixedMesh(other, parts()[1], cast=False)
    fixed.renew()
    fixed.release()
    assert fixed.positions == []


def test_points_that_are_changed_in_place_are_never_mistaken():
    network, draws = parts()
    fixed = FixedMesh(network, draws, cast=False)
    places = [k.operand.data_ptr() for k in (p.keeps for p in fixed.positions)]
    data = draws.data.data
    for change in (lambda: None, fixed.renew):  # by who asks, or by who runs the steps
        data.points.mul_(0.7)
        data.queries.mul_(0.8)
        change()
        fresh = copy.deepcopy(network)
        assert keeps(fresh) == [False, False]
        expected = loss_and_gradients(fresh, draws)
        assert_close(loss_and_gradients(network, draws), expected)
    assert places == [p.keeps.operand.data_ptr() for p in fixed.positions]


def test_a_captured_step_finds_what_changed_points_give_where_it_lies():
    network, draws = parts()
    fixed = FixedMesh(network, draws, cast=False)
    kept = [position.keeps for position in fixed.positions]
    draws.data.data.points.mul_(0.7)
    draws.data.data.queries.mul_(0.8)
    fixed.renew()
    FixedMesh(network, draws, cast=False)
    for old, position in zip(kept, fixed.positions, strict=True):
        assert position.keeps is not old
        torch.testing.assert_close(old.operand, position.keeps.operand)


def test_the_weights_and_copies_do_not_know_of_it():
    network, draws = parts()
    names = list(network.state_dict())
    fixed = FixedMesh(network, draws, cast=False)
    assert list(network.state_dict()) == names
    for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert keeps(copied) == [False, False]
        found = loss_and_gradients(copied, draws)
        assert_close(found, loss_and_gradients(network, draws))
    assert keeps(network) == [True, True]
    fixed.release()


def steps(kind, *, fix, config=PLAIN, poison=False):
    """The weights after three steps, with what a mesh gives kept or not, and the sum of losses."""
    network, draws = parts(config)
    settings = replace(draws.settings, step=kind)
    step = Step(
        network,
        RelativeL2(),
        make_optimizer(network, settings, [], CPU),
        draws,
        settings,
        device=CPU,
        precision="float64",
        mode=kind,
        world=World(),
    )
    fixed = FixedMesh(network, draws, cast=False) if fix else None
    for number in range(3):
        if fixed:
            fixed.renew()
        if poison and number == 2:
            for position in fixed.positions:
                position.keeps.operand.zero_()
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            step(draws(number), number, 1e-3)
    if fixed:
        fixed.release()
    step.close()
    assert step.mode == kind
    return [step.loss_sum.clone(), *(p.detach().clone() for p in network.parameters())]


@pytest.mark.parametrize("name", CONFIGS)
def test_eager_steps_are_the_same(name):
    expected = steps("eager", fix=False, config=CONFIGS[name])
    assert_close(steps("eager", fix=True, config=CONFIGS[name]), expected)


@pytest.mark.compile
@pytest.mark.usefixtures("traced_only")
@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_steps_are_the_same_and_compiled_once(name):
    expected = steps("eager", fix=False, config=CONFIGS[name])
    torch._dynamo.reset()
    assert_close(steps("compiled", fix=True, config=CONFIGS[name]), expected)
    torch._dynamo.reset()
    poisoned = steps("compiled", fix=True, config=CONFIGS[name], poison=True)
    assert not torch.allclose(poisoned[0], expected[0], rtol=1e-6)


@pytest.mark.compile
def test_compiled_regions_see_other_points_and_changes():
    torch._dynamo.reset()
    network, draws = parts()
    fixed = FixedMesh(network, draws, cast=False)
    for region in network.regions():
        region.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    plain = copy.deepcopy(network)
    for region in plain.regions():
        region._compiled_call_impl = None
    data = draws.data.data
    other = Draws(Stacked(replace(data, points=1 - data.points)), SPEC, draws.settings)
    for of in (draws, other, draws):
        assert_close(loss_and_gradients(network, of), loss_and_gradients(plain, of))
    data.points.mul_(0.7)
    data.queries.mul_(0.8)
    assert_close(loss_and_gradients(network, draws), loss_and_gradients(plain, draws))
    fixed.release()
    assert_close(loss_and_gradients(network, draws), loss_and_gradients(plain, draws))
