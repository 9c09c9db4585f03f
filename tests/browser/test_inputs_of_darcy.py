"""The page knows how much of the ground is easy to pass in the training of Darcy."""

import pytest
from javascript import call

from ipot.solvers import random_fields

MODULE = "problems/darcy.js"


def test_the_shares_are_those_of_training():
    noise = random_fields.normal((128, 128), seed=0, stream="darcy/train", indices=range(1000))
    high = random_fields.neumann_square(noise, alpha=2.0, tau=3.0) >= 0
    shares = high.double().mean((1, 2))
    least, most = call(MODULE, "m.SHARES")
    assert least == pytest.approx(shares.min().item(), abs=0.02)
    assert most == pytest.approx(shares.max().item(), abs=0.02)
    assert least < shares.min() < shares.max() < most


def test_the_share_of_what_is_painted():
    cells = [12.0] * 3 + [3.0] * 13
    assert call(MODULE, "m.highShare(Float32Array.from(cells))", cells=cells) == 3 / 16
