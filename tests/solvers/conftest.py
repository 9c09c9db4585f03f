"""What several tests of solvers need."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Loader = Callable[[str], dict[str, torch.Tensor]]


@pytest.fixture
def public_file() -> Loader:
    """Load a public data file by its path below the folder that IPOT_TEST_DATA names."""
    folder = os.environ.get("IPOT_TEST_DATA")
    if not folder:
        pytest.skip("IPOT_TEST_DATA names no folder with public data files")

    def load(name: str) -> dict[str, torch.Tensor]:
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"no {name} in IPOT_TEST_DATA")
        return torch.load(path, weights_only=True)

    return load
