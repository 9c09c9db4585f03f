"""The server answers what Python answers, in both forms, for all that a question may say."""

import json

import numpy as np
import pytest
from own import tiny

import ipot
from ipot.serve.facts import box_of
from serve.asking import AS_NPZ, npz

RANDOM = np.random.default_rng(1)
X, Y = RANDOM.random((40, 2)), RANDOM.random((7, 2))
A = RANDOM.choice([3.0, 12.0], (5, 40, 1))
PAST = RANDOM.standard_normal((40, 10))
LINES = RANDOM.random((9, 2)), RANDOM.random((6, 2))

QUESTIONS = {
    "one sample": ("darcy", {"points": X, "values": A[0], "queries": Y}),
    "at the points": ("darcy", {"points": X, "values": A[0]}),
    "on a grid": ("darcy", {"points": X, "values": A[0], "queries": RANDOM.random((3, 4, 2))}),
    "several samples": ("darcy", {"points": X, "values": A, "queries": Y}),
    "steps": ("navier_stokes", {"points": X, "values": PAST, "queries": Y, "steps": 2}),
    "more steps": ("navier_stokes", {"points": X, "values": PAST, "steps": 5}),
    "times": ("navier_stokes", {"points": X, "values": PAST, "times": [1.0, 3.0]}),
    "parameters": ("parameters", {"queries": X, "parameters": [0.1, 0.2, 0.3]}),
    "values without an axis": ("darcy", {"points": X, "values": A[0, :, 0]}),
    "values with an axis": ("mesh", {"points": X, "values": A[0, :, :1]}),
    "own data": ("mesh", {"points": X, "values": A[0, :, 0]}),
    "an interval": ("mesh", {"points": X, "values": A[0, :, 0] / 10, "interval": 0.5}),
    "an interval in time": ("times", {"points": X, "values": A[0, :, 0] / 10, "interval": 0.5}),
}


def asked(served, name, question):
    """What Python answers."""
    found = ipot.load(served[name].folder, device="cpu").predict(**question)
    parts = ("prediction", "low", "high")
    return dict(zip(parts, found, strict=True)) if "interval" in question else {parts[0]: found}


def plain(question):
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in question.items()}


