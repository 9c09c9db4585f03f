"""Forging gives the same on a GPU, where a step is replayed, as on the CPU."""

import math

import pytest
import torch

from ipot.solvers import forging

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
def test_forging_replays_what_it_would_compute(dtype, atol):
    x = torch.linspace(0, 1, 21, dtype=dtype)
    die = torch.stack([15 + 4 - 4 * torch.cos(4 * math.pi * (x - s)) for s in (0.2, 0.35)])
    here = forging.solve(die, mass_scaling=25.0)
    there = forging.solve(die.cuda(), mass_scaling=25.0)
    moved = there.displacement.cpu()
    torch.testing.assert_close(moved, here.displacement, rtol=0, atol=atol)
    torch.testing.assert_close(there.work.cpu(), here.work, rtol=1e-3, atol=1e-2)
