"""The page makes the grid and the painted vortices of Navier-Stokes as Python does."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems.navier_stokes import HISTORY, SIGMA, NavierStokes
from ipot.solvers import navier_stokes, random_fields

MODULE = "problems/navier_stokes.js"


@pytest.mark.parametrize("side", [16, 64])
def test_points_are_those_of_a_sample(side):
    points = NavierStokes().coordinates(side).float()
    found = call(MODULE, "m.torusPoints(side)", side=side)
    np.testing.assert_array_equal(np.float32(found), points.flatten())


def test_frames_become_the_channels_of_a_sample():
    problem = NavierStokes(size=8, resolution=8, steps=2)
    frames = np.random.default_rng(0).normal(size=(HISTORY, 8, 8)).astype(np.float32)
    fields = {"vorticity": torch.from_numpy(np.concatenate([frames, frames[:2]]))[None]}
    sample = problem.dataset(fields, None, None)[0]
    found = call(
        MODULE,
        "m.framesAsValues(frames.map((f) => Float32Array.from(f)))",
        frames=frames.reshape(HISTORY, -1).tolist(),
    )
    np.testing.assert_array_equal(np.float32(found), sample.values.flatten())
    last = call(
        MODULE, "m.channelOf(values, channels, channels - 1)", values=found, channels=HISTORY
    )
    np.testing.assert_array_equal(np.float32(last), frames[-1].ravel())


def test_a_painted_vortex_is_a_periodic_bell_without_a_mean():
    n, x, y, strength, radius = 32, 0.03, 0.96, -1.5, 0.07
    found = call(
        MODULE,
        """(() => {
            const field = new Float32Array(n * n).fill(0.25);
            m.addVortex(field, n, x, y, strength, radius);
            return field;
        })()""",
        n=n,
        x=x,
        y=y,
        strength=strength,
        radius=radius,
    )
    at = np.arange(n) / n
    images = np.arange(-2, 3)[:, None]
    across, along = (
        np.exp(-(((at - centre + images) / radius) ** 2) / 2).sum(0) for centre in (x, y)
    )
    bell = strength * np.outer(across, along)
    np.testing.assert_allclose(np.reshape(found, (n, n)), 0.25 + bell - bell.mean(), atol=1e-6)
    # It reaches around both edges: the corner across is inside.
    assert np.reshape(found, (n, n))[0, 0] < 0.25 - 1.0


def field(side, seed=0):
    noise = random_fields.normal(
        random_fields.periodic_square_noise_shape(64), seed=seed, stream="page", indices=range(1)
    )
    return random_fields.periodic_square(noise, side, alpha=2.5, tau=7.0, sigma=SIGMA["file"])[0]


FOLLOW = "m.following(Float32Array.from(start), n, viscosity, count)"


@pytest.mark.parametrize("side", [8, 32])
def test_the_past_is_that_of_the_solver(side):
    start = field(side).float().double()
    times = [1.0, 2.0, 3.0]
    wanted = navier_stokes.solve(start[None], viscosity=1e-3, times=times)[0]
    found = call(
        "problems/flow.js", FOLLOW, start=start.flatten().tolist(), n=side, viscosity=1e-3, count=3
    )
    np.testing.assert_allclose(
        np.reshape(found, wanted.shape), wanted, atol=2e-5 * float(start.abs().max())
    )


def test_the_past_of_a_fine_grid_is_near_that_of_the_solver():
    """A painted vortex among those of a sample, on twice as many points as the page solves on."""
    start = navier_stokes.solve(field(64)[None].double(), viscosity=1e-3, times=[1.0])[0, 0]
    at = torch.arange(64) / 64 - 0.5
    start += 2 * torch.exp(-(at[:, None] ** 2 + at**2) / (2 * 0.06**2))
    start -= start.mean()
    times = [float(t) for t in range(1, 10)]
    wanted = navier_stokes.solve(start[None], viscosity=1e-3, times=times)[0].numpy()
    found = call(
        "problems/flow.js", FOLLOW, start=start.flatten().tolist(), n=64, viscosity=1e-3, count=9
    )
    gap = np.linalg.norm(np.reshape(found, wanted.shape) - wanted, axis=(1, 2))
    assert (gap / np.linalg.norm(wanted, axis=(1, 2))).max() < 0.01


@pytest.mark.parametrize("convention", ["file", "paper"])
def test_no_start_of_the_training_is_beyond_it(convention):
    shape = random_fields.periodic_square_noise_shape(256)
    # The strongest of a thousand is among these.
    noise = random_fields.normal(shape, seed=0, stream="navier_stokes/train", indices=range(100))
    sigma = SIGMA[convention]
    starts = random_fields.periodic_square(noise, 64, alpha=2.5, tau=7.0, sigma=sigma)
    most = starts.abs().amax((1, 2))
    start = starts[most.argmax()].float()
    first = navier_stokes.solve(start[None], viscosity=1e-5, times=[1.0])[0, 0]
    expression = "m.beyond(Float32Array.from(field.flat()), convention)"
    for field in (start, first):
        assert not call(MODULE, expression, field=field.tolist(), convention=convention)
    strong = (2 * start).tolist()
    assert call(MODULE, expression, field=strong, convention=convention)
