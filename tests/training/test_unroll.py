"""Trajectories cut into pieces: what each sees, what it is asked for, and that it teaches."""

import signal
from dataclasses import replace

import pytest
import torch
from models.toys import Config, Stencil

from ipot.data.dataset import Ragged, Stacked
from ipot.data.packed import Packed
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.models._wrappers import wrap
from ipot.run_folder import Run
from ipot.samples import Sample, collate
from ipot.spec import Spec
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.trainer import Stopped, train
from ipot.training.unroll import examine, pieces
from training.films import PROBLEM, films, truth
from training.toys import CPU, Kill, assert_same_run

DT, HISTORY, OUTPUTS, STEPS = 0.5, 3, 2, 7
SPEC = Spec(
    name="toy",
    inputs=tuple("abcdefg"),
    outputs=("u", "v"),
    domain=((0.0, 1.0),),
    dt=DT,
    steps=STEPS,
    history=HISTORY,
    parameters=("p",),
)
TIMES = tuple(DT * (i + 1) for i in range(STEPS))


def samples(sizes, **fixed) -> list[Sample]:
    """Three past frames of two fields and a static channel, seven steps to come."""
    random = torch.Generator().manual_seed(0)
    made = []
    for index, n in enumerate(sizes):
        ring = torch.arange(n)
        fields = {
            "points": torch.rand(n, 1, generator=random),
            "values": torch.rand(n, 7, generator=random),
            "targets": torch.rand(STEPS, n, OUTPUTS, generator=random),
            "parameters": torch.rand(1, generator=random),
            "weights": torch.rand(n, generator=random),
            "edges": torch.stack([ring, (ring + 1) % n]),
        } | fixed
        made.append(Sample(queries=fields["points"], times=TIMES, index=index, **fields))
    return made


def film(sample):
    """All frames of a sample, past ones first: (history + steps, N, K)."""
    past = [sample.values[:, i * OUTPUTS : (i + 1) * OUTPUTS] for i in range(HISTORY)]
    return torch.stack([*past, *sample.targets])


def check(made, steps):
    """Every piece of some samples against frames that are cut out one by one."""
    count = STEPS // steps
    cut = pieces(collate(made), SPEC, steps)
    assert cut.size == count * len(made)
    assert cut.times == TIMES[:steps]
    for i, sample in enumerate(made):
        frames, n = film(sample), len(sample.points)
        for p in range(count):
            row, start = i * count + p, p * steps
            seen = torch.cat([*frames[start : start + HISTORY], sample.values[:, 6:]], 1)
            assert torch.equal(cut.values[row, :n], seen)
            wanted = frames[start + HISTORY : start + HISTORY + steps]
            assert torch.equal(cut.truth[row, :, :n], wanted)
            for name in ("points", "queries", "weights"):
                tensor = getattr(cut, name)
                mine = tensor[0 if tensor.shape[0] == 1 else row][:n]
                assert torch.equal(mine, getattr(sample, name))
            assert torch.equal(cut.parameters[row], sample.parameters)
            assert cut.index[row] == i
            if cut.point_mask is not None:
                assert cut.point_mask[row].sum() == cut.query_mask[row].sum() == n
    return cut


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
@pytest.mark.parametrize("sizes", [(4,), (4, 4), (5, 3, 4)])
def test_pieces_are_frames_cut_out_by_hand(sizes, steps):
    made = samples(sizes)
    cut = check(made, steps)
    assert cut.points.shape[0] == cut.size


