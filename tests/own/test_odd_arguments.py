"""Odd arguments of a fitted model: they work, or the refusal names them and says what to do."""

import numpy as np
import pytest
import torch
from surrogate.test_encoded import built

import ipot
from ipot.data.facts import is_straight
from ipot.data.own import Dataset
from ipot.errors import DataError, IpotError, RunError, Unsupported

from . import tiny
from .tiny import X

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.random(12)


@pytest.mark.parametrize(
    "turn",
    [
        torch.Tensor.bfloat16,
        torch.Tensor.half,
        torch.Tensor.to_sparse,
        torch.Tensor.to_sparse_csr,
        torch.Tensor.requires_grad_,
    ],
    ids=lambda turn: turn.__name__,
)
def test_tensors_of_every_kind_are_answered(turn):
    model = built("mesh")
    plain = [torch.tensor(a, dtype=torch.float32) for a in (X, RANDOM.random((3, 12)), X[:5])]
    given = dict(zip(("points", "values", "queries"), (turn(t) for t in plain), strict=True))
    dense = {n: t.detach() if t.layout == torch.strided else t.to_dense() for n, t in given.items()}
    found = model.predict(**given)
    assert isinstance(found, np.ndarray)
    wanted = model.predict(**{n: t.float().numpy() for n, t in dense.items()})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample": X}, "an xarray object or a path, got ndarray"),
        ({"sample": 5}, "an xarray object or a path, got int"),
        ({"sample": tiny.data("channels")[0]}, "has 1 input channels, this batch has 2"),
        ({"sample": tiny.data("space")[0]}, "has 2 coordinates of an input point"),
        ({"channel": None}, "channel=None is no output. Known: target"),
        ({"channel": 1.5}, "channel=1.5 is no output"),
        ({"channel": "v"}, "channel='v' is no output"),
        ({"time": "a"}, "time must be the number of one, like 0 or -1, got 'a'"),
        ({"path": 5}, "path must be a path in quotation marks, got 5"),
        ({"path": ""}, "path is empty"),
    ],
)
def test_pictures_that_cannot_be(arguments, message):
    with pytest.raises(IpotError) as caught:
        built("mesh").plot(**{"sample": tiny.data("mesh")[0]} | arguments)
    assert message in str(caught.value)


@pytest.mark.plain
@pytest.mark.parametrize("path", [None, "", 3, b"x"], ids=repr)
def test_paths_that_are_none(path):
    with pytest.raises(DataError, match=r"path (must be a path|is empty)"):
        built("mesh").save(path)
    with pytest.raises(DataError, match=r"path (must be a path|is empty)"):
        ipot.load(path)


def test_folders_that_hold_no_model(tmp_path):
    folder = built("mesh").save(tmp_path / "surrogate")
    for path, message in (
        (tmp_path / "surogate", f"there is no such folder.*Did you mean {folder}"),
        (tmp_path / "other" / "Surrogate", "there is no such folder"),
        (tmp_path / "Surrogate", "there is no such folder"),
        (tmp_path, f"holds no config.json.*There is one at {folder}"),
        (folder / "model.safetensors", f"is a file.*Give the folder, {folder}"),
    ):
        with pytest.raises(RunError, match=message) as caught:
            ipot.load(path)
        assert "A saved model is a folder with config.json and model.safetensors" in str(
            caught.value
        )


@pytest.mark.plain
@pytest.mark.parametrize(
    ("level", "message"),
    [
        (90, "got 90: 90 % are interval=0.9"),
        (95.0, "interval=0.95"),
        (True, "got True"),
        ("0.9", "got '0.9'"),
        (1, "between 0 and 1, like 0.9, got 1"),
        (np.nan, "got nan"),
        ("x" * 10_000, "xxx..."),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_levels_that_are_none(level, message):
    with pytest.raises(DataError) as caught:
        built("mesh").predict(points=X, values=VALUES, interval=level)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_bounds_are_not_called_as_a_channel_is():
    """Arrays have no names, and files do."""
    data = Dataset.from_arrays(
        points=X,
        values=RANDOM.random((10, 12)),
        targets=RANDOM.random((10, 12, 2)),
        outputs=["u", "u_low"],
    )
    model = tiny.quick(data)
    model.calibrate(data)
    found = model.predict(points=X, values=VALUES, interval=0.5)
    assert [part.shape for part in found] == [(12, 2)] * 3
    samples = list(data)[:1]
    with pytest.raises(Unsupported, match="the bounds of u are called u_low and u_high"):
        model.around(samples, model.answers(samples), 0.5)


@pytest.mark.parametrize("queries", [1, 3])
def test_one_sample_in_a_stack_keeps_its_axis(queries):
    """Its queries (1, M, 2) are no grid of one line."""
    model, places = built("mesh"), RANDOM.random((1, queries, 2))
    found = model.predict(points=X, values=VALUES[None], queries=places)
    assert found.shape == (1, queries)
    both = model.predict(points=X, values=np.stack([VALUES, VALUES]), queries=places[0, :1])
    assert both.shape == (2, 1)


def test_a_line_of_a_grid_is_one_and_scattered_rows_are_not():
    line = np.stack([np.arange(4.0), np.ones(4)], -1)
    assert is_straight(line[None])
    assert is_straight(line[:, None])
    assert not is_straight(RANDOM.random((1, 4, 2)))
    assert not is_straight(RANDOM.random((4, 1, 2)))
    assert not is_straight(RANDOM.random((1, 1, 2)))
    assert not is_straight(RANDOM.random((4, 1, 1)))
    assert not is_straight(np.zeros((0, 4, 2)))
    assert not is_straight(np.zeros((4, 0, 2)))
