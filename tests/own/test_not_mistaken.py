"""What looks like something else is taken for what it is, or refused."""

from dataclasses import replace

import numpy as np
import pytest

from ipot.data.facts import is_straight
from ipot.data.own import Dataset
from ipot.errors import DataError, RunError
from ipot.own.fit import fit
from ipot.surrogate.cases import predict_case

from . import files

SIZES = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "cross_heads": 2}
LINE = np.arange(8) / 8
GRID = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), -1)
FIELDS = np.random.default_rng(0).random((40, 8, 8))


@pytest.fixture(scope="module")
def model():
    data = Dataset.from_arrays(points=GRID, values=FIELDS, targets=FIELDS**2)
    return fit(data, epochs=1, model=SIZES, quiet=True)


@pytest.mark.parametrize(
    "turn",
    [lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a.swapaxes(0, 1)],
    ids=["descending", "descending too", "xy"],
)
def test_a_grid_in_any_direction_is_one_sample(model, turn):
    points, values = turn(GRID), turn(FIELDS[0])
    wanted = model.predict(points=points.reshape(-1, 2), values=values.reshape(-1))
    found = model.predict(points=points, values=values)
    np.testing.assert_allclose(found, wanted.reshape(8, 8), rtol=1e-5, atol=1e-6)
    many = model.predict(points=GRID, values=FIELDS[:8], queries=points)
    assert many.shape == (8, 8, 8)


def test_a_grid_in_any_direction_is_learned_from_as_one():
    turned = GRID.swapaxes(0, 1)
    data = Dataset.from_arrays(points=turned, values=FIELDS[:8], targets=FIELDS[:8])
    assert len(data[0].points) == 64
    flat = Dataset.from_arrays(
        points=GRID, values=FIELDS[:8].reshape(8, -1), targets=FIELDS[:8].reshape(8, -1)
    )
    assert len(flat[0].points) == 64


def test_scattered_samples_are_no_grid():
    random = np.random.default_rng(1).random((8, 8, 2))
    assert not is_straight(random)
    assert not is_straight(np.stack([random[0]] * 8))  # one mesh, given again for every sample
    assert is_straight(GRID)
    assert not is_straight(GRID[0])


def test_inputs_are_read_where_training_read_them(tmp_path):
    """A field of one name on points and on cells, and targets on cells alone."""
    folder = files.folder(tmp_path / "cases", ".vtu", count=12)
    learned = fit(folder, inputs="a", targets="p", epochs=1, model=SIZES, quiet=True)
    assert learned.about["columns"]["where"] == "cells"
    case = files.case(3)
    other = np.ones(len(case.mesh))
    both = replace(case, cell_fields={**case.cell_fields, "a": other})
    answers = [predict_case(learned, c) for c in (case, both)]
    one, two = (next(v for k, v in c.cell_fields.items() if "predicted" in k) for c in answers)
    np.testing.assert_array_equal(one, two)


@pytest.mark.plain
def test_data_of_another_kind_are_refused(model):
    both = np.stack([FIELDS, FIELDS], -1)
    two = Dataset.from_arrays(points=GRID, values=both, targets=FIELDS, inputs=["a", "b"])
    learned = fit(two, epochs=1, model=SIZES, quiet=True)
    turned = Dataset.from_arrays(points=GRID, values=both, targets=FIELDS, inputs=["b", "a"])
    with pytest.raises(DataError, match="a, b"):
        learned.evaluate(turned)
    later = Dataset.from_arrays(
        points=GRID, values=FIELDS, targets=np.stack([FIELDS, FIELDS], 1), times=[1, 2]
    )
    with pytest.raises(DataError, match="without times, the data are with"):
        model.calibrate(later)


@pytest.mark.plain
def test_a_folder_that_cannot_be_saved_to_is_refused_before_training(tmp_path):
    data = Dataset.from_arrays(points=GRID, values=FIELDS, targets=FIELDS)
    fit(data, epochs=1, model=SIZES, quiet=True, out=tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"notes\.txt"):
        fit(data, quiet=True, resume=tmp_path / "run")


@pytest.mark.plain
def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv is not there"):
        fit(tmp_path / "none.csv", targets="u")
