"""The forging problem: its dies, its samples, its files."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot import symmetry
from ipot.data import readers
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.problems import plasticity
from ipot.problems.plasticity import PROBLEM, profiles
from ipot.solvers import forging, forging_block
from ipot.spec import Need

SMALL = replace(PROBLEM, size=21, mass_scaling=100.0)
GRID = (21, 7, 20)
CPU = torch.device("cpu")


def draw(count, seed=0):
    random = torch.Generator().manual_seed(seed)
    return plasticity.SPREAD * torch.rand(count, 7, generator=random, dtype=torch.float64)


def made_up(count, problem=SMALL, seed=0):
    """Fields of the right shapes that no solver made."""
    random = torch.Generator().manual_seed(seed)
    along, across, times = problem.grid
    return {
        "die": 15 + torch.rand(count, along, generator=random),
        "displacement": torch.randn(count, along, across, times, 2, generator=random),
    }


@pytest.fixture(scope="module")
def fields():
    return SMALL.generate("test", range(2), seed=0, device=CPU, resolution=None)


def test_dies_are_splines_with_fixed_ends_and_a_fixed_lowest_point():
    heights = draw(200)
    die = profiles(heights, 801)
    torch.testing.assert_close(die.amin(1), torch.full((200,), 15.0).double())
    ends = torch.full((200,), 22.5).double()
    torch.testing.assert_close(die[:, 0], ends)
    torch.testing.assert_close(die[:, -1], ends)
    # Through the heights, up to a shift.
    inner = die[:, 100:-1:100] - heights
    torch.testing.assert_close(inner, inner[:, :1].expand(-1, 7))
    # Natural: no curvature at the ends; smooth: a third derivative that stays bounded.
    bend = die.diff(n=2, dim=1)
    assert (bend[:, [0, -1]].abs() < 0.02 * bend.abs().amax(1, keepdim=True)).all()
    assert (bend.diff(dim=1).abs().amax(1) < 0.05 * bend.abs().amax(1)).all()


def test_a_die_is_the_same_function_on_every_mesh():
    heights = draw(5)
    torch.testing.assert_close(profiles(heights, 21), profiles(heights, 101)[:, ::5])


def test_no_die_of_any_mesh_starts_inside_the_block():
    for nodes in (21, 31, 51, 101):
        die = profiles(draw(300), nodes)
        block = forging_block.Block(die, plasticity.Metal(), 1.0, 1e-4)
        assert block.inside() == []


def test_the_sample_of_the_full_problem_has_the_paper_sizes():
    assert PROBLEM.grid == (101, 31, 20)
    assert PROBLEM.sizes == {"train": 900, "validation": 80, "test": 80}
    fields = made_up(1, PROBLEM)
    sample = PROBLEM.dataset(fields, None, None)[0]
    assert sample.points.shape == (101, 1)
    assert sample.queries.shape == (62620, 3)
    assert sample.targets.shape == (1, 62620, 4)
    repeated = replace(PROBLEM, repeated=True).dataset(fields, None, None)[0]
    assert repeated.values.shape == (62620, 1)


def test_targets_are_places_and_displacements(fields):
    sample = SMALL.dataset(fields, None, None)[1]
    x, y, u_x, u_y = sample.targets[0].view(*GRID, 4).unbind(-1)
    i, j = torch.meshgrid(torch.arange(21), torch.arange(7), indexing="ij")
    torch.testing.assert_close(x - u_x, (0.35 - 2.5 * i).unsqueeze(-1).expand(GRID))
    torch.testing.assert_close(y - u_y, (14.9 - 2.5 * j).unsqueeze(-1).expand(GRID))
    assert torch.equal(u_x, fields["displacement"][1, ..., 0])
    assert torch.equal(u_y, fields["displacement"][1, ..., 1])
    assert not u_y[:, -1].any()
    queries = sample.queries.view(*GRID, 3)
    for axis, size in enumerate(GRID):
        line = queries.movedim(axis, 0)[:, 0, 0, axis]
        torch.testing.assert_close(line, torch.linspace(0, 1, size))


def test_the_repeated_view_shows_the_same_die(fields):
    plain = SMALL.dataset(fields, None, None)[0]
    view = replace(SMALL, repeated=True)
    sample = view.dataset(fields, None, None)[0]
    assert torch.equal(sample.targets, plain.targets)
    assert torch.equal(sample.points, sample.queries)
    die = sample.values.view(*GRID)
    assert torch.equal(die, plain.values.view(21, 1, 1).expand(GRID))
    assert sample.grid == GRID
    assert view.spec.dimension == 3
    assert view.spec.provides == {*Need} - {Need.EDGES, Need.HISTORY}
    assert SMALL.spec.dimension == 1
    assert SMALL.spec.provides == view.spec.provides - {Need.SAME_POINTS}


def test_the_mirrored_sample_is_the_sample_of_the_mirrored_die(fields):
    """The symmetry that the problem lists, with its middle of -49.3 mm; the solver is the judge."""
    solved = [(fields["die"], fields["displacement"])]
    die, moved = fields["die"].clone(), fields["displacement"].clone()
    die[0] = die[0].flip(0)
    moved[0] = forging.solve(die[:1], mass_scaling=100.0).displacement[0]
    solved.append((die, moved))
    draws = torch.tensor([[[0.9, 0.1, 0.1]], [[0.1, 0.1, 0.1]]])
    for repeated in (False, True):
        problem = replace(SMALL, repeated=repeated)
        batch, expected = (
            problem.dataset({"die": d, "displacement": moved}, None, None).data
            for d, moved in solved
        )
        turned = symmetry.apply(batch, draws.double(), problem.spec)
        torch.testing.assert_close(turned.values, expected.values)
        torch.testing.assert_close(turned.targets, expected.targets, rtol=0, atol=1e-3)
        assert (turned.targets - batch.targets)[0].abs().max() > 0.1


def test_a_sample_that_cannot_be_solved_is_named(monkeypatch):
    def lose(*_, **__):
        raise forging.Lost([1], 7)

    monkeypatch.setattr(forging, "solve", lose)
    with pytest.raises(DataError, match=r"samples \[6\] of the train split.*seed 3.*frame 7"):
        SMALL.generate("train", range(5, 8), seed=3, device=CPU, resolution=None)


@pytest.mark.parametrize("size", [20, 11, 1, 0, -9])
def test_sizes_without_square_cells_are_refused(size):
    with pytest.raises(DataError, match=rf"size.*10 k \+ 1.*21 or more.*got {size}"):
        _ = replace(PROBLEM, size=size).grid


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(DataError, match="finite and not negative, got -1"):
        replace(PROBLEM, hardening=-1.0)
    for heavy in (0.0, float("inf"), 1e9):
        with pytest.raises(DataError, match=f"mass_scaling must be positive.*got {heavy}"):
            replace(PROBLEM, mass_scaling=heavy)
    with pytest.raises(DataError, match="finite and not negative, got inf"):
        replace(PROBLEM, hardening=float("inf"))
    with pytest.raises(Unsupported, match="one resolution only"):
        PROBLEM.storage(51, None)


def test_settings_reach_the_solver(fields):
    hard = replace(SMALL, hardening=500.0)
    other = hard.generate("test", range(1), seed=0, device=CPU, resolution=None)
    assert torch.equal(other["die"], fields["die"][:1])
    assert (other["displacement"] - fields["displacement"][:1]).abs().max() > 0.05
    heavy = replace(SMALL, mass_scaling=300.0)
    other = heavy.generate("test", range(1), seed=0, device=CPU, resolution=None)
    assert (other["displacement"] - fields["displacement"][:1]).abs().max() > 0.05


class TestFiles:
    """The published layout, plas_N987_T20.mat with `input` and `output`."""

    @staticmethod
    def published(folder, rows=987, **changes):
        """A file as it is published: all rows, nothing on splits."""
        fields = made_up(rows)
        output = SMALL.dataset(fields, None, None).data.truth.view(rows, *GRID, 4).numpy()
        arrays = {"input": fields["die"].numpy(), "output": output.copy()} | changes
        arrays = {name: array for name, array in arrays.items() if array is not None}
        readers.write_mat(folder / "plas_N987_T20.mat", arrays)
        return fields

    def test_splits_are_the_paper_ones(self, tmp_path):
        fields = self.published(tmp_path)
        for split, first, count in (("train", 0, 900), ("validation", 900, 7), ("test", 907, 80)):
            found = SMALL.read(split, count, tmp_path)
            rows = slice(first, first + count)
            assert set(found) == set(fields)
            for name, tensor in found.items():
                assert torch.equal(tensor, fields[name][rows]), (split, name)
            with pytest.raises(DataError, match=f"has {count} samples for the {split}"):
                SMALL.read(split, count + 1, tmp_path)

    def test_what_is_written_is_read(self, fields, tmp_path):
        splits = {"train": made_up(3), "validation": made_up(1, seed=1), "test": fields}
        (path,) = SMALL.write(splits, tmp_path)
        assert path.name == "plas_N987_T20.mat"
        shapes = readers.mat_shapes(path)
        assert shapes["input"] == (6, 21)
        assert shapes["output"] == (6, *GRID, 4)
        for split, written in splits.items():
            found = SMALL.read(split, len(written["die"]), tmp_path)
            for name, tensor in found.items():
                assert torch.equal(tensor, written[name]), (split, name)

    def test_a_data_set_is_made_from_files(self, tmp_path):
        fields = self.published(tmp_path)
        problem = replace(SMALL, files=str(tmp_path))
        data = problem.load("test", 2, store=Store(tmp_path))
        assert torch.equal(data[1].values[:, 0], fields["die"][908])

    def test_a_missing_file_or_folder_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=r"no file plas_N987_T20.mat"):
            SMALL.read("train", 1, tmp_path)
        with pytest.raises(DataError, match=r"is not there.*--problem.files"):
            SMALL.read("train", 1, tmp_path / "nowhere")
        with pytest.raises(DataError, match=r"--problem.files"):
            SMALL.read("train", 1, None)

    def test_another_mesh_is_refused(self, tmp_path):
        self.published(tmp_path, rows=3)
        with pytest.raises(DataError, match=r"plas_N987_T20.mat must have the shape \(any, 101\)"):
            PROBLEM.read("train", 1, tmp_path)

    def test_a_missing_array_is_refused(self, tmp_path):
        self.published(tmp_path, rows=3, output=None)
        with pytest.raises(DataError, match=r"plas_N987_T20.mat has no array output.*input"):
            SMALL.read("train", 1, tmp_path)

    def test_a_value_that_is_not_finite_is_refused(self, tmp_path):
        die = 15 + np.zeros((3, 21))
        die[1, 2] = np.nan
        self.published(tmp_path, rows=3, input=die)
        assert len(SMALL.read("train", 1, tmp_path)["die"]) == 1
        with pytest.raises(DataError, match=r"input of .*not finite.*\(1, 2\)"):
            SMALL.read("train", 2, tmp_path)

    def test_places_that_do_not_fit_the_displacements_are_refused(self, tmp_path):
        output = np.zeros((3, *GRID, 4))
        self.published(tmp_path, rows=3, output=output)
        with pytest.raises(DataError, match=r"plas_N987_T20.mat must hold x, y, u_x, u_y.*mm off"):
            SMALL.read("train", 1, tmp_path)

    def test_a_file_that_was_cut_is_refused(self, tmp_path):
        self.published(tmp_path, rows=3)
        path = tmp_path / "plas_N987_T20.mat"
        path.write_bytes(path.read_bytes()[:-500])
        with pytest.raises(DataError, match=r"plas_N987_T20.mat.*cannot be read"):
            SMALL.read("train", 1, tmp_path)


@pytest.mark.slow
def test_random_dies_forge_blocks_like_the_published_ones():
    """Published pictures show displacements up to 5.4 mm, and sides that move by 1 to 2 mm.

    The published dies are not known, so that only ranges can be compared.
    """
    die = profiles(draw(8, seed=5), 51).float()
    forged = forging.solve(die, mass_scaling=4.0)
    moved = forged.displacement[:, :, :, 18]
    largest = moved.norm(dim=-1).amax((1, 2))
    assert ((largest > 4.9) & (largest < 6.5)).all(), largest
    left, right = moved[:, -1, :, 0].amin(1), moved[:, 0, :, 0].amax(1)
    assert ((left < 0) & (left > -6)).all(), left
    assert ((right > 0) & (right < 6)).all(), right
    widening = right - left
    assert 1.5 < widening.median() < 6, widening
    assert (forged.imbalance.abs() < 0.01).all(), forged.imbalance
    assert ((forged.kinetic / forged.plastic)[:, -1] < 0.05).all()
