"""Answers as the change since the last input frame: added where asked, scaled, and saved."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from training.films import PROBLEM, films
from training.toys import CPU, Kill, assert_same_run

import ipot
from ipot.cli import main
from ipot.data.dataset import Ragged
from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.evaluation.predict import predict
from ipot.models._wrappers import wrap
from ipot.models.base import OneStep
from ipot.recipes.experiment import build, build_model, experiment, statistics_of
from ipot.run_folder import Run
from ipot.samples import Batch
from ipot.spec import Need
from ipot.training.settings import Training
from ipot.training.trainer import Stopped, train
from models.toys import Config, Stencil
from tests.contracts.cases import small_config

SPEC = replace(PROBLEM.spec, change=True)
IDENTITY = Statistics.identity(3, 1)


class Still(OneStep):
    """Nothing ever changes."""

    needs = frozenset({Need.POINTS})

    def advance(self, batch):
        return batch.values.new_zeros(batch.size, batch.queries.shape[-2], 1)


def test_no_change_is_persistence_at_the_points_and_between_them():
    model = wrap(Still(None, SPEC), IDENTITY)
    x = torch.linspace(0, 0.9, 10).view(1, -1, 1)
    values = torch.randn(2, 10, 3)
    values[1, :, 1] = 3 * x[0, :, 0]
    times = (0.5, 1.0, 1.5)
    still = model(Batch(points=x, values=values, queries=x, times=times))
    torch.testing.assert_close(still, values[:, None, :, 1:2].expand(-1, 3, -1, -1))
    # Elsewhere the frame is interpolated: exactly at an input, and along a line.
    places = torch.cat([x[:, 3:4], x[:, 3:7] + 0.03], 1)
    between = model(Batch(points=x, values=values, queries=places, times=times[:1]))
    torch.testing.assert_close(between[:, 0, 0, 0], values[:, 3, 1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(between[1, 0, :, 0], 3 * places[0, :, 0], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["ipot", "lno", "relay"])
def test_the_last_frame_is_added_to_what_the_model_answers(name):
    plain = build_model(name, small_config(name), PROBLEM.spec)
    model = build_model(name, small_config(name), SPEC)
    batch = replace(films(4).data, times=(0.5,), targets=None)
    frame = batch.values[:, None, :, 1:2]
    torch.testing.assert_close(model(batch), plain(batch) + frame)
    whole = replace(films(4).data, targets=None)
    torch.testing.assert_close(predict(model, whole, rows=7), model(whole), rtol=1e-4, atol=1e-5)


def test_a_step_starts_from_the_frame_before_it():
    torch.manual_seed(0)
    model = wrap(Stencil(Config(), SPEC), IDENTITY)
    batch = replace(films(4).data, targets=None)
    first = model(replace(batch, times=(0.5,)))
    seen = torch.stack([batch.values[..., 1], first[:, 0, :, 0], batch.values[..., 2]], -1)
    again = model(replace(batch, values=seen, times=(0.5,)))
    torch.testing.assert_close(model(batch)[:, 1], again[:, 0])


@pytest.mark.parametrize("stacked", [True, False])
def test_outputs_are_scaled_by_their_changes(stacked):
    data = films()
    frames = torch.cat([data.data.values[:, None, :, 1:2], data.data.truth], 1).double()
    given = data if stacked else Ragged([data[i] for i in range(12)])
    for kind, changes in (("ipot", frames[:, 1:] - frames[:, :1]), ("fno", frames.diff(dim=1))):
        settings = experiment("navier_stokes", kind)
        settings = replace(settings, problem=PROBLEM, training=Training(change=True))
        found = statistics_of(settings, given)
        torch.testing.assert_close(found.output_mean[0], changes.mean())
        torch.testing.assert_close(found.output_scale[0], changes.std(correction=0))
        usual = statistics_of(replace(settings, training=Training()), given)
        assert usual.output_scale[0] > found.output_scale[0]


def fit(path, objective=None, change=True, **changes):
    torch.manual_seed(0)
    spec = replace(PROBLEM.spec, change=change)
    usual = {"epochs": 4, "batch": 4, "save_seconds": 0.0, "change": change, "average": 0.9}
    settings = Training(**usual | changes)
    statistics = Statistics.of(films(), since=(2, 1) if change else None, each=True)
    model = wrap(Stencil(Config(), spec), statistics)
    run = Run.open(path) if path.exists() else Run.create(path, {})
    options = {"device": CPU, "objective": objective, "quiet": True}
    return train(model, films(), films(4, "validation"), settings, run, **options)


def test_a_run_is_resumed_exactly_and_is_another_than_without(tmp_path):
    whole = fit(tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", Kill(7, signal.SIGTERM))
    fit(tmp_path / "stopped")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    assert fit(tmp_path / "fields", change=False).loss != whole.loss


def test_a_run_and_the_saved_model_answer_with_the_whole_field(tmp_path):
    out = str(tmp_path / "run")
    sizes = [f"--model.{n}={v}" for n, v in (("width", 8), ("latents", 4), ("blocks", 1))]
    sizes += ["--model.heads=2", "--model.cross-heads=2", "--model.bins=4"]
    words = ["train", "training.films", "--out", out, "--data", str(tmp_path / "data"), "--quiet"]
    assert main([*words, *sizes, "--training.epochs=1", "--training.change"]) == 0
    model = ipot.load(out)
    assert type(model.model).__name__ == "Change"
    sample = films(1)[0]
    answer = model.predict(sample.points.numpy(), sample.values.numpy())
    model.save(tmp_path / "saved")
    again = ipot.load(tmp_path / "saved")
    np.testing.assert_allclose(
        again.predict(sample.points.numpy(), sample.values.numpy()), answer, rtol=1e-5, atol=1e-6
    )
    assert again.spec.change


def test_what_has_no_frames_to_change_is_refused():
    steady = replace(experiment("darcy"), training=Training(change=True))
    with pytest.raises(Unsupported, match=r"--training\.change .* darcy has no past frames"):
        build(steady)
    relay = replace(experiment("navier_stokes", "relay"), training=Training(change=True))
    relay = replace(relay, model=replace(relay.model, change=True))
    with pytest.raises(Unsupported, match="would add the frame twice"):
        build(relay)
    dino = replace(experiment("navier_stokes", "dino"), training=Training(change=True))
    with pytest.raises(Unsupported, match="trained by the error of their answers, and dino is not"):
        build(dino)
