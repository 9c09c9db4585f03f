"""The airfoil problem: its distribution, its views, its files."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot import symmetry
from ipot.data.store import Store
from ipot.errors import DataError
from ipot.problems import airfoil
from ipot.problems.airfoil import PROBLEM
from ipot.samples import collate
from ipot.solvers import airfoil_mesh, euler

CPU = torch.device("cpu")
SMALL = replace(PROBLEM.small(), size=23, resolution=23)
FILES = ("NACA_Cylinder_X.npy", "NACA_Cylinder_Y.npy", "NACA_Cylinder_Q.npy")


def generate(problem=SMALL, count=2, **settings):
    settings = {"split": "test", "seed": 0, "device": CPU, "resolution": None} | settings
    return problem.generate(settings.pop("split"), range(count), **settings)


def made_up(split, count):
    """Fields of the problem without a flow that solves anything."""
    moved = airfoil.displacements(f"airfoil/{split}", range(count), 0)
    mesh = airfoil_mesh.c_mesh(moved)[:, ::10, ::10].movedim(-1, 1).float()
    wave = torch.sin(mesh[:, :1] + mesh[:, 1:] + torch.arange(count).view(-1, 1, 1, 1))
    scale = torch.tensor([0.1, 0.4, 0.3, 0.2]).view(1, 4, 1, 1)
    return {
        "mesh": mesh,
        "state": torch.tensor([1.0, 0.9, 0.0, 1.0]).view(1, 4, 1, 1) + scale * wave,
        "change": torch.full((count,), 1e-4),
    }


@pytest.fixture(scope="module")
def splits():
    return {
        split: made_up(split, n) for split, n in {"train": 5, "validation": 2, "test": 4}.items()
    }


@pytest.fixture
def folder(splits, tmp_path):
    """The files of eleven samples."""
    SMALL.write(splits, tmp_path)
    return tmp_path / "naca"


# Distribution -------------------------------------------------------------------------------------


def test_displacements_are_uniform_and_the_first_is_none():
    moved = airfoil.displacements("airfoil/train", range(2000), 0)
    assert (moved[:, 0] == 0).all()
    assert moved.abs().max() <= 0.05
    torch.testing.assert_close(moved[:, 1:].mean(0), torch.zeros(7).double(), rtol=0, atol=0.003)
    spread = torch.full((7,), 0.1 / 12**0.5).double()
    torch.testing.assert_close(moved[:, 1:].std(0), spread, rtol=0.05, atol=0)
    correlation = torch.corrcoef(moved[:, 1:].T) - torch.eye(7).double()
    assert correlation.abs().max() < 0.1


def test_a_displacement_belongs_to_its_sample():
    many = airfoil.displacements("airfoil/test", range(5), 3)
    assert torch.equal(airfoil.displacements("airfoil/test", range(2, 4), 3), many[2:4])
    assert not torch.equal(airfoil.displacements("airfoil/train", range(5), 3), many)


def test_fields_are_what_they_should_be():
    fields = generate()
    shapes = {name: tuple(f.shape) for name, f in fields.items()}
    assert shapes == {"mesh": (2, 2, 23, 6), "state": (2, 4, 23, 6), "change": (2,)}
    assert {f.dtype for f in fields.values()} == {torch.float32}
    mesh = airfoil_mesh.c_mesh(airfoil.displacements("airfoil/test", range(2), 0))
    assert torch.equal(fields["mesh"], mesh[:, ::10, ::10].movedim(-1, 1).float())
    assert (fields["change"] <= SMALL.tolerance).all()


def test_the_settings_reach_the_solver(monkeypatch):
    seen = {}

    def solve(mesh, **settings):
        seen.update(settings, shape=tuple(mesh.shape))
        made = made_up("test", len(mesh))
        return euler.Solution(made["state"], made["change"], made["change"], made["change"])

    monkeypatch.setattr(airfoil.euler, "solve", solve)
    generate(replace(SMALL, mach=0.7, mode="accurate", tolerance=0.1))
    expected = {"mach": 0.7, "limiter": "van albada", "tolerance": 0.1, "shape": (2, 23, 6, 2)}
    assert seen == expected
    generate(SMALL)
    assert seen["limiter"] == "minmod"


def test_a_flow_that_was_not_found_is_refused_with_its_number(monkeypatch):
    def solve(mesh, **settings):
        raise euler.NoFlow([1])

    monkeypatch.setattr(airfoil.euler, "solve", solve)
    with pytest.raises(DataError, match=r"airfoils 8 of the train split.*--problem\.mach"):
        SMALL.generate("train", range(7, 9), seed=0, device=CPU, resolution=23)


@pytest.mark.parametrize("size", [1, 22, 56, 441])
def test_a_size_that_is_no_part_of_the_mesh_is_refused(size):
    with pytest.raises(DataError, match=rf"one of 221, 111, 45, 23, got {size}"):
        generate(replace(SMALL, size=size))


@pytest.mark.parametrize("wrong", [{"mach": 0.0}, {"tolerance": -1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(DataError, match="must be positive"):
        replace(PROBLEM, **wrong)


# Views --------------------------------------------------------------------------------------------


def test_sizes_of_the_published_data():
    assert PROBLEM.shape(221) == (221, 51)
    assert PROBLEM.resolutions() == [23, 45, 111, 221]
    assert PROBLEM.shape(111) == (111, 26)
    assert PROBLEM.bytes_each(221) == 4 * (6 * 221 * 51 + 1)


def test_points_are_indices_and_values_are_places():
    made = made_up("test", 2)
    sample = replace(SMALL, inputs="mesh").dataset(made, None, None)[1]
    assert sample.points[0].tolist() == [0, 0]
    assert sample.points[-1].tolist() == [1, 1]
    torch.testing.assert_close(sample.points[7], torch.tensor([1 / 22, 1 / 5]))
    assert torch.equal(sample.values, made["mesh"][1].flatten(1).T)
    density, u, v, p = made["state"][1].flatten(1)
    mach = (u**2 + v**2).sqrt() / (1.4 * p / density).sqrt()
    torch.testing.assert_close(sample.targets[0, :, 0], mach)
    assert sample.grid == (23, 6)


@pytest.mark.parametrize("size", [23, 45])
def test_departures_are_counted_from_the_plain_airfoil(size):
    problem = replace(SMALL, size=size, resolution=size)
    moved = airfoil.displacements("airfoil/test", range(2), 0)
    step = 220 // (size - 1)
    nodes, plain = (
        airfoil_mesh.c_mesh(places)[:, ::step, ::step] for places in (moved, 0 * moved[:1])
    )
    fields = {"mesh": nodes.movedim(-1, 1), "state": torch.ones(2, 4, *problem.shape(size))}
    values = problem.dataset(fields, None, None).data.values
    expected = (nodes - plain)[..., 1].flatten(1).unsqueeze(-1).float()
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-5)
    assert problem.spec.inputs == ("y",)
    # Nothing else differs between samples.
    torch.testing.assert_close(nodes[..., 0], plain[..., 0].expand(2, -1, -1))


def test_coarser_views_are_some_of_the_nodes():
    problem = replace(PROBLEM, size=45, resolution=45)
    assert 23 in problem.resolutions()
    fine, coarse = problem.coordinates(45), problem.coordinates(23)
    expected = fine.view(45, 11, 2)[::2, ::2].reshape(-1, 2)
    assert torch.equal(coarse, expected)


@pytest.mark.parametrize("inputs", ["departure", "mesh"])
def test_the_mirror_image_solves_the_mirrored_wing(inputs):
    problem = replace(SMALL, inputs=inputs)
    moved = airfoil.displacements("airfoil/test", range(2), 0)
    flows = []
    for places in (moved, -moved.flip(1)):
        mesh = airfoil_mesh.c_mesh(places)[:, ::10, ::10]
        flow = euler.solve(mesh, tolerance=5e-3, dtype=torch.float64)
        fields = {"mesh": mesh.movedim(-1, 1), "state": flow.state}
        data = problem.dataset(fields, None, None)
        flows.append(collate([data[i] for i in range(2)]))
    heads = torch.full((2, 1, symmetry.DRAWS), 0.9, dtype=torch.float64)
    turned = symmetry.apply(flows[0], heads, problem.spec, shared=True)
    torch.testing.assert_close(turned.values, flows[1].values, rtol=0, atol=1e-5)
    torch.testing.assert_close(turned.targets, flows[1].targets, rtol=0, atol=1e-5)
    assert (flows[0].targets - flows[1].targets).abs().max() > 0.05


# Files --------------------------------------------------------------------------------------------


def test_files_have_the_published_names_and_layout(folder, splits):
    shapes = {name: np.load(folder / name).shape for name in FILES}
    assert shapes == {FILES[0]: (11, 23, 6), FILES[1]: (11, 23, 6), FILES[2]: (11, 5, 23, 6)}
    flow = torch.from_numpy(np.load(folder / FILES[2]))
    # Rows: training, then test, then validation, as the paper takes them.
    order = torch.cat([splits[s]["state"] for s in ("train", "test", "validation")])
    assert torch.equal(flow[:, :4], order)
    density, u, v, p, mach = flow.unbind(1)
    torch.testing.assert_close(mach, (u**2 + v**2).sqrt() / (1.4 * p / density).sqrt())


@pytest.mark.parametrize("below", [".", ".."])
def test_what_is_written_is_read_back_from_either_folder(folder, splits, below):
    for split, fields in splits.items():
        count = len(fields["mesh"])
        found = SMALL.read(split, count, folder / below)
        assert set(found) == {"mesh", "state"}
        for name, array in found.items():
            assert array.dtype == torch.float32
            assert torch.equal(array, fields[name]), name
        fewer = SMALL.read(split, 1, folder)
        assert torch.equal(fewer["mesh"], fields["mesh"][:1])
        with pytest.raises(DataError, match=f"has {count} samples.*{split}.*{count + 1} were"):
            SMALL.read(split, count + 1, folder)


def test_splits_of_the_published_files(tmp_path):
    """2490 rows: the first 1000 train, the next 200 test, the others validate."""
    plain = airfoil_mesh.c_mesh(torch.zeros(1, 8).double())[:, ::10, ::10].numpy()
    x, y = (np.repeat(plain[..., axis], 2490, 0).astype(np.float32) for axis in (0, 1))
    x[:, 0, 0] = np.arange(2490)
    np.save(tmp_path / FILES[0], x)
    np.save(tmp_path / FILES[1], y)
    flow = np.ones((2490, 5, 23, 6), np.float32)
    flow[:, 4] = (2 / 1.4) ** 0.5
    np.save(tmp_path / FILES[2], flow)
    for split, first, length in (
        ("train", 0, 1000),
        ("test", 1000, 200),
        ("validation", 1200, 1290),
    ):
        found = SMALL.read(split, length, tmp_path)
        assert found["mesh"][:, 0, 0, 0].tolist() == list(range(first, first + length))
        assert torch.equal(found["mesh"][0, 1], torch.from_numpy(y[0]))
        with pytest.raises(DataError, match=f"has {length} samples.*{length + 1} were asked"):
            SMALL.read(split, length + 1, tmp_path)


@pytest.mark.parametrize("wrong", ["exchanged", "millimetres"])
def test_coordinates_that_are_no_chords_are_refused(folder, wrong):
    x, y = (np.load(folder / name) for name in FILES[:2])
    first, second = (y, x) if wrong == "exchanged" else (1000 * x, 1000 * y)
    np.save(folder / FILES[0], first)
    np.save(folder / FILES[1], second)
    with pytest.raises(DataError, match=r"coordinates in chords.*other units"):
        SMALL.read("test", 1, folder)


def test_a_mesh_that_is_no_part_of_the_full_one_has_no_departures():
    fields = {"mesh": torch.zeros(1, 2, 67, 16), "state": torch.ones(1, 4, 67, 16)}
    with pytest.raises(DataError, match=r"this mesh has 67\. Set --problem\.inputs mesh"):
        PROBLEM.dataset(fields, None, None)


def test_a_problem_with_files_takes_its_grid_and_samples_from_them(folder, splits, tmp_path):
    problem = replace(PROBLEM, files=str(folder), resolution=23, inputs="mesh")
    assert problem.nodes == 23
    data = problem.load("test", 3, store=Store(tmp_path / "store"))
    assert len(data) == 3
    assert data[2].grid == (23, 6)
    assert torch.equal(data[2].values, splits["test"]["mesh"][2].flatten(1).T)


def test_no_folder_is_refused():
    with pytest.raises(DataError, match=r"--problem\.files"):
        SMALL.read("test", 1, None)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_with_what_is_there(folder, name):
    (folder / name).rename(folder / "other.npy")
    with pytest.raises(DataError, match=rf"has no file {name}.*other\.npy.*--problem\.files"):
        SMALL.read("test", 1, folder)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=rf"{name} claims .* holds .*fetch or write it again"):
        SMALL.read("test", 1, folder)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", FILES)
def test_numbers_that_are_none_are_refused(folder, name, bad):
    array = np.load(folder / name)
    array[6, ..., 3] = bad
    np.save(folder / name, array)
    with pytest.raises(DataError, match=rf"{name} holds a value that is not finite"):
        SMALL.read("test", 4, folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_layout_is_refused(folder, name):
    np.save(folder / name, np.load(folder / name)[..., :-1])
    with pytest.raises(DataError, match=rf"{name} must have the shape \("):
        SMALL.read("test", 1, folder)


def test_files_of_different_lengths_are_refused(folder):
    np.save(folder / FILES[2], np.load(folder / FILES[2])[:-1])
    with pytest.raises(DataError, match=rf"{FILES[2]} must have the shape \(11, 5, 23, 6\)"):
        SMALL.read("test", 1, folder)


@pytest.mark.parametrize("channel", [0, 3])
def test_a_flow_that_cannot_be_is_refused(folder, channel):
    array = np.load(folder / FILES[2])
    array[7, channel] = -0.5
    np.save(folder / FILES[2], array)
    with pytest.raises(DataError, match=r"positive densities.*sample 2.*-0\.5.*not the published"):
        SMALL.read("test", 4, folder)


def test_channels_in_another_order_are_refused(folder):
    array = np.load(folder / FILES[2])
    np.save(folder / FILES[2], array[:, [0, 1, 2, 4, 3]])
    with pytest.raises(DataError, match="must be the Mach number of channels 0 to 3"):
        SMALL.read("test", 4, folder)


def test_rows_of_other_files_are_refused(folder):
    np.save(folder / "NACA_Cylinder_rows.npy", np.array([[0, 5], [5, 14], [14, 16]]))
    with pytest.raises(DataError, match="samples of 0 to 11 to the test split, got 5 to 14"):
        SMALL.read("test", 4, folder)
