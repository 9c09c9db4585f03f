"""DINo: codes that are found, moved and decoded, and how they are learnt."""

import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from training.toys import assert_same_run

from ipot.data.dataset import Ragged, Stacked
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.evaluation.metrics import relative_l2
from ipot.models._wrappers import wrap
from ipot.models.base import Latent, parameter_count
from ipot.models.dino import AutoDecoding, Config, DINo
from ipot.recipes.experiment import experiment
from ipot.recipes.running import run
from ipot.run_folder import Run
from ipot.samples import Batch, Sample, collate
from ipot.seeds import generator
from ipot.spec import Spec
from ipot.training import checkpoint, journal
from ipot.training.settings import Training
from ipot.training.trainer import Stopped, train

CPU = torch.device("cpu")
SPEC = Spec(
    name="toy",
    inputs=("u(-1)", "v(-1)", "u(0)", "v(0)", "ground"),
    outputs=("u", "v"),
    domain=((-1.0, 1.0), (0.0, 3.0)),
    history=2,
    steps=4,
)
SMALL = Config(code=4, width=16, layers=2, frequency=6.0, dynamics=12, fit_steps=5)
SCALES = Statistics(
    input_mean=torch.tensor([0.5, -0.2, 0.7, -0.4, 9.0]),
    input_scale=torch.tensor([2.0, 0.5, 1.5, 0.7, 3.0]),
    output_mean=torch.tensor([1.0, -0.1]),
    output_scale=torch.tensor([1.2, 0.9]),
    parameter_mean=torch.zeros(0),
    parameter_scale=torch.ones(0),
)


def bare(config=SMALL, spec=SPEC, **changes):
    torch.manual_seed(0)
    return DINo(replace(config, **changes), spec).double()


def places(count, n):
    low, high = torch.tensor(SPEC.domain).double().T
    return low + (high - low) * torch.rand(count, n, 2).double()


def samples(times=(1.0, 2.0, 4.0)):
    """Of different sizes, observed and asked at different places."""
    torch.manual_seed(1)
    return [
        Sample(
            points=places(1, n)[0],
            values=torch.randn(n, 5).double(),
            queries=places(1, m)[0],
            targets=torch.randn(len(times), m, 2).double(),
            times=times,
            index=i,
        )
        for i, (n, m) in enumerate([(5, 3), (2, 6), (7, 4)])
    ]


def prepared(model, data=None):
    """An objective whose codes are not zero."""
    objective = model.objective()
    groups = objective.prepare(model, data or Ragged(samples()))
    assert [g["params"][0] for g in groups] == [objective.codes]
    with torch.no_grad():
        objective.codes.normal_(generator=torch.Generator().manual_seed(3))
    return objective


def drawn(count=2):
    return torch.rand(count, 2, 4, generator=torch.Generator().manual_seed(2)).double() - 0.5


# Descent


def test_the_code_of_a_known_field_is_found():
    """The decoder is injective at this size, so the field has no other code."""
    model, codes = bare(fit_steps=400, fit_rate=0.05), drawn()
    points = places(2, 40)
    with torch.no_grad():
        field = model.decode(Latent(codes), points)
        values = torch.cat([torch.randn(2, 40, 2), field, torch.randn(2, 40, 1)], -1)
        found = model.encode(Batch(points=points, values=values, queries=points))
        assert ((model.decode(found, points) - field).norm() / field.norm()) < 1e-3
        elsewhere = places(2, 30)
        expected = model.decode(Latent(codes), elsewhere)
        assert (model.decode(found, elsewhere) - expected).norm() < 1e-3 * expected.norm()
    torch.testing.assert_close(found.state, codes, atol=5e-3, rtol=0)


def test_only_the_last_frame_is_fitted():
    model, batch = bare(), collate(samples())
    with torch.no_grad():
        before = model.encode(batch).state
        for channel, matters in enumerate([False, False, True, True, False]):
            values = batch.values.clone()
            values[..., channel] += 1.0
            after = model.encode(replace(batch, values=values)).state
            assert torch.equal(after, before) is not matters


def test_a_sample_without_any_point_keeps_the_code_of_the_start():
    model, batch = bare(), collate(samples())
    mask = batch.point_mask.clone()
    mask[1] = False
    values = batch.values.clone().requires_grad_()
    out = model.encode(replace(batch, point_mask=mask, values=values)).state
    assert torch.equal(out[1], torch.zeros(2, 4).double())
    out.sum().backward()
    assert values.grad.isfinite().all()
    assert prepared(model)(model, replace(batch, point_mask=mask)).isfinite()


