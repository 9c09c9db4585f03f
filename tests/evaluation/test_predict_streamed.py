"""Predictions from what does not fit: other devices, files, more points than memory."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot import device
from ipot.accelerate import accelerate, chunks
from ipot.accelerate.operators import encode
from ipot.data.statistics import Statistics
from ipot.errors import DataError
from ipot.evaluation import predict as module
from ipot.evaluation.predict import predict
from ipot.models._wrappers import NormalizedLatent, wrap
from ipot.models.base import Latent, LatentOperator, Operator, without_queries
from ipot.models.ipot import IPOT, Config
from ipot.samples import Batch
from ipot.spec import Spec

TIMES = (1.0, 3.0)
B, N, M = 3, 19, 17


def scaled(*, parameters: int = 0, dtype=torch.float32) -> Operator:
    torch.manual_seed(0)
    names = tuple("pq"[:parameters])
    spec = Spec(
        name="toy",
        inputs=("a",),
        outputs=("u", "v"),
        domain=((0.0, 1.0),) * 2,
        steps=3,
        parameters=names,
    )
    config = Config(latents=3, width=8, blocks=1, heads=2, cross_heads=2, bins=(2,))
    scales = Statistics.identity(1, 2, parameters)
    scales = replace(scales, input_mean=scales.input_mean + 0.3, input_scale=scales.input_scale * 2)
    return wrap(IPOT(config, spec), scales).to(dtype).eval()


def batch(*, parameters: int = 0, masked=False, moving=False, dtype=torch.float32) -> Batch:
    random = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64).to(dtype)

    mask = None
    if masked:
        mask = torch.rand(B, N, generator=random) > 0.5
        mask[0, :7] = False
    return Batch(
        points=draw(1, N, 2),
        values=draw(B, N, 1),
        queries=draw(B, 2, M, 2) if moving else draw(1, M, 2),
        times=TIMES,
        parameters=draw(B, parameters) if parameters else None,
        point_mask=mask,
        targets=draw(B, 2, M, 2),
        query_mask=torch.ones(B, M, dtype=torch.bool) if masked else None,
    )


@pytest.mark.parametrize("rows", [1, 7, 21, 1000])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("parameters", [0, 2])
def test_inputs_and_queries_in_chunks(rows, masked, moving, parameters):
    model = scaled(parameters=parameters, dtype=torch.float64)
    given = batch(parameters=parameters, masked=masked, moving=moving, dtype=torch.float64)
    found = predict(model, given, rows=rows)
    torch.testing.assert_close(found, model(given).detach(), atol=1e-12, rtol=1e-10)


def test_scales_are_applied_chunk_by_chunk(monkeypatch):
    """In training as in prediction: no copy of all inputs is made."""
    model, given = scaled(), batch()
    wanted = model.encode(given).state
    seen = []
    before = NormalizedLatent.seen

    def spy(self, piece):
        seen.append((piece.values.shape[1], piece.queries.shape[-2]))
        return before(self, piece)

    monkeypatch.setattr(NormalizedLatent, "seen", spy)
    monkeypatch.setattr(chunks, "STREAMED_IN_TRAINING", B * N - 1)
    monkeypatch.setitem(chunks.ROWS_AT_ONCE, "cpu", B * 8)
    found = encode(accelerate(model, training=True), given).state
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert seen == [(1, 1), (8, 1), (8, 1), (3, 1)]  # the first for what is not in chunks


def test_answers_are_written_where_they_are_wanted():
    model, given = scaled(), batch()
    wanted = predict(model, given)
    for rows in (None, 9):
        for dtype in (torch.float32, torch.float64):
            place = torch.full((B, 2, M, 2), torch.nan, dtype=dtype)
            assert predict(model, given, rows=rows, out=place) is place
            torch.testing.assert_close(place.float(), wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "place",
    [torch.empty(B, 2, M, 1), torch.empty(B, M, 2), torch.empty(B, 2, M, 2, dtype=torch.int64)],
)
def test_a_place_that_does_not_fit_is_refused_before_any_work(place, monkeypatch):
    model = scaled()
    monkeypatch.setattr(model, "encode", None)
    with pytest.raises(DataError, match=r"out must be \(3, 2, 17, 2\)"):
        predict(model, batch(), out=place)


def test_files_that_are_mapped(tmp_path):
    """Inputs in another precision than the model's, read from files and answered to one."""
    model, given = scaled(), batch(dtype=torch.float64)

    def mapped(name):
        np.save(tmp_path / f"{name}.npy", getattr(given, name).numpy())
        return torch.from_numpy(np.load(tmp_path / f"{name}.npy", mmap_mode="r+"))

    stored = replace(given, **{n: mapped(n) for n in ("points", "values", "queries")}, targets=None)
    place = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, (B, 2, M, 2))
    predict(model, stored, rows=20, out=torch.from_numpy(place))
    place.flush()
    wanted = predict(model, given.astype(torch.float32))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, atol=1e-5, rtol=1e-5)


class Elsewhere(LatentOperator):
    """Lives on `meta`, of which nothing is known but the shapes; remembers what was brought."""

    def __init__(self, spec):
        super().__init__(None, spec)
        self.weight = torch.nn.Parameter(torch.ones((), device="meta"))
        self.brought: list[int] = []

    def encode(self, batch):
        self.brought.append(batch.values.shape[1])
        return Latent((batch.values * self.weight).mean(1, keepdim=True))

    def step(self, latent):
        return latent

    def decode(self, latent, queries):
        shape = (latent.state + queries[..., :1] * self.weight).shape
        return torch.arange(float(shape[1])).view(1, -1, 1).expand(*shape[:2], 2)


