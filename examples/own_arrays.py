"""Two arrays on a grid: learn u from a, ask on a finer grid, look, save, load.

    pip install ipot
    python examples/own_arrays.py [--minutes 1.5]

An alloy that separates into two phases (the Allen-Cahn equation in a periodic square): its state a
at the beginning goes in, its state u some time later comes out. Both are arrays (500, 24, 24).
"""

import argparse

import numpy as np

import ipot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=1.5)
parser.add_argument("--out", default="runs/own_arrays", help="folder for the model and a picture")
flags, SAMPLES, NEW = parser.parse_args(), 500, 50


def separated(u, steps=60, dt=0.05, width=0.06):
    """What u_t = width² Δu + u - u³ makes of states (S, n, n), by Fourier transforms."""
    k = 2 * np.pi * np.fft.fftfreq(u.shape[-1], 1 / u.shape[-1])
    damping = 1 + dt * width**2 * (k[:, None] ** 2 + k**2)
    for _ in range(steps):
        u = np.fft.ifft2(np.fft.fft2(u + dt * (u - u**3)) / damping).real
    return u


def places(n):
    line = np.arange(n) / n
    return np.stack(np.meshgrid(line, line, indexing="ij"), -1)  # (n, n, 2)


noise = np.fft.fft2(np.random.default_rng(0).normal(size=(SAMPLES, 48, 48)))
k = np.fft.fftfreq(48, 1 / 48)
a_fine = np.fft.ifft2(2.4 * noise * np.exp(-(k[:, None] ** 2 + k**2) / 4)).real
u_fine = separated(a_fine)
x, a, u = places(24), a_fine[:, ::2, ::2], u_fine[:, ::2, ::2]  # every second place
print(f"points {x.shape}, a {a.shape}, u {u.shape}")

data = ipot.Dataset.from_arrays(
    points=x, values=a, targets=u, inputs=["a"], outputs=["u"], periods={0: 1.0, 1: 1.0}
)
train, test = data.select(range(SAMPLES - NEW)), data.select(range(SAMPLES - NEW, SAMPLES))
model = ipot.fit(train, minutes=flags.minutes)
print(f"error on {NEW} new samples: {100 * model.evaluate(test).relative_l2:.1f} %")
model.plot(test[0], f"{flags.out}/fields.png")
model.save(f"{flags.out}/model", overwrite=True)

again = ipot.load(f"{flags.out}/model")
found = again.predict(points=x, values=a[-NEW:], queries=places(48))  # (50, 48, 48)
error = np.linalg.norm(found - u_fine[-NEW:]) / np.linalg.norm(u_fine[-NEW:])
print(f"the saved model at 48 x 48 places: {100 * error:.1f} %; {flags.out}/fields.png")
