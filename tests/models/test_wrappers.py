"""A model of one step rolled on by its wrapper, and what such a model refuses."""

from dataclasses import replace

import pytest
import torch

from ipot.accelerate.operators import passes, regions
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.models._wrappers import Autoregressive, Normalized, wrap
from ipot.models.base import OneStep
from ipot.samples import Batch, Sample, collate
from ipot.spec import Need, Spec

from .toys import Config, Stencil

DT, HISTORY, OUTPUTS = 0.5, 3, 2
SPEC = Spec(
    name="toy",
    inputs=tuple("abcdefg"),
    outputs=("u", "v"),
    domain=((0.0, 1.0),),
    dt=DT,
    steps=3,
    history=HISTORY,
)
SCALES = {
    "input_mean": torch.arange(7) / 7,
    "input_scale": 1 + torch.arange(7) / 5,
    "output_mean": torch.tensor([0.3, -0.2]),
    "output_scale": torch.tensor([0.7, 1.4]),
    "parameter_mean": torch.zeros(0),
    "parameter_scale": torch.ones(0),
}


class Kernel(OneStep):
    """A smooth average over all real points, mapped; remembers the batches that it saw."""

    needs = frozenset({Need.POINTS})

    def __init__(self, spec=SPEC):
        super().__init__(None, spec)
        torch.manual_seed(0)
        self.map = torch.nn.Linear(spec.channels, len(spec.outputs), bias=False)
        self.seen = []

    def advance(self, batch):
        self.seen.append(batch)
        near = torch.exp(-10 * (batch.queries - batch.points.transpose(1, 2)).square())
        if batch.point_mask is not None:
            near = near * batch.point_mask.unsqueeze(1)
        return torch.tanh(self.map(near @ batch.values / near.sum(-1, keepdim=True)))


