"""Compile every Triton kernel that a training step launches, for an H200, on a machine without one.

    python tests/accelerate/cuda/without_a_gpu.py darcy paper ipot

Triton's interpreter runs what its compiler refuses. Here the compiler, with NVIDIA's assembler that
comes along, makes each kernel for a GPU that is described and not there; nothing is launched, so
the numbers are rubbish. Prints the kernels' names and the most shared memory that one takes.
"""

import os
import sys
from dataclasses import replace

os.environ.pop("TRITON_INTERPRET", None)

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ipot.accelerate import accelerate, cuda
from ipot.bench.samples import random_samples
from ipot.recipes.experiment import build, experiment
from ipot.training.draws import Draws

H200 = GPUTarget("cuda", 90, 32)


class NotThere:
    """What Triton asks a driver before it launches."""

    def get_current_target(self):
        return H200

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0


def main(problem, preset, model):
    made, launch = {}, JITFunction.run

    def compiled(self, *args, grid=None, warmup=False, **options):
        kernel = launch(self, *args, grid=grid, warmup=True, **options)
        made[self.fn.__name__, kernel.hash] = kernel.metadata.shared
        return kernel

    driver.set_active(NotThere())
    JITFunction.run, cuda.available = compiled, lambda device: True
    torch.manual_seed(0)
    settings = experiment(problem, model, preset)
    training = replace(settings.training, batch=2, augment=False, points_least=None)
    operator = build(settings)
    draws = Draws(random_samples(settings.problem, 2), operator.spec, training)
    with torch.autocast("cpu", torch.bfloat16):
        quick = accelerate(operator, training=True, attention="kernel")
        answer = quick(draws.stacked_batch(draws(0)))
    answer.float().nan_to_num(0, 0, 0).sum().backward()
    print(*sorted({name for name, _ in made}), max(made.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
