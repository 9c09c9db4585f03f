"""Systems side by side: equal terms, honest rows, and a comparison that can be stopped."""

import json
import os
import signal
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from training.toys import CPU, PROBLEM

from ipot.errors import DataError, RunError, UnknownName, Unsupported
from ipot.evaluation.evaluate import evaluate
from ipot.problems.base import Problem
from ipot.recipes import compare as module
from ipot.recipes.compare import chosen, compare, shared
from ipot.recipes.experiment import experiment, load_data
from ipot.recipes.published import quoted
from ipot.recipes.running import restore
from ipot.run_folder import Run
from ipot.training.step import Step
from ipot.training.trainer import Stopped

from .toy_systems import Hungry, modules

MINUTES = 0.002


@pytest.fixture
def toys(monkeypatch):
    """The names that small systems can be compared under."""
    monkeypatch.setattr(Hungry, "calls", 0)
    paths = {}
    for made in modules():
        monkeypatch.setitem(sys.modules, made.__name__, made)
        paths[made.__name__.removeprefix("toys.")] = made.__name__
    return paths


@pytest.fixture(autouse=True)
def released(monkeypatch):
    """How often memory was given back, which takes long where much is loaded."""
    calls = []
    monkeypatch.setattr(module, "release_memory", lambda: calls.append(True))
    return calls


@pytest.fixture
def base():
    return shared("training.toys")


@pytest.fixture
def side_by_side(tmp_path, store, base):
    def call(*models, base=base, **terms):
        options = {"minutes": MINUTES, "store": store, "device": "cpu", "quiet": True, **terms}
        return compare(base, models, tmp_path / "out", **options)

    return call


@pytest.fixture
def steps(monkeypatch):
    """The number of every step that is run."""
    taken, run = [], Step.__call__

    def count(self, work, number, rate):
        taken.append(number)
        run(self, work, number, rate)

    monkeypatch.setattr(Step, "__call__", count)
    return taken


def config(folder):
    return json.loads((folder / "config.json").read_text())


def by_name(found):
    return {row.model: row for row in found.rows}


def test_rows_say_what_the_runs_did(tmp_path, side_by_side, toys, store):
    found = side_by_side(toys["double"], toys["linear"], seed=3)
    assert [row.error for row in found.rows] == sorted(row.error for row in found.rows)
    for row in found.rows:
        model, settings = restore(tmp_path / "out" / row.model)
        test = load_data(settings, "test", store=store, device=CPU)
        assert row.error == pytest.approx(evaluate(model, test).relative_l2, rel=1e-5)
        assert row.parameters == sum(p.numel() for p in model.parameters())
        assert row.reason == ""
    linear = by_name(found)[toys["linear"]]
    result = json.loads((tmp_path / "out" / linear.model / "result.json").read_text())
    assert (linear.epochs, linear.seconds) == (result["epochs"], result["seconds"])
    assert linear.setup_seconds == result["setup_seconds"]
    assert linear.peak_gib == result["peak_gib"]
    # 12 samples in batches of 10 are one step an epoch.
    assert linear.epoch_seconds == pytest.approx(result["seconds"] / result["steps"])
    assert linear.curve
    assert min(error for _, error in linear.curve) == result["best_validation"]
    assert json.loads((tmp_path / "out" / "compare.json").read_text()) == json.loads(
        json.dumps(found.as_dict())
    )


def test_the_mean_field_is_scored_on_the_same_test(side_by_side, toys, store, base):
    found = side_by_side(toys["linear"])
    train, test = (load_data(base, split, store=store, device=CPU) for split in ("train", "test"))
    guess = torch.stack([train[i].truth for i in range(len(train))]).mean(0)
    errors = [
        ((guess - test[i].truth).norm() / test[i].truth.norm()).item() for i in range(len(test))
    ]
    assert found.mean_field == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_terms_are_equal_and_recipes_keep_the_rest(tmp_path, side_by_side, toys):
    names = (toys["double"], toys["linear"])
    side_by_side(*names, seed=5, augment=True)
    settings = [config(tmp_path / "out" / name) for name in names]
    for name in ("minutes", "seed", "augment", "epochs"):
        assert {s["training"][name] for s in settings} == {
            {"minutes": MINUTES, "seed": 5, "augment": True, "epochs": module.PLENTY}[name]
        }
    assert settings[0]["data"] == settings[1]["data"]
    assert settings[0]["problem"] == settings[1]["problem"]


