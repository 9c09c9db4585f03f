"""What a model has seen: the range of every channel, and its usual part."""

import numpy as np
import pytest
import torch

from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.data.ranges import FEWEST, MOST, UNUSUAL, ranges_held

RANDOM = np.random.default_rng(3)
X = RANDOM.random((50, 2))


def data(values, **more):
    return Dataset.from_arrays(points=X, values=values, targets=values[..., :1], **more).data


def test_the_usual_range_leaves_out_the_few_wildest():
    values = RANDOM.random((40, 50, 2))
    wild = values.copy()
    wild[3, 7] = 900.0, -700.0
    plain, found = (Layout(**ranges_held(data(v))) for v in (values, wild))
    assert found.span("values") == (
        pytest.approx((values[..., 0].min(), -700.0), rel=1e-6),
        pytest.approx((900.0, values[..., 1].max()), rel=1e-6),
    )
    np.testing.assert_allclose(found.usual("values"), plain.usual("values"), atol=1e-2)
    wanted = np.quantile(values.reshape(-1, 2), (UNUSUAL, 1 - UNUSUAL), axis=0)
    np.testing.assert_allclose(plain.usual("values"), wanted, atol=1e-6)
    assert found.span("targets")[1] == pytest.approx((900.0,))


def test_of_many_numbers_some_are_drawn_everywhere():
    """Not at even distances: those could all be at the edge of a grid."""
    count, channels = 64, MOST // FEWEST  # so that the fewest rows are drawn
    column = torch.linspace(0, 1, 100).repeat(count, 1)  # each number in a place of its own
    values = column.unsqueeze(-1).expand(-1, -1, channels)

    class Held:
        def columns(self):
            for piece in values.split(8):
                yield piece, piece[..., :1], None

    low, high = Layout(**ranges_held(Held())).usual("values")
    np.testing.assert_allclose(low, 0, atol=0.03)
    np.testing.assert_allclose(high, 1, atol=0.03)
    again = Layout(**ranges_held(Held())).usual("values")
    assert again == (low, high)


def test_parameters_and_what_is_not_there():
    values = RANDOM.random((12, 50, 1))
    parameters = np.linspace(2, 5, 12)[:, None]
    found = Layout(**ranges_held(data(values, parameters=parameters)))
    assert found.span("parameters") == ((2.0,), (5.0,))
    (low,), (high,) = found.usual("parameters")
    assert 2 < low < 2.01
    assert 4.99 < high < 5
    assert Layout(**ranges_held(data(values))).usual("parameters") == ((), ())
    before = Layout(value_low=(1.0,), value_high=(2.0,))  # as earlier releases wrote it
    assert before.usual("values") == before.span("values")
