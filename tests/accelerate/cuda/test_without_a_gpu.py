"""Kernels compile for a GPU on a machine that has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipot.accelerate import cuda

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cuda.installed(), reason="Triton is not installed"),
]
SCRIPT = Path(__file__).with_name("without_a_gpu.py")
MOST_SHARED = 232_448
"""Bytes of shared memory that a program has at most on an H200."""


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("darcy paper ipot", {"forward_kernel", "backward_kernel", "project", "finish_back"}),
        ("shallow_water default ipot", {"finish_back", "project_back"}),
        ("darcy default lattice", {"enter", "leave"}),  # products of the library
    ],
)
def test_what_a_step_launches_compiles(words, some, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words.split()],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *names, shared = done.stdout.split()
    assert some <= set(names)
    assert int(shared) <= MOST_SHARED
