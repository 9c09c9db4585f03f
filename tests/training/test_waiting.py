"""Nothing in a step waits for the device, and nothing is compiled again."""

from contextlib import nullcontext

import pytest
import torch
from contracts.cases import CASES, model_variants
from torch import nn

from ipot.data.dataset import Ragged, Stacked, from_samples
from ipot.data.packed import Packed
from ipot.spec import Need
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2, Validation
from ipot.training.optimizer import make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Ledger, Step, small_regions
from training.toys import CPU, model, packed, ragged, stacked
from training.waiting import Waited, nothing_waits

SUBSETS = {"points": 0.75, "queries": 0.5}
# Older releases take some sizes of a graph that they compile for constants. They may compile again
# for a size that they have not seen, though for none that they have.
ONE_GRAPH_FOR_ALL_SIZES = torch.__version__ >= "2.13"


def make(data, network=None, *, objective=None, mode="eager", device=CPU, **settings):
    """A step, and the draws or batches that it takes."""
    network = network or model()
    settings = Training(**{"batch": 4, "step": mode, **settings})
    draws = Draws(data, network.spec, settings)
    objective = objective or RelativeL2()
    groups = [{**g, "params": list(g["params"])} for g in objective.prepare(network, data)]
    step = Step(
        network,
        objective,
        make_optimizer(network, settings, groups, device),
        draws,
        settings,
        device=device,
        precision="float32",
        mode=mode,
        world=World(),
    )
    return step, draws if data.resident else draws.ragged_batch


def run(step, work, numbers):
    made = [work(number) for number in numbers]  # what is drawn on the host may wait
    for number, item in zip(numbers, made, strict=True):
        step(item, number, 1e-3)


@pytest.mark.parametrize("settings", [{}, SUBSETS, {"clip": None}])
@pytest.mark.parametrize("make_data", [stacked, packed, ragged])
def test_an_eager_step_waits_for_nothing(make_data, settings):
    step, work = make(make_data(), **settings)
    run(step, work, range(2))
    items = [work(number) for number in range(2, 8)]
    before = [p.detach().clone() for p in step.parameters]
    with nothing_waits():
        for number, item in enumerate(items, 2):
            step(item, number, 1e-3)
    assert all(not torch.equal(p, b) for p, b in zip(step.parameters, before, strict=True))


@pytest.mark.parametrize("name", ["grid", "ragged", "parameters", "moving", "film", "cloud"])
@pytest.mark.parametrize("variant", model_variants())
def test_no_model_waits(name, variant):
    case = CASES[name]()
    network = case.build(*variant).train()
    if Need.EDGES in network.needs:
        pytest.skip("edges are numbered anew for every batch, on the CPU")
    data = from_samples(case.samples)
    if isinstance(data, Ragged):
        data = Packed(data, device=CPU, batch=2)
    step, work = make(data, network, objective=network.objective(), batch=2)
    run(step, work, [0])
    item = work(1)
    with nothing_waits():
        step(item, 1, 1e-3)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.new_tensor([1.0]),
        lambda x: torch.nonzero(x),
        lambda x: x.sum().cpu(),
    ],
)
def test_the_watch_sees_who_waits(wait):
    class Curious(RelativeL2):
        def __call__(self, network, batch):
            wait(batch.values)
            return super().__call__(network, batch)

    step, draws = make(stacked(), objective=Curious())
    run(step, draws, [0])
    draw = draws(1)
    with pytest.raises(Waited), nothing_waits():
        step(draw, 1, 1e-3)


@pytest.fixture
def quick_compiler(monkeypatch):
    """Trace and guard as usual, and generate no code: what is asked here is whether it happens."""
    torch._dynamo.reset()
    compile_module = nn.Module.compile

    def quickly(self, **options):
        compile_module(self, backend="aot_eager", **options)

    monkeypatch.setattr(nn.Module, "compile", quickly)


@pytest.mark.compile
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(("kind", "small"), [("stacked", False), ("packed", True)])
def test_a_compiled_step_neither_waits_nor_compiles_again(kind, small):
    """Through all sizes of the data, and with a validation between the steps; also with all that
    only a GPU gains by."""
    data = stacked(40) if kind == "stacked" else packed(40, low=24, high=64)
    step, draws = make(data, mode="compiled", **SUBSETS)
    if small:
        step.regions += small_regions(step.model, step.objective, draws)
    validation = Validation(stacked(5, points=9, seed=1), CPU)
    examples = list(draws.examples())
    assert len(examples) == (len(data.boxes) if isinstance(data, Packed) else 1)
    # A size that is like another by chance must not be taken for the same.
    step(examples[-1], 0, 1e-3)
    with torch.compiler.set_stance("fail_on_recompile" if ONE_GRAPH_FOR_ALL_SIZES else "default"):
        for example in examples:
            step(example, 0, 1e-3)
    items = [draws(number) for number in range(12)]
    # Before torch 2.13 guards ask numbers on the CPU for their value, which is no waiting.
    quiet = nothing_waits(watch=False) if ONE_GRAPH_FOR_ALL_SIZES else nullcontext()
    with torch.compiler.set_stance("fail_on_recompile"), quiet:
        for number, item in enumerate(items):
            step(item, number, 1e-3)
    with torch.compiler.set_stance("force_eager"):
        assert validation(step.model) > 0
    with torch.compiler.set_stance("fail_on_recompile"):
        run(step, draws, range(12, 16))
    assert step.mode == "compiled"
    assert all(region._compiled_call_impl is not None for region in step.regions)


@pytest.mark.compile
def test_loss_and_bookkeeping_compile(backend):
    """Only a GPU gains by it; on a CPU they run as they are."""
    torch._dynamo.reset()
    objective, ledger = RelativeL2(), Ledger(0.5, CPU)
    reference, plain = RelativeL2(), Ledger(0.5, CPU)
    for part in (*objective.regions(), ledger):
        part.compile(dynamic=True, backend=backend)
    random = torch.Generator().manual_seed(0)
    for number, rows in enumerate((7, 9, 12)):
        prediction, target = torch.randn(2, 3, 1, rows, 2, generator=random)
        mask = torch.arange(rows) < torch.tensor([[rows], [rows - 3], [2]])
        norms = torch.rand(5, generator=random)
        if number == 1:
            norms[2] = torch.inf
        answers = []
        for loss_of, kept in ((objective.error, ledger), (reference.error, plain)):
            leaf = prediction.clone().requires_grad_()
            loss = loss_of(leaf, target, mask)
            loss.backward()
            answers.append((loss.detach(), leaf.grad, kept(loss.detach(), norms)))
        for mine, theirs in zip(*answers, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert ledger.read() == pytest.approx(plain.read())
    assert ledger.fault == plain.fault == 1
    assert ledger.count == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.compile
@pytest.mark.parametrize("make_data", [stacked, packed])
@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("settings", [{}, SUBSETS])
def test_a_gpu_is_never_waited_for(make_data, mode, settings):
    gpu = torch.device("cuda")
    data = make_data(40)
    data = data.to(gpu) if isinstance(data, Stacked) else Packed(data.source, device=gpu, batch=4)
    step, draws = make(data, model().to(gpu), mode=mode, device=gpu, **settings)
    items = [draws(number).pin_memory() for number in range(20)]
    for number, item in enumerate(items[:10]):
        step(item, number, 1e-3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number, item in enumerate(items[10:], 10):
            step(item, number, 1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    loss, fault = step.read()
    assert loss > 0
    assert fault == -1
    assert step.mode == mode
