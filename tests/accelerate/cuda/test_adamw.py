"""AdamW over joined parameters: the kernel's steps are those of torch."""

import pytest
import torch
from training.twins import Pair

from ipot.accelerate import cuda as kernels
from ipot.training import joined_parameters

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS = [(0, 128), (192, 3328), (4096, 4160)]
"""A hole, a run of several pieces of which the last is short, and one that is shorter than any."""


def torchs(start, gradients, rate, divisor, settings):
    """The same by torch in float64, for the rows that are updated."""
    p = torch.nn.Parameter(start.double())
    optimizer = torch.optim.AdamW([p], lr=rate, foreach=False, **settings)
    for gradient in gradients:
        p.grad = gradient.double() / divisor
        optimizer.step()
    state = optimizer.state[p]
    return p.detach(), state["exp_avg"], state["exp_avg_sq"]


@pytest.mark.parametrize("divisor", [None, 3.0])
@pytest.mark.parametrize("on_the_device", [False, True])
@pytest.mark.parametrize(
    ("betas", "decay", "eps"),
    [((0.9, 0.999), 0.0, 1e-8), ((0.8, 0.95), 0.1, 1e-3), ((0.0, 0.0), 1e-4, 1e-6)],
)
def test_steps_are_those_of_torch_in_float64(betas, decay, eps, on_the_device, divisor):
    from ipot.accelerate.cuda.adamw import adamw, pieces

    torch.manual_seed(0)
    settings = {"betas": betas, "weight_decay": decay, "eps": eps}
    rows = torch.cat([torch.arange(a, b) for a, b in RUNS])
    start = torch.randn(4224)
    gradients = [torch.randn(len(rows)) * 10.0**k for k in (-3, 0, -1, -6)]
    values, means, squares = start.clone().to(DEVICE), *torch.zeros(2, 4224, device=DEVICE)
    counts, table = torch.zeros(5, device=DEVICE), pieces(RUNS, torch.device(DEVICE))
    rate = torch.tensor(3e-3, device=DEVICE) if on_the_device else 3e-3
    by = None if divisor is None else torch.tensor(divisor, device=DEVICE)
    for gradient in gradients:
        g, seen = gradient.to(DEVICE), counts[0].clone()
        counted = (counts, seen, table)
        adamw(values, g, means, squares, *counted, rate, by, settings)
        assert torch.equal(g.cpu(), gradient)
        assert (counts == seen + 1).all()
    wanted = torchs(start[rows], gradients, 3e-3, divisor or 1.0, settings)
    others = torch.ones(4224, dtype=torch.bool)
    others[rows] = False
    before = (start, torch.zeros(4224), torch.zeros(4224))
    for found, exact, old in zip((values, means, squares), wanted, before, strict=True):
        close = {"rtol": 2e-6, "atol": 2e-7 * float(exact.abs().max())}
        torch.testing.assert_close(found.cpu()[rows].double(), exact, **close)
        assert torch.equal(found.cpu()[others], old[others])


def test_a_rate_may_lie_elsewhere_and_be_a_whole_number():
    from ipot.accelerate.cuda.adamw import adamw, pieces

    settings = {"betas": (0.9, 0.999), "weight_decay": 0, "eps": 1e-8}
    found = []
    for rate in (1, torch.tensor(1.0, dtype=torch.float64)):
        values, g, means, squares = torch.zeros(4, 64, device=DEVICE).add_(1.0).unbind()
        adamw(
            *(values, g, means * 0, squares * 0, torch.zeros(1, device=DEVICE)),
            *(torch.zeros((), device=DEVICE), pieces([(0, 64)], torch.device(DEVICE))),
            *(rate, None, settings),
        )
        found.append(values.cpu())
    assert torch.allclose(found[0], torch.zeros(64), atol=1e-6)
    assert torch.equal(*found)


@pytest.fixture
def by_kernel(monkeypatch):
    """Joined updates by the kernel, on any device."""
    monkeypatch.setattr(joined_parameters, "goes_by_kernel", lambda vector: True)


@pytest.mark.usefixtures("by_kernel")
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.05, 1e6])
def test_joined_steps_are_those_of_torch(clip, weight_decay):
    pair = Pair(clip=clip, weight_decay=weight_decay, device=DEVICE)
    for _ in range(5):
        pair.step()
        pair.assert_same()
    assert pair.optimizer.joined
    assert pair.optimizer._plan.by_kernel


@pytest.mark.usefixtures("by_kernel")
def test_a_step_of_torch_may_come_between_and_other_gradients_too():
    pair = Pair(device=DEVICE)
    for sometimes in (True, True, False, True):
        pair.step(sometimes=sometimes)
        pair.assert_same()
    assert not pair.optimizer.joined


@pytest.mark.usefixtures("by_kernel")
def test_a_gradient_serves_one_step():
    """Its end holds the steps before it, which the second time would be those behind it."""
    pair = Pair(device=DEVICE)
    pair.differentiate(pair.mine, pair.own, torch.ones(16, 33, device=DEVICE))
    gradient = pair.optimizer.gather()
    pair.optimizer.step(gradient=gradient)
    with pytest.raises(RuntimeError, match="call gather"):
        pair.optimizer.step(gradient=gradient)
