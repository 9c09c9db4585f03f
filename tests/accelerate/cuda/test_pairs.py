"""Keys and values of a shared mesh: the kernel equals LayerNorm and projection."""

import pytest
import torch
import torch.nn.functional as F

from ipot.accelerate import cuda as kernels

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def plain(shared, sums, value, weight, row, offset, width, eps):
    total = sums[:, 0] + value.sum(-1)
    squares = sums[:, 1] + value.square().sum(-1)
    mean = total / width
    scale = (squares / width - mean.square() + eps).rsqrt()
    out = shared + value @ weight - mean[..., None] * row
    return out * scale[..., None] + offset


def draw(b, n, c, p, dtype=torch.float32):
    torch.manual_seed(b + n + c + p)
    features = torch.randn(n, 30)
    sums = torch.stack([features.sum(-1), features.square().sum(-1)], -1)
    learnt = [torch.randn(n, p), torch.randn(c, p), torch.randn(p), torch.randn(p)]
    shared, weight, row, offset = (t.to(DEVICE, dtype).requires_grad_() for t in learnt)
    value = 2 + torch.randn(b, n, c)
    return (
        shared,
        sums.to(DEVICE, dtype),
        value.to(DEVICE, dtype),
        weight,
        row,
        offset,
        30 + c,
        1e-5,
    )


@pytest.mark.parametrize(
    ("b", "n", "c", "p"),
    [(3, 50, 1, 32), (2, 33, 3, 128), (5, 64, 14, 16), (1, 7, 2, 200), (2, 2100, 1, 16)],
)
def test_kernel_equals_the_formula(b, n, c, p):
    from ipot.accelerate.cuda.pairs import shared_pairs

    inputs = draw(b, n, c, p)
    learnt = [inputs[i] for i in (0, 3, 4, 5)]
    out = shared_pairs(*inputs)
    gradient = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, learnt, gradient)]

    double = [t.detach().double() if isinstance(t, torch.Tensor) else t for t in inputs]
    learnt = [double[i].requires_grad_() for i in (0, 3, 4, 5)]
    exact = plain(*double)
    wanted = [exact, *torch.autograd.grad(exact, learnt, gradient.double())]
    # On a GPU the sums over all points are products in tf32.
    tolerance = 2e-3 if DEVICE == "cuda" else 2e-6
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).norm() < tolerance * theirs.norm()


def test_a_whole_projection_goes_through_the_kernel(monkeypatch):
    """`project` with the kernel equals norm and linear layer of the joined tokens."""
    from ipot.accelerate import shared_mesh as split

    torch.manual_seed(0)
    norm, linear = torch.nn.LayerNorm(33), torch.nn.Linear(33, 16, bias=False)
    torch.nn.init.normal_(norm.bias)
    norm, linear = norm.to(DEVICE), linear.to(DEVICE)
    tokens = split.Split(*(torch.randn(s, device=DEVICE) for s in ((1, 20, 30), (4, 20, 3))))
    monkeypatch.setattr(split, "_by_kernel", lambda shared, value: True)
    out = split.project(tokens, norm, linear)
    exact = linear(F.layer_norm(tokens.joined(), (33,), norm.weight, norm.bias))
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-5)


def test_operator_is_well_formed():
    from ipot.accelerate.cuda.pairs import shared_pairs

    torch.library.opcheck(shared_pairs, draw(2, 20, 2, 16))
