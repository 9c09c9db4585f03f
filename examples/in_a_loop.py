"""A saved model inside a NumPy loop: load on the CPU, encode once, ask often.

    pip install ipot
    python examples/in_a_loop.py [--minutes 1]

An eddy in a square basin, -Δψ = vorticity and ψ = 0 at the coast, drives the flow (ψ_y, -ψ_x).
Where must it be for a buoy to drift from one place to another? A search moves the eddy; for each
trial the model encodes it once, and is then asked for the flow wherever the buoy has come to.
"""

import argparse

import numpy as np
from scipy.optimize import minimize

import ipot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=1.0)
parser.add_argument("--out", default="runs/in_a_loop", help="folder for the model")
flags, rng = parser.parse_args(), np.random.default_rng(0)
k, start, goal = np.pi * np.arange(1, 20), np.array([0.25, 0.3]), np.array([0.7, 0.6])


def exact(eddy, xy):
    """The flow (M, 2) at places (M, 2), by a sine series."""
    square = k[:, None] ** 2 + k**2
    size = 10 * np.outer(*np.sin(np.multiply.outer(eddy, k))) * np.exp(-square / 120) / square
    (sx, sy), (cx, cy) = (f(np.multiply.outer(xy.T, k)) for f in (np.sin, np.cos))
    return np.stack([(sx @ size * k * cy).sum(1), -(cx * k @ size * sy).sum(1)], 1)


def learned(eddy):
    """The model's field as a function of the places."""
    return loaded.encode(parameters=eddy).at


def missed(flow):
    """How far from its goal the buoy passes."""
    path = [start]
    for _ in range(40):
        path.append(path[-1] + 0.05 * flow(path[-1][None])[0])
    return np.hypot(*(np.array(path) - goal).T).min()


eddies, places = rng.uniform(0.15, 0.85, (300, 2)), rng.uniform(0, 1, (400, 2))
flows = np.stack([exact(eddy, places) for eddy in eddies])
data = ipot.Dataset.from_arrays(parameters=eddies, queries=places, targets=flows)
ipot.fit(data, minutes=flags.minutes).save(flags.out, overwrite=True)
loaded = ipot.load(flags.out, device="cpu")
found = minimize(lambda eddy: missed(learned(eddy)), [0.5, 0.5], method="Nelder-Mead", tol=1e-3)
truly = missed(lambda xy: exact(found.x, xy))
print(f"{found.nfev} eddies encoded, {40 * found.nfev} answers: put it at {found.x.round(3)}")
print(f"the buoy passes {found.fun:.3f} from its goal, and {truly:.3f} in the exact flow")