def test_a_batch_may_lie_on_another_device_than_the_model():
    model = Elsewhere(scaled().spec)
    found = predict(model, batch(), rows=24)
    assert model.brought == [N]  # it takes no chunks
    # Chunks of eight queries, each at its place in the answer, which lies where the batch does.
    assert found[2, 1, :, 0].tolist() == [*range(8), *range(8), 0]
    assert found.device.type == "cpu"


def test_inputs_from_elsewhere_come_in_chunks_however_few(monkeypatch):
    model, given = accelerate(scaled().inner, training=True), batch()
    monkeypatch.setitem(chunks.ROWS_AT_ONCE, "cpu", B * 8)
    brought = []

    def bring(piece):
        brought.append(piece.values.shape[1])
        made = {n: torch.ones(getattr(piece, n).shape) for n in ("points", "values", "queries")}
        return replace(piece, **made)

    far = given.to("meta")
    encode(model, far, bring)
    assert brought == [1, 8, 8, 3]
    brought.clear()
    encode(model, given, bring)
    assert brought == [N]


def test_an_encoder_sees_the_inputs_and_no_more():
    given = replace(batch(masked=True), grid=(N,), query_grid=(M,))
    bare = without_queries(given)
    assert bare.values is given.values
    assert bare.queries.shape == (1, 1, 2)
    assert bare.query_mask.shape == (B, 1)
    assert bare.targets is bare.grid is bare.query_grid is None


def test_points_that_are_the_queries_stay_so_when_they_travel():
    """A rollout in physical space goes on from its answers there, and looks no further."""
    seen = []

    class Bound(Operator):
        def forward(self, batch):
            seen.append(batch.points is batch.queries)
            return batch.queries.unsqueeze(1) * self.factor

    given = replace(batch(dtype=torch.float64), times=(1.0,), targets=None)
    given = replace(given, queries=given.points, values=given.values[:1])
    model = Bound(None, scaled().spec)
    model.factor = torch.nn.Parameter(torch.ones(()))
    assert predict(model, given).dtype == torch.float32
    assert seen == [True]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_what_does_not_fit_names_the_setting(monkeypatch, error):
    def fail(*_):
        raise error

    model = scaled()
    monkeypatch.setattr(model, "decode", fail)
    with pytest.raises(DataError, match=r"out of memory with 8 rows.*rows=2.*--rows 2"):
        predict(model, batch(), rows=8)


def test_other_errors_are_left_alone(monkeypatch):
    def fail(*_):
        raise RuntimeError("shapes cannot be multiplied")

    model = scaled()
    monkeypatch.setattr(model, "decode", fail)
    with pytest.raises(RuntimeError, match="shapes cannot"):
        predict(model, batch(), rows=8)


@pytest.mark.parametrize("rows", [0, -4])
def test_at_least_one_row(rows):
    with pytest.raises(DataError, match=f"at least 1, got {rows}"):
        predict(scaled(), batch(), rows=rows)


def test_no_chunk_is_counted_past_31_bits(monkeypatch):
    """However many rows are asked for."""
    model, seen = scaled(), []
    monkeypatch.setattr(module, "MOST_ROWS", 9)
    decode = model.decode

    def spy(latent, queries):
        seen.append(queries.shape[1])
        return decode(latent, queries)

    monkeypatch.setattr(model, "decode", spy)
    predict(model, batch(), rows=10**15)
    assert max(seen) == 3


# In a process of its own: the peak is the whole process's.
PEAK = """
import sys, torch
torch.set_num_threads(1)
from ipot import device
from ipot.evaluation.predict import predict
from ipot.models.ipot import IPOT, Config
from ipot.accelerate import chunks
from ipot.samples import Batch
from ipot.spec import Spec
torch.manual_seed(0)
spec = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),) * 2)
config = Config(latents=2, width=4, blocks=1, heads=1, cross_heads=1, bins=(2,))
model = IPOT(config, spec)
count = 3_000_000
points, cpu = torch.rand(1, count, 2), torch.device("cpu")
batch = Batch(points=points, values=points[..., :1], queries=points[:, :: 1 if {asked} else count])
if not {streamed}:
    chunks.STREAMED = chunks.STREAMED_ON_CPU = 10**9
device.reset_peak_memory(cpu)
before = device.peak_memory(cpu)
answer = predict(model, batch)
print(device.peak_memory(cpu) - before, float(answer.double().sum()))
"""


@pytest.fixture(scope="module")
def peak():
    """GiB beyond the inputs, and the sum of the answers."""
    cpu = torch.device("cpu")
    device.reset_peak_memory(cpu)
    if device.peak_memory(cpu) is None:
        pytest.skip("the system does not tell how much memory was held")

    def call(**choice):
        code = PEAK
        for name, value in choice.items():
            code = code.replace(f"{{{name}}}", str(value))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return tuple(map(float, done.stdout.split()))

    return call


def test_memory_does_not_grow_with_the_points(peak):
    """Three million points in and out: 11 MiB of answers, and one chunk of work."""
    held, total = peak(asked=True, streamed=True)
    assert held < 0.1
    assert math.isfinite(total)
    whole, _ = peak(asked=False, streamed=False)
    assert whole > 0.2
