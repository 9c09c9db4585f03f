"""The OpenAPI description of the API. Tests hold requests and answers against it."""

from __future__ import annotations

from typing import Any

from ipot.serve.limits import TOLD, Limits
from ipot.serve.question import JSON, LINES, NPZ
from ipot.version import __version__

Schema = dict[str, Any]
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
MAYBE: Schema = {"type": ["string", "null"]}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _object(needed: dict[str, Schema], more: dict[str, Schema] | None = None) -> Schema:
    """An object with these entries and no others."""
    return {
        "type": "object",
        "properties": needed | (more or {}),
        "required": list(needed),
        "additionalProperties": False,
    }


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


PAIRS = _list({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2})
PERIODS = _list({"type": ["number", "null"]})
SPEC = {
    **dict.fromkeys(("dimension", "query_dimension", "history", "steps"), WHOLE),
    **dict.fromkeys(("inputs", "outputs", "parameters"), _list(TEXT)),
    **dict.fromkeys(("units", "input_units", "parameter_units"), _list(TEXT)),
    **dict.fromkeys(("sphere", "geographic"), FLAG),
    **dict.fromkeys(("domain", "query_domain"), PAIRS),
    **dict.fromkeys(("periods", "query_periods"), PERIODS),
    "dt": NUMBER,
    "shape": _list(WHOLE),
}
LINE = {
    "name": TEXT,
    "problem": MAYBE,
    "title": TEXT,
    "shipped": FLAG,
    "state": {"enum": ["waiting", "ready", "failed"]},
}
ARRAY_ABOUT = {
    "points": "Where the values are: (N, D), or with samples in front.",
    "values": "The inputs there: (N, C), or with samples in front.",
    "queries": "Where to answer: (M, E); the points unless said.",
    "parameters": "Numbers of the whole sample: (P).",
}


def schemas() -> dict[str, Schema]:
    """The parts that requests and answers are made of."""
    arrays = {name: _named("Array") | {"description": s} for name, s in ARRAY_ABOUT.items()}
    question = {
        **arrays,
        "steps": {"type": "integer", "minimum": 1, "description": "Steps of the rollout."},
        "times": _list(NUMBER) | {"description": "Multiples of the model's step, increasing."},
        "interval": {
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": "Bounds besides, that contain the truth this often.",
        },
    }
    facts = {name: schema for name, schema in LINE.items() if name != "state"} | {
        "spec": _object(SPEC),
        "settings": {"type": "object"},
        **dict.fromkeys(
            ("ranges", "usual"),
            _object(dict.fromkeys(("values", "targets", "parameters"), PAIRS)),
        ),
        "seen": {"type": "object"},
        "alone": FLAG,
        "box": PAIRS,
        "error": {"type": "object"},
        "bounds": FLAG,
        "highest_level": {"type": ["number", "null"]},
        "series": FLAG,
        "samples": WHOLE,
        "solver": FLAG,
        "card": TEXT,
        "limits": _object(dict.fromkeys(TOLD, NUMBER)),
    }
    spent = {"milliseconds": NUMBER}
    return {
        "Array": {
            "description": "Numbers, in lists inside each other.",
            "oneOf": [NUMBER, _list(_named("Array"))],
        },
        "Error": _object({"error": TEXT, "status": WHOLE}),
        "Models": _object({"models": _list(_object(LINE))}),
        "Model": _object(facts),
        "Question": _object({}, question),
        "Answer": _object(
            {"prediction": _named("Array"), **spent},
            {"low": _named("Array"), "high": _named("Array"), "remarks": _list(TEXT)},
        ),
        "Solution": _object(
            {"queries": _named("Array"), "targets": _named("Array"), "times": _list(NUMBER)} | spent
        ),
        "Health": _object(
            {
                "status": {"enum": ["starting", "ready"]},
                "models": {"type": "object", "additionalProperties": LINE["state"]},
                "version": TEXT,
            }
        ),
    }


NAME = {"name": "name", "in": "path", "required": True, "schema": TEXT}
FILE: Schema = {"type": "string", "format": "binary"}


def _content(*kinds: tuple[str, Schema]) -> Schema:
    return {kind: {"schema": schema} for kind, schema in kinds}


