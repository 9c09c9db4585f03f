"""The same numbers on a GPU as on the CPU, on the sphere."""

import pytest
import torch

from ipot.solvers import shallow_water as sw
from ipot.solvers.sphere import Transform

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def coefficients(lmax, *batch):
    random = torch.Generator().manual_seed(0)
    shape = (*batch, lmax + 1, lmax + 1)
    c = torch.randn(shape, generator=random, dtype=torch.complex128).triu()
    c[..., 0, :] = c[..., 0, :].real + 0j
    return c


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_transform_whatever_the_precision_of_products(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        c = coefficients(42, 3)
        here, there = Transform(42, 64), Transform(42, 64, device="cuda")
        field = there.synthesis(c.cuda())
        torch.testing.assert_close(field.cpu(), here.synthesis(c), rtol=0, atol=1e-11)
        torch.testing.assert_close(there.analysis(field).cpu(), c, rtol=0, atol=1e-12)
        for a, b in zip(there.velocity(c.cuda(), c.cuda()), here.velocity(c, c), strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=0, atol=1e-11)
        for a, b in zip(
            there.rotation(field, field), here.rotation(*2 * [field.cpu()]), strict=True
        ):
            torch.testing.assert_close(a.cpu(), b, rtol=0, atol=1e-9)
    finally:
        torch.set_float32_matmul_precision(before)


def test_shallow_water_replays_what_it_would_compute():
    speed = torch.tensor([60.0, 80.0])
    states = [sw.unstable_jets(speed.to(device), 42) for device in ("cpu", "cuda")]
    # Two lengths of steps, of which the captured graph must notice the change.
    runs = [list(sw.solve(s, times=[3600.0, 3700.0, 7200.0])) for s in states]
    for here, there in zip(*runs, strict=True):
        for a, b in zip(here, there.cpu(), strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=1e-10 * float(a.abs().max()))
