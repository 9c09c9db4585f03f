"""The kernels of rows against the formula in float64; interpreted where there is no GPU."""

import pytest
import torch
import torch.nn.functional as F

from ipot.accelerate import cuda as kernels
from ipot.accelerate.attention import attend
from ipot.errors import Unsupported
from ipot.nn.attention import AttentionBlock
from tests.accelerate.models import target

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if not kernels.available(DEVICE):
    pytest.skip("Triton is not here, or not for this device", allow_module_level=True)

from ipot.accelerate.cuda import rows, rows_launch, rows_layout  # noqa: E402

EXACT, ROUNDED = 1e-5, 2e-2


def plain_projection(x, gamma, beta, weight, bias=None):
    return F.linear(F.layer_norm(x, x.shape[-1:], gamma, beta), weight, bias)


def plain_finish(x, o, out_weight, out_bias, gamma, beta, into_weight, into_bias, weight, bias):
    start = x.repeat(len(o) // len(x), 1) + F.linear(o, out_weight, out_bias)
    normed = F.layer_norm(start, start.shape[-1:], gamma, beta)
    a, g = F.linear(normed, into_weight, into_bias).chunk(2, -1)
    return start + F.linear(a * F.gelu(g), weight, bias)


def norm_project(x, gamma, beta, weight, bias=None, dtype=torch.bfloat16):
    """The kernels, with parameters that are packed for this call alone."""
    packed = rows.pack_projection(gamma, beta, weight, bias=bias)
    return rows.norm_project(x, packed, len(weight), dtype)


def finish_block(x, o, *weights):
    return rows.finish_block(x, o, rows.pack_finish(*weights))


def draw(*shapes, seed=0):
    """Normal numbers in float64 that float32 and bf16 hold as well, scaled like weights are."""
    random = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(s, generator=random) / s[-1] ** 0.5 for s in shapes]
    return [x.bfloat16().double().to(DEVICE) for x in drawn]


def draw_projection(many, d, p, biased=True, seed=0):
    x, gamma, beta, weight, bias = draw((many, d), (d,), (d,), (p, d), (p,), seed=seed)
    return [8 * x, 1 + gamma, beta, weight, *([bias] if biased else [])]


def draw_finish(few, many, d, i, f, seed=0):
    shapes = (few, d), (many, i), (d, i), (d,), (d,), (d,), (2 * f, d), (2 * f,), (d, f), (d,)
    x, o, out_weight, out_bias, gamma, *rest = draw(*shapes, seed=seed)
    return [8 * x, 8 * o, out_weight, out_bias, 1 + gamma, *rest]


def gradients(function, arguments, upstream):
    """The answer and the gradients of all arguments."""
    arguments = [a.detach().clone().requires_grad_() for a in arguments]
    answer = function(*arguments)
    answer.backward(upstream.to(answer.dtype))
    return [answer.detach(), *(a.grad for a in arguments)]


def compare(ours, plain, arguments, types, tolerance):
    """Answer and gradients, by their largest error (exact) or its root mean square (rounded)."""
    upstream = draw(tuple(plain(*arguments).shape), seed=9)[0]
    expected = gradients(plain, arguments, upstream)
    found = gradients(
        ours, [a.to(t) for a, t in zip(arguments, types, strict=True)], upstream.float()
    )
    norm = torch.linalg.vector_norm
    order = float("inf") if tolerance == EXACT else 2
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        error = norm(a.double() - b, order) / norm(b, order)
        assert error < tolerance, f"{'answer' if index == 0 else f'gradient {index - 1}'}: {error}"
    return found


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("many", "d", "p"), [(37, 32, 96), (70, 64, 64), (16, 16, 48), (35, 128, 64)]
)
def test_a_projection_is_exact_in_float32(many, d, p, biased):
    arguments = draw_projection(many, d, p, biased)

    def ours(*arguments):
        return norm_project(*arguments, dtype=torch.float32)

    compare(ours, plain_projection, arguments, [torch.float32] * len(arguments), EXACT)


@pytest.mark.parametrize(
    ("few", "many", "d", "i", "f"),
    [
        (37, 37, 32, 64, 64),
        (24, 72, 64, 64, 128),
        (1, 19, 16, 48, 32),  # an attention whose channels are no power of two
        (35, 35, 128, 32, 64),
        (17, 17, 64, 128, 64),
        (18, 18, 256, 32, 32),
    ],
)
def test_the_end_of_a_block_is_exact_in_float32(few, many, d, i, f):
    arguments = draw_finish(few, many, d, i, f)
    compare(finish_block, plain_finish, arguments, [torch.float32] * 10, EXACT)


