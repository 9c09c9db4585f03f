"""Fits whose answers are blended with a simple predictor's: never far behind it, and whole."""

import numpy as np
import pytest
import torch

import ipot
from ipot.errors import RunError
from ipot.evaluation.regression import Matrix, regress_fields
from ipot.models._blend import Blend
from ipot.nn.neighbours import curved_weights
from ipot.own.blending import best_shares
from ipot.report.tables import percent
from ipot.saved.export import export
from ipot.surrogate.summary import who_answers
from own import tiny

WAVES = np.stack([np.sin((k + 1) * np.pi * tiny.X[:, 0] + k * tiny.X[:, 1]) for k in range(4)])


def blend_of(model):
    """The simple predictor that a model's answers are blended with, if they are."""
    return next((part for part in model.modules() if isinstance(part, Blend)), None)


def linear(count=40, steps=1, seed=0):
    """Answers that are linear in the inputs, and differ from them."""
    c = np.random.default_rng(seed).standard_normal((count, 4))
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
    u = np.stack([c @ np.linalg.matrix_power(turn, k + 1) @ WAVES for k in range(steps)], 1)
    times = {"times": [float(k + 1) for k in range(steps)]} if steps > 1 else {}
    targets = u if steps > 1 else u[:, 0]
    return ipot.Dataset.from_arrays(points=tiny.X, values=c @ WAVES, targets=targets, **times)


def curved(count=40, seed=0):
    """Two numbers to a field that is not linear in them."""
    p = np.random.default_rng(seed).random((count, 2))
    x = tiny.X
    u = np.sin(3 * p[:, :1] + 2 * x[:, 0]) * np.exp(p[:, 1:] * x[:, 1])
    return ipot.Dataset.from_arrays(queries=x, parameters=p, targets=u)


@pytest.fixture(scope="module")
def model():
    return tiny.quick(linear())


def test_it_is_not_behind_the_linear_model(model):
    assert blend_of(model.model).share.tolist() == [1.0]
    assert model.scores["held_out"] < 1.1 * model.scores["baselines"]["linear (PCA)"] + 1e-3
    assert "it counts 100 %" in model.about["blend"]
    parts = model.scores["parts"]
    assert parts["linear model alone"] == pytest.approx(model.scores["held_out"])
    assert parts["the network alone"] > 0.3
    said = " ".join(" ".join(model.score_lines()).split())
    assert "ipot, by its linear model alone" in said
    assert "the network alone" in said
    without = tiny.quick(linear(), blend=False)
    assert blend_of(without.model) is None
    assert "parts" not in without.scores or not without.scores["parts"]
    assert without.scores["held_out"] > 0.3


def test_a_report_says_which_part_answers(model, tmp_path):
    """And what each is worth by itself on the samples that this was chosen by."""
    each = model.scores["validation of each"]
    assert set(each) == {"the network alone", "linear model alone"}
    assert each["linear model alone"] == pytest.approx(model.scores["validation"], rel=1e-3)
    assert each["the network alone"] > 2 * each["linear model alone"]
    said = model.score_lines()
    assert "what answers: the linear model alone, and nothing of the network" in said
    line = next(line for line in said if line.startswith("on the validation samples"))
    for name, error in each.items():
        assert f"{name} {percent(error)}" in line
    model.save(tmp_path / "saved")
    assert ipot.load(tmp_path / "saved", device="cpu").score_lines() == said
    # A fit without a simple predictor says nothing of one.
    assert not any("what answers" in s for s in tiny.quick(linear(), blend=False).score_lines())


def test_where_both_or_the_network_alone_answer():
    scores = {"held_out": 0.1, "validation": 0.1}
    scores["validation of each"] = {"the network alone": 0.2, "kernel regression alone": 0.3}

    def said(**shares):
        about = {"simple predictor": {"kind": "kernel regression", "shares": shares}}
        return who_answers(scores, about)

    assert said(u=0.0)[0] == "what answers: the network alone, and nothing of the kernel regression"
    assert "as it answers" not in said(u=0.0)[1]
    assert said(u=0.35)[0] == "what answers: both, 35 % kernel regression and 65 % network"
    assert said(u=0.35)[1].endswith(
        "the network alone 20.0 %, kernel regression alone 30.0 %, as it answers 10.0 %"
    )
    assert said(u=1.0, v=0.0)[0] == (
        "what answers: u, the kernel regression alone, and nothing of the network; "
        "v, the network alone, and nothing of the kernel regression"
    )


