"""A way to run a step that fails leaves no trace but a line in the log."""

import pytest
import torch
from torch import nn

from ipot.data.dataset import Ragged
from ipot.errors import DataError, RunError, Unsupported
from ipot.run_folder import Run
from ipot.training import checkpoint, execution
from ipot.training import step as step_module
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Step
from ipot.training.trainer import Trainer
from training.toys import CPU, SPEC, contents, fit, model, packed, ragged, stacked


class Broken(Exception):
    """What a compiler or a driver may raise."""


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """One that is always there and compiles nothing, so that regions run as they are."""
    monkeypatch.setattr(execution.shutil, "which", lambda name: name)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled(self))


def compiled(region):
    region._compiled_call_impl = region._call_impl


def broken(region):
    """A region that fails when it is called, as lazy compilers do, or behind its forward pass."""

    def fail(*args, **kwargs):
        raise Broken("no such instruction\nand a long explanation")

    region._compiled_call_impl = fail


@pytest.fixture
def captured(monkeypatch):
    """Captures that can be made on a CPU: they warm up, and replay by running."""
    made = []

    def recorded(work, *, rehearsals, before, pool):
        work()
        work()
        before()
        made.append(work)
        return work

    monkeypatch.setattr(step_module, "recorded", recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    return made


def make(mode, *, asked="auto", data=None, network=None, objective=None, world=None):
    """A step with a line of its log for each that it says, and a run of it."""
    settings = Training(batch=4, step=asked)
    network, data, said = network or model(), data or stacked(), []
    draws = Draws(data, SPEC, settings)
    step = Step(
        network,
        objective or RelativeL2(),
        make_optimizer(network, settings, [], CPU),
        draws,
        settings,
        device=CPU,
        precision="float32",
        mode=mode,
        world=world or World(),
        say=said.append,
    )
    step.start(0)
    return step, said


def steps(step, count=3):
    for number in range(count):
        step(step.draws(number), number, 1e-3)
    state = [v for entries in step.optimizer.state.values() for v in entries.values()]
    return [*step.parameters, *state, *step.ledger.buffers()]


def assert_like_eager(step, data=None):
    """Weights, optimiser and bookkeeping are those of a run that never tried anything else."""
    expected, _ = make("eager", data=data)
    for mine, theirs in zip(steps(step), steps(expected), strict=True):
        assert torch.equal(mine, theirs)
    assert step.ledger.count == 3


def test_a_compiler_that_fails_is_done_without(monkeypatch):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    step, said = make("compiled")
    assert_like_eager(step)
    assert step.mode == "eager"
    line = "steps run eagerly: Broken: no such instruction (--training.step eager for no more"
    assert said == [f"{line} attempts)"]


def test_a_failure_behind_the_update_is_undone(monkeypatch):
    """The optimiser has moved the weights by then, and has moments of its own."""
    step, said = make("compiled")
    update = step.optimizer.step

    def fail_once(*args, **kwargs):
        update(*args, **kwargs)
        monkeypatch.setattr(step.optimizer, "step", update)
        raise Broken("late")

    monkeypatch.setattr(step.optimizer, "step", fail_once)
    assert_like_eager(step)
    assert len(said) == 1


@pytest.mark.parametrize("data", [None, packed(40)], ids=["stacked", "packed"])
def test_a_capture_leaves_no_trace(captured, data):
    step, said = make("graph", data=data)
    assert_like_eager(step, data)
    assert (step.mode, said) == ("graph", [])
    assert len(captured) == (1 if data is None else len(data.boxes))


def test_regions_that_cannot_be_compiled_are_captured_as_they_are(monkeypatch, captured):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    step, said = make("graph")
    assert_like_eager(step)
    assert step.mode == "graph"
    assert len(said) == 1
    assert said[0].startswith("steps run captured but not compiled: Broken: no such instruction")


def test_a_step_that_cannot_be_captured_runs_eagerly(monkeypatch, captured):
    def fail(work, **options):
        work()
        raise Broken("operation not permitted when stream is capturing")

    monkeypatch.setattr(step_module, "recorded", fail)
    step, said = make("graph")
    assert_like_eager(step)
    assert step.mode == "eager"
    assert len(said) == 1
    assert "not permitted" in said[0]


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_way_that_was_asked_for_is_an_error(monkeypatch, captured, mode):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    step, said = make(mode, asked=mode)
    with pytest.raises(Unsupported, match=f"run as {mode} here: Broken.*step eager"):
        steps(step)
    assert said == []


def test_several_processes_do_not_part_company(monkeypatch):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    monkeypatch.setattr(step_module, "DistributedDataParallel", lambda model, device_ids: model)
    step, _ = make("compiled", world=World(rank=0, size=2))
    with pytest.raises(Unsupported, match="cannot be run as compiled"):
        steps(step)


def test_without_a_compiler_nothing_is_tried(monkeypatch, captured):
    monkeypatch.setattr(execution.shutil, "which", lambda name: None)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    step, said = make("graph")
    assert_like_eager(step)
    assert step.mode == "graph"
    assert len(said) == 1
    assert "captured but not compiled: there is no C++ compiler" in said[0]
    with pytest.raises(Unsupported, match=r"no C\+\+ compiler \(g\+\+\).*--training\.step eager"):
        make("compiled", asked="compiled")


def test_a_gpu_compiles_with_triton(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(execution.cuda, "installed", lambda: False)
    assert execution.no_compiler(gpu) == "Triton is not installed"
    monkeypatch.setattr(execution.cuda, "installed", lambda: True)
    assert execution.no_compiler(gpu) is None


class Raising(RelativeL2):
    def __init__(self, error):
        self.raised = error

    def __call__(self, network, batch):
        raise self.raised


def test_errors_of_model_and_data_are_not_blamed_on_the_way():
    step, said = make("compiled", objective=Raising(DataError("three coordinates")))
    with pytest.raises(DataError, match="three coordinates"):
        steps(step)
    step, said = make("compiled", objective=Raising(Broken("a bug of the model")))
    with pytest.raises(Broken, match="a bug of the model"):
        steps(step)
    assert said == []


def wrapped(error):
    outer = RuntimeError("the compiler says")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        MemoryError(),
        wrapped(torch.OutOfMemoryError("CUDA out of memory")),
    ],
)
def test_a_batch_that_does_not_fit_says_what_to_lower(mode, error):
    step, said = make(mode, objective=Raising(error))
    with pytest.raises(RunError) as told:
        step(step.draws(7), 7, 1e-3)
    words = str(told.value)
    assert "step 7" in words
    assert "4 samples of 12 points and 12 queries at 1 times" in words
    for setting in ("--training.batch (4)", "--training.queries", "--training.points"):
        assert setting in words
    assert said == []
    assert step.mode == mode


