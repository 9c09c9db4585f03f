"""The OpenAPI description is valid, and what the server says is what the description says."""

import json
import re

import jsonschema
import numpy as np
import pytest

from ipot.serve.application import ROUTES
from ipot.serve.question import LINES
from serve.asking import npz
from serve.test_answers import QUESTIONS, plain

NPZ = "application/x-npz"
X = np.random.default_rng(6).random((12, 2))
OK = {"points": X.tolist(), "values": [[3.0]] * 12}
ARRAYS = npz(points=X, values=np.full((12, 1), 3.0))
FORM = {
    "type": "object",
    "required": ["openapi", "info", "paths", "components"],
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {"required": ["title", "version"]},
        "paths": {
            "patternProperties": {
                "^/": {
                    "propertyNames": {"enum": ["get", "post"]},
                    "additionalProperties": {
                        "required": ["operationId", "summary", "responses"],
                        "propertyNames": {
                            "pattern": "^(operationId|summary|parameters|requestBody|responses)$"
                        },
                        "properties": {
                            "parameters": {
                                "items": {
                                    "required": ["name", "in", "required", "schema"],
                                    "properties": {"in": {"enum": ["path", "query"]}},
                                }
                            },
                            "requestBody": {"required": ["content"]},
                            "responses": {
                                "required": ["200"],
                                "propertyNames": {"pattern": r"^[2-5]\d\d$"},
                                "additionalProperties": {"required": ["description", "content"]},
                            },
                        },
                    },
                }
            },
            "additionalProperties": False,
        },
        "components": {"required": ["schemas"]},
    },
}
"""What OpenAPI 3.1 asks of the parts that ours has."""


@pytest.fixture(scope="module")
def document(running):
    return running.ask("GET", "/openapi.json").json


@pytest.fixture(scope="module")
def check(document):
    """Hold a value against a schema of the description."""

    def hold(value, schema):
        whole = schema | {"components": document["components"]}  # where references lead
        jsonschema.Draft202012Validator(whole).validate(value)

    return hold


def operation_of(document, method, path):
    """The operation that an address belongs to."""
    for pattern, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path.partition("?")[0]):
            return operations[method.lower()]
    raise AssertionError(f"{path} is not described")


def test_it_is_openapi(document):
    jsonschema.validate(document, FORM)
    operations = [o for path in document["paths"].values() for o in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    schemas = document["components"]["schemas"]
    contents = [schemas, *(o.get("requestBody", {}) for o in operations)]
    contents += [answer for o in operations for answer in o["responses"].values()]
    used = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(contents)))
    assert used == set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for path, found in document["paths"].items():
        for operation in found.values():
            inside = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert re.findall(r"\{(\w+)\}", path) == inside


def test_every_address_is_described(document):
    described = {(p, m.upper()) for p, found in document["paths"].items() for m in found}
    assert described == {(path, method) for path, method, _ in ROUTES}


