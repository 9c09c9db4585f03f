"""The sheet with a cavity: the same numbers on a GPU as on the CPU."""

import pytest
import torch

from ipot.problems.elasticity import PROBLEM
from ipot.solvers import cyclic, unit_cell

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def wavy(phi):
    return torch.stack([0.3 + 0.05 * (k * phi + 0.3).cos() for k in (1, 2, 3)])


def test_rings_are_solved_alike():
    random = torch.Generator().manual_seed(0)
    half = torch.randn(3, 7, 12, 12, generator=random, dtype=torch.float64)
    sectors = half @ half.mT + torch.eye(12, dtype=torch.float64)
    right = torch.randn(3, 14, 4, generator=random, dtype=torch.float64)
    here = cyclic.factorize(sectors).solve(right)
    there = cyclic.factorize(sectors.cuda()).solve(right.cuda())
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-10)


@pytest.mark.parametrize("refine", [1, 3])
def test_stress(refine):
    here = unit_cell.stress(wavy, refine=refine)
    there = unit_cell.stress(wavy, refine=refine, device=torch.device("cuda"))
    torch.testing.assert_close(there[0].cpu(), here[0], rtol=0, atol=1e-14)
    torch.testing.assert_close(there[1].cpu(), here[1], rtol=1e-9, atol=0)


def test_generated_fields():
    made = [
        PROBLEM.generate("test", range(3), seed=0, device=torch.device(d), resolution=None)
        for d in ("cpu", "cuda")
    ]
    for name, field in made[0].items():
        torch.testing.assert_close(made[1][name].cpu(), field, rtol=1e-5, atol=1e-6)
