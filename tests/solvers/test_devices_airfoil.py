"""The same flow on a GPU as on the CPU."""

import pytest
import torch

from ipot.solvers import airfoil_mesh, euler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-8), (torch.float32, 2e-3)])
def test_euler_replays_what_it_would_compute(dtype, atol):
    """Samples that settle at different times, so that the batch is captured more than once."""
    random = torch.Generator().manual_seed(0)
    moved = 0.1 * torch.rand(4, 8, generator=random, dtype=torch.float64) - 0.05
    mesh = airfoil_mesh.c_mesh(moved)[:, ::5, ::5]
    here = euler.solve(mesh, tolerance=1e-3, dtype=dtype)
    there = euler.solve(mesh.cuda(), tolerance=1e-3, dtype=dtype)
    assert there.state.is_cuda
    torch.testing.assert_close(there.state.cpu(), here.state, rtol=0, atol=atol)
    torch.testing.assert_close(there.lift.cpu(), here.lift, rtol=0, atol=atol)


def test_meshes_agree():
    moved = torch.linspace(-0.05, 0.05, 16, dtype=torch.float64).view(2, 8)
    there = airfoil_mesh.c_mesh(moved.cuda())
    torch.testing.assert_close(there.cpu(), airfoil_mesh.c_mesh(moved), rtol=0, atol=1e-12)
