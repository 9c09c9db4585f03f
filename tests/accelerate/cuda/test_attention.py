"""The kernel equals the formula, forward and backward; interpreted where there is no GPU."""

import pytest
import torch

from ipot.accelerate import cuda as kernels
from ipot.accelerate.attention import attend, attend_narrow
from tests.accelerate.models import target

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter knows no products in bf16.
HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float16


def draw(shared, b, m, n, heads, e, f, dtype=torch.float32, masked=False):
    torch.manual_seed(m * n + e + f)
    query = torch.randn(1 if shared else b, m, heads * e, device=DEVICE, dtype=dtype)
    pairs = torch.randn(b, n, heads * (e + f), device=DEVICE, dtype=dtype)
    mask = None
    if masked:
        # A part of a wider one, as inputs that are streamed have it.
        mask = (torch.rand(b, n + 5, device=DEVICE) < 0.6)[:, 2 : n + 2]
        mask[:, 0] = True
    return query.requires_grad_(), pairs.requires_grad_(), mask


def run(path, query, pairs, heads, mask, gradient):
    inner = query.shape[-1]
    way = target(path, device=DEVICE)
    if (pairs.shape[-1] - inner) // heads < 8:
        out = attend_narrow(way, query, pairs[..., :inner], pairs[..., inner:], heads, mask)
    else:
        out = attend(way, query, pairs, heads, mask)
    return out, *torch.autograd.grad(out, (query, pairs), gradient.to(out.dtype))


def sizes_of_terms(query, pairs, heads, mask, gradient):
    """Norms of the answer and of the terms whose differences its gradients are.

    A gradient of softmax subtracts, from the gradient of each weight, their mean. Without that,
    as here where the sum of the weights is held fixed, it is the size that rounding goes by: the
    difference itself may be small, and over a single key it is 0.
    """
    inner = query.shape[-1]
    parts = query.expand(len(pairs), -1, -1), pairs[..., :inner], pairs[..., inner:]
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in parts)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    weights = (scores - scores.logsumexp(-1, keepdim=True).detach()).exp()
    out = (weights @ v).transpose(1, 2).flatten(2)
    return [x.norm() for x in (out, *torch.autograd.grad(out, (query, pairs), gradient))]