def test_gradients_are_the_same_wherever_they_are_taken():
    """Under inference mode the descent still descends, and to the same place."""
    model, batch = bare(fit_steps=12), collate(samples())
    with_graph = model(batch)
    with torch.no_grad():
        plain = model(batch)
    with torch.inference_mode():
        made = {name: getattr(batch, name).clone() for name in ("points", "values", "point_mask")}
        made_here = replace(batch, **made)
        assert made_here.values.is_inference()
        inside = model(made_here)
    assert with_graph.requires_grad
    assert not plain.requires_grad
    torch.testing.assert_close(plain, with_graph.detach(), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(inside.clone(), plain, atol=1e-12, rtol=1e-12)


def test_the_derivative_of_the_descent_is_that_of_differences():
    model, batch = bare(), collate(samples()[:1])
    direction = torch.randn_like(batch.values)
    weights = torch.randn(1, 2, 4).double()

    def read(h):
        return (
            model.encode(replace(batch, values=batch.values + h * direction)).state * weights
        ).sum()

    h = torch.zeros((), dtype=torch.float64, requires_grad=True)
    read(h).backward()
    with torch.no_grad():
        slope = (read(1e-6) - read(-1e-6)) / 2e-6
    assert abs(slope) > 1e-6
    assert h.grad.item() == pytest.approx(slope.item(), rel=1e-4)


def test_autocast_changes_nothing():
    model, batch = bare().float(), collate(samples()).astype(torch.float32)
    with torch.no_grad():
        plain = model(batch)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(model(batch), plain)


# Scales


def test_what_is_observed_and_what_is_answered_have_the_same_units():
    """A field in physical units comes back through code and decoder, though the statistics of
    inputs and outputs differ; the map between them is stored with the weights."""
    model = wrap(bare(fit_steps=400, fit_rate=0.05), SCALES).double()
    prepared(model)
    codes, points = drawn(), places(2, 40)
    with torch.no_grad():
        field = model.decode(Latent(codes), points)
        values = torch.cat([torch.randn(2, 40, 2), field, torch.randn(2, 40, 1)], -1)
        batch = Batch(points=points, values=values, queries=points)
        again = model.decode(model.encode(batch), points)
        assert (again - field).norm() < 1e-3 * field.norm()
        copy = wrap(bare(fit_steps=400, fit_rate=0.05), SCALES).double()
        copy.load_state_dict(model.state_dict())
        torch.testing.assert_close(copy.decode(copy.encode(batch), points), again)


def test_the_loss_does_not_depend_on_who_scales():
    """The same numbers, in physical units with scales and in scaled units without."""
    inside, data = bare(), samples()
    outside = wrap(inside, SCALES).double()
    objective = prepared(outside)
    loss = objective(outside, collate(data))
    batch = collate(data)
    frame = (batch.values[..., 2:4] - SCALES.output_mean) / SCALES.output_scale
    values = torch.cat([batch.values[..., :2], frame, batch.values[..., 4:]], -1)
    targets = (batch.truth - SCALES.output_mean) / SCALES.output_scale
    plain = prepared(inside)
    torch.testing.assert_close(inside.frame_scale, torch.ones(2).double())
    torch.testing.assert_close(plain(inside, replace(batch, values=values, targets=targets)), loss)


# The objective


def test_reconstruction_is_the_mean_square_over_samples_frames_and_real_points():
    model, data = bare(), samples()
    objective, batch = prepared(model), collate(data)
    expected = 0.0
    with torch.no_grad():
        for sample, codes in zip(data, objective.codes, strict=True):
            frames = [(sample.points, sample.values[:, 2:4])]
            frames += [(sample.queries, target) for target in sample.truth]
            for code, (where, wanted) in zip(codes, frames, strict=True):
                field = model.decode(Latent(code[None]), where[None])[0]
                expected += (field - wanted).square().mean().item() / 4 / 3
    scaled = wrap(model, Statistics.identity(5, 2)).double()
    found = objective.reconstruction(scaled, batch, objective.codes[batch.index])
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("forced", [True, False])
def test_the_dynamics_follow_the_codes_over_every_step(forced):
    """At first from the code before, in the end from the first; the times are 1, 2 and 4."""
    model, batch = bare(), collate(samples())
    objective = prepared(model)
    objective.follow(torch.tensor(0 if forced else 10**9))
    codes, expected = objective.codes[batch.index].detach(), 0.0
    now = codes[:, 0]
    for place, steps in enumerate((1, 1, 2)):
        now = codes[:, place] if forced else now
        for _ in range(steps):
            now = model.step(Latent(now)).state
        expected = expected + (now - codes[:, place + 1]).square().mean() / 3
    torch.testing.assert_close(objective.following(model, batch, codes), expected)


def test_fields_teach_decoder_and_codes_and_codes_teach_the_dynamics():
    model, batch = bare(), collate(samples())
    objective = prepared(model)
    scaled, codes = wrap(model, Statistics.identity(5, 2)).double(), objective.codes[batch.index]
    parts = {
        "fields": objective.reconstruction(scaled, batch, codes),
        "dynamics": objective.following(model, batch, codes.detach()),
    }
    torch.testing.assert_close(objective(model, batch), parts["fields"] + parts["dynamics"])
    named = {"codes": objective.codes, **dict(model.named_parameters())}
    objective(model, batch).backward()
    whole = {name: p.grad.clone() for name, p in named.items()}
    for part, loss in parts.items():
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, _), grad in zip(named.items(), grads, strict=True):
            if name.startswith("dynamics") == (part == "dynamics"):
                torch.testing.assert_close(grad, whole[name])
                assert grad.abs().sum() > 0
            else:
                assert grad is None


