"""Training on random subsets of sensors: which are drawn, an exact resume, what is refused."""

import signal
from collections import Counter

import pytest
import torch
from models.toys import Config, Stencil

from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import wrap
from ipot.training.draws import Draws
from ipot.training.settings import Training, shares
from ipot.training.trainer import Stopped
from training import films
from training.toys import DATA, EVERYTHING, SPEC, Kill, assert_same_run, fit

SOME = {"batch": 4, "points_least": 0.25}


def test_fractions_are_halved_down_to_the_least():
    assert shares(Training()) == [1.0]
    assert shares(Training(points_least=0.25)) == [1.0, 0.5, 0.25]
    assert shares(Training(points=0.8, points_least=0.3)) == [0.8, 0.4, 0.3]
    assert shares(Training(points=0.5, points_least=0.5)) == [0.5]


@pytest.mark.parametrize("kind", DATA)
def test_every_step_draws_how_many_points_it_sees(kind):
    data = DATA[kind]()
    draws, again = (Draws(data, SPEC, Training(**SOME)) for _ in range(2))
    whole = Draws(data, SPEC, Training(batch=4))
    seen = Counter()
    for step in range(30):
        draw = draws(step)
        seen[draw.share] += 1
        assert again(step).share == draw.share
        assert torch.equal(draw.index, whole(step).index)
        made = [
            d.gather(d(step)) if data.resident else d.ragged_batch(step) for d in (draws, whole)
        ]
        counts = [
            torch.full((4,), b.values.shape[1]) if b.point_mask is None else b.point_mask.sum(1)
            for b in made
        ]
        expected = (draw.share * counts[1].double()).round().clamp(min=1).long()
        assert torch.equal(counts[0], expected)
        assert made[0].truth.shape == made[1].truth.shape
    assert set(seen) == {1.0, 0.5, 0.25}
    assert min(seen.values()) > 3


def test_an_example_has_the_shapes_of_every_draw():
    for kind in ("stacked", "packed"):
        draws = Draws(DATA[kind](), SPEC, Training(**SOME))
        examples = {draw.sizes: draw for draw in draws.examples()}
        for step in range(20):
            mine, like = draws(step), examples[draws(step).sizes]
            assert (mine.points is None) == (like.points is None)
            like.copy_(mine)
            assert draws.gather(like).values.shape == draws.gather(mine).values.shape
        assert len({share for _, share in examples}) == 3
        mesh = draws.mesh()[0]
        assert (mesh is None) == (kind == "packed")
        for share, draw in ((d.share, d) for d in draws.examples()):
            same = draws.gather(draw).points is mesh
            assert same == (kind == "stacked" and share == 1)


@pytest.mark.parametrize("data", DATA)
def test_a_run_is_resumed_exactly(tmp_path, data):
    settings = EVERYTHING | {"points_least": 0.25, "data": data}
    fit(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", objective=Kill(7, signal.SIGTERM), **settings)
    fit(tmp_path / "stopped", **settings)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    fit(tmp_path / "other", **settings | {"points_least": None})
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "other", tmp_path / "whole")


def test_what_cannot_be_is_refused(tmp_path):
    for wrong in (0.0, -1.0, 0.6, float("nan")):
        with pytest.raises(Unsupported, match="points_least must lie in"):
            Training(points=0.5, points_least=wrong)
    with pytest.raises(Unsupported, match=r"left out with training\.unroll"):
        Training(points_least=0.5, unroll=1)
    bound = wrap(Stencil(Config(), films.PROBLEM.spec), Statistics.identity(3, 1))
    with pytest.raises(Unsupported, match=r"--training\.points-least hides .* needs points"):
        fit(tmp_path, network=bound, points_least=0.5)
