"""Terms of a measurement that takes no time."""

from __future__ import annotations

import pytest
import torch

from ipot.bench.measuring import Ceilings, Terms

CPU = torch.device("cpu")


@pytest.fixture
def terms():
    """Ceilings that are known, and a time that is over after one call."""
    top = Ceilings(flops=1e12, bytes=1e11, dtype="float32")
    return Terms(device=CPU, seconds=1e-4, top=top)
