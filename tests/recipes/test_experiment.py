"""From settings to a run folder and back."""

from dataclasses import replace

import pytest
import torch
from training.toys import CPU, SPEC, TINY, assert_same_run, line

from ipot import registry
from ipot.data.store import Store
from ipot.errors import Diverged, IpotError, RunError, UnknownName, Unsupported
from ipot.evaluation.evaluate import evaluate
from ipot.models.base import parameter_count
from ipot.problems.base import Problem
from ipot.recipes import paper
from ipot.recipes.experiment import PRESETS, build, build_model, experiment, load_data
from ipot.recipes.running import restore
from ipot.recipes.running import resume as resume_run
from ipot.recipes.running import run as run_experiment
from ipot.run_folder import Run
from ipot.training import checkpoint, journal, trainer
from ipot.training.objective import RelativeL2


@pytest.fixture
def run(store):
    return lambda settings, out, **more: run_experiment(
        settings, out, store=store, device="cpu", quiet=True, **more
    )


@pytest.fixture
def resume(store):
    return lambda out: resume_run(out, store=store, device="cpu", quiet=True)


@pytest.fixture
def no_data(monkeypatch):
    """Fail when data are asked for: what is wrong with the settings should be said before."""

    def refuse(*args, **kwargs):
        raise AssertionError("data were generated first")

    monkeypatch.setattr(Problem, "load", refuse)


def test_a_run_leaves_a_whole_folder(tmp_path, small, run, store):
    settings = small(epochs=3)
    result = run(settings, tmp_path / "run")
    folder = Run.open(tmp_path / "run")
    names = {"config.json", "metrics.jsonl", "last.safetensors", "best.safetensors", "result.json"}
    assert names <= {path.name for path in folder.path.iterdir()}
    model, again = restore(folder.path)
    assert again == settings
    validation = load_data(settings, "validation", store=store, device=CPU)
    error = evaluate(model, validation).relative_l2
    assert error == pytest.approx(result.best_validation, rel=1e-6)
    last, _ = restore(folder.path, weights="last")
    assert evaluate(last, validation).relative_l2 == pytest.approx(result.validation, rel=1e-6)


def test_a_run_that_was_stopped_is_resumed_exactly(tmp_path, small, run, resume, monkeypatch):
    settings = small(epochs=4, save_seconds=0.0, average=0.9)
    run(settings, tmp_path / "whole")

    class Crash(Exception):
        pass

    def crash(self, journal, watch, **more):
        if self.state.step == 9:
            raise Crash
        return end_epoch(self, journal, watch, **more)

    end_epoch = trainer.Trainer._end_epoch
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_end_epoch", crash)
        with pytest.raises(Crash):
            run(settings, tmp_path / "stopped")
    resume(tmp_path / "stopped")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.usefixtures("no_data")
def test_an_existing_run_is_refused_before_any_work(tmp_path, small, run):
    Run.create(tmp_path, small().as_dict())
    with pytest.raises(RunError, match="already holds a run"):
        run(small(), tmp_path)


@pytest.mark.usefixtures("no_data")
def test_a_start_that_is_no_run_is_refused_before_any_work(tmp_path, small, run):
    with pytest.raises(RunError, match="not a run folder"):
        run(small(), tmp_path / "run", start_from=tmp_path / "nothing")


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "graph"},
        {"model": replace(TINY, cross_heads=3)},
        {"model": replace(TINY, bins=(1, 1))},
    ],
    ids=["graph on a CPU", "heads", "bins"],
)
def test_settings_that_cannot_work_leave_no_run_behind(tmp_path, small, run, wrong):
    """Otherwise the corrected command would be refused, since the folder holds a run."""
    with pytest.raises(IpotError):
        run(small(**wrong), tmp_path / "run")
    run(small(), tmp_path / "run")


def first_loss(path):
    return journal.read(path / "metrics.jsonl")[0]["loss"]


def test_fine_tuning_starts_from_the_weights_and_scales_of_the_other_run(
    tmp_path, small, run, store
):
    run(small(epochs=20), tmp_path / "source")
    # A batch of all samples: the loss of the first epoch is that of the first step.
    settings = replace(small(batch=12, epochs=1), problem=replace(small().problem, size=9))
    run(settings, tmp_path / "tuned", start_from=tmp_path / "source")
    model, _ = restore(tmp_path / "source")
    batch = load_data(settings, "train", store=store, device=CPU).batch(torch.arange(12))
    with torch.no_grad():
        expected = RelativeL2()(model, batch).item()
    assert first_loss(tmp_path / "tuned") == pytest.approx(expected, rel=1e-5)
    run(settings, tmp_path / "fresh")
    assert first_loss(tmp_path / "fresh") > 1.02 * expected
    tuned, source = (
        checkpoint.load(tmp_path / n / "best.safetensors")[0] for n in ("tuned", "source")
    )
    assert torch.equal(tuned["input_scale"], source["input_scale"])


