import dataclasses
import math
import shutil

import h5py
import numpy as np
import pytest
import torch

from ipot import symmetry
from ipot.data.store import Store
from ipot.errors import DataError
from ipot.problems.shallow_water import PROBLEM
from ipot.solvers import shallow_water as solver
from ipot.solvers.sphere import Transform

CPU = torch.device("cpu")
SMALL = dataclasses.replace(PROBLEM, size=16, resolution=8, t_start=1, hours=8, steps=3)


def generate(problem, indices, split="train", resolution=None):
    return problem.generate(split, indices, seed=0, device=CPU, resolution=resolution)


def test_the_paper_has_8192_points_and_8_sequences_of_20_hours():
    assert PROBLEM.parts == 8
    assert PROBLEM.with_steps(39).parts == 4
    assert math.prod(PROBLEM.shape(PROBLEM.resolution)) == 8192
    assert PROBLEM.shape(PROBLEM.nodes) == (128, 256)
    assert PROBLEM.spec.inputs == PROBLEM.spec.outputs == ("height", "vorticity")


def test_sequences_follow_each_other_in_a_trajectory():
    """One trajectory in two parts of four frames is one sequence of eight."""
    short, long = generate(SMALL, range(2)), generate(SMALL.with_steps(7), range(1))
    for name in short:
        assert short[name].shape == (2, 4, 16, 32)
        torch.testing.assert_close(short[name].flatten(0, 1), long[name][0], rtol=0, atol=1e-6)


def test_a_later_start_shows_the_same_trajectory():
    late = dataclasses.replace(SMALL, t_start=3)
    for name, field in generate(SMALL, range(1)).items():
        there = generate(late, range(1))[name]
        torch.testing.assert_close(there[:, :2], field[:, 2:], rtol=0, atol=1e-6)


def test_a_range_solves_only_the_trajectories_it_needs(monkeypatch):
    asked = []
    original = solver.unstable_jets

    def count(speed, *rest, **options):
        asked.append(len(speed))
        return original(speed, *rest, **options)

    monkeypatch.setattr(solver, "unstable_jets", count)
    some, whole = generate(SMALL, range(1, 3)), generate(SMALL, range(4))
    generate(SMALL, range(4, 6))
    assert asked == [2, 2, 1]
    for name in some:
        torch.testing.assert_close(some[name], whole[name][1:3], rtol=0, atol=1e-6)


def test_speeds_are_uniform_between_60_and_80():
    speeds = PROBLEM._speeds("train", list(range(2000)), 0)
    assert 60 <= speeds.min() < 60.1
    assert 79.9 < speeds.max() <= 80
    assert speeds.mean().item() == pytest.approx(70, abs=0.5)
    assert speeds.std().item() == pytest.approx(20 / math.sqrt(12), rel=0.05)


def test_channels_are_in_the_units_of_the_papers():
    """At t = 0: height in radii times 3000, vorticity per hour times 2."""
    start = dataclasses.replace(SMALL, t_start=0)
    fields = generate(start, range(1))
    speed = start._speeds("train", [0], 0)
    state = solver.unstable_jets(speed, start.size - 1, wrap=False)
    view = Transform(start.size - 1, start.size)
    height = view.synthesis(state[2]) / 6.37122e6 * 3000
    vorticity = view.synthesis(state[0]) * 3600 * 2
    torch.testing.assert_close(fields["height"][:, 0].double(), height, rtol=0, atol=1e-6)
    torch.testing.assert_close(fields["vorticity"][:, 0].double(), vorticity, rtol=0, atol=1e-6)


def test_the_bump_can_be_whole():
    whole = dataclasses.replace(SMALL, wrap_bump=True, t_start=0)
    half = dataclasses.replace(SMALL, t_start=0)
    first, second = (generate(p, range(1))["height"][0, 0] for p in (whole, half))
    east, west = (slice(1, 8), slice(-7, None))
    added = (first - second).abs()
    assert added[:, west].max() > 5 * added[:, east].max()


def test_hemispheres_are_mirror_images():
    fields = generate(SMALL, range(2))
    scale = fields["vorticity"].abs().max()
    torch.testing.assert_close(fields["height"].flip(-2), fields["height"], rtol=0, atol=1e-5)
    mirrored = -fields["vorticity"].flip(-2)
    torch.testing.assert_close(mirrored, fields["vorticity"], rtol=0, atol=1e-5 * float(scale))


@pytest.mark.parametrize("resolution", [16, 8, 4])
def test_points_are_unit_vectors_that_the_symmetry_maps_onto_each_other(resolution):
    points = SMALL.coordinates(resolution)
    torch.testing.assert_close(points.norm(dim=-1), torch.ones(len(points)).double())
    sphere, spec = symmetry.SYMMETRIES["sphere"], SMALL.spec
    for turn in range(3):
        # Whole columns, so that a rotation of the grid is one of the points.
        for flip in (0.1, 0.9):
            draw = torch.tensor([[turn / (2 * resolution) + 1e-12, flip, 0.0]]).double()
            rows = sphere.permutation(draw, SMALL.shape(resolution), spec)[0]
            moved = sphere.move(points[None], draw, spec)[0]
            torch.testing.assert_close(moved[rows], points, rtol=0, atol=1e-9)