@pytest.mark.parametrize("d", [16, 32, 64])
def test_the_layouts_for_many_rows_and_many_shares_are_exact_too(d, monkeypatch):
    monkeypatch.setattr(rows_layout, "MANY", 1)
    monkeypatch.setattr(rows_layout, "LEAST", 32)
    arguments = draw_finish(130, 130, d, 32, 2 * d)
    compare(finish_block, plain_finish, arguments, [torch.float32] * 10, EXACT)
    arguments = draw_projection(130, d, 64)
    compare(
        lambda *a: norm_project(*a, dtype=torch.float32),
        plain_projection,
        arguments,
        [torch.float32] * 5,
        EXACT,
    )


@pytest.mark.parametrize(
    ("few", "many", "d", "i", "f"),
    [(130, 130, 32, 64, 64), (1, 67, 16, 48, 32), (43, 129, 64, 16, 16)],
)
def test_products_by_the_library_are_exact_too(few, many, d, i, f, monkeypatch):
    monkeypatch.setattr(rows_layout, "VERY_MANY", {d: 1})
    monkeypatch.setattr(rows_launch.rows_backward, "finish_back", None)  # the other way is closed
    arguments = draw_finish(few, many, d, i, f)
    compare(finish_block, plain_finish, arguments, [torch.float32] * 10, EXACT)


def test_parameters_that_are_rounded_have_rounded_gradients(monkeypatch):
    monkeypatch.setattr(rows_layout, "VERY_MANY", {16: 1})
    x, o, *parameters = (t.bfloat16() for t in draw_finish(70, 70, 16, 16, 16))
    packed = rows.pack_finish(*parameters)
    *_, gradient = rows_launch.finish_back(x.float(), o, packed, packed, x.float())
    assert gradient.dtype == torch.bfloat16
    monkeypatch.setattr(rows_layout, "VERY_MANY", {})
    *_, other = rows_launch.finish_back(x.float(), o, packed, packed, x.float())
    assert (gradient - other).float().norm() < ROUNDED * other.float().norm()


def test_there_are_layouts_for_all_that_the_library_multiplies():
    for width, many in rows_layout.VERY_MANY.items():
        assert rows_layout.by_library(width, many)
        assert not rows_layout.by_library(width, many - 1)
        assert (width, True) in rows_layout.TUNING
    assert not rows_layout.by_library(16, 10**9)


def test_rows_far_from_zero_are_normalised_as_well():
    x, *rest = draw_projection(20, 32, 64)
    found = norm_project(*(a.float() for a in [x + 300, *rest]), dtype=torch.float32)
    expected = plain_projection(x + 300, *rest)
    assert (found - expected).abs().max() < 3e-4  # half a bit of 300 is 1.5e-5, forty times over


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16])
def test_products_of_bf16_are_close_and_the_stream_stays_float32(state, library, monkeypatch):
    monkeypatch.setattr(rows_layout, "VERY_MANY", {64: 1} if library else {})
    half, full = torch.bfloat16, torch.float32
    arguments = draw_projection(70, 64, 192)
    found = compare(norm_project, plain_projection, arguments, [state, *[full] * 4], ROUNDED)
    assert [t.dtype for t in found] == [half, state, *[full] * 4]
    arguments = draw_finish(35, 70, 64, 64, 128)
    types = [state, half, *[full] * 8]
    found = compare(finish_block, plain_finish, arguments, types, ROUNDED)
    assert [t.dtype for t in found] == [full, *types]


def test_weights_rounded_beforehand_change_nothing():
    x, o, *parameters = (a.float() for a in draw_finish(40, 40, 32, 32, 64, seed=3))
    packed = rows.pack_finish(*(1.001 * p for p in parameters)).requires_grad_()
    first = rows.finish_block(x, o.bfloat16(), packed)
    (one,) = torch.autograd.grad(first.square().sum(), packed)
    second = rows.finish_block(x, o.bfloat16(), packed, packed.bfloat16())
    (two,) = torch.autograd.grad(second.square().sum(), packed)
    assert torch.equal(first, second)
    assert torch.equal(one, two)
    assert one.dtype == torch.float32
    gamma, beta, weight = (1.001 * p.float() for p in draw_projection(40, 32, 64, False)[1:])
    packed = rows.pack_projection(gamma, beta, weight)
    assert torch.equal(
        rows.norm_project(x, packed, 64),
        rows.norm_project(x, packed, 64, rounded=packed.bfloat16()),
    )


