"""What `accelerate` promises of any model: the same parameters, a model that is left as it was, and
layers that somebody has changed are called as they are."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate, chunks, for_answers, unchanged
from ipot.accelerate import attention as ways
from ipot.accelerate.layers import QUICKER
from ipot.accelerate.operators import encode, passes, regions
from ipot.accelerate.twins import Accelerated
from ipot.evaluation.predict import predict
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.nn.attention import (
    AttentionBlock,
    GatedFeedForward,
    MultiHead,
    NoFeedForward,
    RawSelfAttention,
)
from ipot.nn.latent import InducingPoints, Processor, QueryDecoder
from ipot.nn.points import FourierFeatures
from ipot.spec import Spec

from .models import DECODERS, batch_for, build, distance, make_spec, numbers, shuffled

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Sizes do not decide."""
    monkeypatch.setattr(ways, "FEW", 0)


def call(model, batch):
    return model(batch)


def assert_same(model, batch, *, learn=(True, False), attention=("auto",), most=1e-3):
    """An accelerated model gives the numbers of the model."""
    for trained in learn:
        exact = numbers(model, batch, learn=trained, answer=call)
        for path in attention:
            quick = accelerate(model, training=trained, attention=path)
            off = distance(numbers(quick, batch, learn=trained, answer=call), exact)
            assert max(off.values()) < most, (trained, path, max(off, key=off.get))


def snapshot(model):
    """All that a model is: classes, attributes, hooks and numbers."""
    return [
        (
            type(m),
            {k: id(v) for k, v in vars(m).items()},
            *map(list, (m._modules, m._forward_hooks)),
        )
        for m in model.modules()
    ], {k: v.clone() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("training", [True, False])
def test_parameters_are_the_same_objects_and_the_model_is_left_alone(training):
    model = build(outside="normalized", parameters=True)
    batch, (before, state) = batch_for(model, shared=True), snapshot(model)
    quick = accelerate(model, training=training)
    with torch.no_grad():
        quick(batch)
    assert snapshot(model)[0] == before
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    for of in (nn.Module.named_parameters, nn.Module.named_buffers):
        assert [(n, id(t)) for n, t in of(quick)] == [(n, id(t)) for n, t in of(model)]
    assert list(quick.state_dict()) == list(model.state_dict())
    assert isinstance(quick, type(model))
    assert (quick.name, quick.spec, quick.config) == (model.name, model.spec, model.config)
    assert any(isinstance(m, Accelerated) for m in quick.modules())
    assert not any(isinstance(m, Accelerated) for m in model.modules())


def layers():
    """Each layer of the full model, and of the others those that differ from it."""
    known = {}
    for decoder in DECODERS:
        for name, layer in build(decoder=decoder).named_modules():
            if name and known.get(name) != (said := repr(layer)):
                known.setdefault(name, said)
                yield decoder, name


REGISTERED = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


@pytest.mark.parametrize(("decoder", "name"), list(layers()))
def test_a_hook_on_any_layer_is_called_and_changes_nothing(decoder, name):
    """With the module itself; one that changes what a layer gives changes the answer alike."""
    model = build(decoder=decoder)
    batch, layer, seen = batch_for(model, shared=True, times=(1.0, 2.0)), None, []
    layer = model.get_submodule(name)

    def note(module, *rest):
        seen.append(module is layer)

    asked = name in ("decoder.head", "processor") or not isinstance(layer, nn.ModuleList)
    for register in REGISTERED[: 2 if isinstance(layer, InducingPoints) else 4]:
        handle = getattr(layer, register)(note)
        seen.clear()
        assert_same(model, batch, learn=(True,))
        wanted = 0 if not asked else 2  # by the model, and by its twin
        assert len(seen) >= wanted
        assert all(seen)
        handle.remove()
    layer.register_forward_hook(lambda module, given, out: 1.5 * out)
    assert_same(model, batch)


class Flipped(AttentionBlock):
    def forward(self, *given):
        return super().forward(*given).flip(-1)


class Sharper(MultiHead):
    def forward(self, query, context=None, mask=None):
        return 2 * super().forward(1.5 * query, context, mask)


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *given):
        return 2 * self.inner(*given)


