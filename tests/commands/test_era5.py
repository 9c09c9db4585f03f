"""`ipot era5`: the request without a file, the facts or the reason with one."""

from __future__ import annotations

import ast

import pytest
from data import weather_files as made

from ipot.cli import main

TEN_DEGREES = ["--problem.size", "18", "--problem.resolution", "18"]
CUT = ["--problem.training-windows", "4", "--problem.validation-windows", "2"]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return str(made.write_netcdf(tmp_path_factory.mktemp("era5") / "t2m.nc", days=70))


def test_without_a_path_it_prints_a_program(capsys):
    assert main(["era5"]) == 0
    said = capsys.readouterr()
    ast.parse(said.out)
    assert "reanalysis-era5-single-levels" in said.out
    assert "1916 days" in said.err
    assert "ipot era5 FOLDER" in said.err


def test_the_request_as_json(ask):
    answer = ask("era5")
    assert answer["period"] == ["2018-01-01", "2023-03-31"]
    assert answer["request"].startswith("import cdsapi")


def test_what_is_in_a_file(ask, record):
    facts = ask("era5", record, *TEN_DEGREES, *CUT)
    assert facts["variable"] == "t2m, 2 metre temperature"
    assert facts["units"].startswith("K; read as 2")
    assert facts["grid"].endswith("longitude 0 to 350 (the globe)")
    assert facts["seen as"] == "18 x 36 points every 10 degrees"
    assert facts["frames"] == "70, every 24 h from 2018-01-01 00:00 to 2018-03-11 00:00"
    assert facts["the paper's period"].startswith("2018-01-01 00:00 to 2023-03-31")
    assert facts["windows"] == 9
    assert facts["splits"] == {"train": 4, "validation": 2, "test": 3}
    assert facts["train with"].startswith(f"ipot train era5 --problem.files {record}")
    assert "--problem.training-windows 4" in facts["train with"]


def test_lines_for_people(capsys, record):
    assert main(["era5", record, *TEN_DEGREES, *CUT]) == 0
    out = capsys.readouterr().out
    assert "4 train, 2 validation, 3 test" in out
    assert "gaps  none" in out


def test_too_few_windows_are_said(ask, record):
    assert "too few" in ask("era5", record, *TEN_DEGREES)["splits need"]


def test_the_papers_grid_and_counts(ask, tmp_path):
    path = made.write_netcdf(tmp_path / "two.nc", days=15, rows=90)
    facts = ask("era5", str(path), "--problem.size", "90")
    assert facts["land and sea"] == (
        "5371 points of land, 10829 of sea (the paper counts 5095 and 11105)"
    )


def test_a_region_is_told_how_to_train_on_it(ask, tmp_path):
    region = made.dataset(days=15).isel(latitude=slice(2, 6), longitude=slice(3, 9))
    path = made.write_netcdf(tmp_path / "region.nc", region)
    facts = ask("era5", str(path))
    assert facts["grid"].endswith("(a region)")
    assert "--problem.area 70 30 40 80 --problem.resolution 18" in facts["train with"]
    assert "--problem.size 18" in facts["train with"]


def test_what_will_not_do_is_said_without_a_traceback(fails, tmp_path, record):
    assert "no such file" in fails("era5", str(tmp_path / "nowhere.grib"))
    page = tmp_path / "page.grib"
    page.write_text("<html>")
    assert "expected GRIB, netCDF or Zarr" in fails("era5", str(page))
    assert "no time at 13:00 UTC" in fails("era5", record, "--problem.hour", "13")
    gap = made.write_netcdf(tmp_path / "gap.nc", made.dataset(days=30).isel(time=[*range(9), 12]))
    assert "3 of 13 times are missing" in fails("era5", str(gap), *TEN_DEGREES)
    assert "divides 18" in fails("era5", record, "--problem.resolution", "90")
    assert "unrecognized" in fails("era5", record, "--problem.hours", "13", code=2).lower()
