"""How much memory packed samples take is known before they are packed."""

from dataclasses import replace

import pytest
import torch

from ipot.data.dataset import Ragged
from ipot.data.packed import Packed, packed_bytes

SIZES = [(6, 3), (4, 7), (9, 5), (2, 4), (6, 6)]


def held(data):
    """Bytes of all that a packed data set keeps on its device."""
    packed = Packed(data, device="cpu", batch=2)
    own = [packed._values, packed._targets, packed._weights, packed._parameters]
    for rows in (packed._inputs, packed._asked):
        own += [rows._places, rows._starts, rows._lengths]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in own if t is not None}
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("times", [(1.0,), (1.0, 2.0, 3.0)])
def test_it_is_what_they_take(make_sample, times, dtype):
    made = [
        make_sample(n, m, c=2, k=3, p=2, times=times, seed=i, dtype=dtype)
        for i, (n, m) in enumerate(SIZES)
    ]
    assert packed_bytes(Ragged(made)) == held(Ragged(made))
    assert packed_bytes(Ragged(made[:1])) == held(Ragged(made[:1]))


def test_weights_and_moving_queries(make_sample):
    made = []
    for i, (n, m) in enumerate(SIZES):
        sample = make_sample(n, m, times=(1.0, 2.0), seed=i)
        moving = torch.rand(2, m, 2)
        made.append(replace(sample, queries=moving, weights=torch.rand(m)))
    assert packed_bytes(Ragged(made)) == held(Ragged(made))


@pytest.mark.parametrize("side", ["points", "queries"])
def test_a_mesh_of_all_is_counted_once(make_sample, side):
    mesh = torch.rand(6, 2)
    sizes = [(6, m) if side == "points" else (m, 6) for _, m in SIZES]
    made = [make_sample(n, m, seed=i, **{side: mesh}) for i, (n, m) in enumerate(sizes)]
    assert packed_bytes(Ragged(made)) == held(Ragged(made))
    # One that has a copy, and every sample is stored with its own.
    other = [*made[:-1], replace(made[-1], **{side: mesh.clone()})]
    assert packed_bytes(Ragged(other)) == held(Ragged(other))
    assert packed_bytes(Ragged(other)) == packed_bytes(Ragged(made)) + (4 * 6 + 1) * 8


def test_what_is_stored_twice_is_counted_twice(make_sample):
    weights = torch.rand(5)
    made = []
    for i in range(3):
        mesh = torch.rand(5, 2)
        made.append(make_sample(5, 5, seed=i, points=mesh, queries=mesh, weights=weights))
    made.append(make_sample(7, 5, seed=3, weights=weights))
    assert packed_bytes(Ragged(made)) == held(Ragged(made))


def test_samples_without_points(make_sample):
    made = [make_sample(0, m, p=2, seed=i) for i, (_, m) in enumerate(SIZES)]
    assert packed_bytes(Ragged(made)) == held(Ragged(made))