@pytest.mark.parametrize("steps", [1, 2])
def test_a_shared_mesh_stays_shared(steps):
    fixed = {"points": torch.rand(4, 1), "edges": None}
    made = [replace(s, grid=(4,), query_grid=(4,)) for s in samples((4, 4, 4), **fixed)]
    cut = check(made, steps)
    assert cut.points.shape[0] == cut.queries.shape[0] == 1
    assert cut.asked_where_seen


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3)])
def test_edges_join_the_same_points_in_every_piece(sizes):
    made = samples(sizes)
    cut = pieces(collate(made), SPEC, 2)
    rows = cut.values.shape[1]
    expected = {
        (row * rows + a, row * rows + b)
        for row in range(cut.size)
        for a, b in made[row // 3].edges.T.tolist()
    }
    found = list(map(tuple, cut.edges.T.tolist()))
    assert len(found) == len(expected)
    assert set(found) == expected


def test_the_whole_rollout_is_left_as_it_is():
    batch = collate(samples((4, 4)))
    assert pieces(batch, SPEC, STEPS) is batch
    steady = replace(SPEC, history=0, steps=1)
    one = collate(
        [Sample(**{**vars(s), "targets": s.targets[:1], "times": (1.0,)}) for s in samples((4,))]
    )
    assert pieces(one, steady, 1) is one


def test_float64_targets_do_not_change_the_precision_of_the_inputs():
    batch = collate(samples((4,)))
    cut = pieces(replace(batch, targets=batch.truth.double()), SPEC, 1)
    assert cut.values.dtype == batch.values.dtype


def test_what_cannot_be_cut_is_refused():
    batch = collate(samples((4, 4)))
    with pytest.raises(Unsupported, match=r"toy has no past frames .*leave --training\.unroll out"):
        pieces(batch, replace(SPEC, history=0), 1)
    with pytest.raises(Unsupported, match="unroll 8 of only 7 steps"):
        pieces(batch, SPEC, 8)
    few = batch.take_queries(torch.arange(3))
    with pytest.raises(DataError, match="at the input points: 4 points, 3 queries"):
        pieces(few, SPEC, 1)
    moving = replace(batch, queries=batch.queries.unsqueeze(1).expand(-1, STEPS, -1, -1))
    with pytest.raises(DataError, match="at the input points"):
        pieces(moving, SPEC, 1)
    gaps = replace(batch, times=(*TIMES[:-1], 4.0))
    with pytest.raises(DataError, match="need every step"):
        pieces(gaps, SPEC, 1)


def test_queries_that_are_other_places_are_refused_before_training():
    made = samples((4, 5))
    examine(Ragged(made), SPEC, 2)
    other = [replace(s, queries=s.queries + 0.1) for s in made]
    with pytest.raises(DataError, match="queries lie elsewhere"):
        examine(Ragged(other), SPEC, 2)
    examine(Ragged(other), SPEC, STEPS)


@pytest.mark.parametrize("unroll", [1, 2, 5])
def test_the_true_step_has_no_loss(unroll):
    data, spec = films(), PROBLEM.spec
    model = wrap(truth(spec), Statistics.identity(3, 1, 0))
    loss = RelativeL2()(model, pieces(data.batch(torch.arange(12)), spec, unroll))
    assert loss < 1e-6


def test_teacher_forcing_starts_from_true_frames():
    """A model that errs by a tenth in every step does so in pieces of one; in longer ones its
    errors add up."""
    data, spec = films(), PROBLEM.spec
    inner = truth(spec)
    with torch.no_grad():
        inner.map.weight.mul_(0.9)
    model = wrap(inner, Statistics.identity(3, 1, 0))
    batch = data.batch(torch.arange(12))
    errors = [RelativeL2()(model, pieces(batch, spec, k)).item() for k in (1, 2, 5)]
    assert errors[0] == pytest.approx(0.1, abs=1e-5)
    assert errors[0] < errors[1] < errors[2]


def fit(path, objective=None, **settings):
    """Train the stencil on films, by pieces unless said."""
    data, held_out = films(), films(4, "validation")
    training = {"epochs": 4, "batch": 4, "step": "eager", "validate_every": 1, "unroll": 1}
    training = Training(**training | settings)
    torch.manual_seed(0)
    model = wrap(Stencil(Config(), PROBLEM.spec), Statistics.of(data))
    path.mkdir(exist_ok=True)
    return train(
        model, data, held_out, training, Run(path), device=CPU, objective=objective, quiet=True
    )


@pytest.mark.parametrize("chosen", [[1], [2, 0], [0, 1, 2]])
def test_chosen_pieces_are_some_of_all(chosen):
    batch = collate(samples((5, 3)))
    each = [chosen, chosen[::-1]]  # two samples, each its own
    whole, some = pieces(batch, SPEC, 2), pieces(batch, SPEC, 2, torch.tensor(each))
    rows = torch.tensor([3 * sample + p for sample in range(2) for p in each[sample]])
    for name in ("points", "values", "targets", "parameters", "point_mask", "index"):
        assert torch.equal(getattr(some, name), getattr(whole, name)[rows]), name


def test_pieces_are_drawn_anew_in_every_step():
    settings = Training(batch=4, unroll=2, pieces=1)
    draws = Draws(films(), PROBLEM.spec, settings)
    drawn = [draws(step).pieces.tolist() for step in range(12)]
    assert {p for d in drawn for [p] in d} == {0, 1}
    assert any(len({p for [p] in d}) == 2 for d in drawn)  # each sample its own
    assert drawn == [
        Draws(films(), PROBLEM.spec, settings)(step).pieces.tolist() for step in range(12)
    ]
    assert draws.stacked_batch(draws(0)).size == 4
    with pytest.raises(Unsupported, match="pieces must come with"):
        Training(pieces=1)


@pytest.mark.parametrize("kind", [Stacked, Ragged, Packed])
def test_a_step_is_given_the_pieces_that_it_drew(kind):
    data = films() if kind is Stacked else Ragged([films()[i] for i in range(12)])
    if kind is Packed:
        data = Packed(data, device="cpu", batch=4)
    draws = Draws(data, PROBLEM.spec, Training(batch=4, unroll=1, pieces=2))
    for number in range(3):
        draw = draws(number)
        batch = draws.gather(draw) if data.resident else draws.ragged_batch(number)
        both = zip(draw.index.tolist(), draw.pieces.tolist(), strict=True)
        pairs = [(i, p) for i, own in both for p in own]
        assert batch.index.tolist() == [i for i, _ in pairs]
        expected = torch.stack([data[i].targets[p : p + 1] for i, p in pairs])
        assert torch.equal(batch.truth, expected)


@pytest.mark.parametrize(("unroll", "some"), [(1, None), (2, None), (1, 2)])
def test_a_run_by_pieces_learns_whole_rollouts(tmp_path, unroll, some):
    settings = {
        "unroll": unroll,
        "pieces": some,
        "learning_rate": 0.1,
        "validate_every": 30,
        "warmup": 0.0,
    }
    before = fit(tmp_path / "short", epochs=1, **settings).validation
    after = fit(tmp_path / "long", epochs=30, **settings)
    assert before > 0.2
    assert after.validation < 0.05
    assert after.loss < 0.05


@pytest.mark.parametrize("some", [None, 2])
def test_a_run_by_pieces_is_resumed_exactly(tmp_path, some):
    settings = {"average": 0.9, "save_seconds": 0.0, "pieces": some}
    fit(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", Kill(7, signal.SIGTERM), **settings)
    fit(tmp_path / "stopped", **settings)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    fit(tmp_path / "rollouts", **settings | {"unroll": None, "pieces": None})
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "rollouts", tmp_path / "whole")


def test_the_films_are_what_they_say():
    data = films(2)
    assert isinstance(data, Stacked)
    values, targets = data.data.values, data.data.truth[..., 0]
    state = values[..., 1]
    for frame in targets.unbind(1):
        around = torch.stack([state[:, (torch.arange(10) + s) % 10] for s in (1, -1)]).mean(0)
        state = (state + around) / 2 + 0.3 * values[..., 2]
        torch.testing.assert_close(frame, state)