def _answers(about: str, content: Schema, *statuses: int) -> Schema:
    known = {
        "400": "A body or a header that cannot be read.",
        "403": "Asked by the page of somebody else.",
        "404": "There is no such model, sample or address.",
        "408": "The body did not arrive in time.",
        "413": "Larger than this server takes.",
        "415": "A body of another kind.",
        "421": "Asked by a name that is not this server's.",
        "422": "A question that makes no sense; the sentence says why.",
        "500": "The server failed.",
        "501": "There is no solver for this problem.",
        "503": "Too much to do now; Retry-After says when to ask again.",
        "504": "It took too long.",
    }
    told = (400, 403, 421, 500, *statuses)
    errors = {
        str(s): {"description": known[str(s)], "content": _content((JSON, _named("Error")))}
        for s in sorted(set(told))
    }
    return {"200": {"description": about, "content": content}} | errors


def _option(name: str, schema: Schema, about: str, *, needed: bool = False) -> Schema:
    return {
        "name": name,
        "in": "query",
        "required": needed,
        "schema": schema,
        "description": about,
    }


def document(limits: Limits) -> dict[str, Any]:
    """The whole description."""
    asked = {
        "required": True,
        "description": f"At most {limits.body} bytes.",
        "content": _content((JSON, _named("Question")), (NPZ, FILE)),
    }
    worked = (404, 503, 504)
    bodied = (*worked, 408, 413, 415, 422)
    options = [
        _option("name", TEXT, "The file's name, which says what kind it is.", needed=True),
        _option("interval", NUMBER, "Bounds besides, that contain the truth this often."),
        _option("steps", WHOLE, "Steps of the rollout."),
        _option("grid", WHOLE, "Answer on a regular grid, so many points a side."),
        _option("format", TEXT, "What the answer's name ends in."),
    ]
    paths = {
        "/v1/models": {
            "get": {
                "operationId": "listModels",
                "summary": "The models that are served.",
                "responses": _answers("Their names.", _content((JSON, _named("Models")))),
            }
        },
        "/v1/models/{name}": {
            "get": {
                "operationId": "getModel",
                "summary": "What goes in, what comes out, how good it is, what may be asked.",
                "parameters": [NAME],
                "responses": _answers("Facts.", _content((JSON, _named("Model"))), *worked),
            }
        },
        "/v1/models/{name}/predict": {
            "post": {
                "operationId": "predict",
                "summary": "The fields at the queries, as Surrogate.predict gives them.",
                "parameters": [NAME],
                "requestBody": asked,
                "responses": _answers(
                    "The answer; npz where Accept asks for it.",
                    _content((JSON, _named("Answer")), (NPZ, FILE)),
                    *bodied,
                ),
            }
        },
        "/v1/models/{name}/solve": {
            "post": {
                "operationId": "solve",
                "summary": "What the problem's own solver answers to the same inputs.",
                "parameters": [NAME],
                "requestBody": asked,
                "responses": _answers(
                    "The solution, and where it is; with what is done on the way, line by line, "
                    f"where Accept asks for {LINES}.",
                    _content((JSON, _named("Solution")), (NPZ, FILE), (LINES, TEXT)),
                    *bodied,
                    501,
                ),
            }
        },
        "/v1/models/{name}/samples/{k}": {
            "get": {
                "operationId": "getSample",
                "summary": "A sample that came with the model: inputs and targets.",
                "parameters": [NAME, NAME | {"name": "k", "schema": WHOLE}],
                "responses": _answers("Arrays by name.", _content((NPZ, FILE)), *worked),
            }
        },
        "/v1/models/{name}/extras": {
            "get": {
                "operationId": "getExtras",
                "summary": "What a problem has beside samples, as the page shows it.",
                "parameters": [NAME],
                "responses": _answers("Arrays by name.", _content((NPZ, FILE)), *worked),
            }
        },
        "/v1/models/{name}/files": {
            "post": {
                "operationId": "answerFile",
                "summary": "The answer to a file, as a file.",
                "parameters": [NAME, *options],
                "requestBody": {
                    "required": True,
                    "content": _content(("application/octet-stream", FILE)),
                },
                "responses": _answers(
                    "The file.", _content(("application/octet-stream", FILE)), *bodied
                ),
            }
        },
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the models are loaded.",
                "responses": _answers("States.", _content((JSON, _named("Health")))),
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Counters as Prometheus reads them.",
                "responses": _answers("Text.", _content(("text/plain", TEXT))),
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This description.",
                "responses": _answers("OpenAPI.", _content((JSON, {"type": "object"}))),
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ipot serve",
            "version": __version__,
            "description": "Trained models of ipot: values at points in, fields at queries out.",
        },
        "paths": paths,
        "components": {"schemas": schemas()},
    }