def test_the_network_alone_is_said_too(monkeypatch):
    """A simple predictor that does not help is compared all the same."""
    monkeypatch.setattr("ipot.own.blending.HELPS", 0.0)
    found = tiny.quick(linear())
    assert blend_of(found.model) is None
    assert "blend" not in found.about
    said = found.score_lines()
    assert "what answers: the network alone, and nothing of the linear model" in said
    assert found.scores["validation of each"]["linear model alone"] < 0.5


def test_meshes_may_differ():
    draw = np.random.default_rng(5)
    points = [draw.random((n, 2)) for n in draw.integers(60, 90, 40)]
    c = draw.standard_normal((40, 2))
    fields = [np.stack([np.cos(2 * p[:, 0]), p[:, 1]]) for p in points]
    values = [one @ f for one, f in zip(c, fields, strict=True)]
    targets = [(one * [2, -1]) @ f for one, f in zip(c, fields, strict=True)]
    data = ipot.Dataset.from_arrays(points=points, values=values, targets=targets)
    found = tiny.quick(data)
    assert float(blend_of(found.model).share) > 0.8
    assert found.scores["held_out"] < 0.1


def test_a_place_on_the_globe_and_a_rollout():
    globe = tiny.data("globe", 40)
    found = tiny.quick(globe)
    assert blend_of(found.model) is not None
    assert found.scores["held_out"] < 0.9 * tiny.quick(globe, blend=False).scores["held_out"]


def test_two_numbers_are_learned_by_a_kernel_which_is_printed_beside():
    found = tiny.quick(curved())
    simple = found.scores["baselines"]
    assert simple["kernel (PCA)"] < 0.2 * simple["linear (PCA)"]
    assert found.scores["held_out"] < 1.1 * simple["kernel (PCA)"]
    assert "kernel (PCA)" not in tiny.quick(linear(), blend=False).scores["baselines"]


def test_it_is_saved_loaded_encoded_and_asked_anywhere(model, tmp_path):
    again = ipot.load(model.save(tmp_path / "saved"))
    values = linear(seed=1).data.data.values[:3, :, 0].numpy()
    answer = model.predict(points=tiny.X, values=values)
    np.testing.assert_allclose(again.predict(points=tiny.X, values=values), answer)
    state = model.encode(points=tiny.X, values=values)
    np.testing.assert_allclose(state.at(tiny.X), answer, atol=1e-5)
    some = model.predict(points=tiny.X, values=values, queries=tiny.X[:5])
    np.testing.assert_allclose(some, answer[:, :5], atol=1e-5)
    # Close by, where answers are carried to, they are hardly others.
    there = model.predict(points=tiny.X, values=values, queries=tiny.X + 1e-5)
    np.testing.assert_allclose(there, answer, atol=1e-2)
    order = np.random.default_rng(0).permutation(len(tiny.X))
    mixed = model.predict(points=tiny.X[order], values=values[:, order], queries=tiny.X)
    np.testing.assert_allclose(mixed, answer, atol=1e-3)
    _, low, high = again.predict(points=tiny.X, values=values, interval=0.5)
    assert (low <= high).all()


def test_chunks_are_answered_as_the_whole(model):
    values = linear(seed=1).data.data.values[0, :, 0].numpy()
    whole = model.predict(points=tiny.X, values=values)
    parts = model.predict(points=tiny.X, values=values, rows=5)
    np.testing.assert_allclose(parts, whole, atol=1e-5)


@pytest.mark.slow
def test_a_graph_has_it_inside(model, tmp_path):
    report = export(model.model, model.spec, tmp_path / "m.pt2", format="pt2", tolerance=1e-3)
    assert report["difference"] < 1e-3