def test_a_turned_sample_is_a_solution():
    """The solver from a turned and reflected state gives the turned and reflected frames."""
    speed, view = torch.tensor([70.0]).double(), Transform(15, 16)
    state = solver.unstable_jets(speed, 15)
    state[2, 0, 2, 5] += 30 - 20j  # no longer a mirror image of itself

    def frames(start):
        states = torch.stack(list(solver.solve(start, times=[0.0, 3600.0, 7200.0])))
        return view.synthesis(states[:, ::2, 0]).flatten(2)  # vorticity and height

    def turned(fields):
        """By three columns and the equator, as the symmetry does it."""
        draw = torch.tensor([[3.5 / 32, 0.9, 0.0]]).double().expand(3, -1)
        rows = symmetry.SYMMETRIES["sphere"].permutation(draw, (16, 32), SMALL.spec)
        moved = fields.transpose(1, 2).gather(1, rows[..., None].expand(-1, -1, 2))
        names = ("vorticity", "height")
        return symmetry.SYMMETRIES["sphere"].act(moved, draw, names).transpose(1, 2)

    plain = frames(state)
    start = view.analysis(turned(plain)[0].view(2, 16, 32))
    new = torch.stack((start[0], torch.zeros_like(start[0]), start[1]))[:, None]
    scale = plain.abs().amax((0, 2), keepdim=True)
    assert ((turned(plain) - plain) / scale).abs().max() > 0.01
    torch.testing.assert_close(frames(new) / scale, turned(plain) / scale, rtol=0, atol=1e-9)


@pytest.mark.parametrize("resolution", [128, 64, 32])
def test_weights_are_areas(resolution):
    weights, points = PROBLEM.weights(resolution), PROBLEM.coordinates(resolution)
    assert weights.mean().item() == pytest.approx(1)
    # The mean of z² over a sphere is a third; a mean over the points themselves is far off.
    assert (weights * points[:, 2] ** 2).mean().item() == pytest.approx(1 / 3, rel=2 / resolution)
    assert points[:, 2].square().mean() > 0.45
    if resolution == 128:
        gauss = (Transform(0, 128).weights * 64).repeat_interleave(256)
        torch.testing.assert_close(weights, gauss, rtol=1e-3, atol=3e-3)


