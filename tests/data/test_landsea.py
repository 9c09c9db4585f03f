"""Land and sea: the shipped mask, masks from files, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ipot.data import landsea
from ipot.errors import DataError

from . import weather_files as made


def test_the_shipped_mask_has_the_counts_that_are_printed():
    mask = landsea.shipped()
    assert mask.fraction.shape == (90, 180)
    assert int((mask.fraction >= 0.5).sum()) == 5371
    assert int((mask.fraction < 0.5).sum()) == 10829
    assert sum(landsea.PAPER_COUNTS) == 90 * 180
    cities = {"Kinshasa": (-4.3, 15.3), "Moscow": (55.8, 37.6), "Denver": (39.7, -105.0)}
    waters = {"Pacific": (0.0, -140.0), "Atlantic": (30.0, -40.0), "Greenwich": (0.0, 359.9)}
    for name, (lat, lon) in (cities | waters).items():
        land = mask.land(torch.tensor([lat]), torch.tensor([lon]))
        assert bool(land) == (name in cities), name


def test_a_mask_between_its_points():
    mask = landsea.shipped()
    lat, lon = torch.meshgrid(90 - 2.0 * torch.arange(90), 2.0 * torch.arange(180), indexing="ij")
    assert torch.equal(mask.smooth(lat, lon), mask.fraction)
    assert torch.equal(mask.land(lat, lon), mask.fraction >= 0.5)
    # Float32 coordinates on the line between two cells, from either side and once around.
    assert torch.equal(mask.land(lat - 0.9, lon + 0.9), mask.fraction >= 0.5)
    assert torch.equal(mask.land(lat, lon - 360), mask.fraction >= 0.5)
    middle = (mask.fraction + mask.fraction.roll(-1, 1)) / 2
    torch.testing.assert_close(mask.smooth(lat, lon + 1), middle)


def mask_file(path, values, rows=18):
    lat, lon = 90 - 180 / rows * np.arange(rows + 1), 180 / rows * np.arange(2 * rows)
    data = made.xr.DataArray(values, {"latitude": lat, "longitude": lon})
    data.to_dataset(name="lsm").to_netcdf(path, engine="netcdf4")
    return str(path)


def test_a_mask_from_a_file(tmp_path):
    values = np.random.default_rng(0).integers(0, 1001, (19, 36)).astype(np.int16)
    values[0, 0] = 1000
    thousandths = landsea.from_file(mask_file(tmp_path / "a.nc", values))
    fractions = landsea.from_file(mask_file(tmp_path / "b.nc", values / 1000))
    torch.testing.assert_close(thousandths.fraction, fractions.fraction)
    assert bool(thousandths.land(torch.tensor(70.0), torch.tensor(-350.0))) == (values[2, 1] >= 500)
    assert landsea.choose("") is landsea.shipped()
    rounded = landsea.from_file(mask_file(tmp_path / "c.nc", values / 1000 * 1.000001))
    torch.testing.assert_close(rounded.fraction, fractions.fraction, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.full((19, 36), -1.0), "lies between 0 and 1"),
        (np.full((19, 36), np.nan), "lies between 0 and 1"),
        (np.full((19, 36), 5000.0), "lies between 0 and 1"),
        (np.zeros((19, 36)), "lies between 0 and 1"),
        (np.full((19, 36), 100.0), "lies between 0 and 1"),
    ],
)
def test_a_mask_that_is_none(values, says, tmp_path):
    with pytest.raises(DataError, match=says):
        landsea.from_file(mask_file(tmp_path / "bad.nc", values))


def test_a_mask_of_a_region_or_another_variable(tmp_path):
    path = tmp_path / "bad.nc"
    mask_file(path, np.eye(19, 36))
    data = made.xr.open_dataset(path).load()
    data.close()
    data.isel(longitude=slice(4)).to_netcdf(tmp_path / "region.nc")
    with pytest.raises(DataError, match=r"region\.nc: a land-sea mask must cover the globe"):
        landsea.from_file(str(tmp_path / "region.nc"))
    data.rename(lsm="z").to_netcdf(tmp_path / "other.nc")
    with pytest.raises(DataError, match=r"other\.nc: expected the land-sea mask.*there is z"):
        landsea.from_file(str(tmp_path / "other.nc"))


def test_the_shipped_mask_is_the_published_one_thinned(data_root):
    path = data_root / "land_sea_mask" / "era5_lsm_0p25.nc"
    if not path.exists():
        pytest.skip(f"no {path}")
    full = landsea.from_file(str(path))
    assert full.fraction.shape == (721, 1440)
    assert torch.equal(full.fraction[:720:8, ::8] >= 0.5, landsea.shipped().fraction >= 0.5)
