"""Draws that are made ahead are the same draws."""

import threading
import time

import pytest
import torch

from ipot.errors import DataError
from ipot.training.ahead import DEPTH, ahead, in_a_thread
from ipot.training.draws import Draws
from ipot.training.settings import Training
from training.toys import CPU, SPEC, packed, stacked


def own_threads():
    return [t for t in threading.enumerate() if t.name == "draws"]


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize("make", [stacked, packed])
def test_the_same_from_a_thread_and_from_the_loop(make):
    settings = Training(batch=4, points=0.5, queries=0.5, augment=True)
    of = Draws(make(24), SPEC, settings)
    wanted = [Draws(make(24), SPEC, settings)(step) for step in range(5, 25)]
    for source in (ahead(of, 5, CPU), in_a_thread(of, 5, pin=False)):
        for expected in wanted:
            draw = next(source)
            list(of.examples())  # the main thread asks for others meanwhile
            assert draw.box == expected.box
            for name in ("index", "points", "queries", "symmetry"):
                assert torch.equal(getattr(draw, name), getattr(expected, name))
        source.close()
    wait_until(lambda: not own_threads())


def test_the_thread_waits_and_ends_with_its_reader():
    made = []

    def draws(step):
        made.append(step)
        return Draws(stacked(), SPEC, Training(batch=4))(step)

    source = in_a_thread(draws, 0, pin=False)
    next(source)
    wait_until(lambda: len(made) >= DEPTH)
    time.sleep(0.1)
    assert len(made) <= DEPTH + 2
    assert own_threads()
    source.close()
    wait_until(lambda: not own_threads())


def test_an_error_in_the_thread_reaches_the_loop():
    def draws(step):
        if step == 3:
            raise DataError("no such sample")
        return Draws(stacked(), SPEC, Training(batch=4))(step)

    source = in_a_thread(draws, 0, pin=False)
    for _ in range(3):
        next(source)
    with pytest.raises(DataError, match="no such sample"):
        next(source)
    wait_until(lambda: not own_threads())
