"""Data as users bring them, to try `ipot.fit` on without a flag: small, hard in one way each.

Everything follows from a seed. Settings and defaults are chosen on the seeds in `OPEN`; `CLOSED`
is for a last look, after which nothing is changed. Run as a program, this file fits one of them and
prints its errors: `python -m tests.own.trials peaks --epochs 400`.
"""

import sys
import time

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from ipot.data.own import Dataset

OPEN, CLOSED = (0, 1), 20261118


def _smooth(draw, places, *, waves=12, length=0.25):
    """A smooth random function, of mean zero and variance one at some places (N, 2)."""
    k = draw.normal(size=(waves, 2)) / length
    phase = draw.random(waves) * 2 * np.pi
    c = draw.normal(size=waves) * np.sqrt(2 / waves)

    def raw(x):
        return np.cos(x @ k.T + phase) @ c

    middle, spread = raw(places).mean(), raw(places).std()
    return lambda x=places: (raw(x) - middle) / spread


def _cloud(draw, count, centres=(), width=0.1):
    """Scattered points of the unit square, a third of them close to some centres."""
    x = draw.random((count, 2))
    parts = np.array_split(np.arange(count // 3), max(1, len(centres)))
    for row, centre in zip(parts, centres, strict=False):
        x[row] = np.clip(centre + width * draw.normal(size=(len(row), 2)), 0, 1)
    return x


def _own_meshes(found, given, answer):
    points, values, targets = map(list, zip(*found, strict=True))
    return Dataset.from_arrays(
        points=points, values=values, targets=targets, inputs=[given], outputs=[answer]
    )


def peaks(seed, count=60, points=(500, 2000)):
    """Hot spots: a smooth load, and a stress that is steep where the load is high."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(count):
        x = _cloud(draw, draw.integers(*points))
        load = _smooth(draw, x)()
        found.append((x, load, np.exp(1.8 * load) / 5 + 0.3 * x[:, 0] * load))
    return _own_meshes(found, "load", "stress")


def sources(seed, count=60, points=(500, 2000)):
    """Two sources of unknown place: a wide field is known, and what is asked for is sharp there.
    The meshes are finer around them, and no two are alike."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(count):
        centres, size = 0.15 + 0.7 * draw.random((2, 2)), 0.5 + draw.random(2)
        x = _cloud(draw, draw.integers(*points), centres)
        far = ((x[:, None] - centres) ** 2).sum(-1)
        wide = (size * np.exp(-far / (2 * 0.2**2))).sum(1)
        found.append((x, wide, (size / (1 + far / 0.05**2)).sum(1) - 0.2 * wide**2))
    return _own_meshes(found, "wide", "sharp")


def forecast(seed, times=700, lats=19, lons=36):
    """A series on a globe whose dynamics are linear: winds that turn with latitude, diffusion, and
    noise that nobody can forecast. For `fit(ds, inputs="t", targets="t", history=2, lead=2)`."""
    import xarray as xr

    draw = np.random.default_rng(seed)
    lat = np.linspace(-90, 90, lats)
    lon = np.arange(lons) * 360 / lons
    waves = np.fft.rfftfreq(lons, 1 / lons)
    turn = np.exp(-1j * waves * 0.35 * np.cos(np.radians(lat))[:, None])
    fade = np.exp(-0.004 * waves**2)
    mix = np.eye(lats) + 0.1 * (np.eye(lats, k=1) + np.eye(lats, k=-1))
    mix /= mix.sum(1, keepdims=True)
    state, found = np.zeros((lats, lons)), []
    for _ in range(100 + times):
        state = np.fft.irfft(np.fft.rfft(mix @ state) * turn * fade, n=lons)
        noise = np.fft.rfft(draw.normal(size=(lats, lons))) * np.exp(-(waves**2) / 18)
        state = 0.985 * state + 0.25 * mix @ mix @ np.fft.irfft(noise, n=lons)
        found.append(state)
    mean = 15 - 0.4 * np.abs(lat)[:, None] * np.ones(lons)
    t = mean + 3 * np.array(found[100:])
    day = np.datetime64("2020-01-01", "ns") + np.arange(times) * np.timedelta64(6, "h")
    return xr.Dataset({"t": (("time", "lat", "lon"), t)}, {"time": day, "lat": lat, "lon": lon})


def diffusion(seed, count=600, size=64):
    """-div(a grad u) = 1 with u = 0 around, for an a that is random and never negative."""
    draw, line = np.random.default_rng(seed), (np.arange(size) + 0.5) / size
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
    waves = np.fft.fftfreq(size, 1 / size)
    spectrum = (9 + waves[:, None] ** 2 + waves**2) ** -1.5
    coefficient, solution = [], []
    for _ in range(count):
        field = np.fft.ifft2(np.fft.fft2(draw.normal(size=(size, size))) * spectrum).real
        a = np.exp(1.2 * (field - field.mean()) / field.std())
        coefficient.append(a)
        solution.append(_solved(a))
    return Dataset.from_arrays(
        points=grid,
        values=np.array(coefficient),
        targets=np.array(solution),
        inputs=["a"],
        outputs=["u"],
    )


def _solved(a):
    """The solution at the middles of square cells, by fluxes between neighbours."""
    size = len(a)
    number = np.arange(size * size).reshape(size, size)
    rows, columns, entries = [], [], []
    for one, other, left, right in (
        (a[1:], a[:-1], number[1:], number[:-1]),
        (a[:, 1:], a[:, :-1], number[:, 1:], number[:, :-1]),
    ):
        flux = (2 * one * other / (one + other)).ravel()
        for i, j in ((left, right), (right, left)):
            rows += [i.ravel(), i.ravel()]
            columns += [i.ravel(), j.ravel()]
            entries += [flux, -flux]
    for edge, side in (
        (number[0], a[0]),
        (number[-1], a[-1]),
        (number[:, 0], a[:, 0]),
        (number[:, -1], a[:, -1]),
    ):
        rows.append(edge), columns.append(edge), entries.append(2 * side)
    whole = tuple(np.concatenate(part) for part in (entries, rows, columns))
    matrix = sparse.csc_matrix((whole[0], whole[1:]), shape=(size * size,) * 2)
    return splu(matrix).solve(np.full(size * size, 1 / size**2)).reshape(size, size)


def flow(seed, count=40, points=400):
    """Two numbers to a flow around an obstacle: velocity and pressure at the same points in all."""
    draw = np.random.default_rng(seed)
    x = 4 * draw.random((4 * points, 2)) - 2
    x = x[(x**2).sum(1) > 0.3][:points]
    speed, angle = 1 + draw.random(count), 0.6 * draw.random(count) - 0.3
    targets = []
    for s, t in zip(speed, angle, strict=True):
        z = (x[:, 0] + 1j * x[:, 1]) * np.exp(-1j * t)
        spin = 1.5 * t * s
        w = s * (1 - 0.3 / z**2) * np.exp(-1j * t) + 1j * spin / (z * np.exp(1j * t))
        wake = s * np.exp(-((z.imag / (0.3 + 0.1 * s)) ** 2)) / (1 + np.exp(-6 * (z.real - 0.5)))
        u, v = w.real - 0.6 * wake, -w.imag
        targets.append(np.stack([u, v, 0.5 * (s**2 - u**2 - v**2)], -1))
    return Dataset.from_arrays(
        queries=x,
        targets=np.array(targets),
        parameters=np.stack([speed, angle], -1),
        parameter_names=["speed", "angle"],
        outputs=["u", "v", "p"],
    )


def scattered(seed, count=50, points=1500):
    """Smooth fields at scattered points of their own, and a smooth answer that is not linear."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(count):
        x = draw.random((points, 2))
        field = _smooth(draw, x, waves=4, length=0.5)
        a, shifted = field(), field(x + np.array((0.1, 0.0)))
        found.append((x, a, a * shifted + 0.5 * np.tanh(2 * a)))
    return _own_meshes(found, "a", "u")


TRIALS = {f.__name__: f for f in (peaks, sources, forecast, diffusion, flow, scattered)}


def main(name, seed="0", *words):
    """Fit one of them and print what came of it, with the seconds of the processor."""
    from ipot.own.fit import fit

    given = dict(zip(words[::2], words[1::2], strict=True))
    told = {k.removeprefix("--"): v for k, v in given.items()}
    options = {"epochs": int(told["epochs"])} if "epochs" in told else {}
    options |= {"minutes": float(told["minutes"])} if "minutes" in told else {}
    if name == "forecast":
        options |= {"inputs": "t", "targets": "t", "history": 2, "lead": 2}
    data, before = TRIALS[name](int(seed)), time.process_time()
    model = fit(data, out=told.get("out"), **options)
    print(f"{name} {seed}: {time.process_time() - before:.0f} s of CPU time", model.scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