def _another_class(model):
    for block in (model.processor[0], model.encoder.block):
        block.__class__ = Flipped
    for block in (model.processor[1], model.decoder.block):
        block.attend.__class__ = Sharper


def _wrapped(model):
    model.processor[0].feed_forward = Doubled(model.processor[0].feed_forward)
    model.processor[1].attend.to_out = Doubled(model.processor[1].attend.to_out)
    model.encoder.block.attend.norm_context = Doubled(model.encoder.block.attend.norm_context)
    model.decoder.block.attend.to_query = Doubled(model.decoder.block.attend.to_query)


def _positions(model):
    model.encoder.position = Doubled(model.encoder.position)
    known = model.decoder.position.forward
    model.decoder.position.forward = lambda x: 2 * known(x)


def _own_forward(model):
    for part in (model.processor[0], model.encoder.block.attend, model.decoder.block.attend.norm):
        part.forward = lambda *given, known=part.forward: known(*given).flip(-1)


def _own_step(model):
    known = model.processor.roll
    model.processor.roll = lambda *given: [state.flip(-1) for state in known(*given)]


def _norms(missing):
    def change(model):
        for name, part in list(model.named_modules()):
            if isinstance(part, nn.LayerNorm) and "head" not in name:
                made = nn.LayerNorm(part.normalized_shape, eps=0.1, **missing)
                model.set_submodule(name, made)

    return change


def _no_biases(model):
    for name, part in list(model.named_modules()):
        if isinstance(part, nn.Linear):
            model.set_submodule(name, nn.Linear(part.in_features, part.out_features, bias=False))


def _some_biases(model):
    for part in model.modules():
        if isinstance(part, MultiHead):
            part.to_key_value.bias = nn.Parameter(torch.randn(part.to_key_value.out_features))


def _frozen(model):
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.requires_grad_(False)


def _weight_norm(model):
    for part in (model.processor[0].attend, model.decoder.block.attend, model.encoder.block.attend):
        nn.utils.parametrizations.weight_norm(part.to_key_value)


def _compiled(model):
    model.processor[0]._compiled_call_impl = lambda *given: given[0] * 3


def _attributes(model):
    model.decoder.scale, model.processor.repeats = 2.0, 3
    model.encoder.block.residual = False


def _authors(model):
    for block in model.processor:
        block.attend.__class__ = RawSelfAttention
    model.encoder.block.feed_forward = NoFeedForward()


def _shared(model):
    model.processor[1] = model.processor[0]
    model.decoder.position = model.encoder.position


def _own_new(model):
    class Own(nn.Module):
        def __new__(cls, block):
            return super().__new__(cls)

        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, *given):
            return 2 * self.block(*given)

    model.processor[0] = Own(model.processor[0])