def test_a_fit_that_is_resumed_ends_alike(tmp_path, monkeypatch):
    from ipot.training import trainer

    whole, agree = tiny.quick(curved()), trainer.Trainer._agree
    monkeypatch.setattr(trainer.Trainer, "_agree", lambda self, wish, ended: self.state.step == 3)
    with pytest.raises(KeyboardInterrupt):
        tiny.quick(curved(), out=tmp_path / "fit")
    monkeypatch.setattr(trainer.Trainer, "_agree", agree)
    resumed = tiny.quick(curved(), resume=tmp_path / "fit")
    both = whole.model.state_dict(), resumed.model.state_dict()
    assert both[0].keys() == both[1].keys()
    assert all(torch.equal(a, both[1][name]) for name, a in both[0].items())
    # Another fit starts from the weights of the network.
    again = tiny.quick(curved(seed=5), start_from=tmp_path / "fit", epochs=1)
    assert np.isfinite(again.scores["held_out"])


def test_a_network_that_was_to_stay_alone_stays_so_when_resumed(tmp_path):
    whole = tiny.quick(linear(), out=tmp_path / "fit", blend=False)
    again = tiny.quick(linear(), resume=tmp_path / "fit")
    assert blend_of(again.model) is None
    assert again.scores == whole.scores
    config = tmp_path / "fit" / "training" / "config.json"
    config.write_text(config.read_text().replace('"blend": false', '"blend": "no"'))
    with pytest.raises(RunError, match="blend must be"):
        tiny.quick(linear(), resume=tmp_path / "fit")
    # Runs of before say nothing of it.
    config.write_text(config.read_text().replace('"blend": "no"', '"other": 1'))
    assert blend_of(tiny.quick(linear(), resume=tmp_path / "fit").model) is not None


def test_beyond_the_steps_of_training_the_network_answers_alone():
    found = tiny.quick(linear(steps=2))
    blend = blend_of(found.model)
    assert blend is not None
    blend.share.fill_(1.0)
    values = linear(seed=1).data.data.values[0, :, 0].numpy()
    answer = found.predict(points=tiny.X, values=values, steps=4)
    state = found.encode(points=tiny.X, values=values)
    np.testing.assert_allclose(state.at(tiny.X, steps=4), answer, atol=1e-5)
    blend.share.fill_(0.0)
    alone = found.predict(points=tiny.X, values=values, steps=4)
    np.testing.assert_allclose(alone[2:], answer[2:], atol=1e-6)
    assert np.abs(alone[:2] - answer[:2]).max() > 0.1


def test_nodes_that_lie_upon_each_other_keep_their_own_sides():
    """Both sides of a crack are at one place, and answer otherwise."""
    places = np.concatenate([tiny.X, tiny.X[:4]])
    c = np.random.default_rng(0).standard_normal((40, 4))
    waves = np.concatenate([WAVES, 3 - WAVES[:, :4]], 1)
    data = ipot.Dataset.from_arrays(points=places, values=c @ waves, targets=2 * c @ waves)
    found = tiny.quick(data)
    assert blend_of(found.model).share.tolist() == [1.0]
    assert found.scores["held_out"] < 0.01
    again = found.predict(points=places, values=c[0] @ waves)
    np.testing.assert_allclose(again, 2 * c[0] @ waves, atol=0.05)


class Given(torch.nn.Module):
    """A model that answers with what it is told."""

    def __init__(self, spec, answers):
        super().__init__()
        self.spec, self.answers = spec, answers

    def forward(self, batch):
        return self.answers[batch.index]


def test_shares_are_those_with_the_least_error_of_each_channel():
    data = tiny.data("channels", 10)
    truth = data.data.data.truth
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    sizes = truth.square().mean((0, 1, 2)).sqrt()
    one, other = truth + noise * sizes, truth - noise * sizes * torch.tensor([1.0, 0.25, 1.0])
    models = [Given(data.spec, a).eval() for a in (one, other)]
    shares = best_shares(*models, data.data, [0, 1], torch.device("cpu"))
    assert shares.tolist() == pytest.approx([0.5, 0.8, 0.0])
    models = [Given(data.spec, a).eval() for a in (truth, other)]
    assert not best_shares(*models, data.data, [0, 1, 2], torch.device("cpu")).any()


