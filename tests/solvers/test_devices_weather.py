"""The same toy weather on a GPU, where a day is one graph, as on the CPU."""

import pytest
import torch

from ipot.problems.era5_synthetic import PROBLEM

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_windows_agree():
    problem = PROBLEM.small()
    cpu, gpu = (
        problem.generate("test", range(2), seed=0, device=torch.device(name), resolution=18)
        for name in ("cpu", "cuda")
    )
    assert gpu["temperature"].is_cuda
    difference = (gpu["temperature"].cpu() - cpu["temperature"]).abs().max()
    assert difference < 1e-3  # Kelvin, of some 300