def test_augmentation_is_off_unless_asked_whatever_a_recipe_says():
    assert experiment("darcy", "ipot").training.augment
    terms = {"minutes": 1.0, "seed": 0, "augment": False}
    base = shared("darcy")
    plan = module._plan(base, "ipot", terms, partial(module._of_problem, base, small=False))
    assert not plan.settings.training.augment
    assert (
        plan.settings.training.learning_rate == experiment("darcy", "ipot").training.learning_rate
    )
    assert plan.settings.model == experiment("darcy", "ipot").model


def test_what_has_ended_is_not_trained_again(side_by_side, toys, steps, released):
    names = (toys["linear"], toys["picky"], toys["double"])
    first = side_by_side(*names)
    assert steps
    assert len(released) == 2
    steps.clear()
    assert side_by_side(*names).rows == first.rows
    assert steps == []
    assert len(released) == 2


def test_what_a_kill_left_beside_an_ended_system_goes(tmp_path, side_by_side, toys):
    folder = tmp_path / "out" / toys["linear"]
    side_by_side(toys["linear"])
    before = sorted(os.listdir(folder))
    (folder / ".lock").touch()
    side_by_side(toys["linear"])
    assert sorted(os.listdir(folder)) == before


def test_a_system_that_joins_later_stands_beside_those_before(side_by_side, toys, steps):
    alone = side_by_side(toys["linear"])
    taken = len(steps)
    both = side_by_side(toys["double"])
    assert {row.model for row in both.rows} == {toys["linear"], toys["double"]}
    assert next(r for r in both.rows if r.model == toys["linear"]) == alone.rows[0]
    assert len(steps) > taken


def test_a_system_that_was_trained_is_scored_without_training(tmp_path, side_by_side, toys, steps):
    first = side_by_side(toys["linear"])
    (tmp_path / "out" / toys["linear"] / "test.json").unlink()
    steps.clear()
    assert side_by_side(toys["linear"]).rows == first.rows
    assert steps == []


def test_a_comparison_that_was_stopped_goes_on(tmp_path, side_by_side, toys, steps, monkeypatch):
    first = side_by_side(toys["linear"], minutes=0.01)
    counted = Step.__call__

    def interrupt(self, work, number, rate):
        counted(self, work, number, rate)
        os.kill(os.getpid(), signal.SIGINT)

    names = (toys["linear"], toys["double"], toys["picky"])
    steps.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", interrupt)
        with pytest.raises(Stopped):
            side_by_side(*names, minutes=0.01)
    assert steps == [0]
    assert not (tmp_path / "out" / toys["double"] / "result.json").exists()
    steps.clear()
    found = by_name(side_by_side(*names, minutes=0.01))
    assert steps[0] == 1
    assert found[toys["linear"]] == first.rows[0]
    assert found[toys["double"]].error is not None
    assert found[toys["double"]].seconds >= 0.6


def test_a_folder_of_another_comparison_is_refused_before_any_work(side_by_side, toys, steps, base):
    side_by_side(toys["linear"])
    steps.clear()
    with pytest.raises(RunError, match=r"toys\.linear holds .*training\.seed.*another --out"):
        side_by_side(toys["double"], toys["linear"], seed=1)
    fewer = replace(base, data=replace(base.data, train=11))
    with pytest.raises(RunError, match=r"data\.train"):
        side_by_side(toys["linear"], base=fewer)
    assert steps == []


def test_a_system_that_cannot_does_not_stop_the_others(side_by_side, toys):
    names = ("picky", "late", "diverging", "hungry", "linear")
    found = side_by_side(*(toys[name] for name in names))
    assert found.rows[0].model == toys["linear"]
    assert found.rows[0].error < 1
    reasons = {name: by_name(found)[toys[name]].reason for name in names}
    # Its first loss is a number: on a busy machine the clock may leave it at that one step.
    assert reasons.pop("diverging").startswith("diverged: ")
    assert reasons == {
        "picky": "Picky needs more",
        "late": "Late needs other data",
        "hungry": "out of memory",
        "linear": "",
    }
    assert all(row.error is None for row in found.rows[1:])
    assert by_name(found)[toys["picky"]].parameters is None
    assert by_name(found)[toys["hungry"]].parameters == 1


