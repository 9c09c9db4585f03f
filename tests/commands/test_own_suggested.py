"""What `ipot data inspect` suggests works as it is printed, for every format."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from own import files, tiny

from ipot.cli import main
from ipot.formats import Case, inspect, write_cases
from ipot.formats.open_data import open_data
from ipot.own import sizing


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Models of a fraction of a second."""
    budget = sizing.Budget(16, 8, 1, 2, 2, 1024, 512, 4, 3e-3)
    monkeypatch.setattr(sizing, "BUDGETS", {"cpu": budget, "cuda": budget})
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


def named(path):
    """Arrays with names of their own, some of them odd."""
    a, u = tiny.waves(6, tiny.X)
    np.savez(path, **{"points": tiny.X, "my input": a, "it's $u": u})
    return path


def shapes(path):
    """Meshes that differ, and one field."""
    cases = [files.case(i) for i in range(4)]
    write_cases(path, [Case(points=c.points, fields={"u": c.fields["u"]}) for c in cases])
    return path


def cells(path):
    """Numbers of the case and one field on cells."""
    made = [files.case(i, side=3) for i in range(4)]
    made = [
        Case(points=c.points, mesh=c.mesh, cell_fields={"p": c.cell_fields["p"]}, parameters=n)
        for c, n in zip(
            made, ({"re": np.array([float(i), 2.0 * i])} for i in range(4)), strict=True
        )
    ]
    write_cases(path, made)
    return path


def wells(path):
    for i in range(2):
        files.well(path / f"{i}.hdf5", count=2, frames=4)
    return path


def parquet(path):
    pytest.importorskip("pyarrow")
    return files.folder(path, ".parquet", count=4, make=files.on_one_mesh)


def labelled(make):
    def write(path):
        found = make(pytest.importorskip("labelled.labelled_data"))
        pytest.importorskip("netCDF4")
        found.to_netcdf(path, engine="netcdf4")
        return path

    return write


def gap(data):
    """Two months with a hole between them."""
    whole = data.grid(30)
    return whole.isel(time=[*range(9), *range(15, 30)])


def members(data):
    return data.xr.concat([data.grid(24), data.grid(24) + 1], dim="number")


def steady(data):
    runs = data.xr.concat([data.grid(1), data.grid(1) + 1, data.grid(1) * 2], dim="run")
    return runs.isel(time=0, drop=True).assign(u=lambda d: 2 * d.t2m)


def forecasts(data):
    made = data.xr.concat([data.grid(5) + i for i in range(3)], dim="begun")
    begun, steps = data.days(3), data.days(5) - data.days(1)
    return made.rename(time="step", begun="time").assign_coords(time=begun, step=steps)


def scalars(path):
    """Fields, and two numbers of each case."""
    made = [files.on_one_mesh(i) for i in range(8)]
    squares = [{**c.parameters, "mach": np.array([i * i])} for i, c in enumerate(made)]
    write_cases(path, [replace(c, parameters=p) for c, p in zip(made, squares, strict=True)])
    return path


def with_forcing(data):
    return data.grid(12).assign(co2=("time", np.arange(12.0) ** 2))


WAYS = {
    "scalars.h5": scalars,
    "forced.nc": labelled(with_forcing),
    "arrays.npz": files.npz,
    "my arrays.npz": named,
    "table.csv": files.table,
    "parquet": parquet,
    "cases.h5": files.hdf5,
    "shapes.h5": shapes,
    "cells.h5": cells,
    "meshes": lambda path: files.folder(path, ".vtu", count=4),
    "well.h5": lambda path: files.well(path, count=4),
    "wells": wells,
    "short.nc": labelled(lambda data: data.grid(6)),
    "steady.nc": labelled(steady),
    "forecasts.nc": labelled(forecasts),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_suggestion_works_if_pasted(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    WAYS[name](tmp_path / name)
    assert main(["data", "inspect", name]) == 0
    (line,) = (n for n in capsys.readouterr().out.splitlines() if n.startswith("Train on it"))
    program, *arguments = shlex.split(line.partition(":  ")[2])
    assert program == "ipot"
    assert main([*arguments, "--epochs", "1", "--device", "cpu"]) == 0, capsys.readouterr().err
    assert (tmp_path / "surrogate" / "config.json").exists()


MORE = {
    "npy": lambda path: files.npy(path, "all"),
    "one.h5": lambda path: files.well(path, count=1, frames=9),
    "series.nc": labelled(lambda data: data.grid(40)),
    "stations.nc": labelled(lambda data: data.stations(12)),
    "gap.nc": labelled(gap),
    "members.nc": labelled(members),
}


@pytest.mark.parametrize("name", MORE)
def test_there_is_enough_to_learn_from_and_to_hold_out(name, tmp_path):
    MORE[name](tmp_path / name)
    program, verb, path, *flags = shlex.split(inspect(tmp_path / name).suggestion)
    assert (program, verb, path) == ("ipot", "fit", str(tmp_path / name))
    told = dict(zip((f.removeprefix("--") for f in flags[::2]), flags[1::2], strict=True))
    assert told.pop("out")
    found = open_data(path, **{k: int(v) if v.isdigit() else v for k, v in told.items()})
    assert all(len(part) for part in (found.parts or [found.data])[:2])


NOTHING = {
    "two.nc": labelled(lambda data: data.grid(2)),
    "twice.nc": labelled(lambda data: data.grid(9).isel(time=[0, 1, 1, 2, 3, 4, 5, 6])),
    "one.csv": lambda path: path.write_text("x,a,u\n0,1,2\n1,2,3\n"),
    "gaps.csv": lambda path: path.write_text("case,x,u\n1,0,1\n1,1,\n2,0,2\n2,1,3\n"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_suggested_that_would_fail(name, tmp_path, capsys):
    NOTHING[name](tmp_path / name)
    assert main(["data", "inspect", str(tmp_path / name)]) == 0
    assert "Train on it" not in capsys.readouterr().out


def test_the_numbers_of_a_file_are_suggested(tmp_path):
    scalars(tmp_path / "a.h5")
    said = inspect(tmp_path / "a.h5").suggestion
    assert "--inputs a --parameters re mach --targets u" in said
    labelled(with_forcing)(tmp_path / "b.nc")
    assert "--inputs t2m co2 --targets t2m" in inspect(tmp_path / "b.nc").suggestion
