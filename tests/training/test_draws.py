"""The random choices of a step are a function of the seed and the step, for any number of ranks."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.data.packed import Packed
from ipot.errors import DataError, Unsupported
from ipot.samples import Batch, Sample
from ipot.seeds import generator
from ipot.spec import Spec
from ipot.training.draws import DEPTH, Draws, ahead, batches, in_a_thread, sizes_of
from ipot.training.settings import Training
from training.films import PROBLEM as FILMS
from training.films import films
from training.toys import CPU, SPEC, field, on_grid, packed, ragged, stacked


def draws(data, rank=0, world=1, spec=SPEC, **settings):
    return Draws(data, spec, Training(**{"batch": 4, **settings}), rank=rank, world=world)


def epoch(of, number):
    steps = of.steps_per_epoch
    return torch.cat([of(step).index for step in range(number * steps, (number + 1) * steps)])


@pytest.mark.parametrize(
    "data", [stacked(24), ragged(24), packed(24)], ids=lambda d: type(d).__name__
)
def test_an_epoch_is_a_permutation_of_its_own(data):
    of = draws(data)
    first, second = epoch(of, 0), epoch(of, 1)
    for order in (first, second):
        assert order.sort().values.tolist() == list(range(24))
    assert not torch.equal(first, second)
    assert not torch.equal(first, epoch(draws(data, seed=1), 0))


def test_the_order_depends_on_seed_and_epoch_alone():
    of = draws(stacked(24))
    late = epoch(of, 3)
    other = draws(stacked(24, seed=7), points=0.5, augment=True, epochs=9)
    assert torch.equal(epoch(other, 3), late)
    epoch(other, 0)
    assert torch.equal(epoch(other, 3), late)


def test_samples_beyond_the_last_whole_batch_wait_for_another_epoch():
    of = draws(stacked(11))
    assert of.steps_per_epoch == 2
    assert epoch(of, 0).unique().numel() == 8
    assert torch.cat([epoch(of, e) for e in range(9)]).unique().numel() == 11


@pytest.mark.parametrize(
    "data", [stacked(10), ragged(10), packed(10)], ids=lambda d: type(d).__name__
)
def test_the_last_batch_may_be_filled_so_that_every_epoch_sees_all(data):
    of = draws(data, last_batch="fill")
    assert of.steps_per_epoch == 3
    for number in range(3):
        order = epoch(of, number)
        assert len(order) == 12
        assert order.unique().numel() == 10
    if data.stacked:
        assert of(2).index.unique().numel() == 4  # nobody twice in one batch
    assert draws(stacked(12), last_batch="fill").steps_per_epoch == 3
    left = draws(stacked(10))
    assert torch.equal(epoch(of, 0)[:8], epoch(left, 0)) or not data.stacked


def test_a_batch_larger_than_the_data_is_all_of_it():
    of = draws(stacked(3))
    assert of.steps_per_epoch == 1
    assert sorted(of(0).index.tolist()) == [0, 1, 2]


def test_subsets_have_their_size_without_repetition():
    of = draws(stacked(points=12), points=0.5, queries=0.25)
    chosen = [of(step) for step in range(20)]
    for draw in chosen:
        assert draw.points.unique().numel() == len(draw.points) == 6
        assert draw.queries.unique().numel() == len(draw.queries) == 3
    assert torch.cat([d.queries for d in chosen]).unique().numel() == 12
    assert draws(stacked())(0).points is None


def test_a_subset_is_never_empty():
    assert len(draws(stacked(points=12), points=0.01)(0).points) == 1


@pytest.mark.parametrize("augment", [False, True])
def test_a_shared_mesh_stays_shared(augment):
    of = draws(stacked(), points=0.5, queries=0.5, augment=augment)
    batch = of.stacked_batch(of(0))
    assert batch.points.shape == batch.queries.shape == (1, 6, 1)
    assert batch.size == 4


@pytest.mark.parametrize("settings", [{}, {"augment": True}, {"batch": 1}])
def test_the_mesh_is_in_every_batch_as_the_very_same_tensors(settings):
    of = draws(stacked(), **settings)
    points, queries = of.mesh()
    assert points is of.data.data.points
    assert queries is of.data.data.queries
    for step in range(4):
        batch = of.gather(of(step))
        assert batch.points is points
        assert batch.queries is queries


def test_what_is_drawn_or_moves_is_no_mesh():
    assert draws(stacked(), points=0.5).mesh()[0] is None
    assert draws(stacked(), queries=0.5).mesh()[1] is None
    data = stacked().data
    moving = Stacked(replace(data, queries=data.queries.unsqueeze(1)))
    assert draws(moving).mesh() == (data.points, None)
    loose = Stacked(replace(data, grid=None, query_grid=None))
    assert draws(loose, augment=True).mesh() == (None, None)
    assert draws(ragged()).mesh() == draws(packed()).mesh() == (None, None)


@pytest.mark.parametrize(("batch", "kept"), [(4, True), (1, False)])
def test_the_mesh_of_trajectories_in_pieces(batch, kept):
    """A batch of one sample repeats its mesh for each of the pieces."""
    of = Draws(films(), FILMS.spec, Training(batch=batch, unroll=1))
    assert [t is not None for t in of.mesh()] == [kept, kept]


@pytest.mark.parametrize("make", [ragged, packed])
def test_subsets_of_ragged_samples_are_fractions_of_each(make):
    data = make()
    of = draws(data, points=0.5, queries=0.5)
    batch = of.gather(of(0)) if data.resident else of.ragged_batch(0)
    whole = [data[i] for i in of(0).index.tolist()]
    seen = batch.point_mask.sum(1).tolist()
    assert seen == [round(0.5 * len(s.points)) for s in whole]
    asked = batch.query_mask.sum(1).tolist()
    assert asked == [round(0.5 * len(s.queries)) for s in whole]
    for row, sample in enumerate(whole):
        taken = batch.points[row, : seen[row], 0]
        assert taken.unique().numel() == seen[row]
        assert torch.isin(taken, sample.points[:, 0]).all()


def test_batches_of_ragged_samples_hold_like_sizes():
    data = ragged(120)
    sizes = torch.tensor(data.sizes()).float()
    of = draws(data)

    def spread(order):
        return sizes[order.view(-1, 4)].std(1).mean()

    assert spread(epoch(of, 0)) < 0.2 * spread(torch.arange(120))
    # The small ones do not all come first.
    means = sizes[epoch(of, 0).view(-1, 4)].mean(1)
    assert not torch.equal(means, means.sort().values)


def own_grids():
    """Every sample on a grid of its own, as a mesh that follows its body would be."""
    shift = torch.rand(12, 1, 1, generator=torch.Generator().manual_seed(0)) / 12
    points = on_grid(torch.zeros(1, 6), 12).data.points + shift
    c = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
    rows = [
        (field(k[None], x[:, 0]), field(k[None], x[:, 0], 0.5))
        for k, x in zip(c, points, strict=True)
    ]
    values, targets = (torch.cat(parts) for parts in zip(*rows, strict=True))
    return Stacked(
        Batch(
            points=points,
            values=values.unsqueeze(-1),
            queries=points,
            targets=targets[:, None, :, None],
            grid=(12,),
            query_grid=(12,),
        )
    )


def rows(batch):
    """Every sample of a batch by itself, without its padding."""
    for i in range(batch.size):
        kept = slice(None) if batch.point_mask is None else batch.point_mask[i]
        asked = slice(None) if batch.query_mask is None else batch.query_mask[i]
        yield (
            batch.points[i % len(batch.points)][kept],
            batch.values[i][kept],
            batch.queries[i % len(batch.queries)][asked],
            batch.targets[i][:, asked],
        )


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("make", [stacked, ragged, packed, own_grids])
def test_the_ranks_together_see_the_batch_of_one_process(make, world):
    data = make()
    settings = {"points": 0.75, "queries": 0.5, "augment": True}

    def samples(step, **who):
        of = draws(data, **who, **settings)
        return list(rows(of.gather(of(step)) if data.resident else of.ragged_batch(step)))

    for step in (0, 5):
        alone = samples(step)
        for rank in range(world):
            shared = samples(step, rank=rank, world=world)
            for mine, theirs in zip(shared, alone[rank::world], strict=True):
                for a, b in zip(mine, theirs, strict=True):
                    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_symmetry_turns_inputs_and_outputs_alike():
    """Both have the spectrum that they had, and the same phase to each other."""
    turned, still = (
        of.stacked_batch(of(0))
        for of in (draws(stacked(), augment=augment) for augment in (True, False))
    )
    assert not torch.equal(turned.values, still.values)
    waves = [
        (torch.fft.rfft(b.values[..., 0])[:, 1:4], torch.fft.rfft(b.targets[:, 0, :, 0])[:, 1:4])
        for b in (turned, still)
    ]
    torch.testing.assert_close(waves[0][0].abs(), waves[1][0].abs())
    torch.testing.assert_close(waves[0][1] / waves[0][0], waves[1][1] / waves[1][0])


@pytest.mark.parametrize("make", [ragged, packed])
def test_symmetry_moves_scattered_points(make):
    turned, still = (
        of.gather(of(0)) if of.data.resident else of.ragged_batch(0)
        for of in (draws(make(), augment=augment) for augment in (True, False))
    )
    assert torch.equal(turned.values, still.values)
    assert torch.equal(turned.targets, still.targets)
    moved = (turned.points - still.points)[..., 0] % 1
    assert (moved - moved[:, :1]).abs()[still.point_mask].max() < 1e-6
    assert moved[:, 0].unique().numel() == 4


def test_augmenting_without_a_symmetry_says_so():
    plain = Spec(name="plain", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),))
    with pytest.raises(Unsupported, match="plain lists no symmetry"):
        draws(stacked(), spec=plain, augment=True)(0)


@pytest.mark.parametrize(("batch", "world"), [(4, 3), (1, 2)])
def test_a_batch_that_does_not_divide_is_refused(batch, world):
    with pytest.raises(DataError, match=f"batch of {batch} does not divide among {world}"):
        draws(stacked(), batch=batch, world=world)


@pytest.mark.compile
def test_a_compiled_gather_is_the_same():
    torch._dynamo.reset()
    draws = Draws(stacked(), SPEC, Training(batch=4))
    expected = [draws.gather(draws(step)) for step in range(3)]
    (rows,) = draws.passes()
    calls = []
    rows.register_forward_hook(lambda *call: calls.append(call))
    rows.compile(dynamic=False, backend="eager")
    for step, wanted in enumerate(expected):
        batch = draws.gather(draws(step))
        assert batch.points is wanted.points
        for name in ("values", "targets", "index"):
            assert torch.equal(getattr(batch, name), getattr(wanted, name))
    assert len(calls) == 3
    assert not list(Draws(ragged(), SPEC, Training(batch=4)).passes())


BATCH = 10


def clouds(points, queries):
    """Samples of given sizes, with nothing in them."""
    return Ragged(
        [
            Sample(
                points=torch.zeros(n, 1),
                values=torch.zeros(n, 1),
                queries=torch.zeros(m, 1),
                targets=torch.zeros(1, m, 1),
                index=i,
            )
            for i, (n, m) in enumerate(zip(points.tolist(), queries.tolist(), strict=True))
        ],
        check=False,
    )


def uniform(seed):
    return torch.randint(50, 151, (400,), generator=torch.Generator().manual_seed(seed))


def padded(data, rows, numbers):
    """Rows with padding for each real one, over an epoch."""
    sizes = sizes_of(data)
    most = torch.stack([side[rows].amax(1) for side in sizes])
    if numbers is not None:
        most = torch.tensor([data.boxes[i] for i in numbers]).T
    return (rows.shape[1] * most.sum() / sizes[:, rows].sum()).item()


def batches_of(data, batch=BATCH, number=0):
    steps = len(data) // batch
    return batches(data, sizes_of(data), steps, batch, generator(0, "epoch", number))


@pytest.mark.parametrize(
    ("apart", "by_window", "by_box"), [(False, 1.05, 1.15), (True, 1.15, 1.25)]
)
def test_little_is_wasted_on_padding(apart, by_window, by_box):
    """With as many points as queries, and with numbers of both that know nothing of each other."""
    data = clouds(uniform(0), uniform(1 if apart else 0))
    by_chance = torch.randperm(400, generator=generator(0, "any")).view(-1, BATCH)
    assert padded(data, by_chance, None) > 1.35
    assert padded(data, *batches_of(data)) < by_window
    data = Packed(data, device=CPU, batch=BATCH)
    assert padded(data, *batches_of(data)) < by_box


@pytest.mark.parametrize("batch", [1, 4, 7, 50])
@pytest.mark.parametrize("make", [stacked, ragged, packed])
def test_an_epoch_has_every_sample_once_up_to_the_remainder(make, batch):
    data = make(50)
    rows, numbers = batches_of(data, batch)
    assert rows.shape == (50 // batch, batch)
    assert rows.unique().numel() == rows.numel()
    assert (numbers is None) == (not isinstance(data, Packed))
    again, same = batches_of(data, batch)
    assert torch.equal(again, rows)
    assert same == numbers


@pytest.mark.parametrize("make", [stacked, ragged, packed])
def test_no_sample_is_left_out_for_good(make):
    data, everything = make(22), set(range(22))
    left = [everything - set(batches_of(data, 4, e)[0].flatten().tolist()) for e in range(100)]
    assert {len(few) for few in left} == {2}
    assert set().union(*left) == everything


def test_samples_fit_the_box_of_their_batch():
    data = Packed(clouds(uniform(0), uniform(1)), device=CPU, batch=BATCH)
    rows, numbers = batches_of(data)
    points, queries = sizes_of(data)
    for row, number in zip(rows, numbers, strict=True):
        assert data.boxes[number].holds(int(points[row].max()), int(queries[row].max()))
    assert len(set(numbers)) > 2
    # Neither the small ones first nor all of one box together.
    assert numbers != sorted(numbers)


def test_company_changes_from_epoch_to_epoch():
    data = Packed(clouds(uniform(0), uniform(0)), device=CPU, batch=BATCH)
    company = [{frozenset(row.tolist()) for row in batches_of(data, number=e)[0]} for e in range(2)]
    assert not company[0] & company[1]


def test_a_draw_knows_its_box_and_examples_show_all_of_them():
    data = packed(40)
    draws = Draws(data, SPEC, Training(batch=4, points=0.5, queries=0.5, augment=True))
    examples = {draw.box: draw for draw in draws.examples()}
    assert list(examples) == list(range(len(data.boxes)))
    assert len(examples) > 1
    for step in range(20):
        draw = draws(step)
        like = examples[draw.box]
        for name in ("index", "points", "queries", "symmetry"):
            assert getattr(draw, name).shape == getattr(like, name).shape
        mine, theirs = draws.gather(draw), draws.gather(like)
        assert mine.values.shape == theirs.values.shape
        assert mine.targets.shape == theirs.targets.shape


def test_examples_of_stacked_samples_are_one():
    draws = Draws(stacked(), SPEC, Training(batch=4))
    (example,) = draws.examples()
    assert example.box is None
    assert torch.equal(example.index, draws(0).index)


@pytest.mark.parametrize("make", [stacked, ragged, packed])
def test_the_largest_batch(make):
    data = make()
    draws = Draws(data, SPEC, Training(batch=4, points=0.5), world=2, rank=1)
    sizes = [[len(data[i].points), len(data[i].queries)] for i in range(12)]
    points, queries = (max(side) for side in zip(*sizes, strict=True))
    assert draws.shape() == (2, round(0.5 * points), queries, 1)


def own_threads():
    return [t for t in threading.enumerate() if t.name == "draws"]


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize("make", [stacked, packed])
def test_the_same_from_a_thread_and_from_the_loop(make):
    settings = Training(batch=4, points=0.5, queries=0.5, augment=True)
    of = Draws(make(24), SPEC, settings)
    wanted = [Draws(make(24), SPEC, settings)(step) for step in range(5, 25)]
    for source in (ahead(of, 5, CPU), in_a_thread(of, 5, pin=False)):
        for expected in wanted:
            draw = next(source)
            list(of.examples())  # the main thread asks for others meanwhile
            assert draw.box == expected.box
            for name in ("index", "points", "queries", "symmetry"):
                assert torch.equal(getattr(draw, name), getattr(expected, name))
        source.close()
    wait_until(lambda: not own_threads())


def test_the_thread_waits_and_ends_with_its_reader():
    made = []

    def draws(step):
        made.append(step)
        return Draws(stacked(), SPEC, Training(batch=4))(step)

    source = in_a_thread(draws, 0, pin=False)
    next(source)
    wait_until(lambda: len(made) >= DEPTH)
    time.sleep(0.1)
    assert len(made) <= DEPTH + 2
    assert own_threads()
    source.close()
    wait_until(lambda: not own_threads())


def test_an_error_in_the_thread_reaches_the_loop():
    def draws(step):
        if step == 3:
            raise DataError("no such sample")
        return Draws(stacked(), SPEC, Training(batch=4))(step)

    source = in_a_thread(draws, 0, pin=False)
    for _ in range(3):
        next(source)
    with pytest.raises(DataError, match="no such sample"):
        next(source)
    wait_until(lambda: not own_threads())