def test_rounded_weights_are_the_ones_that_are_multiplied():
    x, gamma, beta, weight = (a.float() for a in draw_projection(16, 16, 32, False))
    packed, doubled = (rows.pack_projection(gamma, beta, w) for w in (weight, 2 * weight))
    once, twice = (
        gradients(
            lambda x, rounded=rounded: rows.norm_project(x, packed, 32, torch.float32, rounded),
            [x],
            torch.ones(16, 32, device=DEVICE),
        )
        for rounded in (None, doubled)
    )
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(2 * a, b)


def test_rounded_weights_are_multiplied_behind_the_attention_too():
    x, o, *parameters = (a.float() for a in draw_finish(16, 16, 16, 32, 32))
    packed = rows.pack_finish(*parameters)
    weights = [2 * p if p.ndim > 1 else p for p in parameters]
    upstream = torch.ones(16, 16, device=DEVICE)
    expected = gradients(lambda x, o: finish_block(x, o, *weights), [x, o], upstream)
    rounded = rows.pack_finish(*weights)
    found = gradients(lambda x, o: rows.finish_block(x, o, packed, rounded), [x, o], upstream)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_together_with_attention_they_are_a_block_however_often_it_is_applied():
    block = AttentionBlock(32, heads=2, head_width=24).to(DEVICE)
    state = draw((2, 20, 32), seed=4)[0].float()
    expected = gradients_of_block(block.double(), lambda s: block(block(s)), state.double())

    def ours(state):
        multi, after = block.attend, block.feed_forward
        first = rows.pack_projection(
            multi.norm.weight,
            multi.norm.bias,
            multi.to_query.weight,
            multi.to_key_value.weight,
        )
        second = rows.pack_finish(
            multi.to_out.weight,
            multi.to_out.bias,
            after.norm.weight,
            after.norm.bias,
            after.into.weight,
            after.into.bias,
            after.out.weight,
            after.out.bias,
        )
        flat = state.flatten(0, 1)
        for _ in range(2):
            projected = rows.norm_project(flat, first, 144, torch.float32)
            query, pairs = projected.unflatten(0, (2, 20)).split([48, 96], -1)
            out = attend(target("plain"), query, pairs, 2).flatten(0, 1)
            flat = rows.finish_block(flat, out, second)
        return flat.unflatten(0, (2, 20))

    found = gradients_of_block(block.float(), ours, state)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


def gradients_of_block(block, function, state):
    state = state.clone().requires_grad_()
    answer = function(state)
    inputs = [state, *block.parameters()]
    return [answer.detach(), *torch.autograd.grad(answer.square().sum(), inputs)]


def test_tensors_may_lie_in_memory_as_they_like():
    x, o, *parameters = (a.float() for a in draw_finish(20, 20, 16, 32, 32))
    packed = rows.pack_finish(*parameters)
    expected = gradients(rows.finish_block, [x, o, packed], torch.ones(20, 16).to(DEVICE))
    turned = x.T.contiguous().T.requires_grad_()
    sliced = torch.cat([o, o], 1)[:, 32:].requires_grad_()
    thinned = packed.repeat_interleave(2)[::2].requires_grad_()
    answer = rows.finish_block(turned, sliced, thinned)
    answer.sum().backward()  # its gradient is one number, expanded
    for a, b in zip([answer, turned.grad, sliced.grad, thinned.grad], expected, strict=True):
        assert torch.equal(a, b)
    x, *parameters = (a.float() for a in draw_projection(20, 16, 32))
    expected = norm_project(x, *parameters)
    assert torch.equal(norm_project(x.T.contiguous().T, *parameters), expected)


