"""Solvers behind the server: one at a time, in a process apart, with what is done on the way."""

import asyncio
import json

import numpy as np
import pytest
import torch

from ipot.errors import DataError
from ipot.problems.darcy import Darcy
from ipot.serve.question import LINES
from ipot.serve.solvers import solved
from ipot.solvers import darcy as darcy_equation
from serve.asking import AS_NPZ, npz, send
from serve.small import untrained

SIDE = 33
"""Cells of the small problem's solver."""
FLOW = "/v1/models/navier_stokes/solve"


def squares():
    """A permeability on the solver's own cells."""
    points = Darcy(size=SIDE).coordinates(SIDE).float().numpy()
    return points, np.where(points[:, :1] + points[:, 1:] > 1, 12.0, 3.0)


def vortices(side=16):
    lines = np.arange(side) / side
    points = np.stack(np.meshgrid(lines, lines, indexing="ij"), -1).reshape(-1, 2)
    field = np.sin(2 * np.pi * points[:, :1]) * np.cos(2 * np.pi * points[:, 1:])
    return {"points": points, "values": np.repeat(field, 10, axis=1)}


def test_the_solution_is_the_solver_s(make_client):
    client = make_client("darcy")
    points, values = squares()
    found = client.post("/v1/models/darcy/solve", npz(points=points, values=values), **AS_NPZ)
    assert found.status == 200, found.body
    field = np.ascontiguousarray(values.reshape(1, SIDE, SIDE))
    wanted = darcy_equation.solve(torch.from_numpy(field)).numpy().reshape(1, -1, 1)
    np.testing.assert_allclose(found.arrays["targets"], wanted, rtol=1e-5)
    np.testing.assert_allclose(found.arrays["queries"], points, atol=1e-7)


def test_lines_end_with_the_solution(make_client):
    client = make_client("navier_stokes")
    question = {name: array.tolist() for name, array in vortices().items()} | {"steps": 40}
    whole = client.post(FLOW, question)
    assert whole.status == 200, whole.body
    found = client.post(FLOW, question, accept=LINES)
    assert found.headers["content-type"] == LINES
    last = json.loads(found.body.splitlines()[-1])
    assert np.array(last["targets"]).shape == (40, 256, 1)
    np.testing.assert_allclose(last["targets"], whole.json["targets"], atol=1e-6)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_done_is_told_line_by_line(make_client, monkeypatch, fails):
    client = make_client("navier_stokes")

    async def solve(served, question, *, gone, progress):
        for part in (0.25, 0.5):
            progress(part)
            await asyncio.sleep(0)
        if fails:
            raise DataError(f"{served.folder}/x: no flow")
        return {"queries": np.zeros((1, 2)), "targets": np.ones((1, 1, 1)), "milliseconds": 3.0}

    monkeypatch.setattr(client.server.solving, "solve", solve)
    found = client.post(FLOW, npz(**vortices()), content_type=AS_NPZ["content_type"], accept=LINES)
    lines = [json.loads(line) for line in found.body.splitlines()]
    assert lines[:2] == [{"part": 0.25}, {"part": 0.5}]
    if fails:
        assert lines[2:] == [{"error": "x: no flow", "status": 422}]
    else:
        assert lines[2:] == [{"queries": [[0, 0]], "targets": [[[1]]], "milliseconds": 3}]


@pytest.mark.parametrize("problem", ["navier_stokes", "plasticity", "airfoil"])
def test_slow_solvers_tell_what_is_done(problem):
    found = untrained(problem).problem
    if problem == "navier_stokes":
        arrays = vortices()
    elif problem == "plasticity":
        arrays = {"points": np.linspace(0, 1, 20)[:, None], "values": np.full((20, 1), 15.0)}
    else:
        points = found.coordinates(45).numpy()
        arrays = {"points": points, "values": np.zeros((len(points), 1))}
    told = []
    tells = {"steps": None, "times": None, "rows": 1 << 20}
    solved(found, arrays, tells, told.append)
    assert len(told) > 2
    assert told == sorted(told)
    assert 0 <= told[0] < told[-1] <= 1


@pytest.mark.parametrize("accept", ["application/json", LINES])
def test_what_cannot_be_solved_is_said_first(make_client, accept):
    client = make_client("navier_stokes", "mesh")
    scattered = {"points": np.random.default_rng(0).random((256, 2)).tolist()}
    scattered["values"] = vortices()["values"].tolist()
    found = client.post(FLOW, scattered, accept=accept)
    assert found.status == 422
    assert "regular grid" in found.error
    found = client.post("/v1/models/mesh/solve", scattered, accept=accept)
    assert found.status == 501
    assert "no solver is known" in found.error


def test_too_many_at_once_are_refused(make_client):
    client = make_client("navier_stokes", solves=2)
    body = npz(**vortices(64), steps=30)
    headers = {"content-type": "application/x-npz", "accept": "application/x-npz"}

    async def all_at_once():
        asked = [send(client.app, "POST", FLOW, body, headers) for _ in range(5)]
        return await asyncio.gather(*asked)

    found = client.run(all_at_once())
    assert sorted(reply.status for reply in found) == [200, 200, 503, 503, 503]
    refused = next(reply for reply in found if reply.status == 503)
    assert int(refused.headers["retry-after"]) >= 1
    assert client.server.solving.asked == 0


def test_a_solver_that_takes_too_long_is_ended(make_client):
    client = make_client("navier_stokes", solve_seconds=0.5)
    body = npz(**vortices(128), steps=900)
    found = client.post(FLOW, body, **AS_NPZ)
    assert found.status == 504
    assert "no solution within 0.5 s" in found.error
    assert client.server.solving._process is None


def test_a_client_that_hangs_up_ends_its_solver(make_client):
    client = make_client("navier_stokes")
    body = npz(**vortices(128), steps=900)

    async def left():
        gone = asyncio.Event()
        headers = {"content-type": "application/x-npz"}
        asked = asyncio.ensure_future(send(client.app, "POST", FLOW, body, headers, hang_up=gone))
        while client.server.solving._process is None:
            await asyncio.sleep(0.05)
        process = client.server.solving._process
        gone.set()
        await asked
        await asyncio.wait_for(process.wait(), 20)

    client.run(left())
    assert client.server.solving.asked == 0
    small = npz(**vortices(), steps=1)
    assert client.post(FLOW, small, **AS_NPZ).status == 200


def test_weeks_of_the_ocean(make_client):
    client = make_client("sst", "darcy")
    found = client.get("/v1/models/sst/extras").arrays
    weeks, points = found["temperature"].shape
    assert points == 2040
    assert found["temperature"].dtype == np.int16
    assert found["damping"].shape == (4, points)
    assert found["cycle"].shape == (7, points)
    assert client.get("/v1/models/darcy/extras").status == 404
    # What they say together is the climatology's own.
    from ipot.problems.sst import PROBLEM

    record, climate = PROBLEM.record_and_climate()
    day = np.datetime64("1990-01-01") + int(found["start"])
    first = int(np.searchsorted(record.day, day))
    assert record.day[first] == day
    assert first + weeks == len(record.day)
    np.testing.assert_allclose(found["temperature"] / 100, record.sst[first:], atol=1e-4)
    np.testing.assert_allclose(found["damping"][1], climate.damping(2), rtol=1e-5)