def test_codes_are_those_of_the_samples_in_the_batch():
    model, data = bare(), Ragged(samples())
    objective = prepared(model, data)
    objective(model, data.batch(torch.tensor([2, 0]))).backward()
    assert [bool(g.any()) for g in objective.codes.grad] == [True, False, True]
    alone = [objective(model, data.batch(torch.tensor([i]))) for i in (0, 2)]
    together = objective(model, data.batch(torch.tensor([2, 0])))
    torch.testing.assert_close(together, sum(alone) / 2)


def test_the_group_of_the_codes():
    model = bare(code_factor=7.0)
    objective = model.objective()
    (group,) = objective.prepare(model, Ragged(samples()))
    assert objective.codes.shape == (3, 1 + 3, 2, 4)
    assert objective.codes.dtype == torch.float64
    assert not objective.codes.any()
    assert (group["factor"], group["weight_decay"]) == (7.0, 0.0)


def test_coins_fall_evenly_and_independently():
    objective = prepared(bare())
    falls = []
    for step in range(2000):
        objective.follow(torch.tensor(step))
        falls.append(objective.coins())
    falls = torch.stack(falls)
    assert falls.min() >= 0
    assert falls.max() < 1
    low = (falls < 0.3).double()
    assert (low.mean(0) - 0.3).abs().max() < 0.02
    assert (low.T @ low / 2000 - 0.09 - 0.21 * torch.eye(3)).abs().max() < 0.03


def test_what_cannot_be_learnt_from_is_refused():
    model, data = bare(), samples()
    twice = Ragged(data)
    twice.samples[2] = replace(twice.samples[2], index=1)
    with pytest.raises(DataError, match="number 2 says that it is 1"):
        model.objective().prepare(model, twice)
    mixed = [replace(data[0], times=(1.0, 2.0, 3.0)), *data[1:]]
    with pytest.raises(DataError, match="same times"):
        model.objective().prepare(model, Ragged(mixed))
    with pytest.raises(DataError, match=r"batch\.index"):
        prepared(model)(model, replace(collate(data), index=None))
    with pytest.raises(Unsupported, match="a DINo, got a Linear"):
        model.objective().prepare(torch.nn.Linear(1, 1), Ragged(data))


# Training

WAVES = Spec(
    name="waves",
    inputs=("u(0)",),
    outputs=("u",),
    domain=((0.0, 1.0),),
    history=1,
    steps=3,
)
TINY = Config(code=6, width=16, layers=1, frequency=8.0, dynamics=24, fit_steps=60, fit_rate=0.03)


def waves(count, seed, ragged=False, still=False):
    """Waves of different height and phase that run to the right, an eighth of a turn each step."""
    random = generator(seed, "waves")
    made = []
    for index in range(count):
        height, phase = 1 + torch.rand((), generator=random), torch.rand((), generator=random)
        n, m = torch.randint(12, 20, (2,), generator=random).tolist() if ragged else (16, 16)
        x, y = torch.rand(n, generator=random), torch.rand(m, generator=random)

        def at(x, t, height=height, phase=phase):
            turn = x - phase - (0 if still else t / 8)
            return (0.5 + height * torch.sin(2 * math.pi * turn))[:, None]

        ahead = torch.stack([at(y, t) for t in (1.0, 2.0, 3.0)])
        places = {"points": x[:, None], "queries": y[:, None], "times": (1.0, 2.0, 3.0)}
        made.append(Sample(**places, values=at(x, 0.0), targets=ahead, index=index))
    return Ragged(made) if ragged else Stacked(collate(made))