REQUESTS = {
    "models": ("GET", "/v1/models", None, {}, 200),
    "a model": ("GET", "/v1/models/darcy", None, {}, 200),
    "a model of one's own": ("GET", "/v1/models/parameters", None, {}, 200),
    "a model on a sphere": ("GET", "/v1/models/sst", None, {}, 200),
    "a model in time": ("GET", "/v1/models/times", None, {}, 200),
    "no model": ("GET", "/v1/models/none", None, {}, 404),
    "health": ("GET", "/healthz", None, {}, 200),
    "metrics": ("GET", "/metrics", None, {}, 200),
    "itself": ("GET", "/openapi.json", None, {}, 200),
    "an answer": ("POST", "/v1/models/darcy/predict", OK, {}, 200),
    "an answer as npz": ("POST", "/v1/models/darcy/predict", OK, {"accept": NPZ}, 200),
    "arrays": ("POST", "/v1/models/darcy/predict", ARRAYS, {"content_type": NPZ}, 200),
    "a wrong question": ("POST", "/v1/models/darcy/predict", {"a": 1}, {}, 422),
    "no JSON": ("POST", "/v1/models/darcy/predict", b"{", {}, 400),
    "text": ("POST", "/v1/models/darcy/predict", b"{}", {"content_type": "text/plain"}, 415),
    "too many steps": ("POST", "/v1/models/darcy/predict", OK | {"steps": 9999}, {}, 413),
    "a stranger": ("POST", "/v1/models/darcy/predict", OK, {"origin": "http://a.b"}, 403),
    "a strange name": ("GET", "/v1/models", None, {"host": "a.b"}, 421),
    "a solution": ("POST", "/v1/models/darcy/solve", OK, {}, 200),
    "a solution in lines": ("POST", "/v1/models/darcy/solve", OK, {"accept": LINES}, 200),
    "no solver": ("POST", "/v1/models/mesh/solve", OK, {}, 501),
    "a sample": ("GET", "/v1/models/darcy/samples/0", None, {}, 200),
    "no sample": ("GET", "/v1/models/darcy/samples/99", None, {}, 404),
    "extras": ("GET", "/v1/models/sst/extras", None, {}, 200),
    "no extras": ("GET", "/v1/models/darcy/extras", None, {}, 404),
    "a file": ("POST", "/v1/models/darcy/files?name=a.npz", ARRAYS, {}, 200),
    "a wrong file": ("POST", "/v1/models/darcy/files?name=a.h5", b"abc", {}, 422),
    "no file": ("POST", "/v1/models/darcy/files", b"abc", {}, 422),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_answers_are_as_described(running, document, check, kind):
    method, path, body, headers, status = REQUESTS[kind]
    found = running.ask(method, path, body, **headers)
    assert found.status == status, found.body
    described = operation_of(document, method, path)["responses"][str(found.status)]["content"]
    sort = found.headers["content-type"].partition(";")[0]
    assert sort in described
    if sort == "application/json":
        check(found.json, described[sort]["schema"])
    if status >= 400:
        assert found.error


def test_a_wrong_answer_would_not_pass(check):
    model = {"$ref": "#/components/schemas/Error"}
    check({"error": "a", "status": 404}, model)
    for wrong in ({"error": "a"}, {"error": 1, "status": 404}, {"error": "a", "status": 4, "b": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check(wrong, model)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_questions_are_as_described(check, kind):
    check(plain(QUESTIONS[kind][1]), {"$ref": "#/components/schemas/Question"})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": 0}, {"steps": 1.5}, {"interval": 1}, {"interval": 0}, {"colour": 1}),
        *({"times": 3}, {"points": "a"}, {"values": [["a"]]}, {"queries": [None]}),
    ],
)
def test_what_the_description_refuses_the_server_refuses(running, check, wrong):
    with pytest.raises(jsonschema.ValidationError):
        check(OK | wrong, {"$ref": "#/components/schemas/Question"})
    found = running.ask("POST", "/v1/models/darcy/predict", OK | wrong)
    assert found.status == 422, found.body


def test_metrics_are_as_prometheus_reads_them(running):
    for path in ("/healthz", "/none", "/v1/models/darcy"):
        running.ask("GET", path)
    lines = running.ask("GET", "/metrics").body.decode().splitlines()
    kinds, seen = {}, set()
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            pattern = r'(\w+)((?:\{\w+="[^"\n\\]*"(?:,\w+="[^"\n\\]*")*\})?) (\d\S*)'
            name, labels, value = re.fullmatch(pattern, line).groups()
            assert (name, labels) not in seen
            seen.add((name, labels))
            assert float(value) >= 0
            assert name in kinds or re.sub("_(bucket|sum|count)$", "", name) in kinds
    assert kinds["ipot_requests_total"] == "counter"
    assert kinds["ipot_request_seconds"] == "histogram"
    assert kinds["ipot_questions_waiting"] == "gauge"
    assert 'ipot_requests_total{route="other",method="GET",status="404"}' in "\n".join(lines)
