"""The same numbers on a GPU as on the CPU."""

import pytest
import torch

from ipot.solvers import burgers, darcy, navier_stokes, random_fields

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

SQUARE = {"alpha": 2.5, "tau": 7.0, "sigma": 7**1.5}


def noise(*shape, count=3):
    return random_fields.normal(shape, seed=0, stream="device", indices=range(count))


def assert_agree(compute, draw, atol):
    torch.testing.assert_close(compute(draw.cuda()).cpu(), compute(draw), rtol=0, atol=atol)


def test_fields():
    assert_agree(
        lambda n: random_fields.periodic_line(n, 64, sigma=625.0, tau=5.0, gamma=4.0),
        noise(2, 32),
        1e-12,
    )
    assert_agree(
        lambda n: random_fields.neumann_square(n, alpha=2.0, tau=3.0), noise(32, 32), 1e-12
    )
    shape = random_fields.periodic_square_noise_shape(32)
    assert_agree(lambda n: random_fields.periodic_square(n, 32, **SQUARE), noise(*shape), 1e-12)


def test_burgers():
    assert_agree(lambda u: burgers.solve(u, viscosity=0.1), noise(64), 1e-12)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_darcy_whatever_the_precision_of_products(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert_agree(lambda n: darcy.solve(n.exp()), noise(64, 64), 1e-9)
        assert_agree(lambda n: darcy.solve(n.exp()), noise(64, 64).float(), 1e-6)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_navier_stokes_replays_what_it_would_compute(dtype, atol):
    shape = random_fields.periodic_square_noise_shape(64)
    # Fast enough that the step is shortened on the way, which the captured graph must notice.
    initial = 10 * random_fields.periodic_square(noise(*shape), 64, **SQUARE)
    assert_agree(
        lambda w: navier_stokes.solve(w, viscosity=1e-2, times=(0.5, 2.0)), initial.to(dtype), atol
    )