def test_pytorch_may_rely_on_the_operators():
    x, o, *parameters = (a.float() for a in draw_finish(10, 20, 16, 32, 32))
    packed = rows.pack_finish(*parameters)
    leaves = [t.requires_grad_() for t in (x, o.bfloat16(), packed)]
    torch.library.opcheck(torch.ops.ipot.finish_block, (*leaves, packed.detach()))
    grad = torch.ones(20, 16, device=DEVICE)
    plain = [t.detach() for t in (x.bfloat16(), o, packed, packed)]
    torch.library.opcheck(torch.ops.ipot.finish_block_backward, (*plain, grad))
    x, *parameters = (a.float() for a in draw_projection(20, 16, 32))
    packed = rows.pack_projection(*parameters[:3], bias=parameters[3])
    leaves = [t.requires_grad_() for t in (x, packed)]
    sizes = (packed.detach(), 32, torch.float32)
    torch.library.opcheck(torch.ops.ipot.norm_project, (*leaves, *sizes))
    grad = torch.ones(20, 32, device=DEVICE)
    plain = [t.detach() for t in (x, packed, packed)]
    torch.library.opcheck(torch.ops.ipot.norm_project_backward, (*plain, grad))


@pytest.mark.compile
def test_a_compiler_takes_them_as_they_are(backend):
    arguments = [a.float() for a in draw_finish(10, 20, 16, 32, 32)]
    more = [a.float() for a in draw_projection(20, 16, 32)[1:]]

    def both(*arguments):
        state = finish_block(*arguments[:10])
        return norm_project(state, *arguments[10:], dtype=torch.float32).tanh()

    upstream = draw((20, 32), seed=5)[0].float()
    expected = gradients(both, [*arguments, *more], upstream)
    compiled = torch.compile(both, fullgraph=True, backend=backend)
    found = gradients(compiled, [*arguments, *more], upstream)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("sizes", "answer"),
    [
        ((64, 192), True),
        ((256, 512, 1024), True),
        ((16, 48), True),
        ((96, 64), False),
        ((8, 64), False),
        ((512, 64), False),
        ((64, 40), False),
        ((64, 0), False),
    ],
)
def test_it_is_known_which_sizes_there_are_kernels_for(sizes, answer):
    assert rows.supports(*sizes) is answer


@pytest.mark.plain
def test_what_does_not_fit_is_refused_by_name():
    x, o, *parameters = (a.float() for a in draw_finish(20, 20, 16, 32, 32))
    packed = rows.pack_finish(*parameters)
    with pytest.raises(Unsupported, match=r"pack_finish"):
        rows.finish_block(x, o, packed[:-1])
    with pytest.raises(Unsupported, match="8 rows cannot serve 20"):
        rows.finish_block(x[:8], o, packed)
    with pytest.raises(Unsupported, match="float64"):
        rows.finish_block(x.double(), o, packed)
    with pytest.raises(Unsupported, match="round the same"):
        rows.finish_block(x, o, packed, packed[:-16])
    with pytest.raises(Unsupported, match="pack_projection"):
        rows.norm_project(x, packed, 32)
    with pytest.raises(Unsupported, match="24 channels with 32 beside"):
        norm_project(*(a.float() for a in draw_projection(20, 24, 32)))
    with pytest.raises(Unsupported, match="float16"):
        norm_project(*(a.float() for a in draw_projection(20, 16, 32)), dtype=torch.float16)


@pytest.mark.parametrize("many", [1, 37, 128, 2560, 51200, 51201])
@pytest.mark.parametrize("tiles", [1, 7, 300])
def test_stretches_cover_all_rows_once(many, tiles):
    parts, length = rows_layout.stretches(many, tiles, 64)
    assert length % 64 == 0
    assert (parts - 1) * length < many <= parts * length
    assert parts == 1 or parts * tiles < 2 * rows_layout.PROGRAMS


@pytest.mark.compile
def test_parameters_are_joined_by_one_operation(backend):
    torch.manual_seed(0)
    parts = [torch.randn(shape, requires_grad=True) for shape in ((48, 16), 48, 16, 16)]
    weight = torch.randn(48 * 16 + 48 + 32)

    def loss(matrix, bias, gamma, beta):
        return (rows.pack_projection(gamma, beta, matrix, bias=bias) * weight).sum()

    seen = []

    def watched(graph, inputs):
        seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph

    found = torch.autograd.grad(torch.compile(loss, backend=watched, fullgraph=True)(*parts), parts)
    assert torch.ops.ipot.join in seen or torch.ops.ipot.join.default in seen
    assert torch.cat not in seen
    whole = torch.compile(loss, backend=backend, fullgraph=True)
    compiled = torch.autograd.grad(whole(*parts), parts)
    wanted = torch.autograd.grad(loss(*parts), parts)
    for ours, theirs, exact in zip(found, compiled, wanted, strict=True):
        assert torch.equal(ours, exact)
        assert torch.equal(theirs, exact)