CHANGES = {
    "another class": _another_class,
    "wrapped layers": _wrapped,
    "other positions": _positions,
    "a forward of its own": _own_forward,
    "steps of its own": _own_step,
    "norms without a shift": _norms({"bias": False}),
    "norms without anything": _norms({"elementwise_affine": False}),
    "norms with another epsilon": _norms({}),
    "no biases": _no_biases,
    "biases of keys alone": _some_biases,
    "frozen norms": _frozen,
    "parametrized": _weight_norm,
    "compiled by itself": _compiled,
    "other attributes": _attributes,
    "what the authors leave out": _authors,
    "shared layers": _shared,
    "a constructor of its own": _own_new,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_layers_that_somebody_changed_do_what_they_do(decoder, change):
    model = build(decoder=decoder, outputs=1)
    batch = batch_for(model, shared=True, times=(1.0, 2.0))
    assert_same(model, batch, learn=(False,))
    before = predict(model, batch)
    change(model)
    after = model(batch)
    assert change in (_frozen, _weight_norm) or not torch.allclose(after, before, rtol=1e-3)
    torch.testing.assert_close(predict(model, batch), after, rtol=1e-3, atol=1e-4)
    assert_same(model, batch)


def test_unchanged_names_what_passes():
    model = build()
    assert unchanged(model) == []
    assert unchanged(nn.Sequential(model, nn.Linear(2, 2))) == ["1"]
    model.processor[0].forward = model.processor[0].forward
    assert "processor.0.attend.to_out" in unchanged(model)
    assert not any(name.startswith("processor.1") for name in unchanged(model))


@pytest.mark.parametrize(("first", "second"), [(True, True), (False, True), (True, False)])
def test_accelerating_twice_is_harmless(first, second):
    model = build(parameters=True)
    batch, once = batch_for(model, masked=True), accelerate(model, training=first)
    twice = accelerate(once, training=second)
    assert all(m.target.training == second for m in twice.modules() if isinstance(m, Accelerated))
    exact = numbers(model, batch, learn=second, answer=call)
    off = distance(numbers(twice, batch, learn=second, answer=call), exact)
    assert max(off.values()) < 1e-4


def test_a_model_accelerated_for_answers_still_has_its_gradients():
    model = build()
    batch = batch_for(model, shared=True)
    exact = numbers(model, batch, learn=True, answer=call)
    off = distance(numbers(accelerate(model), batch, learn=True, answer=call), exact)
    assert max(off.values()) < 1e-4


def test_a_layer_in_two_places_is_one_layer():
    model = build()
    _shared(model)
    quick = accelerate(model)
    assert quick.processor[1] is quick.processor[0] is not model.processor[0]
    assert quick.decoder.position is quick.encoder.position
    assert len(list(quick.modules())) == len(list(model.modules()))


def test_a_model_without_numbers_and_one_of_nothing_known_pass():
    for model in (nn.Sequential(nn.Identity()), nn.Linear(2, 2)):
        assert accelerate(model) is model
        assert for_answers(model) is model


# Two encoders, of a model that nobody has heard of.

SLOPE = torch.linspace(-1, 1, 16)
"""Of channels: of the same number in all of them a norm leaves nothing."""


class Two(LatentOperator):
    """Points and values by one encoder, values of another sign by the other."""

    def __init__(self, spec):
        super().__init__(None, spec)
        sizes = {"channels": 2, "parameters": 0, "heads": 2, "lifted": True}
        self.one, self.other = (InducingPoints(4, 16, self._waves(), **sizes) for _ in range(2))
        self.processor = Processor(16, blocks=1, heads=2, multiplier=1)
        self.decoder = QueryDecoder(16, 2, self._waves(), lifted=True, full=True, heads=2)

    def _waves(self):
        return FourierFeatures((2, 2), (4.0, 4.0))

    def encode(self, batch):
        given = batch.points, batch.values, None, batch.point_mask
        return Latent(self.one(*given) + self.other(*given))

    def step(self, latent):
        return Latent(self.processor(latent.state))

    def decode(self, latent, queries):
        return self.decoder(latent.state, queries)


class Touching(Two):
    """It looks at its inputs before they are encoded."""

    def encode(self, batch):
        mask = batch.point_mask & (batch.values[..., 0] < 9)
        values = batch.values + batch.points.mean()
        return Latent(self.one(batch.points, values, None, mask) + self.other.latents)


class Masked(Two):
    """It looks at the mask alone."""

    def encode(self, batch):
        state = super().encode(batch).state
        return Latent(state if batch.point_mask is None else state + batch.point_mask.sum() * SLOPE)


class Numbered(Two):
    """It takes parameters apart from the points."""

    def encode(self, batch):
        return Latent(super().encode(batch).state + batch.parameters.sum(-1)[:, None, None] * SLOPE)


class Partly(Two):
    """One encoder sees neither mask nor parameters, the other sees these doubled."""

    def __init__(self, spec):
        super().__init__(spec)
        sizes = {"channels": 2, "parameters": 2, "heads": 2, "lifted": True}
        self.other = InducingPoints(4, 16, self._waves(), **sizes)

    def encode(self, batch):
        given = batch.points, batch.values
        one, other = self.one(*given), self.other(*given, 2 * batch.parameters, batch.point_mask)
        return Latent(one + other)


@pytest.mark.parametrize("kind", [Two, Touching, Masked, Numbered, Partly])
def test_a_new_model_of_the_same_layers_needs_no_line_of_its_own(kind, monkeypatch):
    from ipot.data.statistics import Statistics
    from ipot.models._wrappers import wrap

    spec = make_spec(parameters=kind in (Numbered, Partly))
    torch.manual_seed(0)
    scales = Statistics.identity(2, 2, len(spec.parameters)).tensors()
    model = wrap(shuffled(kind(spec)), Statistics(**{k: v + 0.5 for k, v in scales.items()}))
    batch = batch_for(model, masked=True, times=(1.0, 3.0))
    assert_same(model, batch, attention=("auto", "blocks"))
    quick = accelerate(model)
    assert {type(m) for m in quick.modules()} >= {QUICKER[InducingPoints], QUICKER[QueryDecoder]}
    assert unchanged(model) == []
    # However large its inputs are.
    with torch.no_grad():
        wanted = model(batch)
    torch.testing.assert_close(predict(model, batch, rows=4), wanted, rtol=1e-4, atol=1e-5)
    if kind is not Touching:
        read = []
        known = chunks.Chunks.made
        monkeypatch.setattr(chunks.Chunks, "made", lambda *g: read.append(1) or known(*g))
        with torch.no_grad():
            encode(quick, batch, at_once=6)
        # Two encoders, two of eleven points at a time, and the parameters behind them.
        assert len(read) == 12 + (kind is Partly)


# For answers: kept, and never mistaken.


def test_what_is_made_for_answers_is_kept_and_dies_with_the_model():
    model = build(outside="normalized")
    model.register_forward_hook(lambda *given: None)
    made = for_answers(model)
    assert for_answers(model) is made
    assert made is not model
    with torch.autocast("cpu", torch.bfloat16):
        assert for_answers(model) is not made
    assert for_answers(model) is made
    left = weakref.ref(model), weakref.ref(made)
    del model, made
    gc.collect()
    assert [ref() for ref in left] == [None, None]


def _replaced_in_place(model):
    """A layer that may lie where another one did."""
    state = {k: 2 * v for k, v in model.processor[0].state_dict().items()}
    del model.processor[0].attend
    gc.collect()
    made = MultiHead(16, context=None, heads=2, head_width=8, out=16)
    model.processor[0].attend = made
    model.processor[0].load_state_dict(state)


def _stepped(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(batch_for(model)).sum().backward()
    optimizer.step()


def _loaded(model):
    model.load_state_dict({k: v + 0.1 for k, v in model.state_dict().items()})


def _assigned(model):
    state = {k: v + 0.1 for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def _other_data(model):
    for p in model.parameters():
        p.data = p.data + 0.1


def _other_parameter(model):
    weight = model.processor[0].feed_forward.out.weight
    model.processor[0].feed_forward.out.weight = nn.Parameter(weight.detach() + 0.3)


def _new_hook(model):
    model.processor[0].attend.register_forward_hook(lambda m, given, out: 2 * out)
    predict(model, batch_for(model))
    model.processor[0].attend.register_forward_hook(lambda m, given, out: out.flip(-1))


def _global_hook(model):
    def doubled(module, given, out):
        return 2 * out if isinstance(module, nn.Linear) else None

    model.undo = nn.modules.module.register_module_forward_hook(doubled).remove


def _dropout(model):
    model.processor[0].feed_forward.out = nn.Sequential(
        model.processor[0].feed_forward.out, nn.BatchNorm1d(5, affine=False)
    )
    predict(model, batch_for(model))
    model.eval()
    model.processor[0].feed_forward.out[1].train()


FOLLOWED = {
    "replaced": _replaced_in_place,
    "an optimizer's step": _stepped,
    "load_state_dict": _loaded,
    "load_state_dict by assigning": _assigned,
    "data": _other_data,
    "a parameter": _other_parameter,
    "hooks": _new_hook,
    "a hook of all modules": _global_hook,
    "a part in training": _dropout,
    "attributes": _attributes,
    "double": lambda model: model.double(),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "eval": lambda model: model.eval(),
}


@pytest.mark.parametrize("change", FOLLOWED.values(), ids=FOLLOWED)
def test_answers_follow_whatever_happens_to_a_model(change):
    model = build()
    batch = batch_for(model)
    predict(model, batch)
    change(model)
    modes = [m.training for m in model.modules()]
    kind = next(model.parameters()).dtype
    given = batch.astype(torch.float64) if kind == torch.float64 else batch
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=kind == torch.bfloat16):
            found, wanted = predict(model, given), model(given)
        most = 0.05 if kind == torch.bfloat16 else 1e-4
        assert (found - wanted).norm() < most * wanted.norm()
    finally:
        getattr(model, "undo", lambda: None)()
    assert [m.training for m in model.modules()] == modes
    assert [m.training for m in for_answers(model).modules()] == modes


# Parts to compile.


@pytest.mark.compile
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("decoder", DECODERS)
def test_compiled_regions_are_the_same_and_the_model_is_not_compiled(decoder, learn):
    torch._dynamo.reset()
    model = build(decoder=decoder, outside="normalized", tied=decoder == "narrow")
    batch = batch_for(model, shared=True, times=(1.0, 3.0))
    exact = numbers(model, batch, learn=learn, answer=call)
    quick = accelerate(model, training=learn)
    found = [*regions(quick), *passes(quick)]
    assert len(found) == (3 if decoder == "narrow" else 4) + 2
    for region in found:
        region.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    off = distance(numbers(quick, batch, learn=learn, answer=call), exact)
    assert max(off.values()) < 1e-4
    assert not any(m._compiled_call_impl for m in model.inner.modules())


def test_what_is_compiled_of_models_of_other_layers():
    from contracts.cases import CASES

    fno = CASES["grid"]().build("fno", {"modes": (3,), "padding": (0.5,)})
    assert list(regions(accelerate(fno))) == []  # it answers in one step
    transolver = CASES["grid"]().build("transolver", {})
    assert list(regions(transolver)) == list(transolver.inner.blocks)
    flare = accelerate(CASES["grid"]().build("flare", {}))
    assert list(regions(flare)) == list(flare.inner.blocks)
    lrsa = accelerate(CASES["grid"]().build("lrsa", {}))
    assert list(regions(lrsa)) == [block.feed_forward for block in lrsa.inner.blocks]
    assert list(regions(CASES["film"]().build("dino", {}))) == []
    assert list(regions(CASES["grid"]().build("oformer", {}))) == []


def test_a_model_may_name_its_own_parts_to_compile():
    class Own(Operator):
        def __init__(self):
            super().__init__(
                None, Spec(name="own", inputs=("a",), outputs=("u",), domain=((0, 1),))
            )
            self.one, self.other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, batch):
            return self.one(batch.values)

    model = Own()
    assert list(regions(model)) == [model]
    model.regions = lambda: iter([model.one])
    assert list(regions(model)) == [model.one]


def test_queries_that_move_are_decoded_one_by_one():
    model = build()
    batch = batch_for(model, queries="moving", times=(1.0, 3.0))
    with torch.no_grad():
        wanted = model(batch)
        torch.testing.assert_close(accelerate(model)(batch), wanted, rtol=1e-4, atol=1e-5)
        flipped = replace(batch, queries=batch.queries.flip(1))
        assert not torch.allclose(accelerate(model)(flipped), wanted)


@pytest.mark.parametrize("width", [1, 2, 5, 16, 17])
def test_feed_forwards_of_thin_rows(width):
    """Of one channel a norm leaves nothing, so that the update is the same for all rows."""
    layer = shuffled(GatedFeedForward(width, 2)).double()
    quick, x = accelerate(layer, training=True), torch.randn(3, 4, width, dtype=torch.float64)
    found, wanted = quick(x), layer(x)
    assert found.shape == ((1, 1, 1) if width == 1 else x.shape)
    results = [
        torch.autograd.grad(out.expand_as(x).square().sum(), list(layer.parameters()))
        for out in (found, wanted)
    ]
    torch.testing.assert_close(found.expand_as(x), wanted)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


WATCHED = {
    "vmap": lambda f, x: torch.func.vmap(f)(x[None])[0],
    "forward mode": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "gradients": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "a tracer": lambda f, x: torch.jit.trace(f, x, check_trace=False)(2 * x),
    "autocast": lambda f, x: torch.autocast("cpu", torch.float16)(f)(x),
}


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("watch", WATCHED.values(), ids=WATCHED)
@pytest.mark.parametrize("kind", ["block", "features"])
def test_kernels_are_not_called_where_somebody_watches(kind, watch):
    """They read memory, which nobody else sees."""
    torch.manual_seed(0)
    layer = (
        AttentionBlock(16, heads=2) if kind == "block" else FourierFeatures((3,) * 16, (4.0,) * 16)
    )
    x, quick = torch.rand(2, 5, 16), accelerate(shuffled(layer))
    torch.testing.assert_close(watch(quick, x), watch(layer, x), rtol=1e-2, atol=1e-3)
