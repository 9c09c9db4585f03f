"""Outputs that never change: answered as they are, and no error is given relative to nothing."""

import numpy as np
import pytest
import torch

import ipot
from ipot.evaluation.evaluate import score
from ipot.own.fit import fit
from own import tiny


def velocity(count=40, still=0.0):
    """A planar velocity: its z is one number."""
    a, u = tiny.waves(count, tiny.X)
    targets = np.stack([u, a * u, np.full_like(u, still)], -1)
    return ipot.Dataset.from_arrays(
        points=tiny.X, values=a, targets=targets, outputs=["v_x", "v_y", "v_z"]
    )


@pytest.mark.parametrize("blend", [True, False])
@pytest.mark.parametrize("still", [0.0, 3.5])
def test_it_is_answered_as_it_is_and_not_scored(still, blend, capsys):
    data = velocity(still=still)
    model = fit(data, epochs=2, model=tiny.TINY, device="cpu", blend=blend)
    a = tiny.waves(1, tiny.X, seed=9)[0][0]
    assert (model.predict(points=tiny.X, values=a)[..., 2] == np.float32(still)).all()
    said = capsys.readouterr().err.splitlines()
    assert f"v_z is {still:g} in all samples: answered as that, and not scored" in said
    assert not [line for line in said if "v_z" in line and "%" in line]
    assert list(model.scores["per_channel"]) == ["v_x", "v_y"]
    assert list(model.scores["baselines_per_channel"]["mean field"]) == ["v_x", "v_y"]


def test_it_counts_nothing_in_training():
    losses = [
        fit(velocity(still=s), epochs=2, model=tiny.TINY, device="cpu", quiet=True).scores
        for s in (0.0, 1000.0)
    ]
    for name in ("validation", "held_out"):
        assert losses[0][name] == pytest.approx(losses[1][name], rel=1e-3)


def test_nothing_but_zeros_has_no_percentage(capsys):
    a, u = tiny.waves(40, tiny.X)
    data = ipot.Dataset.from_arrays(points=tiny.X, values=a, targets=0 * u)
    model = fit(data, epochs=1, model=tiny.TINY, device="cpu")
    said = capsys.readouterr().err
    assert "nothing is left to score" in said
    assert "relative L2" not in said
    assert (model.predict(points=tiny.X, values=a) == 0).all()


def test_a_sample_of_zeros_is_scored_in_the_size_of_the_others():
    truth = torch.stack([torch.zeros(1, 4, 1), torch.full((1, 4, 1), 50.0)])
    found = score([(truth + 5.0, truth, None, None)])
    assert found.per_sample == pytest.approx([0.1, 0.1])
    alone = score([(truth[:1] + 5.0, truth[:1], None, None)])
    assert alone.per_sample == pytest.approx([10.0])
