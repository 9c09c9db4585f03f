"""A model, a start or weights that will not do are refused by name, and before any work."""

import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from training import toys
from training.toys import TINY

from ipot import registry
from ipot.cli import main
from ipot.data.dataset import Ragged, Stacked
from ipot.errors import RunError, Unsupported
from ipot.models import transformer
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.recipes.experiment import able, build, build_model, experiment
from ipot.recipes.running import refuse_subsets, restore, resume, run
from ipot.samples import collate
from ipot.spec import Need, Spec
from ipot.training import checkpoint
from ipot.training.settings import Training

OTHER = transformer.Config(width=16, blocks=1, heads=2, cross_heads=2, bins=(3,))


@dataclass(frozen=True, kw_only=True)
class Twin(toys.Smoothing):
    """The same facts under another name."""

    name: ClassVar[str] = "twin"

    @property
    def spec(self):
        return replace(toys.SPEC, name="twin", steps=1)


PROBLEM = Twin()


@pytest.fixture
def no_data(monkeypatch):
    """Fail when data are asked for: what is wrong should be said before."""

    def refuse(*args, **kwargs):
        raise AssertionError("data were generated first")

    monkeypatch.setattr(Problem, "load", refuse)


@pytest.fixture
def train(store):
    """Train one epoch of a problem and model into a folder."""

    def go(out, problem="training.toys", model="ipot", config=TINY, start_from=None, **training):
        settings = experiment(problem, model)
        wanted = {"epochs": 1, "batch": 4, "step": "eager", **training}
        settings = replace(settings, training=replace(settings.training, **wanted))
        if config is not None:
            settings = replace(settings, model=config)
        keys = {"store": store, "device": "cpu", "quiet": True, "start_from": start_from}
        return run(settings, out, **keys)

    return go


# A problem that a model cannot handle.


def cloud(**fields):
    made = {"name": "cloud", "inputs": ("a",), "outputs": ("u",), "domain": ((0.0, 1.0),) * 2}
    return Spec(**made | fields)


def test_a_model_that_cannot_says_why_and_which_can():
    with pytest.raises(Unsupported) as error:
        build_model("models.toys", registry.module("models", "models.toys").Config(), cloud())
    said = str(error.value)
    assert "Stencil needs points that form a regular grid and queries at the input points" in said
    assert "cloud has none of that" in said
    can = said.split("Models that can: ")[1]
    assert {"ipot", "transformer"} <= set(can.rstrip(".").split(", "))


def test_steps_without_past_frames_say_which_can():
    config = registry.module("models", "models.toys").Config()
    grid = frozenset({Need.GRID, Need.SAME_POINTS})
    with pytest.raises(Unsupported, match=r"to take 3 steps, needs past frames.*can: .*ipot"):
        build_model("models.toys", config, cloud(steps=3, provides=grid))


class Never(Operator):
    """Refuses every problem, as a system may for a reason that no need says."""

    def __init__(self, config, spec):
        raise Unsupported("never")

    def forward(self, batch):
        return batch.values


def test_a_model_that_refuses_is_not_among_those_that_can(monkeypatch):
    monkeypatch.setattr(transformer, "MODEL", Never)
    assert "transformer" not in able(cloud())
    assert "ipot" in able(cloud())
    with pytest.raises(Unsupported, match=r"never\. Models that can: .*ipot"):
        build_model("transformer", OTHER, cloud())
    monkeypatch.setattr(registry, "names", lambda kind: ["transformer"])
    assert able(cloud()) == "No other model can either."


@pytest.mark.usefixtures("no_data")
def test_it_is_said_before_data_are_made(tmp_path, train):
    with pytest.raises(Unsupported, match=r"Stencil needs .*elasticity has none.*Models that can"):
        train(tmp_path / "run", "elasticity", "models.toys", config=None)
    assert not (tmp_path / "run").exists()


# Random subsets of points and queries.


class Needy(Operator):
    def __init__(self, *needs):
        super().__init__(None, cloud())
        self.needs = frozenset(needs)

    def forward(self, batch):
        return batch.values