def test_other_errors_pass_as_they_are():
    step, _ = make("eager", objective=Raising(RuntimeError("shapes")))
    with pytest.raises(RuntimeError, match="shapes") as error:
        steps(step)
    assert not isinstance(error.value, RunError)


class OutOfMemory(RelativeL2):
    """Runs out at one step."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    def __call__(self, network, batch):
        self.calls += 1
        if self.calls > self.step:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(network, batch)


@pytest.mark.parametrize("data", ["stacked", "ragged", "packed"])
def test_the_last_checkpoint_is_kept(tmp_path, data):
    settings = {"data": data, "epochs": 4, "save_seconds": 0.0, "validate_every": 1}
    with pytest.raises(RunError, match=r"step 5 ran out.*The last checkpoint is kept\."):
        fit(tmp_path / "short", objective=OutOfMemory(5), **settings)
    assert checkpoint.load(tmp_path / "short" / "last.safetensors")[1]["step"] == 5
    fit(tmp_path / "short", **settings)
    fit(tmp_path / "whole", **settings)
    for mine, theirs in zip(
        contents(tmp_path / "short"), contents(tmp_path / "whole"), strict=True
    ):
        assert mine.keys() == theirs.keys()
    with pytest.raises(RunError) as error:
        fit(tmp_path / "none", objective=OutOfMemory(0), **settings)
    assert "checkpoint" not in str(error.value)


def test_a_run_says_how_it_goes_when_there_is_somebody_to_tell(tmp_path, monkeypatch, capsys):
    from ipot.training.journal import Progress

    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: broken(self))
    monkeypatch.setattr(execution, "COMPILE_ROWS", 0)

    def trainer(path, data):
        path.mkdir()
        settings = Training(epochs=1, batch=4)
        return Trainer(model(), data, data, settings, Run(path), CPU, RelativeL2(), World())

    made = trainer(tmp_path / "loud", stacked())
    made._say("first things first")
    assert capsys.readouterr().err == ""
    result = made.run(Progress())
    said = capsys.readouterr().err
    assert result.step_kind == "eager"
    assert said.index("first things first") < said.index("steps run eagerly: Broken")
    assert said.count("steps run") == 1
    trainer(tmp_path / "quiet", stacked()).run(Progress(quiet=True))
    assert capsys.readouterr().err == ""
    trainer(tmp_path / "ragged", Ragged(ragged().samples)).run(Progress())
    assert "steps run" not in capsys.readouterr().err
