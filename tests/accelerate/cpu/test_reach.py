"""Where compiled kernels must not be called, since somebody would miss what they do."""

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ipot.accelerate import accelerate
from ipot.accelerate.attention import attend
from ipot.accelerate.cpu import attention, blocks, project
from ipot.accelerate.cpu.build import why_not, why_not_bf16
from ipot.accelerate.cpu.interface import available, exact, readable, rounds, served
from ipot.accelerate.cpu.project import waves
from ipot.accelerate.shared_mesh import Split
from ipot.errors import Unsupported
from ipot.nn.attention import AttentionBlock, MultiHead
from ipot.nn.points import FourierFeatures
from tests.accelerate.models import target

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")


def problem():
    torch.manual_seed(0)
    return torch.randn(1, 40, 16), torch.randn(2, 300, 32)


def layers():
    """Features, a norm and a block: all that has kernels."""
    torch.manual_seed(0)
    position = FourierFeatures((7, 7), (8.0, 8.0))
    return position, AttentionBlock(30, heads=2, context=None), AttentionBlock(32, heads=2)


def test_numbers_of_another_kind_or_place_are_not():
    x = torch.zeros(3)
    assert readable(x)
    assert not readable(x, x.double())
    assert not readable(x, x.to("meta"))


def test_rounded_products_are_not_exact():
    x = torch.zeros(3)
    assert exact(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert readable(x)
        assert not exact(x)


@pytest.mark.skipif(why_not_bf16() is not None, reason=f"no kernels in bf16: {why_not_bf16()}")
def test_products_are_rounded_where_autocast_asks_for_bf16(monkeypatch):
    x, leaf = torch.zeros(3), torch.zeros(3, requires_grad=True)
    assert not rounds(x)
    assert served(x)
    with torch.autocast("cpu", torch.float16):
        assert not rounds(x)
        assert not served(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert rounds(x, x.bfloat16())
        assert not rounds(x, x.double())
        assert not rounds(x, leaf)
        assert served(x)
        assert not served(x, x.bfloat16())  # weights are read as they are
        assert not served(leaf)
        with torch.no_grad():
            assert rounds(x, leaf)
            assert served(leaf)
        with FakeTensorMode():
            assert not rounds(x)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not rounds(x)


def test_whoever_watches_sees_operations():
    x = torch.zeros(3)
    seen = []
    torch.func.grad(lambda y: (seen.append(readable(x, y)), y.sum())[1])(x)
    with FakeTensorMode():
        seen.append(readable(x))
    with forward.dual_level():
        seen.append(readable(x))
    torch.jit.trace(lambda y: (seen.append(readable(y)), y + 1)[1], x, check_trace=False)
    make_fx(lambda y: (seen.append(readable(y)), y + 1)[1])(x)
    assert seen == [False] * 5
    assert readable(x)


def test_a_trace_answers_other_questions_too():
    query, pairs = problem()
    traced = torch.jit.trace(lambda q, p: attend(target(), q, p, 2), (query, pairs))
    other = torch.randn_like(query)
    torch.testing.assert_close(
        traced(other, pairs), attend(target(), other, pairs, 2), rtol=1e-5, atol=1e-5
    )


def test_functions_of_functions():
    query, pairs = problem()
    found = torch.func.grad(lambda q: attend(target(), q, pairs, 2).square().sum())(query)
    asked = query.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(attend(target(), asked, pairs, 2).square().sum(), asked)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.compile
def test_an_export_has_none_of_our_operators():
    class Layer(torch.nn.Module):
        def forward(self, query, pairs):
            return attend(target(), query, pairs, 2)

    program = torch.export.export(Layer(), problem())
    assert "ipot" not in str(program.graph)


def test_other_numbers_are_refused_where_they_are_asked_for_by_name():
    query, pairs = problem()
    with pytest.raises(Unsupported, match="float32 on a CPU, not for"):
        attend(target("native"), query.double(), pairs.double(), 2)
    position = layers()[0]
    with pytest.raises(Unsupported, match="float64"):
        project.features(torch.zeros(1, 3, 2, dtype=torch.float64), waves(position))


def test_values_of_another_kind_over_a_shared_mesh():
    layer = MultiHead(12, context=9, heads=2, head_width=6, out=12)
    tokens = Split(torch.randn(1, 70, 8), torch.randn(3, 70, 1, dtype=torch.float64))
    query = torch.randn(1, 40, 12)
    wanted = layer(query, tokens.joined())
    torch.testing.assert_close(accelerate(layer)(query, tokens), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["norm", "to_query", "to_key_value", "to_out"])
def test_parts_of_another_kind_or_place_are_left_to_torch(name):
    block = layers()[2]
    assert blocks.applies(block)
    getattr(block.attend, name).double()
    assert not blocks.applies(block)
    assert accelerate(layers()[2].to("meta"))(torch.randn(1, 90, 32).to("meta")).is_meta


@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives(masked):
    torch.manual_seed(0)
    query, pairs = (0.3 * torch.randn(1, 30, 4)).requires_grad_(), torch.randn(2, 200, 8)
    mask = torch.rand(2, 200) > 0.4 if masked else None
    found = []
    for path in ("native", "plain"):
        out = attend(target(path), query, pairs, 2, mask).square().sum()
        (first,) = torch.autograd.grad(out, query, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), query)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_second_derivatives_over_a_shared_mesh():
    torch.manual_seed(0)
    layer = MultiHead(12, context=9, heads=2, head_width=6, out=12)
    tokens = Split(torch.randn(1, 70, 8), torch.randn(3, 70, 1))
    query, found = torch.randn(1, 40, 12, requires_grad=True), []
    for out in (accelerate(layer, training=True)(query, tokens), layer(query, tokens.joined())):
        (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), query)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


def test_memory_that_there_is_not():
    import ctypes

    from ipot.accelerate.cpu.build import call
    from ipot.accelerate.cpu.interface import Problem, rows

    x = torch.zeros(1, 1, 1)
    parts = [rows(x)] * 3
    huge = Problem(*parts, None, 1, 1, 1, 1 << 40, 1, 1 << 10, 1, 1.0, 1)
    with pytest.raises(MemoryError, match="not enough memory for attend"):
        call("ipot_attend", ctypes.byref(huge), ctypes.c_void_p(0), ctypes.c_void_p(0))
    assert attention.attend(x, x, x, 1)[0].item() == 0.0
