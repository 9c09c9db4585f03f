"""Fits that start from a simple predictor: never worse than it, and whole in every respect."""

import numpy as np
import pytest
import torch

import ipot
from ipot.errors import Unsupported
from ipot.evaluation.kernels import regress_fields
from ipot.evaluation.principal_components import Matrix
from ipot.evaluation.simple_start import simple_start
from ipot.models._departure import departing
from ipot.nn.neighbours import curved_weights
from ipot.own.fit import fit
from ipot.saved.export import export
from tests.own import tiny

WAVES = np.stack([np.sin((k + 1) * np.pi * tiny.X[:, 0] + k * tiny.X[:, 1]) for k in range(4)])


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
def model(tmp_path_factory):
    return tiny.quick(linear(), out=tmp_path_factory.mktemp("fits") / "linear")


def test_it_is_never_behind_the_linear_model(model):
    assert departing(model.model) is not None
    assert model.scores["held_out"] < 1.1 * model.scores["baselines"]["linear (PCA)"] + 1e-3
    without = tiny.quick(linear(), simple="none")
    assert departing(without.model) is None
    assert without.scores["held_out"] > 0.3


def test_two_numbers_are_learned_by_a_kernel_which_is_printed_beside():
    found = tiny.quick(curved())
    simple = found.scores["baselines"]
    assert simple["kernel (PCA)"] < 0.2 * simple["linear (PCA)"]
    assert found.scores["held_out"] < 1.1 * simple["kernel (PCA)"]
    assert "kernel (PCA)" not in tiny.quick(linear(), simple="none").scores["baselines"]


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
    near = model.predict(points=tiny.X, values=values, queries=tiny.X + 1e-5)
    np.testing.assert_allclose(near, answer, atol=1e-2)
    order = np.random.default_rng(0).permutation(len(tiny.X))
    mixed = model.predict(points=tiny.X[order], values=values[:, order], queries=tiny.X)
    np.testing.assert_allclose(mixed, answer, atol=1e-3)
    _, low, high = again.predict(points=tiny.X, values=values, interval=0.5)
    assert (low < high).all()


def test_chunks_are_answered_as_the_whole(model):
    values = linear(seed=1).data.data.values[0, :, 0].numpy()
    whole = model.predict(points=tiny.X, values=values)
    parts = model.predict(points=tiny.X, values=values, rows=5)
    np.testing.assert_allclose(parts, whole, atol=1e-5)


def test_a_graph_has_it_inside(model, tmp_path):
    report = export(model.model, model.spec, tmp_path / "m.pt2", format="pt2", tolerance=1e-3)
    assert report["difference"] < 1e-3


def test_a_fit_that_was_stopped_ends_in_the_same_bits(model, tmp_path, monkeypatch):
    from ipot.training import trainer

    ready, saved = tmp_path / "resumed", trainer.Trainer._agree
    monkeypatch.setattr(trainer.Trainer, "_agree", lambda self, wish, ended: self.state.step == 3)
    with pytest.raises(KeyboardInterrupt):
        tiny.quick(linear(), out=ready)
    monkeypatch.setattr(trainer.Trainer, "_agree", saved)
    resumed = tiny.quick(linear(), resume=ready)
    pairs = zip(model.model.state_dict().items(), resumed.model.state_dict().items(), strict=True)
    assert all(torch.equal(a, b) and n == m for (n, a), (m, b) in pairs)


def test_another_fit_may_start_from_it(model, tmp_path):
    folder = model.save(tmp_path / "saved")
    first = tiny.quick(linear(), out=tmp_path / "first", epochs=1)
    other = tiny.quick(linear(seed=5), start_from=tmp_path / "first", epochs=1)
    assert torch.equal(departing(first.model).fields, departing(other.model).fields)
    assert folder.is_dir()


def test_steps_beyond_those_of_training_stay_with_the_last_answer():
    found = tiny.quick(linear(steps=2))
    start = departing(found.model)
    assert start is not None
    values = linear(seed=1).data.data.values[0, :, 0].numpy()
    answer = found.predict(points=tiny.X, values=values, steps=3)
    assert answer.shape == (3, 12)
    state = found.encode(points=tiny.X, values=values)
    np.testing.assert_allclose(state.at(tiny.X, steps=3), answer, atol=1e-5)
    coefficients = torch.ones(1, start.fields.shape[0])
    fields = start.simple(coefficients, [1, 2, 3], start.queries.unsqueeze(0))
    assert torch.equal(fields[:, 1], fields[:, 2])
    assert not torch.equal(fields[:, 0], fields[:, 1])


def test_in_training_no_sample_is_answered_by_itself():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=draw, dtype=torch.float64)
    noise = torch.randn(30, 20, generator=draw, dtype=torch.float64)
    rows, columns = Matrix(30, 3, lambda r: x[r]), Matrix(30, 20, lambda r: noise[r])
    # The mean field is the best that can be said of noise.
    assert regress_fields(rows, columns, torch.ones(20)).choice.is_mean
    field = torch.outer(torch.sin(2 * x[:, 0]), torch.ones(20, dtype=torch.float64))
    found = regress_fields(rows, Matrix(30, 20, lambda r: field[r]), torch.ones(20))
    guessed = found.mean + found.held_out @ found.fields
    known = found(x)
    assert (known - field).norm() < 0.5 * (guessed - field).norm()


def test_noise_and_meshes_that_differ_are_not_started_from():
    data = linear(30)
    values = torch.randn(data.data.data.truth.shape, generator=torch.Generator().manual_seed(1))
    noise = ipot.Dataset.from_arrays(
        points=tiny.X, values=data.data.data.values.numpy(), targets=values[:, 0].numpy()
    )
    assert simple_start(noise.data, noise.spec) is None
    assert simple_start(data.data, data.spec) is not None
    uneven = tiny.data("uneven", 30)
    assert simple_start(uneven.data, uneven.spec) is None


@pytest.mark.parametrize(
    "told",
    [
        {"model": {"name": "deeponet", "width": 8, "layers": 1}},
        {"training": {"points_least": 0.5}},
        {"preset": "paper", "model": {"width": 16, "latents": 8}},
    ],
)
def test_what_cannot_start_from_it_does_without(told, monkeypatch):
    made = {}

    def stop(settings, *_, **__):
        made["simple"] = settings.simple
        raise KeyboardInterrupt

    monkeypatch.setattr("ipot.own.fit.running.run", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(linear(), epochs=1, quiet=True, device="cpu", **told)
    assert made["simple"] == ()


def test_another_choice_is_refused():
    with pytest.raises(Unsupported, match="simple must be auto or none"):
        fit(linear(), simple="linear", quiet=True)


def test_parabolas_are_met():
    draw = torch.Generator().manual_seed(0)
    way = torch.rand(1, 1, 12, 2, generator=draw) - 0.5
    weight = curved_weights(way, torch.ones(1, 1, 12, dtype=torch.bool))
    x, y = way.unbind(-1)
    for field in (torch.ones_like(x), x, y, x * x, x * y - 2 * y * y):
        at_origin = 1.0 if bool((field == 1).all()) else 0.0
        assert float((weight * field).sum()) == pytest.approx(at_origin, abs=5e-3)