def test_a_sample_of_zeros_does_not_outweigh_the_others():
    """Its error is as large as a field of others, though a number in large units."""
    truth = 1e4 * torch.randn(10, 1, 12, 1, generator=torch.Generator().manual_seed(0))
    truth[0] = 0
    data = ipot.Dataset.from_arrays(
        points=tiny.X, values=np.ones((10, 12)), targets=truth[:, 0, :, 0].numpy()
    )
    own, other = 1.01 * truth, 1.5 * truth
    own[0], other[0] = 100.0, 0.0  # which only the other answers well
    models = [Given(data.spec, a).eval() for a in (own, other)]
    shares = best_shares(*models, data.data, [0], torch.device("cpu"))
    assert shares.tolist() == [0.0]


def test_few_samples_choose_no_blend():
    few, more = tiny.quick(linear(29)), tiny.quick(linear(30))
    assert few.about["samples"]["validation"] == 2
    assert blend_of(few.model) is None
    assert "they chose the weights, and it is a little too low" in few.score_lines()[0]
    assert more.about["samples"]["validation"] == 10
    assert blend_of(more.model) is not None


def test_noise_is_answered_by_its_mean():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=draw, dtype=torch.float64)
    noise = torch.randn(30, 20, generator=draw, dtype=torch.float64)
    rows, columns = Matrix(30, 3, lambda r: x[r]), Matrix(30, 20, lambda r: noise[r])
    assert regress_fields(rows, columns, torch.ones(20)).choice.is_mean
    field = torch.outer(torch.sin(2 * x[:, 0]), torch.ones(20, dtype=torch.float64))
    line = Matrix(30, 1, lambda r: x[r, :1])
    found = regress_fields(line, Matrix(30, 20, lambda r: field[r]), torch.ones(20))
    assert found.choice.length > 0
    assert (found(x[:, :1]) - field).norm() < 0.1 * field.norm()


def test_of_many_samples_those_are_read_that_are_learned_from(monkeypatch):
    monkeypatch.setattr("ipot.evaluation.regression.MOST", 10)
    monkeypatch.setattr("ipot.evaluation.regression.LOOKED_AT", 10)
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    read = set()

    def rows(index):
        read.update(index.tolist())
        return x[index]

    found = regress_fields(Matrix(40, 2, rows), Matrix(40, 2, lambda r: 3 * x[r]), torch.ones(2))
    assert len(read) == 10
    assert (found(x) - 3 * x).norm() < 0.05 * x.norm()


def test_parabolas_are_met():
    draw = torch.Generator().manual_seed(0)
    way = torch.rand(1, 1, 12, 2, generator=draw) - 0.5
    weight = curved_weights(way, torch.ones(1, 1, 12, dtype=torch.bool))
    x, y = way.unbind(-1)
    for field in (torch.ones_like(x), x, y, x * x, x * y - 2 * y * y):
        at_origin = 1.0 if bool((field == 1).all()) else 0.0
        assert float((weight * field).sum()) == pytest.approx(at_origin, abs=5e-3)


def test_whoever_names_a_model_gets_its_answers():
    named = {"name": "relay", "blocks": 1, "width": 8, "heads": 2, "cross_heads": 2, "latents": 4}
    alone = ipot.fit(linear(), model=named, epochs=1, device="cpu", quiet=True)
    assert blend_of(alone.model) is None
    both = ipot.fit(linear(), model=named, epochs=1, device="cpu", quiet=True, blend=True)
    assert blend_of(both.model) is not None


def test_a_blend_that_was_asked_for_is_kept_when_the_named_model_goes_on(tmp_path):
    named = {"name": "relay", "blocks": 1, "width": 8, "heads": 2, "cross_heads": 2, "latents": 4}
    how = {"model": named, "epochs": 1, "device": "cpu", "quiet": True}
    ipot.fit(linear(), out=tmp_path / "fit", blend=True, **how)
    again = ipot.fit(linear(), resume=tmp_path / "fit", **how)
    assert blend_of(again.model) is not None
    alone = ipot.fit(linear(), resume=tmp_path / "fit", blend=False, **how)
    assert blend_of(alone.model) is None