SIZES = {  # shared, b, m, n, heads, e, f
    "gather": (False, 2, 20, 150, 1, 16, 16),
    "gather, one query for all": (True, 3, 40, 300, 1, 32, 32),
    "gather, heads": (True, 2, 24, 200, 4, 16, 16),
    "spread": (False, 2, 150, 20, 1, 16, 16),
    "spread, one query for all": (True, 3, 300, 40, 1, 32, 32),
    "spread, narrow": (True, 2, 290, 33, 1, 32, 1),
    "spread, narrow, heads": (True, 2, 130, 33, 2, 16, 4),
    "odd widths": (False, 2, 17, 70, 3, 10, 10),
    "equal sides, thin heads": (False, 2, 64, 64, 4, 8, 8),
    "one of each": (False, 1, 1, 1, 1, 16, 16),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_kernel_equals_the_formula(sizes, masked):
    query, pairs, mask = draw(*sizes, masked=masked)
    heads = sizes[4]
    gradient = torch.randn(sizes[1], sizes[2], heads * sizes[6], device=DEVICE)
    found = run("kernel", query, pairs, heads, mask, gradient)
    doubled = query.double(), pairs.double(), heads, mask, gradient.double()
    exact, terms = run("plain", *doubled), sizes_of_terms(*doubled)
    for ours, theirs, size in zip(found, exact, terms, strict=True):
        assert (ours - theirs).norm() <= 2e-6 * size


@pytest.fixture
def launched(monkeypatch):
    """What the backward kernels are compiled for, each time."""
    from ipot.accelerate.cuda import _attention_launch as kernel

    seen = []

    def watched(launch):
        class Watched:
            def __getitem__(self, grid):
                def run(*arguments, **constants):
                    seen.append(constants["WANTED"])
                    return launch[grid](*arguments, **constants)

                return run

        return Watched()

    for name in ("backward_kernel", "narrow_backward_kernel"):
        monkeypatch.setattr(kernel, name, watched(getattr(kernel, name)))
    return seen


@pytest.mark.parametrize(
    ("sizes", "masked"), list(zip(SIZES.values(), [False, True] * 5, strict=True)), ids=SIZES.keys()
)
def test_queries_that_want_no_gradient_get_none(monkeypatch, launched, sizes, masked):
    from ipot.accelerate.cuda import attention as kernel

    query, pairs, mask = draw(*sizes, masked=masked)
    gradient = torch.randn(sizes[1], sizes[2], sizes[4] * sizes[6], device=DEVICE)
    out, _, wanted = run("kernel", query, pairs, sizes[4], mask, gradient)
    monkeypatch.setattr(kernel, "SCRATCH", 1)  # there is nothing to work off in groups
    query = query.detach()
    inner = query.shape[-1]
    way = target("kernel", device=DEVICE)
    if sizes[6] < 8:
        key, value = pairs[..., :inner], pairs[..., inner:]
        found = attend_narrow(way, query, key, value, sizes[4], mask)
    else:
        found = attend(way, query, pairs, sizes[4], mask)
    (ours,) = torch.autograd.grad(found, pairs, gradient)
    assert launched == [True, False]
    # Over a single key what is left of the gradient is rounding.
    torch.testing.assert_close(found, out)
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gather, one query for all", "spread, narrow", "spread"])
def test_half_precision(name):
    sizes = SIZES[name]
    query, pairs, _ = draw(*sizes, dtype=HALF)
    gradient = torch.randn(sizes[1], sizes[2], sizes[4] * sizes[6], device=DEVICE).to(HALF)
    found = run("kernel", query, pairs, sizes[4], None, gradient)
    exact = run("plain", query.double(), pairs.double(), sizes[4], None, gradient.double())
    for ours, theirs in zip(found, exact, strict=True):
        assert (ours - theirs).norm() < 1e-2 * theirs.norm()


def test_a_large_batch_is_worked_off_in_groups(monkeypatch):
    from ipot.accelerate.cuda import attention as kernel

    query, pairs, mask = draw(True, 5, 120, 20, 1, 16, 2, masked=True)
    gradient = torch.randn(5, 120, 2, device=DEVICE)
    whole = run("kernel", query, pairs, 1, mask, gradient)
    monkeypatch.setattr(kernel, "SCRATCH", 2 * 120 * 16 * 4)
    pieces = run("kernel", query, pairs, 1, mask, gradient)
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["spread, one query for all", "spread, narrow", "gather"])
def test_parts_are_added_up_alike_by_a_kernel_and_by_the_library(monkeypatch, name):
    from ipot.accelerate.cuda import _attention_launch as kernel

    sizes, added, add_parts = SIZES[name], [], kernel.add_parts
    query, pairs, mask = draw(*sizes, dtype=HALF, masked=True)
    gradient = torch.randn(sizes[1], sizes[2], sizes[4] * sizes[6], device=DEVICE).to(HALF)

    def watched(parts, to):
        added.append(len(parts))
        add_parts(parts, to)

    monkeypatch.setattr(kernel, "add_parts", watched)
    ours = run("kernel", query, pairs, sizes[4], mask, gradient)
    assert added
    assert min(added) > 1
    added.clear()
    monkeypatch.setattr(kernel, "MOST_ADDED", 1)
    theirs = run("kernel", query, pairs, sizes[4], mask, gradient)
    assert added == []
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=1e-4)


def test_rows_are_divided_until_there_is_enough_to_do(monkeypatch):
    from ipot.accelerate.cuda import programs

    monkeypatch.setattr(programs, "enough", lambda device: 264)
    device = torch.device("cpu")
    assert programs.few_enough(64, 256, 10, device) == 8  # 320 programs
    assert programs.few_enough(64, 10**6, 1, device) == 64
    assert programs.few_enough(32, 7225, 1, device) == 16  # 452
    assert programs.few_enough(64, 3, 1, device) == 8
    assert programs.few_enough(4, 3, 1, device, least=2) == 2
    assert programs.few_enough(4, 3, 1, device) == 4