@pytest.mark.parametrize("need", [Need.GRID, Need.FIXED_POINTS, Need.SAME_POINTS, Need.EDGES])
def test_a_model_of_whole_meshes_takes_all_points(need):
    said = rf"needs {need.value} and takes them all: set --training\.points 1"
    with pytest.raises(Unsupported, match=said):
        refuse_subsets(Needy(need), Training(points=0.5))
    refuse_subsets(Needy(need), Training())


def test_a_model_bound_to_its_points_takes_all_queries():
    with pytest.raises(Unsupported, match=r"queries at the input points.*--training\.queries 1"):
        refuse_subsets(Needy(Need.SAME_POINTS), Training(queries=0.5))
    refuse_subsets(Needy(Need.GRID), Training(queries=0.5))


@pytest.mark.parametrize("name", ["points", "queries"])
def test_pieces_of_rollouts_take_all_points_and_queries(name):
    with pytest.raises(Unsupported, match=rf"unroll starts .* set --training\.{name} 1"):
        refuse_subsets(Needy(), Training(unroll=1, **{name: 0.5}))
    refuse_subsets(Needy(), Training(**{name: 0.5}))


@pytest.mark.usefixtures("no_data")
def test_subsets_are_refused_before_data_are_made(tmp_path, train):
    with pytest.raises(Unsupported, match="takes them all"):
        train(tmp_path / "run", "training.films", "models.toys", config=None, points=0.5)


def test_pieces_are_refused_before_there_is_a_run(tmp_path, train):
    """Otherwise the corrected command would be refused, since the folder holds a run."""
    for wrong in (6, 9):
        with pytest.raises(Unsupported, match=f"unroll {wrong} of only 5 steps"):
            train(tmp_path / "run", "training.films", "models.toys", config=None, unroll=wrong)
    train(tmp_path / "run", "training.films", "models.toys", config=None, unroll=5)


class Own(registry.find("models", "models.toys")):
    """Trained in a way of its own."""

    def objective(self):
        return toys.RelativeL2()


@pytest.mark.usefixtures("no_data")
def test_pieces_are_not_silently_left_out(tmp_path, train, monkeypatch):
    monkeypatch.setattr(registry.module("models", "models.toys"), "MODEL", Own)
    with pytest.raises(Unsupported, match=r"trained in a way of its own: leave --training\.unroll"):
        train(tmp_path / "run", "training.films", "models.toys", config=None, unroll=1)


# Data that lack what the problem says it has.


def test_data_are_examined_for_what_a_view_took_away(make_sample):
    mesh, ring = make_sample(4, 4).points, torch.tensor([[0, 1], [1, 0]])
    fixed = {"points": mesh, "queries": mesh, "grid": (2, 2)}
    samples = [make_sample(4, 4, seed=i, **fixed) for i in range(3)]
    with_edges = Ragged([replace(s, edges=ring) for s in samples])
    everything = frozenset({Need.GRID, Need.FIXED_POINTS, Need.SAME_POINTS, Need.EDGES})

    def says(data, **facts):
        spec, model = cloud(provides=everything, **facts), Needy()
        model.spec, model.needs = spec, everything
        try:
            model.examine(data)
        except Unsupported as error:
            return {need for need in everything if need.value in str(error)}
        return set()

    assert says(with_edges) == set()
    assert says(with_edges, shape=(2, 2)) == set()
    assert says(with_edges, shape=(3, 2)) == {Need.FIXED_POINTS}
    assert says(Stacked(collate(samples))) == {Need.EDGES}
    few = Stacked(collate(samples).take_points(torch.tensor([0, 1])))
    assert says(few) == {Need.EDGES, Need.GRID, Need.SAME_POINTS}
    apart = Ragged([*samples[:2], replace(samples[2], points=mesh + 1)])
    assert says(apart) == {Need.EDGES, Need.FIXED_POINTS}


# Another run as a start.


