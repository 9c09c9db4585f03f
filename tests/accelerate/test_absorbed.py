"""Keys that absorb the projection of constant queries give what the layers give one by one."""

from dataclasses import replace

import pytest
import torch
from ipot.models._attentive import Decoder
from ipot.nn.paths import attention_path
from torch import nn

from ipot.accelerate import cuda as kernels
from ipot.models.ipot import Config
from ipot.nn import absorbed
from ipot.nn.attention import MultiHead
from ipot.spec import Spec

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="float32 by kernels is for tests alone"),
]
SPEC = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),) * 2)
NARROW = Config(
    width=32,
    latents=8,
    blocks=1,
    heads=2,
    cross_heads=1,
    cross_head_width=24,
    bins=(3,),
    lifted=False,
    decoder="narrow",
    local=False,
)
STATES = {"few rows, by a kernel": 32, "of no width for one": 20}


def shuffled(module):
    """With norms and biases that are not at their start, where they do nothing."""
    for name, p in module.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.normal_(p, 1.0, 0.5)
    return module


def decoder(config=NARROW, spec=SPEC, *, bias=False):
    torch.manual_seed(0)
    made = Decoder(config, spec)
    if bias:
        part = made.block.attend
        part.to_query.bias = nn.Parameter(torch.empty(part.to_query.out_features))
        part.to_key_value.bias = nn.Parameter(torch.empty(part.to_key_value.out_features))
    return shuffled(made)


def given(config=NARROW, *, shared=False, b=2, z=11, m=70):
    torch.manual_seed(1)
    state = torch.randn(b, z, config.width, requires_grad=True)
    mask = torch.rand(b, z) < 0.7
    mask[:, 0] = True
    return state, torch.rand(1 if shared else b, m, 2), mask


def answers(made, path, state, queries, mask, *more):
    """The answer and its gradients, those of the weights first."""
    with attention_path(path):
        out = made(state, queries, mask)
    towards = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    # A norm of one channel leaves nothing of its input, and its scale has no gradient.
    idle = made.block.feed_forward.norm.weight
    leaves = [*(p for p in made.parameters() if p is not idle), state, *more]
    return [out, *torch.autograd.grad((out * towards).sum(), leaves)]