def test_fine_tuning_killed_before_its_first_checkpoint_starts_there_again(
    tmp_path, small, run, resume, monkeypatch
):
    run(small(), tmp_path / "source")
    run(small(), tmp_path / "whole", start_from=tmp_path / "source")
    run(small(), tmp_path / "killed", start_from=tmp_path / "source")
    for name in ("last.safetensors", "best.safetensors", "metrics.jsonl", "result.json"):
        (tmp_path / "killed" / name).unlink()
    resume(tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_a_relative_start_is_found_from_another_folder(tmp_path, small, run, resume, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(small(), "source")
    run(small(), "tuned", start_from="source")
    (tmp_path / "tuned" / "last.safetensors").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(tmp_path / "tuned").steps == 6


def test_weights_of_another_shape_are_no_start(tmp_path, small, run):
    run(small(), tmp_path / "source")
    with pytest.raises(RunError, match=r"do not fit this model .*other shape: inner\.encoder"):
        run(small(model=replace(TINY, latents=5)), tmp_path / "t", start_from=tmp_path / "source")


def test_a_run_that_diverged_can_be_resumed(tmp_path, small, run, resume):
    with pytest.raises(Diverged):
        run(small(learning_rate=1e30, clip=None, epochs=40, warmup=0.0), tmp_path / "run")
    with pytest.raises(Diverged):
        resume(tmp_path / "run")


def test_weights_start_from_the_seed_alone(small):
    def weights(seed):
        model = build(small(seed=seed))
        return torch.cat([p.flatten() for p in model.parameters()])

    torch.manual_seed(1)
    first = weights(0)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(weights(0), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(weights(1), first)


def test_settings_that_do_not_fit_are_said_in_words():
    with pytest.raises(RunError, match=r"settings of ipot do not fit smoothing.*heads"):
        build_model("ipot", replace(TINY, cross_heads=3), SPEC)


@pytest.mark.parametrize("problem", registry.names("problems"))
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build_for_every_problem(problem, preset):
    if preset != "default" and problem not in paper.TABLE | paper.STAND_INS:
        with pytest.raises(UnknownName, match=f"the paper has no problem '{problem}'"):
            experiment(problem, preset=preset)
        return
    settings = experiment(problem, preset=preset)
    assert build(settings).spec == settings.problem.spec
    assert settings.normalize == (preset == "default")


@pytest.mark.parametrize(
    ("problem", "parameters"),
    [
        ("burgers", 439_444),
        ("darcy", 150_232),
        ("navier_stokes", 473_258),
        ("airfoil", 123_354),
        ("elasticity", 167_008),
        ("plasticity", 129_174),
        ("shallow_water", 510_616),
        ("era5", 513_636),
        ("era5_synthetic", 513_636),
    ],
)
def test_the_papers_model_has_its_size_on_the_real_problem(problem, parameters):
    """The spec of the table and that of the problem agree in all that a model is sized from."""
    assert parameter_count(build(experiment(problem, preset="paper"))) == parameters


def test_names_that_are_unknown():
    with pytest.raises(UnknownName, match=r"unknown preset 'best'\. Known: default, paper"):
        experiment("darcy", preset="best")
    with pytest.raises(UnknownName, match="Did you mean 'darcy'"):
        experiment("darcey")
    with pytest.raises(UnknownName, match="no preset `paper`"):
        experiment("training.toys", preset="paper")


def test_a_store_that_cannot_be_written_is_said(tmp_path, small):
    (tmp_path / "file").write_text("")
    with pytest.raises(IpotError, match="--data"):
        run_experiment(small(), tmp_path / "run", store=Store(tmp_path / "file"), device="cpu")


def test_a_device_that_is_not_there(tmp_path, small):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Unsupported, match="no GPU"):
        run_experiment(small(), tmp_path / "run", device="cuda")


def test_the_toy_has_the_grid_that_it_says(small, store):
    data = load_data(small(), "train", store=store, device=CPU)
    assert torch.equal(data.data.points.flatten(), line(12))
