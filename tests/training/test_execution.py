"""Which way a step runs, in which precision and where its data lie."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ipot.data.dataset import Ragged
from ipot.data.packed import Packed, packed_bytes
from ipot.errors import RunError, Unsupported
from ipot.models.base import Operator
from ipot.training import execution
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.settings import Training
from training.toys import CPU, SPEC, fit, model, packed, ragged, stacked

GPU = torch.device("cuda")
FOUR = World(rank=0, size=4)
LONG, SHORT = 100_000_000, 10


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(execution.shutil, "which", lambda name: f"/usr/bin/{name}")


def chosen(device=CPU, data=None, world=None, say=pytest.fail, **settings):
    return execution.choose(Training(**settings), data or stacked(), device, world or World(), say)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("expected", "situation"),
    [
        ("graph", {"device": GPU}),
        ("graph", {"device": GPU, "minutes": 1.0}),
        ("graph", {"device": GPU, "data": packed()}),
        ("eager", {"device": GPU, "data": ragged()}),
        ("eager", {"device": GPU, "data": packed(), "world": FOUR}),
        ("eager", {"device": GPU, "world": FOUR}),
        ("eager", {"epochs": SHORT}),
        ("compiled", {"epochs": LONG}),
        ("eager", {"epochs": LONG, "data": ragged()}),
        ("eager", {"epochs": LONG, "minutes": 9.0}),
        ("compiled", {"epochs": SHORT, "minutes": 10.0}),
        ("eager", {"epochs": SHORT, "step": "eager"}),
        ("compiled", {"epochs": SHORT, "step": "compiled"}),
        ("graph", {"device": GPU, "step": "graph"}),
        ("eager", {"device": GPU, "step": "eager"}),
    ],
)
def test_the_rules(expected, situation):
    assert chosen(**situation) == expected


@pytest.mark.usefixtures("compiler")
def test_compiling_pays_by_the_rows_that_are_used(monkeypatch):
    rows = 12 * (12 + 12) * SHORT
    monkeypatch.setattr(execution, "COMPILE_ROWS", rows - 1)
    assert chosen(epochs=SHORT) == "compiled"
    assert chosen(epochs=SHORT, queries=0.5) == "eager"
    assert chosen(epochs=SHORT, points=0.5) == "eager"
    monkeypatch.setattr(execution, "COMPILE_ROWS", rows)
    assert chosen(epochs=SHORT) == "eager"


def test_nothing_is_compiled_without_a_compiler(monkeypatch):
    monkeypatch.setattr(execution.shutil, "which", lambda name: None)
    said = []
    assert chosen(epochs=LONG, say=said.append) == "eager"
    assert len(said) == 1
    assert "no C++ compiler (g++)" in said[0]
    assert "--training.step eager" in said[0]
    # Where nothing would have been compiled anyway, there is nothing to say.
    for situation in ({"epochs": SHORT}, {"epochs": LONG, "step": "eager"}):
        assert chosen(say=said.append, **situation) == "eager"
    assert len(said) == 1


@pytest.mark.parametrize(
    "where", [{}, {"device": GPU, "data": ragged()}, {"device": GPU, "world": FOUR}]
)
def test_a_graph_where_there_can_be_none(where):
    with pytest.raises(Unsupported, match="CUDA graph needs a GPU, data that lie on it"):
        chosen(step="graph", **where)


def test_a_graph_on_a_cpu_is_refused_before_training(tmp_path):
    with pytest.raises(Unsupported):
        fit(tmp_path, step="graph")
    assert list(tmp_path.iterdir()) == []


class FakeGPU:
    """Enough of a GPU to choose for one: without bf16 or with it, and with so much memory."""

    def __init__(self, monkeypatch, *, bf16=True, memory=1 << 30):
        monkeypatch.setattr(
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation=True: bf16 or including_emulation,
        )
        properties = SimpleNamespace(total_memory=memory)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


@pytest.mark.parametrize(
    ("bf16", "asked", "expected"),
    [
        (True, "auto", "bf16"),
        (False, "auto", "float32"),
        (True, "bf16", "bf16"),
        (False, "float32", "float32"),
        (False, "float64", "float64"),
    ],
)
def test_the_precision_of_a_gpu(monkeypatch, bf16, asked, expected):
    FakeGPU(monkeypatch, bf16=bf16)
    said = []
    assert execution.precision_for(Training(precision=asked), GPU, said.append) == expected
    fell_back = (bf16, asked) == (False, "auto")
    assert ["--training.precision float32" in line for line in said] == [True] * fell_back


def test_bf16_where_there_is_none(monkeypatch):
    FakeGPU(monkeypatch, bf16=False)
    with pytest.raises(Unsupported, match="no bf16 arithmetic; use float32"):
        execution.precision_for(Training(precision="bf16"), GPU, pytest.fail)


def test_a_cpu_takes_any_precision():
    for asked in ("float32", "bf16", "float64"):
        assert execution.precision_for(Training(precision=asked), CPU, pytest.fail) == asked
    assert execution.precision_for(Training(), CPU, pytest.fail) == "float32"


def placed(data, device, monkeypatch, **gpu):
    """Where data come to lie; what is packed for a GPU lies on the CPU in truth."""
    FakeGPU(monkeypatch, **gpu)
    monkeypatch.setattr(
        execution, "Packed", lambda data, device, batch: Packed(data, device="cpu", batch=batch)
    )
    said = []
    return execution.placed(data, Training(batch=4), device, torch.float32, said.append), said


def test_ragged_samples_are_packed_for_a_gpu_alone(monkeypatch):
    data = ragged()
    found, said = placed(data, GPU, monkeypatch)
    assert isinstance(found, Packed)
    assert found.source is data
    found, also = placed(data, CPU, monkeypatch)
    assert found is data
    assert said == also == []


def test_what_cannot_be_packed_is_collated_and_the_log_says_why(monkeypatch):
    edges = torch.tensor([[0], [1]])
    joined = Ragged([replace(s, edges=edges) for s in ragged().samples])
    found, said = placed(joined, GPU, monkeypatch)
    assert found is joined
    assert len(said) == 1
    assert "edges" in said[0]
    assert "collated" in said[0]
    small = 2 * packed_bytes(ragged()) - 1
    found, said = placed(ragged(), GPU, monkeypatch, memory=small)
    assert isinstance(found, Ragged)
    assert "more than half of the GPU's memory" in said[0]
    assert isinstance(placed(ragged(), GPU, monkeypatch, memory=small + 1)[0], Packed)


def test_data_that_do_not_fit_are_refused_with_what_to_change():
    class Large(Ragged):
        def to(self, device):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(RunError, match=r"12 samples do not fit.*--count\.train"):
        execution.placed(Large(ragged().samples), Training(), CPU, torch.float32, pytest.fail)


def limits(data, device=GPU, network=None, **settings):
    draws = Draws(data, SPEC, Training(**{"batch": 4, **settings}))
    execution.refuse_unindexable(network or model(), draws, device)


def test_tensors_beyond_an_index_are_refused_with_a_batch_that_fits(monkeypatch):
    """A batch of 4 with 12 queries and a width of 16 has tensors of 768 elements."""
    monkeypatch.setattr(execution, "INDEX_RANGE", 769)
    limits(stacked())
    monkeypatch.setattr(execution, "INDEX_RANGE", 768)
    with pytest.raises(Unsupported, match=r"768 elements.*--training\.batch to 3 or.*queries"):
        limits(stacked())
    limits(stacked(), batch=3)
    limits(stacked(), queries=0.5)
    limits(stacked(), CPU)
    monkeypatch.setattr(execution, "INDEX_RANGE", 12 * 16)
    with pytest.raises(Unsupported, match=r": lower --training\.queries$"):
        limits(stacked(), batch=1)


@pytest.mark.parametrize("make", [ragged, packed])
def test_the_largest_sample_counts(monkeypatch, make):
    largest = max(len(s.queries) for s in ragged().samples)
    monkeypatch.setattr(execution, "INDEX_RANGE", 4 * 16 * largest)
    with pytest.raises(Unsupported, match=f"with {largest} queries"):
        limits(make())
    monkeypatch.setattr(execution, "INDEX_RANGE", 4 * 16 * largest + 1)
    limits(make())


def test_points_are_taken_in_chunks_by_latent_operators_alone(monkeypatch):
    monkeypatch.setattr(execution, "INDEX_RANGE", 4 * 16 * 8)
    limits(stacked(points=12), queries=0.5)

    class Whole(Operator):
        def forward(self, batch):
            return batch.values

    other = Whole(SimpleNamespace(width=16), SPEC)
    with pytest.raises(Unsupported, match="12 points"):
        limits(stacked(points=12), queries=0.5, network=other)