def assert_close(found, exact, tolerance=1e-4):
    for ours, theirs in zip(found, exact, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + 1e-6


@pytest.fixture
def asked(monkeypatch):
    """What comes to the attention, and how many gradients of queries are computed."""
    from ipot.accelerate.cuda import attention

    seen, launch = [], attention.backward

    def watched(plan, *rest):
        seen.append(plan.wanted)
        return launch(plan, *rest)

    monkeypatch.setattr(attention, "backward", watched)
    return seen


@pytest.mark.parametrize("width", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("kept", [False, True], ids=["own", "kept"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "biases"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_the_answer_and_its_gradients_are_those_of_the_layers(asked, width, kept, bias, masked):
    config = replace(NARROW, width=width)
    made = decoder(config, bias=bias)
    state, queries, mask = given(config, shared=kept)
    mask = mask if masked else None
    exact = answers(made.double(), "plain", state.double(), queries.double(), mask)
    made.float()
    if kept:
        made.keep(queries)
    assert_close(answers(made, "kernel", state, queries, mask), exact, 1e-5)
    assert asked == [False]


@pytest.mark.parametrize("outputs", [2, 3, 5])
def test_several_outputs(asked, outputs):
    made = decoder(spec=replace(SPEC, outputs=tuple("abcde"[:outputs])))
    arguments = given(m=130)
    assert_close(answers(made, "kernel", *arguments), answers(made, "plain", *arguments))
    assert asked == [False]


@pytest.fixture
def projected(monkeypatch):
    """Nothing may be absorbed."""
    monkeypatch.setattr(absorbed, "pairs", None)


@pytest.fixture
def unfolded(monkeypatch):
    """Nothing may be prepared for it either."""
    monkeypatch.setattr(absorbed, "folded", None)


@pytest.mark.usefixtures("projected", "unfolded")
def test_queries_that_want_a_gradient_get_theirs(asked):
    made = decoder()
    state, queries, mask = given()
    queries.requires_grad_()
    found, exact = (answers(made, p, state, queries, mask, queries) for p in ("kernel", "plain"))
    assert exact[-1].norm() > 0
    assert_close(found, exact)
    assert asked == [True]


def test_an_answer_without_gradients():
    made, (state, queries, mask) = decoder(), given()
    queries.requires_grad_()  # of no concern here
    with torch.no_grad(), attention_path("kernel"):
        found = made(state, queries, mask)
    with attention_path("plain"):
        torch.testing.assert_close(found, made(state, queries, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept", [False, True], ids=["own", "kept"])
@pytest.mark.parametrize("name", ["norm", "to_query", "norm_context", "to_key_value"])
def test_layers_with_hooks_are_called(asked, name, kept):
    made, (state, queries, mask) = decoder(), given(shared=True)
    exact, seen = answers(made, "plain", state, queries, mask), []
    if kept:
        made.keep(queries)
    layer = getattr(made.block.attend, name)
    layer.register_forward_hook(lambda module, *rest: seen.append(module))
    assert_close(answers(made, "kernel", state, queries, mask), exact)
    assert seen == [layer]
    assert asked == [True]


SIZES = {
    "several heads": {"cross_heads": 2, "cross_head_width": 12},
    "more features than a head has channels": {"bins": (8,)},
    "as many outputs as channels": {"cross_head_width": 1, "bins": (1,)},
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.usefixtures("projected")
def test_where_it_does_not_pay_the_queries_are_projected(name):
    config = replace(NARROW, **SIZES[name])
    made, arguments = decoder(config), given(config, shared=True)
    exact = answers(made, "plain", *arguments)
    assert_close(answers(made, "kernel", *arguments), exact)
    made.keep(arguments[1])
    assert_close(answers(made, "kernel", *arguments), exact)


@pytest.mark.parametrize("path", ["plain", "auto", "fused", "blocks"])
@pytest.mark.usefixtures("projected")
def test_by_other_ways_the_queries_are_projected(path):
    made, (state, queries, mask) = decoder(), given(shared=True)
    exact = answers(made, "plain", state, queries, mask)
    made.keep(queries)
    assert_close(answers(made, path, state, queries, mask), exact)


@pytest.mark.usefixtures("projected", "unfolded")
def test_more_keys_than_queries_are_met_by_projected_ones():
    made, arguments = decoder(), given(z=40, m=30)
    assert_close(answers(made, "kernel", *arguments), answers(made, "plain", *arguments))


@pytest.mark.parametrize(("there", "columns"), [(True, 32), (False, 24)])
def test_what_is_kept_may_have_any_columns(asked, monkeypatch, there, columns):
    """18 features and the ones; where there are no kernels for it, as few as products like."""
    monkeypatch.setattr(kernels, "available", lambda device: there)
    made, (state, queries, mask) = decoder(replace(NARROW, bins=(4,))), given(shared=True)
    exact = answers(made, "plain", state, queries, mask)
    made.keep(queries)
    assert made.position.keeps.operand.shape[-1] == columns
    assert_close(answers(made, "kernel", state, queries, mask), exact)
    assert asked == [False]


def test_kept_queries_that_are_changed_in_place_are_followed(asked):
    made, (state, queries, mask) = decoder(), given(shared=True)
    made.keep(queries)
    place = made.position.keeps.operand.data_ptr()
    queries.mul_(0.7)
    made.position.renew()
    exact = answers(made, "plain", state, queries, mask)
    assert_close(answers(made, "kernel", state, queries, mask), exact)
    assert made.position.keeps.operand.data_ptr() == place
    assert asked == [False]


def test_the_combined_weight_is_rounded_once():
    """Under autocast the keys are as near to exact ones as those of rounded layers."""
    torch.manual_seed(0)
    part = shuffled(MultiHead(50, context=64, heads=1, head_width=64, out=1))
    operand = absorbed.folded(part, torch.randn(1, 300, 50)).operand
    context = torch.randn(2, 40, 64)
    with torch.no_grad():
        exact = absorbed.pairs(part, operand, context)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = absorbed.pairs(part, operand, context)
            layers = part.to_key_value(part.norm_context(context))
        off = (rounded[..., :64] - exact[..., :64]).norm() / exact[..., :64].norm()
        usual = (layers - part.pairs_of(context)).norm() / layers.norm()
    assert rounded.dtype == torch.bfloat16
    assert off < 1.2 * usual < 0.01


@pytest.mark.compile
@pytest.mark.parametrize("kept", [False, True], ids=["own", "kept"])
def test_compiled_it_is_the_same(asked, kept):
    torch._dynamo.reset()
    made, (state, queries, mask) = decoder(), given(shared=kept)
    exact = answers(made, "plain", state, queries, mask)
    if kept:
        made.keep(queries)
    made.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    assert_close(answers(made, "kernel", state, queries, mask), exact)
    assert asked == [False]
    wanting = queries.clone().requires_grad_()
    found = answers(made, "kernel", state, wanting, mask, wanting)
    assert asked == [False, True]
    made._compiled_call_impl = None
    assert_close(found, answers(made, "plain", state, wanting, mask, wanting))