class Stopping(AutoDecoding):
    """Sends this process a signal in the middle of a step."""

    def __call__(self, model, batch):
        if self.count == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__call__(model, batch)


def fit(path, kind=AutoDecoding, *, ragged=False, config=TINY, samples=12, **settings):
    training = Training(**{"batch": 4, "step": "eager", **settings})
    data, held_out = waves(samples, 0, ragged), waves(4, 1, ragged)
    torch.manual_seed(0)
    model, objective = wrap(DINo(config, WAVES), Statistics.of(data)), kind(config)
    path.mkdir(exist_ok=True)
    result = train(
        model, data, held_out, training, Run(path), device=CPU, objective=objective, quiet=True
    )
    return model, objective, result


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    """It takes seconds to import."""
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)


@pytest.mark.parametrize("ragged", [False, True])
def test_a_run_that_was_stopped_goes_on_with_its_codes(tmp_path, ragged):
    config = replace(TINY, fit_steps=3, forcing_steps=5.0)
    settings = {"ragged": ragged, "config": config, "epochs": 4, "average": 0.9}
    _, whole, _ = fit(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", Stopping, **settings)
    stored = checkpoint.load(tmp_path / "stopped" / "last.safetensors")[0]
    assert stored["objective/0"].shape == (12, 4, 1, 6)
    _, resumed, _ = fit(tmp_path / "stopped", **settings)
    assert whole.count == resumed.count == 12
    assert whole.codes.abs().min() > 0
    assert torch.equal(resumed.codes, whole.codes)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.plain
def test_it_learns_waves_that_run(tmp_path):
    """The error of whole rollouts, from codes that were fitted to new samples."""
    settings = {"epochs": 30, "learning_rate": 1e-2, "validate_every": 30, "samples": 24}
    config = replace(TINY, forcing_steps=100.0, code_factor=3.0)
    _, _, result = fit(tmp_path, config=config, **settings, clip=None)
    truth, start = waves(4, 1).data.truth, waves(4, 1, still=True).data.truth
    assert relative_l2(start, truth).mean() > 0.5
    assert result.validation < 0.15


def test_a_sample_that_is_turned_has_another_code(tmp_path):
    settings = experiment("navier_stokes", "dino")
    settings = replace(settings, training=replace(settings.training, augment=True))
    with pytest.raises(Unsupported, match=r"leave --training\.augment out"):
        run(settings, tmp_path / "run", device="cpu")


# Sizes and refusals


@pytest.mark.parametrize(
    ("config", "dimension", "channels", "decoder", "dynamics"),
    [
        (Config(), 2, 1, 38593 - 128, 628327),
        (
            Config(code=200, width=256, layers=6, frequency=128.0, dynamics=800),
            3,
            2,
            757121 - 768,
            1922803,
        ),
    ],
)
def test_the_published_sizes(config, dimension, channels, decoder, dynamics):
    """Of the authors' networks for Navier-Stokes and shallow water, less the map of the position
    in their first layer, which they multiply by zero."""
    fields = tuple("uv"[:channels])
    domain = ((-1.0, 1.0),) * dimension
    spec = Spec(name="toy", inputs=fields, outputs=fields, domain=domain, history=1, steps=2)
    model = DINo(config, spec)
    assert parameter_count(model.decoder) == decoder
    assert parameter_count(model.dynamics) == dynamics


def test_problems_that_it_cannot_take_are_refused():
    with pytest.raises(Unsupported, match="past frames"):
        DINo(SMALL, replace(SPEC, history=0, provides=frozenset()))
    with pytest.raises(Unsupported, match="no place for parameters"):
        DINo(SMALL, replace(SPEC, parameters=("p",)))
    with pytest.raises(Unsupported, match="two domains"):
        DINo(SMALL, replace(SPEC, query_domain=((0.0, 1.0),) * 2, query_periods=()))


@pytest.mark.parametrize(
    ("name", "value"),
    [("code", 0), ("layers", -1), ("fit_steps", 0), ("fit_rate", math.nan), ("dynamics", 0)],
)
def test_nonsense_is_refused(name, value):
    with pytest.raises(Unsupported, match=f"model.{name} must be positive"):
        replace(SMALL, **{name: value})


def test_an_odd_width_is_refused():
    with pytest.raises(Unsupported, match="must be even, got 7"):
        replace(SMALL, width=7)
