"""The problem era5 on made-up files in its layout, and on a real one where there is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contracts import test_problems as contract
from data import weather_files as made

from ipot.data import views
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.problems.era5 import PROBLEM, REQUEST, Era5
from ipot.recipes.experiment import experiment


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """120 days at ten degrees."""
    return made.write_netcdf(tmp_path_factory.mktemp("era5") / "t2m.nc", days=120)


@pytest.fixture
def problem(record):
    """The problem on that record: 16 windows, 8 to train, 4 to validate, 4 to test."""
    return replace(
        PROBLEM,
        files=str(record),
        size=18,
        resolution=9,
        training_windows=8,
        validation_windows=4,
    )


def load(problem, split="train", count=2, **view):
    return problem.load(split, count, store=Store("unused"), **view)


@pytest.mark.parametrize(
    "name",
    [
        "test_the_spec_agrees_with_the_samples",
        "test_past_frames_end_where_the_targets_begin",
        "test_points_have_the_structure_that_the_spec_promises",
        "test_resolutions_show_the_same_function",
        "test_bad_requests_are_refused",
    ],
)
@pytest.mark.parametrize("area", [(), (50.0, -30.0, -50.0, 60.0)], ids=["globe", "area"])
def test_with_files_it_holds_to_the_contract(name, area, problem, tmp_path):
    getattr(contract, name)(replace(problem, area=area), tmp_path)


def test_windows_are_those_of_the_file(problem):
    """Channel c of window w is day 7w + c, target t is day 7w + 7 + t, at the thinned lines."""
    latitudes, longitudes = 90 - 20.0 * np.arange(9)[::-1], 20.0 * np.arange(18)
    for split, first in (("train", 0), ("validation", 8), ("test", 12)):
        data = load(problem, split, 4).data
        for number in range(4):
            start = 7 * (first + number)
            days = made.truth(np.arange(start, start + 14), latitudes, longitudes)
            days = torch.from_numpy(days).flatten(1)
            assert torch.equal(data.values[number].T, days[:7])
            assert torch.equal(data.targets[number, :, :, 0], days[7:])


def test_points_are_latitudes_and_longitudes_in_the_papers_units(problem):
    points = load(problem).data.points[0].view(9, 18, 2)
    assert points[-1, 0].tolist() == pytest.approx([0.5, 0.0])
    assert points[0, 0].tolist() == pytest.approx([-70 / 180, 0.0])
    assert points[3, -1].tolist() == pytest.approx([-10 / 180, 340 / 180])
    assert problem.spec.domain == ((-0.5, 0.5), (0.0, 2.0))
    assert problem.spec.periods == (None, 2.0)


def test_the_papers_sizes():
    """1916 days make 272 windows: 225 + 25 and 22; rows [:720] of 721, every eighth."""
    days = np.arange("2018-01-01", "2023-04-01", dtype="datetime64[D]")
    assert len(days) == 1916
    windows = PROBLEM.windows(days)
    assert {name: len(w) for name, w in windows.items()} == PROBLEM.sizes
    assert sum(map(len, windows.values())) == 272
    assert PROBLEM.shape(90) == (90, 180)
    latitudes, longitudes = PROBLEM.lines(90)
    assert (latitudes[-1], latitudes[0], longitudes[-1]) == (90, -88, 358)
    assert {45, 90, 180, 360, 720} <= set(PROBLEM.resolutions())


def test_weights_are_areas_and_can_be_left_out(problem):
    weights = load(problem).data.weights[0].view(9, 18)
    assert weights.mean().item() == pytest.approx(1)
    assert weights[-1].max().item() == pytest.approx(0, abs=1e-6)
    latitudes = torch.deg2rad(problem.lines(9)[0]).float()
    torch.testing.assert_close(weights[:, 0] / weights[4, 0], latitudes.cos() / latitudes[4].cos())
    assert load(replace(problem, weighted=False)).data.weights is None


def test_masks_at_two_degrees():
    low = torch.tensor([-0.5, 0.0])
    unit = (PROBLEM.coordinates(90).float() - low) / torch.tensor([1.0, 2.0])
    land, sea = PROBLEM.masks["land"](unit), PROBLEM.masks["sea"](unit)
    assert (int(land.sum()), int(sea.sum())) == (5371, 10829)
    assert not (land & sea).any()
    assert not land.view(90, 180)[-1].any()  # the Arctic ocean
    assert land.view(90, 180)[0].all()  # Antarctica
    # The same places at a finer resolution.
    unit = (PROBLEM.coordinates(720).float() - low) / torch.tensor([1.0, 2.0])
    fine = PROBLEM.masks["land"](unit).view(720, 1440)
    assert torch.equal(fine[7::8, ::8].flatten(), land)
    # Places between two points of the mask, where float32 must not decide.
    exact = torch.meshgrid(*PROBLEM.lines(720), indexing="ij")
    assert torch.equal(fine, PROBLEM.land_and_sea.land(*exact))


def test_a_mask_leaves_its_points_and_all_queries(problem):
    data = load(problem)
    for name in ("land", "sea"):
        seen = views.mask(data, name, problem.spec, dict(problem.masks)).data
        assert 0 < seen.values.shape[1] < 162
        assert seen.targets.shape[2] == 162
        rows = {tuple(p): i for i, p in enumerate(data.data.points[0].tolist())}
        index = [rows[tuple(p)] for p in seen.points[0].tolist()]
        assert torch.equal(seen.values, data.data.values[:, index])


def test_an_area_is_a_part_of_the_globe(problem):
    box = replace(problem, area=(50.0, -30.0, -50.0, 60.0))
    assert box.shape(18) == (11, 10)
    assert box.shape(9) == (6, 5)
    assert box.spec.domain == ((-50 / 180, 50 / 180), (-30 / 180, 60 / 180))
    assert box.spec.periods == (None, None)
    part, whole = (load(p, resolution=18).data for p in (box, problem))
    rows = {tuple(p): i for i, p in enumerate(whole.points[0].tolist())}
    around = torch.where(part.points < -1e-6, part.points + torch.tensor([0.0, 2.0]), part.points)
    around[..., 0] = part.points[..., 0]
    index = [rows[tuple(p)] for p in around[0].tolist()]
    assert torch.equal(part.values, whole.values[:, index])
    assert torch.equal(part.targets, whole.targets[:, :, index])


def test_a_longer_horizon_keeps_the_days(problem):
    near, far = load(problem).data, load(problem.with_steps(14)).data
    assert far.targets.shape[1] == 14
    assert torch.equal(far.targets[:, :7], near.targets)
    assert torch.equal(far.values, near.values)


def test_a_first_day_and_an_hour_move_the_windows(problem, tmp_path):
    later = load(replace(problem, first="2018-01-08")).data
    assert torch.equal(later.values[0], load(problem).data.values[1])
    path = made.write_netcdf(tmp_path / "hourly.nc", days=120, step_hours=6)
    six = replace(problem, files=str(path), hour=6)
    latitudes, longitudes = 90 - 20.0 * np.arange(9)[::-1], 20.0 * np.arange(18)
    days = torch.from_numpy(made.truth(1 + 4 * np.arange(7), latitudes, longitudes)).flatten(1)
    assert torch.equal(load(six, count=1).data.values[0].T, days)
    assert len(load(replace(six, step_hours=6, hour=0), "test", 4)) == 4


def test_too_many_windows_are_refused_with_the_numbers(problem):
    with pytest.raises(DataError, match=r"5 test windows were asked for and there are 4: 120 fra"):
        load(problem, "test", 5)
    with pytest.raises(DataError, match=r"make 16 windows, of which 16 to train, 0 to validate"):
        load(replace(problem, training_windows=225), "validation", 1)


def test_without_files_it_says_what_to_download():
    with pytest.raises(DataError) as caught:
        load(PROBLEM)
    for word in (
        "reanalysis-era5-single-levels",
        "2m_temperature",
        "00:00 UTC",
        "2018-01-01 to 2023-03-31",
        "0.25 degrees, global",
        "`ipot era5`",
        "era5_synthetic",
    ):
        assert word in str(caught.value)
    with pytest.raises(Unsupported, match="measured"):
        PROBLEM.generate("train", range(1), seed=0, device=torch.device("cpu"), resolution=None)


def test_the_request_is_a_program_for_1916_days():
    asked = []

    class Client:
        def retrieve(self, dataset, request, target):
            asked.append((dataset, request, target))

    program = REQUEST.replace("import cdsapi\n", "")
    exec(program, {"cdsapi": type("cdsapi", (), {"Client": Client})})
    days = set()
    for dataset, request, _ in asked:
        assert dataset == "reanalysis-era5-single-levels"
        assert request["variable"] == ["2m_temperature"]
        assert request["time"] == ["00:00"]
        assert "area" not in request
        for year in request["year"]:
            for month in request["month"]:
                start = np.datetime64(f"{year}-{month}", "M")
                for day in request["day"]:
                    date = start.astype("datetime64[D]") + int(day) - 1
                    if date.astype("datetime64[M]") == start:
                        days.add(date)
    assert (len(days), str(min(days)), str(max(days))) == (1916, "2018-01-01", "2023-03-31")
    assert len({target for *_, target in asked}) == 6


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"area": (58.0, -10.0, 50.0)}, "four numbers, got 3"),
        ({"area": (50.0, -10.0, 58.0, 2.0)}, "south below north"),
        ({"area": (58.0, 2.0, 50.0, -10.0)}, "west before east"),
        ({"area": (58.1, -10.0, 50.0, 2.0)}, "point of the grid of 0.25 degrees"),
        ({"area": (58.0, -10.0, 57.9, 2.0)}, "more than one line"),
        ({"hour": 24}, "hour must lie in 0 to 23"),
        ({"step_hours": 0}, "step_hours be at least 1"),
        ({"first": "January"}, "a day like 2018-01-01, got 'January'"),
        ({"history": 0}, "must be at least 1"),
        ({"every": 0}, "must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(settings, says):
    with pytest.raises(DataError, match=says):
        Era5(**settings)


def test_an_area_of_a_few_lines_lists_its_resolutions():
    small = Era5(area=(58.0, -10.0, 50.0, 2.0), resolution=720)
    assert small.shape(720) == (33, 49)
    assert small.resolutions()[0] == 24
    with pytest.raises(DataError, match=r"resolution of 20 is not a thinning of 720.*24, 30"):
        small.storage(20, None)


def test_both_presets_have_settings():
    assert experiment("era5").data.train == 225
    assert experiment("era5", preset="paper").training.epochs == 5000


@pytest.fixture
def kingdom(data_root):
    """A month of hours over the British Isles, with the mask of ERA5."""
    record = data_root / "era5_uk" / "era5-2mt-2019-03-uk.grib"
    mask = data_root / "land_sea_mask" / "era5_lsm_0p25.nc"
    if not (record.exists() and mask.exists()):
        pytest.skip(f"no {record} or no {mask}")
    return Era5(
        files=str(record),
        landsea=str(mask),
        area=(58.0, -10.0, 50.0, 2.0),
        resolution=360,
        step_hours=1,
        training_windows=80,
        validation_windows=10,
    )


def test_a_real_region_loads_with_its_mask(kingdom):
    data = load(kingdom, "test", 15)
    assert data.data.values.shape == (15, 17 * 25, 7)
    assert 265 < data.data.values.min() < data.data.values.max() < 292
    land = views.mask(data, "land", kingdom.spec, dict(kingdom.masks)).data
    with made.xr.open_dataset(kingdom.landsea) as file:
        fraction = file["lsm"].values[128:161:2][:, np.arange(-40, 9, 2) % 1440]
    assert land.values.shape[1] == (fraction >= 500).sum()
    # A spring night: land is colder than the sea around it.
    sea = views.mask(data, "sea", kingdom.spec, dict(kingdom.masks)).data
    assert land.values.mean() < sea.values.mean()


def test_a_real_region_trains(kingdom, tmp_path):
    from ipot.recipes.experiment import Data
    from ipot.recipes.running import run

    base = experiment("era5")
    settings = replace(
        base,
        problem=replace(kingdom, resolution=90),
        model=replace(base.model, latents=8, width=16, blocks=1, heads=2, cross_heads=2, bins=(4,)),
        training=replace(base.training, epochs=3, batch=8),
        data=Data(train=32, validation=4, test=4),
    )
    result = run(settings, tmp_path / "run", device="cpu", store=Store(tmp_path), quiet=True)
    assert result.best_validation < 0.02  # of some 280 K: below six degrees