@pytest.mark.parametrize("model", ["transformer", "models.toys"])
def test_a_run_of_another_model_is_no_start(tmp_path, train, model, request):
    train(tmp_path / "source")
    request.getfixturevalue("no_data")
    config = OTHER if model == "transformer" else None
    said = f"it holds ipot, and {model} cannot start from that"
    with pytest.raises(RunError, match=said):
        train(tmp_path / "run", model=model, config=config, start_from=tmp_path / "source")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_of_another_problem_is_no_start(tmp_path, train, request):
    train(tmp_path / "source")
    request.getfixturevalue("no_data")
    said = r"holds ipot for smoothing, and ipot for films cannot .*\(other inputs, history\)"
    with pytest.raises(RunError, match=said):
        train(tmp_path / "run", "training.films", start_from=tmp_path / "source")
    other = {"model": "models.toys", "config": None, "start_from": tmp_path / "source"}
    with pytest.raises(RunError, match=r"ipot for smoothing, and models\.toys for films cannot"):
        train(tmp_path / "run", "training.films", **other)


def test_a_problem_with_the_same_facts_is_a_start(tmp_path, train):
    """A stand-in and what it stands for, for instance."""
    train(tmp_path / "source")
    train(tmp_path / "run", "recipes.test_refused", start_from=tmp_path / "source")
    scales = [
        checkpoint.load(tmp_path / name / "best.safetensors")[0]["input_scale"]
        for name in ("source", "run")
    ]
    assert torch.equal(*scales)


# Weights that were copied from another run.


def copied(source, target, name="best.safetensors"):
    shutil.copy(source / name, target / name)


def test_weights_say_whose_they_are(tmp_path, train):
    assert build(experiment("training.toys")).name == "ipot"
    train(tmp_path / "run", "training.films", "models.toys", config=None)
    for name in ("best", "last"):
        state = checkpoint.load(tmp_path / "run" / f"{name}.safetensors")[1]
        assert (state["model"], state["problem"]) == ("models.toys", "films")


def test_weights_of_another_model_are_refused_by_name(tmp_path, train):
    train(tmp_path / "mine")
    train(tmp_path / "other", model="transformer", config=OTHER)
    said = "weights of transformer for smoothing, and weights of ipot for smoothing belong there"
    for name in ("best", "last"):
        copied(tmp_path / "other", tmp_path / "mine", f"{name}.safetensors")
        with pytest.raises(RunError, match=rf"{name}\.safetensors holds {said}"):
            restore(tmp_path / "mine", weights=name)
    with pytest.raises(RunError, match=said):
        resume(tmp_path / "mine", device="cpu", quiet=True)
    with pytest.raises(RunError, match=said):
        train(tmp_path / "tuned", start_from=tmp_path / "mine")


def test_weights_of_another_problem_are_refused_though_they_fit(tmp_path, train):
    train(tmp_path / "mine")
    train(tmp_path / "other", "recipes.test_refused")
    copied(tmp_path / "other", tmp_path / "mine")
    with pytest.raises(RunError, match="of ipot for twin, and weights of ipot for smoothing"):
        restore(tmp_path / "mine")


def test_weights_that_do_not_say_whose_they_are_are_tried(tmp_path, train):
    """Runs of before this was written down."""
    train(tmp_path / "mine")
    for name in ("best", "last"):
        path = tmp_path / "mine" / f"{name}.safetensors"
        tensors, state = checkpoint.load(path)
        for key in ("model", "problem"):
            del state[key]
        checkpoint.save(path, tensors, state)
        restore(tmp_path / "mine", weights=name)
    resume(tmp_path / "mine", device="cpu", quiet=True)


def test_the_command_says_it_too(tmp_path, train, capsys):
    train(tmp_path / "source")
    words = ["train", "training.toys", "transformer", "--out", str(tmp_path / "run")]
    assert main([*words, "--start-from", str(tmp_path / "source")]) == 1
    said = capsys.readouterr().err
    assert "it holds ipot, and transformer cannot start from that" in said
    assert "Traceback" not in said


def test_a_model_that_can_in_the_view_of_its_recipe_is_named():
    """DeepONet needs fixed points, and its recipe sees elasticity in such a way."""
    elasticity = registry.find("problems", "elasticity").spec
    assert "deeponet" in able(elasticity)
    assert "fno," not in able(elasticity).replace("ffno,", "")
    assert "dino" not in able(elasticity)
