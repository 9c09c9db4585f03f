"""Published files: what a problem writes it reads back, and what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ipot import registry
from ipot.commands.generate import whole
from ipot.data import readers
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.problems.base import SPLITS, Problem

CPU = torch.device("cpu")
SINGLE = {  # problem: file, input array, output array
    "burgers": ("burgers_data_R10.mat", "a", "u"),
    "darcy": ("piececonst_r421_N1024_smooth1.mat", "coeff", "sol"),
    "navier_stokes": ("NavierStokes_V1e-3_N5000_T50.mat", "u", "u"),
}


def small(name: str) -> Problem:
    return registry.find("problems", name).small()


def fields(problem, split, count):
    return problem.generate(
        split, range(count), seed=0, device=CPU, resolution=whole(problem, None)
    )


@pytest.fixture(scope="module", params=SINGLE)
def written(request, tmp_path_factory):
    """A problem, the splits written, and the folder."""
    problem, folder = small(request.param), tmp_path_factory.mktemp(request.param)
    splits = {split: fields(problem, split, 3 + n) for n, split in enumerate(SPLITS)}
    return problem, splits, folder, problem.write(splits, folder)


@pytest.fixture
def copy(written, tmp_path):
    """The same files, to be spoilt."""
    problem, _, _, paths = written
    for path in paths:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return problem, tmp_path, SINGLE[problem.name]


@pytest.mark.plain
@pytest.mark.parametrize("name", registry.names("problems"))
@pytest.mark.parametrize("many", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_what_is_written_is_read_back(name, many, tmp_path):
    problem = small(name)
    if not (problem.published and problem.generated):
        pytest.skip("no published layout of generated data")
    if problem.spec.steps > 1:
        problem = problem.with_steps(2)
    # One set cut in three: how they are drawn is no matter of files, and some take long to solve.
    made = fields(problem, "train", many * len(SPLITS))
    splits = {
        split: {name: field[n * many : (n + 1) * many] for name, field in made.items()}
        for n, split in enumerate(SPLITS)
    }
    paths = problem.write(splits, tmp_path)
    assert all(path.is_file() and tmp_path in path.parents for path in paths)
    for split, here in splits.items():
        for count in (many, 2):
            found = problem.read(split, count, tmp_path)
            for field in found:
                expected = here[field][:count]
                torch.testing.assert_close(found[field].to(expected), expected, rtol=1e-6, atol=0)
        with pytest.raises(DataError, match=r"(?s)[0-9]+.*[0-9]+"):
            problem.read(split, many + 1, tmp_path)


def test_the_files_have_their_published_names(written):
    problem, _, _, paths = written
    assert {path.name for path in paths} <= set(problem.published)


def test_a_problem_with_files_takes_its_grid_and_samples_from_them(written, tmp_path):
    problem, splits, folder, _ = written
    # Another size than the files have: theirs counts.
    reading = replace(problem, files=str(folder), size=8 * problem.size)
    assert reading.nodes == next(iter(splits["test"].values())).shape[-1]
    store = Store(tmp_path)
    data = reading.load("test", 5, store=store)
    direct = problem.dataset(splits["test"], None, None)
    for here, there in zip((data[i] for i in range(5)), (direct[i] for i in range(5)), strict=True):
        torch.testing.assert_close(here.points, there.points)
        torch.testing.assert_close(here.values, there.values)
        torch.testing.assert_close(here.targets, there.targets)
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="is not a thinning"):
        reading.load("test", 5, store=store, resolution=7)


def test_a_split_that_was_not_written_is_refused_with_the_numbers(written, tmp_path):
    problem, splits, _, _ = written
    problem.write({"train": splits["train"]}, tmp_path)
    assert len(next(iter(problem.read("train", 3, tmp_path).values()))) == 3
    with pytest.raises(DataError, match=r"has 0 samples for the validation|has no file"):
        problem.read("validation", 1, tmp_path)


def test_no_folder_is_refused(written, tmp_path):
    problem, _, folder, _ = written
    with pytest.raises(DataError, match=r"--problem\.files"):
        problem.read("train", 1, None)
    with pytest.raises(DataError, match=r"has no file .*\.mat.*holds nothing.*--problem\.files"):
        problem.read("train", 1, tmp_path)
    with pytest.raises(DataError, match="is not there"):
        replace(problem, files=str(folder / "none")).load("train", 1, store=Store(tmp_path))


def test_a_misnamed_file_is_refused_with_what_is_there(copy):
    problem, folder, (name, _, _) = copy
    (folder / name).rename(folder / "other.mat")
    with pytest.raises(DataError, match=rf"(?s)has no file {name}.*other\.mat"):
        problem.read("train", 1, folder)


def test_a_truncated_file_is_refused(copy):
    problem, folder, (name, _, _) = copy
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"{name} .*cut short"):
        problem.read("train", 3, folder)


def respoil(path: Path, change) -> None:
    """Write a file again with other arrays."""
    arrays = readers.read_mat(path, list(readers.mat_shapes(path)))
    readers.write_mat(path, change(arrays))


def test_a_value_that_is_not_finite_is_refused_with_its_place(copy):
    problem, folder, (name, _, last) = copy

    def spoil(arrays):
        arrays[last][2, ..., 1] = np.nan
        return arrays

    respoil(folder / name, spoil)
    assert len(problem.read("train", 2, folder)) > 0
    with pytest.raises(DataError, match=rf"{last} of .*{name} .*not finite.*index \(2,"):
        problem.read("train", 3, folder)


def test_a_missing_array_and_a_wrong_shape_are_refused(copy):
    problem, folder, (name, first, last) = copy
    original = (folder / name).read_bytes()
    respoil(folder / name, lambda arrays: {k: v for k, v in arrays.items() if k != last})
    with pytest.raises(DataError, match=rf"{name} has no array {last}; it holds"):
        problem.read("train", 3, folder)
    (folder / name).write_bytes(original)
    respoil(folder / name, lambda arrays: arrays | {last: arrays[last][:, :-1]})
    with pytest.raises(DataError, match=rf"{last} of .*{name} must have the shape"):
        problem.read("train", 3, folder)
    (folder / name).write_bytes(original)
    respoil(folder / name, lambda arrays: arrays | {first: arrays[first][..., 0]})
    with pytest.raises(DataError, match=rf"({first}|{last}) of .*{name} must have the shape"):
        problem.read("train", 3, folder)


def test_rows_that_lie_outside_the_file_are_refused(copy):
    problem, folder, (name, _, _) = copy
    respoil(folder / name, lambda arrays: arrays | {"rows_train": np.array([[0, 99]])})
    with pytest.raises(DataError, match=r"rows_train of .* must be two rows within 0 and"):
        problem.read("train", 3, folder)


def plain(problem, folder, sizes, monkeypatch):
    """A file without marks, as the published ones are, and a problem of smaller sizes."""
    monkeypatch.setattr(type(problem), "sizes", sizes)
    for path in folder.iterdir():
        respoil(path, lambda a: {k: v for k, v in a.items() if not k.startswith("rows_")})


def test_published_files_train_on_the_first_rows_and_test_on_the_last(copy, written, monkeypatch):
    problem, folder, (name, first, _) = copy
    if problem.name == "darcy":
        pytest.skip("has a file of its own to test on")
    plain(problem, folder, {"train": 4, "validation": 3, "test": 2}, monkeypatch)
    rows = readers.read_mat(folder / name, [first])[first]  # 12 of them
    for split, place in (
        ("train", slice(0, 4)),
        ("test", slice(10, 12)),
        ("validation", slice(4, 7)),
    ):
        count = problem.sizes[split]
        found = next(iter(problem.read(split, count, folder).values())).numpy()
        expected = rows[place]
        if problem.name == "navier_stokes":
            expected = expected.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(DataError, match="has 4 samples for the train split"):
        problem.read("train", 5, folder)
    with pytest.raises(DataError, match="has 2 samples for the test split"):
        problem.read("test", 3, folder)
    # A file too short for the habit has nothing to test on; rows are never used twice.
    monkeypatch.setattr(type(problem), "sizes", {"train": 50, "validation": 3, "test": 2})
    with pytest.raises(DataError, match="has 0 samples for the test split"):
        problem.read("test", 1, folder)


def test_darcys_second_file_tests_on_its_first_rows(copy, monkeypatch):
    problem, folder, _ = copy
    if problem.name != "darcy":
        pytest.skip("one file for all")
    plain(problem, folder, {"train": 2, "validation": 3, "test": 4}, monkeypatch)
    second = readers.read_mat(folder / problem.published[1], ["sol"])["sol"]  # 5 test, 4 validation
    for split, place in (("test", slice(0, 4)), ("validation", slice(4, 7))):
        found = problem.read(split, place.stop - place.start, folder)["pressure"]
        np.testing.assert_array_equal(found.numpy(), second[place])
    with pytest.raises(DataError, match="has 5 samples for the validation split"):
        problem.read("validation", 6, folder)


def test_darcy_refuses_other_permeabilities_with_the_flags_to_set(written):
    problem, _, folder, _ = written
    if problem.name != "darcy":
        pytest.skip("has no two phases")
    other = replace(problem, low=4.0)
    says = r"coeff of .*must be 4 or 12 .*it is 3, 12\. Set --problem\.low 3 --problem\.high 12"
    with pytest.raises(DataError, match=says):
        other.read("train", 3, folder)


def test_darcy_writes_the_whole_grid_only(tmp_path):
    problem = small("darcy")
    thin = problem.generate("train", range(1), seed=0, device=CPU, resolution=17)
    with pytest.raises(DataError, match=r"all 33 cells .* have 17.*--resolution 33"):
        problem.write({"train": thin}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_navier_stokes_is_read_under_either_name_and_version(written, tmp_path):
    problem, splits, folder, _ = written
    if problem.name != "navier_stokes":
        pytest.skip("has one name")
    name = problem.published[0]
    other = tmp_path / name.replace("NavierStokes_", "ns_")
    other.write_bytes((folder / name).read_bytes())
    assert other.read_bytes()[124:126] == b"\x00\x02"
    found = problem.read("test", 5, tmp_path)["vorticity"]
    assert torch.equal(found, splits["test"]["vorticity"])
    thinner = replace(problem, viscosity=1e-5)
    path = thinner.write(splits, tmp_path)[0]
    assert path.read_bytes()[124:126] == b"\x00\x01"
    assert torch.equal(thinner.read("test", 5, tmp_path)["vorticity"], found)


def test_navier_stokes_refuses_more_frames_and_other_viscosities(written):
    problem, splits, folder, _ = written
    if problem.name != "navier_stokes":
        pytest.skip("is steady")
    fewer = problem.with_steps(4).read("train", 3, folder)["vorticity"]
    assert torch.equal(fewer, splits["train"]["vorticity"][:, :14])
    with pytest.raises(DataError, match=r"has 20 frames.*--problem\.steps 10"):
        problem.with_steps(11).read("train", 3, folder)
    with pytest.raises(DataError, match=r"viscosity of 0\.002.*0\.001, 0\.0001, 1e-05"):
        replace(problem, viscosity=2e-3).read("train", 3, folder)


def test_axes_are_those_of_the_published_files(written):
    """u(n, x, y, t) with the first axis of the grid first, whatever the order in the file."""
    problem, splits, _, paths = written
    shape = next(iter(splits["train"].values())).shape
    found = readers.mat_shapes(paths[0])
    if problem.name == "navier_stokes":
        assert found["u"] == (12, *shape[2:], shape[1])
        u = readers.read_mat(paths[0], ["u"])["u"]
        assert u[1, 3, 5, 7] == splits["train"]["vorticity"][1, 7, 3, 5]
    else:
        rows = 3 if problem.name == "darcy" else 12
        assert found[SINGLE[problem.name][1]] == (rows, *shape[1:])


def test_a_problem_without_a_layout_says_so(tmp_path):
    class Bare(type(small("burgers"))):
        write = Problem.write
        read = Problem.read

    with pytest.raises(Unsupported, match="no published layout"):
        Bare().write({}, tmp_path)
    with pytest.raises(Unsupported, match="no published files"):
        Bare().read("train", 1, tmp_path)