def test_scores_far_apart_do_not_overflow():
    query, pairs, mask = draw(False, 1, 16, 200, 1, 16, 16)
    query = (query.detach() * 1e3).requires_grad_()
    gradient = torch.randn(1, 16, 16, device=DEVICE)
    found = run("kernel", query, pairs, 1, mask, gradient)
    exact = run("plain", query.double(), pairs.double(), 1, mask, gradient.double())
    torch.testing.assert_close(found[0].double(), exact[0], rtol=1e-3, atol=1e-3)
    assert all(torch.isfinite(x).all() for x in found)


def test_logarithm_of_the_sum():
    from ipot.accelerate.cuda.attention import attend_with_lse

    query, pairs, mask = draw(False, 2, 20, 150, 2, 16, 16, masked=True)
    _, lse = attend_with_lse(query, pairs, 2, mask)
    q = query.unflatten(-1, (2, 16)).transpose(1, 2)
    k = pairs[..., :32].unflatten(-1, (2, 16)).transpose(1, 2)
    scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~mask[:, None, None], float("-inf"))
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_strided_inputs():
    """As slices of a larger projection."""
    wide = torch.randn(2, 40, 48, device=DEVICE)
    query, pairs = wide[..., :16], wide[..., 16:]
    ours, plain = (attend(target(path), query, pairs, 1) for path in ("kernel", "plain"))
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


def test_operators_are_well_formed():
    from ipot.accelerate.cuda.attention import _attend, _attend_backward

    query, pairs, _ = draw(True, 2, 20, 50, 1, 16, 16)
    torch.library.opcheck(_attend, (query, pairs, None, None, 1, True))
    out, lse = _attend(query, pairs, None, None, 1, True)
    arguments = (
        torch.randn_like(out),
        query.detach(),
        pairs.detach(),
        None,
        None,
        out.detach(),
        lse,
        1,
        True,
    )
    torch.library.opcheck(_attend_backward, arguments)


def test_operators_are_well_formed_without_a_gradient_of_queries():
    from ipot.accelerate.cuda.attention import _attend, _attend_backward

    query, pairs, mask = draw(True, 2, 50, 20, 1, 16, 2, masked=True)
    query, pairs, value = query.detach(), pairs[..., :16].detach(), pairs[..., 16:].detach()
    given = query, pairs.requires_grad_(), value.requires_grad_(), mask, 1, False
    torch.library.opcheck(_attend, given)
    out, lse = _attend(*given)
    rest = query, pairs.detach(), value.detach(), mask, out.detach(), lse, 1
    torch.library.opcheck(_attend_backward, (torch.randn_like(out), *rest, False))
    dq, dpairs, dvalue = _attend_backward(torch.randn_like(out), *rest, False)
    assert (dq.numel(), dpairs.shape, dvalue.shape) == (0, pairs.shape, value.shape)


@pytest.mark.parametrize("z", [1, 33, 140])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_rows_attend_to_each_other(z, masked):
    from ipot.accelerate.cuda.attention import _attend_self, attend_self

    torch.manual_seed(z)
    triples = torch.randn(2, z, 96, device=DEVICE).requires_grad_()
    mask = None
    if masked:
        mask = torch.rand(2, z, device=DEVICE) < 0.6
        mask[:, 0] = True
    out = attend_self(triples, mask, 4)
    gradient = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, triples, gradient)
    double = triples.detach().double().requires_grad_()
    exact = attend(target("plain"), double[..., :32], double[..., 32:], 4, mask)
    (wanted,) = torch.autograd.grad(exact, double, gradient.double())
    assert (out - exact).norm() < 2e-6 * exact.norm()
    assert (found - wanted).norm() < 2e-6 * wanted.norm()
    if z == 33:  # it calls the kernels some twenty times, and asks nothing about sizes
        torch.library.opcheck(_attend_self, (triples, mask, 4))
    with torch.no_grad():  # not through the dispatcher
        assert torch.equal(attend_self(triples, mask, 4), out)
