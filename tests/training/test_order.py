"""Which samples come together, where they differ in size."""

import pytest
import torch

from ipot.data.dataset import Ragged
from ipot.data.packed import Packed
from ipot.samples import Sample
from ipot.seeds import generator
from ipot.training.draws import Draws
from ipot.training.order import batches, sizes_of
from ipot.training.settings import Training
from training.toys import CPU, SPEC, packed, ragged, stacked

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


def epoch(data, batch=BATCH, number=0):
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
    assert padded(data, *epoch(data)) < by_window
    data = Packed(data, device=CPU, batch=BATCH)
    assert padded(data, *epoch(data)) < by_box


@pytest.mark.parametrize("batch", [1, 4, 7, 50])
@pytest.mark.parametrize("make", [stacked, ragged, packed])
def test_an_epoch_has_every_sample_once_up_to_the_remainder(make, batch):
    data = make(50)
    rows, numbers = epoch(data, batch)
    assert rows.shape == (50 // batch, batch)
    assert rows.unique().numel() == rows.numel()
    assert (numbers is None) == (not isinstance(data, Packed))
    again, same = epoch(data, batch)
    assert torch.equal(again, rows)
    assert same == numbers


@pytest.mark.parametrize("make", [stacked, ragged, packed])
def test_no_sample_is_left_out_for_good(make):
    data, everything = make(22), set(range(22))
    left = [everything - set(epoch(data, 4, e)[0].flatten().tolist()) for e in range(100)]
    assert {len(few) for few in left} == {2}
    assert set().union(*left) == everything


def test_samples_fit_the_box_of_their_batch():
    data = Packed(clouds(uniform(0), uniform(1)), device=CPU, batch=BATCH)
    rows, numbers = epoch(data)
    points, queries = sizes_of(data)
    for row, number in zip(rows, numbers, strict=True):
        assert data.boxes[number].holds(int(points[row].max()), int(queries[row].max()))
    assert len(set(numbers)) > 2
    # Neither the small ones first nor all of one box together.
    assert numbers != sorted(numbers)


def test_company_changes_from_epoch_to_epoch():
    data = Packed(clouds(uniform(0), uniform(0)), device=CPU, batch=BATCH)
    company = [{frozenset(row.tolist()) for row in epoch(data, number=e)[0]} for e in range(2)]
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