def test_only_an_even_number_of_lines_is_a_thinning():
    odd = dataclasses.replace(PROBLEM, size=24, resolution=12)
    assert odd.resolutions() == [2, 4, 6, 8, 12, 24]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 33}, "even and at least 4, got 33"),
        ({"hours": 19}, "no sequence of 20 frames"),
        ({"t_start": -1}, "t_start not negative"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(DataError, match=message):
        dataclasses.replace(PROBLEM, **settings)


@pytest.fixture(scope="module")
def splits():
    made = {split: generate(SMALL, range(3), split) for split in ("train", "validation", "test")}
    return {split: {k: v.clone() for k, v in fields.items()} for split, fields in made.items()}


@pytest.fixture
def folder(splits, tmp_path):
    SMALL.write(splits, tmp_path)
    return tmp_path


FIRST = "shallow_water_train/traj_0000.h5"


def test_files_have_the_published_layout(folder, splits):
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.h5"))
    numbers = {"train": (0, 1, 28, 29), "test": (0, 1)}
    expected = [f"shallow_water_{s}/traj_{n:04d}.h5" for s in numbers for n in numbers[s]]
    assert names == sorted(expected)
    with h5py.File(folder / FIRST) as file:
        task = file["tasks/vorticity"]
        assert task.shape == file["tasks/height"].shape == (8, 32, 16)
        longitude, colatitude = (task.dims[axis][0][:].ravel() for axis in (1, 2))
        np.testing.assert_allclose(longitude, 2 * np.pi * np.arange(32) / 32)
        assert (np.diff(colatitude) < 0).all()
        # Per hour: the second frame, third meridian, southernmost line.
        ours = splits["train"]["vorticity"][0, 1, -1, 2] / 2
        assert task[1, 2, 0] == pytest.approx(float(ours), rel=1e-6)


def test_what_is_written_is_read_back(folder, splits):
    for split, fields in splits.items():
        for count in (1, 3):
            for name, field in SMALL.read(split, count, folder).items():
                torch.testing.assert_close(field, fields[name][:count], rtol=1e-6, atol=0)
    whole = dataclasses.replace(SMALL, files=str(folder))
    sample = whole.load("test", 2, store=Store(folder))[1]
    expected = SMALL.dataset(splits["test"], None, None)[1]
    torch.testing.assert_close(sample.targets, expected.targets)


def test_thinned_fields_are_written_and_read(tmp_path):
    fields = generate(SMALL, range(1), resolution=8)
    SMALL.write({"train": fields}, tmp_path)
    read = SMALL.read("train", 1, tmp_path)
    torch.testing.assert_close(read["height"], fields["height"], rtol=1e-6, atol=0)


def test_colatitudes_may_run_either_way(folder, splits):
    with h5py.File(folder / FIRST, "r+") as file:
        for name in ("tasks/height", "tasks/vorticity"):
            file[name][...] = file[name][...][:, :, ::-1]
        file["scales/theta"][...] = file["scales/theta"][...][::-1]
    read = SMALL.read("train", 1, folder)
    torch.testing.assert_close(read["height"], splits["train"]["height"][:1], rtol=1e-6, atol=0)


def spoil(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def _nan(file):
    file["tasks/height"][1, 2, 3] = math.nan


def _shifted(file):
    file["scales/theta"][...] = file["scales/theta"][...] + 0.01


def _turned(file):
    file["scales/phi"][...] = file["scales/phi"][...] + 0.01


def _without_scales(file):
    for axis in range(3):
        dimension = file["tasks/height"].dims[axis]
        for scale in list(dimension.values()):
            dimension.detach_scale(scale)


def _odd_scales(file):
    """HDF5's own function for scales crashes on some of these."""
    del file["tasks/height"].attrs["DIMENSION_LIST"]
    file["tasks/height"].attrs["DIMENSION_LIST"] = "x" * 3000


def _a_group_as_scale(file):
    told = np.empty(3, object)
    told[:] = [np.array([file["tasks"].ref], h5py.ref_dtype)] * 3
    del file["tasks/height"].attrs["DIMENSION_LIST"]
    kind = h5py.vlen_dtype(h5py.ref_dtype)
    file["tasks/height"].attrs.create("DIMENSION_LIST", told, dtype=kind)


def _without_height(file):
    del file["tasks/height"]


def _flat(file):
    del file["tasks/vorticity"]
    file["tasks/vorticity"] = np.zeros((8, 32 * 16))


def _shorter(file):
    del file["tasks/vorticity"]
    file["tasks/vorticity"] = np.zeros((7, 32, 16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_nan, r"tasks/height of .*traj_0000.h5 holds a value that is not finite"),
        (_shifted, r"the grid of .*traj_0000.h5 is not that of 16 Gauss lines"),
        (_turned, r"the grid of .*traj_0000.h5 is not that of 16 Gauss lines"),
        (_without_scales, r"traj_0000.h5 must have a scale for its axis 0"),
        (_odd_scales, r"DIMENSION_LIST of /tasks/height must hold references .* its 3 axes"),
        (_a_group_as_scale, r"the scale of axis 0 of /tasks/height is no array"),
        (_without_height, r"traj_0000.h5 must have tasks/height.*it has vorticity"),
        (_flat, r"traj_0000.h5 must have tasks/vorticity, an array \(time, longitude"),
        (_shorter, r"vorticity of .*traj_0000.h5 must have the shape \(8, 32, 16\), got \(7, 32"),
    ],
)
def test_files_that_are_not_what_they_claim_are_refused(folder, change, message):
    spoil(folder / FIRST, change)
    with pytest.raises(DataError, match=message):
        SMALL.read("train", 1, folder)


def test_damaged_and_missing_files_are_refused(folder, tmp_path):
    path = folder / FIRST
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"not HDF5", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"traj_0000.h5 \(\d+ bytes\) cannot be read.*again"):
            SMALL.read("train", 1, folder)
    path.rename(path.with_name("trajectory_0.h5"))
    with pytest.raises(DataError, match=r"no file traj_0000.h5; it holds .*--problem.files"):
        SMALL.read("train", 1, folder)
    shutil.rmtree(path.parent)
    with pytest.raises(DataError, match=r"shallow_water_train.*is not there"):
        SMALL.read("train", 1, folder)
    with pytest.raises(DataError, match=r"--problem\.files"):
        SMALL.read("train", 1, None)


def test_more_than_there_is_is_refused_with_the_numbers(folder, splits):
    with pytest.raises(DataError, match="28 trajectories of 2 sequences, 57 were asked for"):
        SMALL.read("train", 57, folder)
    with pytest.raises(DataError, match="has 4 frames, 8 are needed"):
        SMALL.read("test", 4, folder)
    (folder / "shallow_water_train" / "traj_0001.h5").unlink()
    with pytest.raises(DataError, match=r"1 trajectories for the train split.*2 sequences; 3 were"):
        SMALL.read("train", 3, folder)
    with pytest.raises(DataError, match=r"Set --problem\.size"):
        dataclasses.replace(SMALL, size=40, resolution=8).read("train", 1, folder)
    many = {name: field[:1].expand(5, -1, -1, -1) for name, field in splits["test"].items()}
    with pytest.raises(DataError, match="room for 4 sequences, got 5"):
        SMALL.write({"test": many}, folder)
