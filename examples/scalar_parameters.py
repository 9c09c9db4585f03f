"""Six numbers in, a field out: a fixed geometry, and bounds that say how far to trust the answer.

    pip install ipot
    python examples/scalar_parameters.py [--minutes 1.5]

A plate with four heaters is cooled at its border and by the air: -k Δu + h u = q. The powers of the
heaters, the conductivity k and the cooling h go in; the temperature u comes out.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

import ipot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=1.5)
parser.add_argument("--out", type=Path, default=Path("runs/scalar_parameters"))
flags, rng = parser.parse_args(), np.random.default_rng(0)
N, SAMPLES, NEW, NAMES = 24, 800, 200, ("q1", "q2", "q3", "q4", "k", "h")
line = (np.arange(N) + 1) / (N + 1)
x = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
second = sparse.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(N, N)) * (N + 1) ** 2
laplace = sparse.kron(second, sparse.eye(N)) + sparse.kron(sparse.eye(N), second)
centres = np.array([(0.25, 0.3), (0.7, 0.2), (0.35, 0.75), (0.8, 0.7)])
heaters = np.exp(-((x[:, None] - centres) ** 2).sum(-1) / 0.01)


def temperature(numbers):
    *powers, k, h = numbers
    return spsolve((h * sparse.eye(N * N) - k * laplace).tocsc(), heaters @ powers)


low, high = [*4 * [4e3], 0.7, 15], [*4 * [1e4], 3.5, 100]
numbers = np.exp(rng.uniform(np.log(low), np.log(high), (SAMPLES, 6)))
u = np.stack([temperature(one) for one in numbers])
print(f"parameters {numbers.shape}, queries {x.shape}, targets {u.shape}")

data = ipot.Dataset.from_arrays(
    parameters=numbers, queries=x, targets=u, parameter_names=NAMES, outputs=["u"], units={"u": "K"}
)
model = ipot.fit(data.select(range(SAMPLES - NEW)), minutes=flags.minutes)
found = model.predict(parameters=numbers[-NEW:], queries=x, interval=0.9)
inside = (found.low <= u[-NEW:]) & (u[-NEW:] <= found.high)
error = np.linalg.norm(found.prediction - u[-NEW:], axis=1) / np.linalg.norm(u[-NEW:], axis=1)
print(f"{NEW} new plates: error {100 * error.mean():.1f} %")
print(f"bounds that should hold 90 % of the truth hold {100 * inside.mean():.1f} %")

cut = slice(7 * N, 8 * N)
plt.fill_between(line, found.low[0, cut], found.high[0, cut], alpha=0.3, label="bounds at 90 %")
plt.plot(line, found.prediction[0, cut], label="prediction")
plt.plot(line, u[-NEW, cut], "k--", label="truth")
plt.legend()
plt.gca().set(xlabel="y, through two of the heaters", ylabel="temperature u, K")
flags.out.mkdir(parents=True, exist_ok=True)
plt.savefig(flags.out / "bounds.png")
