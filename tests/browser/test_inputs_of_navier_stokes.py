"""The page makes the grid and the painted vortices of Navier-Stokes as Python does."""

import numpy as np
import pytest
import torch
from javascript import call

from ipot.problems.navier_stokes import HISTORY, NavierStokes

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