@pytest.mark.filterwarnings("ignore:inputs far outside")
@pytest.mark.parametrize("kind", QUESTIONS)
def test_as_python_answers(client, served, kind):
    name, question = QUESTIONS[kind]
    wanted = asked(served, name, question)
    path = f"/v1/models/{name}/predict"
    told = client.post(path, plain(question))
    assert told.status == 200, told.body
    assert told.headers["content-type"] == "application/json"
    arrays = client.post(path, npz(**question), **AS_NPZ)
    assert arrays.status == 200, arrays.body
    for part, array in wanted.items():
        np.testing.assert_allclose(np.array(told.json[part]), array, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(arrays.arrays[part], array, rtol=1e-5, atol=1e-6)
        assert arrays.arrays[part].shape == array.shape
    assert set(told.json) - {"remarks"} == {*wanted, "milliseconds"}
    assert 0 < told.json["milliseconds"] < 1e6


def test_json_in_and_npz_out(client):
    question = plain(QUESTIONS["one sample"][1])
    found = client.post("/v1/models/darcy/predict", question, accept="text/html, application/x-npz")
    assert found.headers["content-type"] == "application/x-npz"
    assert found.arrays["prediction"].shape == (1, 7, 1)


def test_samples_of_other_sizes(client, served):
    given = {
        "points": [x.tolist() for x in LINES],
        "values": [x[:, 0].tolist() for x in LINES],
        "queries": [Y.tolist(), Y[:3].tolist()],
    }
    found = client.post("/v1/models/uneven/predict", given)
    model = ipot.load(served["uneven"].folder, device="cpu")
    wanted = model.predict(points=list(LINES), values=[x[:, 0] for x in LINES], queries=[Y, Y[:3]])
    assert [len(part) for part in found.json["prediction"]] == [7, 3]
    for part, array in zip(found.json["prediction"], wanted, strict=True):
        np.testing.assert_allclose(part, array, rtol=1e-5, atol=1e-6)
    said = client.post("/v1/models/uneven/predict", given, accept="application/x-npz").error
    assert "differ in size" in said


def test_remarks_go_to_the_client(client, capfd):
    far = plain(QUESTIONS["own data"][1] | {"values": 1e6 * A[0, :, 0]})
    found = client.post("/v1/models/mesh/predict", far)
    assert "far outside of those that the model has seen" in found.json["remarks"][0]
    far = npz(**{name: np.asarray(value) for name, value in far.items()})
    again = client.post("/v1/models/mesh/predict", far, **AS_NPZ)
    assert again.arrays["remarks"].tolist() == found.json["remarks"]
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_facts(client):
    found = client.get("/v1/models/times").json
    assert found["spec"]["steps"] == 4
    assert found["problem"] is None
    assert not found["solver"]
    assert found["bounds"]
    assert 0.5 < found["highest_level"] < 1
    assert len(found["ranges"]["values"]) == len(found["ranges"]["targets"]) == 1
    low, high = found["ranges"]["values"][0]
    assert low < high
    assert found["card"].startswith("---")
    assert found["error"]
    assert found["limits"]["rows"] == 1 << 20
    found = client.get("/v1/models/darcy").json
    assert (found["problem"], found["solver"], found["samples"]) == ("darcy", True, 3)
    assert found["spec"]["shape"] == [17, 17]
    assert found["settings"] == {"size": 33, "resolution": 17, **found["settings"]}
    assert "files" not in found["settings"]


def test_facts_of_parameters_alone(client):
    """Where and between which numbers a model was trained."""
    found = client.get("/v1/models/parameters").json
    data = tiny.arrays("parameters", 40)
    assert found["alone"]
    assert not client.get("/v1/models/mesh").json["alone"]
    ends = np.stack((data["queries"].min(0), data["queries"].max(0)), -1)
    np.testing.assert_allclose(found["box"], ends, rtol=1e-5)
    (low, high), *_ = found["ranges"]["targets"]
    least, most = data["targets"].min(), data["targets"].max()
    assert least - 1e-5 <= low < high <= most + 1e-5  # of the samples of training
    assert high - low > 0.5 * (most - least)


def test_places_are_told_in_the_units_of_the_data():
    model = tiny.quick(tiny.data("far away", 40), epochs=1, blend=False)
    points = tiny.arrays("far away", 40)["points"]
    ends = np.stack((points.min(0), points.max(0)), -1)
    np.testing.assert_allclose(box_of(model), ends, rtol=1e-8)


def test_the_list_of_models(client, served):
    found = client.get("/v1/models").json["models"]
    assert [model["name"] for model in found] == list(served)
    assert found[0] == {
        "name": "darcy",
        "problem": "darcy",
        "title": "Darcy",
        "shipped": False,
        "state": found[0]["state"],
    }


def test_samples_that_came_along(client):
    first, last = (client.get(f"/v1/models/darcy/samples/{k}").arrays for k in (0, 2))
    assert first["points"].shape == last["points"].shape == (20, 2)
    assert first["values"].dtype == np.float32
    assert (first["values"] != last["values"]).any()
    np.testing.assert_array_equal(first["points"], last["points"])
    assert "0 to 2" in client.get("/v1/models/darcy/samples/3").error
    assert client.get("/v1/models/darcy/samples/-1").status == 404
    assert "none came" in client.get("/v1/models/mesh/samples/0").error


def test_health_and_metrics(client):
    assert client.get("/healthz").json["models"]["darcy"] in ("waiting", "ready")
    client.get("/v1/models/darcy")
    client.get("/nothing/here")
    client.get("/v1/models/none-of-that-name")
    text = client.get("/metrics").body.decode()
    assert 'route="/v1/models/{name}",method="GET",status="200"} 1' in text
    assert 'route="/v1/models/{name}",method="GET",status="404"} 1' in text
    assert "none-of-that-name" not in text
    assert "here" not in text
    memory = next(line for line in text.splitlines() if line.startswith("ipot_memory_bytes"))
    assert float(memory.split()[1]) > 1e7
    assert 'le="+Inf"} 2' in text


def test_openapi_is_json(client):
    assert json.loads(client.get("/openapi.json").body)["openapi"].startswith("3.1")