def make(count, *, n=6, m=5, times=(0.5, 1.0, 1.5), moving=False, seed=0) -> list[Sample]:
    """Samples with points and queries of their own, sizes growing from one to the next."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64)

    return [
        Sample(
            points=draw(n + i, 1),
            values=draw(n + i, 7),
            queries=draw(len(times), m + i, 1) if moving else draw(m + i, 1),
            targets=draw(len(times), m + i, OUTPUTS),
            times=times,
        )
        for i in range(count)
    ]


def scaled(inner):
    return Normalized(inner, Statistics(**{k: v.double() for k, v in SCALES.items()})).double()


def by_hand(kernel, sample):
    """The rollout of one sample, frame by frame, with nothing of the wrappers."""
    weight = kernel.map.weight.detach()
    s = {name: value.double() for name, value in SCALES.items()}

    def step(values, queries):
        near = torch.exp(-10 * (queries - sample.points.T) ** 2)
        average = near @ ((values - s["input_mean"]) / s["input_scale"]) / near.sum(1, keepdim=True)
        return torch.tanh(average @ weight.T) * s["output_scale"] + s["output_mean"]

    frames = [sample.values[:, 2 * i : 2 * i + 2] for i in range(HISTORY)]
    static, answers = sample.values[:, 6:], []
    wanted = [round(t / DT) for t in sample.times]
    for number in range(1, max(wanted) + 1):
        values = torch.cat([*frames[-HISTORY:], static], 1)
        if number in wanted:
            place = wanted.index(number)
            queries = sample.queries if sample.queries.ndim == 2 else sample.queries[place]
            answers.append(step(values, queries))
        frames.append(step(values, sample.points))
    return torch.stack(answers)


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("times", [(0.5,), (0.5, 1.0, 1.5), (0.5, 1.5), (1.0, 2.5), (2.0,)])
def test_a_rollout_is_a_loop_written_by_hand(times, moving):
    (sample,) = make(1, times=times, moving=moving)
    kernel = Kernel()
    model = Autoregressive(scaled(kernel))
    with torch.no_grad():
        close(model(collate([sample]))[0], by_hand(kernel, sample))


@pytest.mark.parametrize("moving", [False, True])
def test_samples_of_several_sizes_are_answered_as_alone(moving):
    samples = make(3, moving=moving)
    kernel = Kernel()
    model, batch = Autoregressive(scaled(kernel)), collate(samples)
    assert batch.point_mask is not None
    with torch.no_grad():
        together = model(batch)
        for row, sample in enumerate(samples):
            close(together[row, :, : sample.queries.shape[-2]], by_hand(kernel, sample))


class Leaky(Kernel):
    """Answers with not-a-number where there is no point: nobody says what padding holds."""

    def advance(self, batch):
        out = super().advance(batch)
        if batch.query_mask is None:
            return out
        return out.masked_fill(~batch.query_mask.unsqueeze(-1), float("nan"))


def test_what_a_model_answers_at_padding_does_not_go_on():
    samples = [replace(s, queries=s.points, targets=None) for s in make(2)]
    batch, model = collate(samples), Autoregressive(scaled(Leaky()))
    with torch.no_grad():
        found = model(batch)
        for row, sample in enumerate(samples):
            rows = found[row, :, : len(sample.points)]
            assert rows.isfinite().all()
            close(rows, by_hand(model.inner.inner, sample))


def test_the_gradient_reaches_through_all_steps():
    """The frames that the third step sees are inputs, and answers of the two steps before."""
    kernel, batch = Kernel(), collate(make(1))
    model = Autoregressive(scaled(kernel))
    values = batch.values.clone().requires_grad_()
    out = model(replace(batch, values=values))
    (grad,) = torch.autograd.grad(out[:, 2].sum(), values, retain_graph=True)
    assert (grad.abs().amax((0, 1)) > 0).all()
    (whole,) = torch.autograd.grad(out[:, 2].sum(), kernel.map.weight)
    cut = replace(kernel.seen[-1], values=kernel.seen[-1].values.detach())
    (short,) = torch.autograd.grad(model.inner.denormalize(kernel(cut)).sum(), kernel.map.weight)
    assert (whole - short).abs().max() > 1e-3


def test_the_model_is_asked_once_a_step_where_queries_are_points():
    kernel = Kernel()
    model = Autoregressive(scaled(kernel))
    line = (torch.arange(6, dtype=torch.float64) / 6).unsqueeze(-1)
    fixed = {"points": line, "queries": line, "grid": (6,), "query_grid": (6,)}
    batch = collate([replace(make(1, m=6)[0], **fixed)])
    model(batch)
    assert len(kernel.seen) == 3
    kernel.seen.clear()
    model(replace(batch, query_grid=None))  # other queries, for all that is known
    assert len(kernel.seen) == 3 + 2
    kernel.seen.clear()
    model.needs = frozenset({Need.SAME_POINTS})
    model(replace(batch, query_grid=None))
    assert len(kernel.seen) == 3


def test_queries_on_a_grid_that_moves_are_not_the_points():
    """Grids of one shape are one grid only as long as nothing moves."""
    (sample,) = make(1, n=6, m=6, moving=True)
    kernel = Kernel()
    model = Autoregressive(scaled(kernel))
    with torch.no_grad():
        found = model(collate([replace(sample, grid=(6,), query_grid=(6,))]))[0]
    close(found, by_hand(kernel, sample))


def test_each_step_sees_a_batch_of_one_step():
    kernel = Kernel()
    Autoregressive(scaled(kernel))(collate(make(2, times=(0.5, 1.5))))
    for batch in kernel.seen:
        assert batch.times == (DT,)
        assert batch.targets is None
        assert batch.values.shape[-1] == 7


def test_only_a_model_of_one_step_with_past_frames_is_rolled_on():
    scales = Statistics.identity(7, 2, 0)
    assert isinstance(wrap(Kernel(), scales), Autoregressive)
    steady = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),))
    assert type(wrap(Kernel(steady), Statistics.identity(1, 1, 0))) is Normalized


def test_wrappers_pass_on_what_the_model_says_of_itself():
    class Own(Kernel):
        def objective(self):
            return "its own"

    model = wrap(Own(), Statistics.identity(7, 2, 0))
    assert model.needs == Kernel.needs
    assert model.objective() == "its own"
    assert list(regions(model)) == []
    assert model.name == Own.__module__


# What a model of one step refuses.

ON_A_GRID = frozenset({Need.GRID, Need.SAME_POINTS})
STEADY = Spec(
    name="steady", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),), provides=ON_A_GRID
)


def on_a_line(n=6, m=6, **fields) -> Batch:
    made = {
        "points": torch.rand(1, n, 1),
        "values": torch.rand(2, n, 1),
        "queries": torch.rand(1, m, 1),
        "grid": (n,),
    }
    return Batch(**made | fields)


def test_steps_without_past_frames_are_refused_at_once():
    with pytest.raises(Unsupported, match=r"Stencil, to take 4 steps, needs past frames"):
        Stencil(Config(), replace(STEADY, steps=4))
    Stencil(Config(), replace(STEADY, steps=4, history=1))


def test_several_times_are_refused_without_past_frames():
    model = Stencil(Config(), STEADY)
    assert model(on_a_line()).shape == (2, 1, 6, 1)
    for times in ((1.0, 2.0), (2.0,)):
        with pytest.raises(Unsupported, match=r"one time, dt=1\.0.*steady has no past frames"):
            model(on_a_line(times=times))


def test_queries_that_are_not_the_points_are_refused():
    with pytest.raises(DataError, match=r"at its input points: 6 points and 4 queries"):
        Stencil(Config(), STEADY)(on_a_line(m=4))


def test_a_batch_without_its_grid_is_refused():
    with pytest.raises(DataError, match="Stencil needs a grid, and this batch has none"):
        Stencil(Config(), STEADY)(on_a_line(grid=None))


def test_a_problem_without_a_grid_is_refused():
    with pytest.raises(Unsupported, match=r"Stencil needs points that form a regular grid; steady"):
        Stencil(Config(), replace(STEADY, provides=frozenset({Need.SAME_POINTS})))


def test_a_moving_query_of_one_time_is_that_time():
    model = Kernel(replace(STEADY, provides=frozenset()))
    still = on_a_line(grid=None)
    moving = replace(still, queries=still.queries.unsqueeze(1))
    assert torch.equal(model(moving), model(still))


# What stands around a model, compiled for a GPU besides its regions.


def test_the_scales_can_be_compiled_and_are_no_regions():
    model = wrap(Kernel(), Statistics.identity(7, 2, 0))
    assert list(passes(model)) == [model.inner.inward, model.inner.outward]
    assert not any(name.startswith(("inward", "outward")) for name in model.inner.state_dict())


@pytest.mark.compile
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_compiled_scales_are_the_same(dtype, backend):
    torch._dynamo.reset()
    if dtype == torch.bfloat16:  # what is rounded, and where, is the compiler's choice
        backend = "inductor"
    exact = scaled(Kernel())
    model = exact if dtype == torch.float64 else exact.float()
    kept = model.output_mean.dtype
    random = torch.Generator().manual_seed(0)
    answer = torch.randn(3, 1, 5, OUTPUTS, generator=random, dtype=torch.float64).to(dtype)
    values = torch.randn(3, 4, 7, generator=random).to(kept)
    factor = torch.randn(3, 1, 5, OUTPUTS, generator=random).to(kept)

    def both():
        leaf = answer.clone().requires_grad_()
        out = model.denormalize(leaf)
        (gradient,) = torch.autograd.grad((out * factor).sum(), leaf)
        return model.inward(values, model.input_mean, model.input_scale), out, gradient

    before = both()
    for part in passes(model):
        part.compile(dynamic=False, backend=backend)
    for mine, theirs in zip(both(), before, strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs)
    scales = SCALES["output_scale"], SCALES["output_mean"]
    by_hand = answer.double() * scales[0].double() + scales[1].double()
    tight = 1e-12 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(before[1].double(), by_hand, rtol=tight, atol=tight)
    assert before[1].dtype == kept