def test_a_system_that_diverged_has_ended_and_memory_is_tried_again(side_by_side, toys, steps):
    first = side_by_side(toys["diverging"], toys["hungry"])
    steps.clear()
    tried = Hungry.calls
    assert [row.reason for row in side_by_side(toys["diverging"], toys["hungry"]).rows] == [
        row.reason for row in first.rows
    ]
    assert steps == [0]
    assert Hungry.calls > tried


def test_a_mistake_in_a_system_is_in_the_table_and_the_others_are_compared(side_by_side, toys):
    found = side_by_side(toys["broken"], toys["linear"])
    linear, broken = found.rows  # those without an error come last
    assert broken.error is None
    assert broken.reason.startswith("its code failed: RuntimeError: ")
    assert "shapes cannot" in broken.reason
    assert linear.error is not None


def test_a_mistake_in_a_system_of_ours_is_not_hidden(side_by_side, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr("ipot.recipes.compare._train", fails)
    with pytest.raises(RuntimeError, match="shapes cannot"):
        side_by_side("transformer")


def test_data_that_cannot_be_had_end_the_comparison(side_by_side, toys, monkeypatch):
    def refuse(*args, **kwargs):
        raise DataError("no such files")

    monkeypatch.setattr(Problem, "load", refuse)
    with pytest.raises(DataError, match="no such files"):
        side_by_side(toys["linear"])


@pytest.fixture
def own_view(monkeypatch, toys):
    """The linear system's recipe sees the problem with 16 points."""

    def recipe(problem, model, preset):
        found = experiment(problem, model, preset)
        if model != toys["linear"]:
            return found
        return replace(found, problem=replace(found.problem, size=16))

    monkeypatch.setattr(module, "experiment", lambda p, m="ipot", s="default": recipe(p, m, s))


@pytest.mark.usefixtures("own_view")
def test_a_view_of_its_own_is_noted(tmp_path, side_by_side, toys):
    found = by_name(side_by_side(toys["linear"], toys["double"]))
    assert found[toys["linear"]].notes[0] == "its recipe sets problem.size to 16"
    assert not any("problem." in note for note in found[toys["double"]].notes)
    assert config(tmp_path / "out" / toys["linear"])["problem"]["size"] == 16
    assert config(tmp_path / "out" / toys["double"])["problem"]["size"] == 12


@pytest.mark.usefixtures("own_view")
def test_what_the_caller_chose_holds_for_all(tmp_path, side_by_side, toys, base):
    chosen_by_hand = replace(base, problem=replace(PROBLEM, size=20))
    found = side_by_side(toys["linear"], base=chosen_by_hand)
    assert not any("problem." in note for note in found.rows[0].notes)
    assert config(tmp_path / "out" / toys["linear"])["problem"]["size"] == 20


def test_epochs_that_end_first_are_noted(side_by_side, toys, monkeypatch):
    monkeypatch.setattr(module, "PLENTY", 2)
    row = side_by_side(toys["linear"], minutes=10.0).rows[0]
    assert row.epochs == 2
    assert row.notes == ("its epochs ended before the minutes did",)


def test_minutes_that_end_first_are_noted(side_by_side, toys, base):
    base = replace(base, data=replace(base.data, train=40))
    row = side_by_side(toys["linear"], base=base, minutes=1e-6).rows[0]
    assert row.epochs == 0
    assert row.epoch_seconds is None
    assert "the minutes ended before its first epoch did" in row.notes
    assert "its last step and validation ended more than a tenth beyond the minutes" in row.notes


def test_another_machine_is_noted(tmp_path, side_by_side, toys):
    side_by_side(toys["linear"])
    path = tmp_path / "out" / toys["linear"] / "config.json"
    content = json.loads(path.read_text())
    content["environment"]["gpu"] = "a faster one"
    path.write_text(json.dumps(content))
    notes = side_by_side(toys["linear"]).rows[0].notes
    assert "trained elsewhere: gpu a faster one" in notes


@pytest.mark.parametrize(
    ("problem", "model", "viscosity"),
    [("darcy", "ipot", None), ("navier_stokes", "ipot", 1e-4), ("navier_stokes", "ipot", 2e-4)],
)
def test_published_errors_stand_beside(tmp_path, problem, model, viscosity):
    base = shared(problem)
    if viscosity is not None:
        base = replace(base, problem=replace(base.problem, viscosity=viscosity))
    plan = module.Entrant(model=model, reason="not now")
    row = module.row_of(plan, tmp_path, {"reason": "not now"}, base, 1.0)
    wanted = quoted(problem, model, viscosity=viscosity)
    assert row.published == (wanted.error if wanted else None)
    assert (row.published is None) == (viscosity == 2e-4)


def test_what_is_in_doubt_is_no_published_error(tmp_path):
    plan = module.Entrant(model="fno", reason="not now")
    row = module.row_of(plan, tmp_path, {"reason": "not now"}, shared("plasticity"), 1.0)
    assert row.published is None
    assert any("elasticity again" in note for note in row.notes)


def test_sizes_for_a_first_look_are_held_against_nothing_published(tmp_path):
    plan = module.Entrant(model="ipot", reason="not now")
    row = module.row_of(plan, tmp_path, {"reason": "not now"}, shared("darcy"), 1.0, small=True)
    assert row.published is None
    assert row.source == ""
    plan = module.Entrant(model="fno", reason="not now")
    base = shared("plasticity")
    assert module.row_of(plan, tmp_path, {"reason": "not now"}, base, 1.0, small=True).notes == ()


def test_a_busy_machine_is_said_and_kept(side_by_side, toys, monkeypatch):
    monkeypatch.setattr(module, "busy_cores", lambda: (1.25, 4))
    lines = []
    row = side_by_side(toys["linear"], tell=lines.append).rows[0]
    said = "other programs kept 1.2 of 4 cores busy"
    assert row.notes[0] == f"{said} when it began"
    assert any(line.startswith(f"{said}: its minutes are worth less") for line in lines)
    monkeypatch.setattr(module, "busy_cores", lambda: (0.0, 4))
    rows = by_name(side_by_side(toys["linear"], toys["double"]))
    assert f"{said} when it began" in rows[toys["linear"]].notes
    assert not any("busy" in note for note in rows[toys["double"]].notes)


@pytest.mark.parametrize(("busy", "cores", "said"), [(0.5, 2, False), (0.6, 2, True)])
@pytest.mark.parametrize("many", [1, 10])
def test_a_little_work_of_others_is_no_busy_machine(monkeypatch, busy, cores, said, many):
    busy = busy if many == 1 else {0.5: 2.0, 0.6: 2.1}[busy]
    monkeypatch.setattr(module, "busy_cores", lambda: (busy, cores * many))
    assert bool(module._crowded("cpu")) == said


def test_names():
    assert chosen(["ipot", "transformer,ipot"]) == ["ipot", "transformer"]
    assert "ipot" in chosen("all")
    assert chosen(" ipot, transformer,ipot ") == ["ipot", "transformer"]
    with pytest.raises(UnknownName, match="Did you mean 'ipot'"):
        chosen("ipott")
    with pytest.raises(UnknownName, match="no system"):
        chosen(" , ")
    with pytest.raises(UnknownName, match="default, paper"):
        shared("darcy", "best")


def test_a_preset_that_a_system_lacks_is_a_reason(side_by_side, toys):
    found = side_by_side(toys["linear"], base=shared("training.toys", "paper"))
    assert "no preset `paper`" in found.rows[0].reason


def test_terms_that_cannot_work_are_refused(side_by_side, toys, monkeypatch):
    with pytest.raises(Unsupported, match="minutes must be positive"):
        side_by_side(toys["linear"], minutes=0.0)
    with pytest.raises(Unsupported, match="no symmetry"):
        side_by_side("ipot", base=shared("sst"), augment=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Unsupported, match="one process"):
        side_by_side(toys["linear"])


def test_scores_that_cannot_be_read_are_named(tmp_path, side_by_side, toys):
    side_by_side(toys["linear"])
    (Run(tmp_path / "out" / toys["linear"]).path / "test.json").write_text("{")
    with pytest.raises(RunError, match=r"test\.json.*Remove it"):
        side_by_side(toys["linear"])
