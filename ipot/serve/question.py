"""What a request may say: arrays by the names of the arguments of `Surrogate.predict`, as JSON or
npz; and answers in the same two forms.

Shapes and numbers are checked where Python checks them too, so that the sentences are the same.
"""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipot.errors import DataError, shown
from ipot.memory import in_words
from ipot.serve.limits import Limits
from ipot.serve.refused import Refused, too_large, wrong

JSON, NPZ = "application/json", "application/x-npz"
LINES = "application/x-ndjson"
"""Lines of JSON: what is done so far, and the answer as the last."""
ARRAYS = ("points", "values", "queries", "parameters")
NUMBERS = ("steps", "times", "interval")
NAMES = (*ARRAYS, *NUMBERS)
SPARE = 1000
"""Commas and brackets of a question that has few numbers."""


@dataclass(frozen=True)
class Question:
    """The arguments of a prediction."""

    arrays: dict[str, Any]
    steps: int | None = None
    times: Any = None
    interval: float | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `Surrogate.request`."""
        return self.arrays | {"steps": self.steps, "times": self.times}


def kind_of_body(header: str | None) -> str:
    """JSON or npz, by the type that a request names for its body."""
    kind = (header or JSON).partition(";")[0].strip().lower()
    if kind not in (JSON, NPZ):
        raise Refused(415, f"a body is {JSON} or {NPZ}, got {shown(kind)}")
    return kind


def kind_of_answer(header: str | None, *others: str) -> str:
    """JSON unless npz, or one of the others that there are, is asked for."""
    kinds = {part.partition(";")[0].strip().lower() for part in (header or "").split(",")}
    return next((kind for kind in (NPZ, *others) if kind in kinds), JSON)


def read_question(body: bytes, kind: str, limits: Limits) -> Question:
    """The question in a body."""
    found = _from_json(body, limits) if kind == JSON else _from_npz(body, limits)
    if unknown := sorted(set(found) - set(NAMES)):
        raise wrong(f"unknown {shown(unknown[0])}; known are {', '.join(NAMES)}")
    given = {name: value for name, value in found.items() if value is not None}
    arrays = {name: as_array(name, given[name]) for name in ARRAYS if name in given}
    question = Question(
        arrays, _steps(given.get("steps")), _times(given.get("times")), _interval(given)
    )
    if question.steps is not None:
        limits.refuse_steps(question.steps)
    return question


def _from_json(body: bytes, limits: Limits) -> dict[str, Any]:
    # Each number has a comma, and each list of one number a bracket: a few bytes here become lists
    # that take twenty times as many, so that they are counted before they are made.
    if body.count(b",") + body.count(b"[") > 2 * limits.numbers + SPARE:
        raise too_large(
            f"the body holds more than {limits.numbers} numbers in JSON: send them as {NPZ}"
        )
    try:
        found = json.loads(
            body.decode("utf-8-sig"), parse_constant=_no_number, object_pairs_hook=_once
        )
    except RecursionError as error:
        raise wrong("the body has too many lists inside each other") from error
    except ValueError as error:  # no JSON, no UTF-8, or a whole number of thousands of digits
        raise Refused(400, f"the body is not JSON: {_short(error)}") from error
    if not isinstance(found, dict):
        raise wrong(
            f'the body must be an object like {{"points": [[0.5, 0.5]], ...}}, got a '
            f"{type(found).__name__}"
        )
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON. Leave those points out.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _short(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if len(said) <= 200 else f"{said[:197]}..."


def _from_npz(body: bytes, limits: Limits) -> dict[str, Any]:
    """The arrays of an archive, which is checked as any file from elsewhere is."""
    from ipot.formats.numpy_files import headers, read_arrays

    if not body.startswith(b"PK"):
        raise Refused(400, "the body is not an npz archive: it does not begin like one")
    with tempfile.TemporaryDirectory(prefix="ipot-serve-") as folder:
        file = Path(folder) / "body.npz"
        file.write_bytes(body)
        try:
            size = sum(math.prod(shape) * of.itemsize for shape, of in headers(file).values())
            if size > limits.unpacked:
                raise too_large(
                    f"the body unpacks to {in_words(size)}, and this server takes "
                    f"{in_words(limits.unpacked)}"
                )
            return dict(read_arrays(file))
        except DataError as error:
            raise wrong(str(error).replace(f"{folder}/", "").replace(folder, "")) from error
        except (ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise Refused(400, "the body is not an npz archive that can be read") from error
        except Exception as error:  # zipfile's and zlib's own
            if isinstance(error, Refused):
                raise
            raise Refused(400, "the body is not an npz archive that can be read") from error


def as_array(name: str, given: Any) -> Any:
    """Nested lists as an array, or as a list of arrays where samples differ in size."""
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, str | dict):
        raise wrong(f"{name} must be lists of numbers, got {shown(given)}")
    try:
        found = np.asarray(given)
    except (ValueError, OverflowError, RecursionError) as error:
        if not isinstance(given, list) or not all(isinstance(part, list) for part in given):
            raise wrong(f"{name} is not an array of numbers: its lists differ in length") from error
        return [_rectangle(f"{name}[{i}]", part) for i, part in enumerate(given)]
    if found.dtype.kind not in "fiub":
        raise wrong(f"{name} must hold real numbers, got {_kinds(found)}")
    return found


def _rectangle(name: str, given: Any) -> np.ndarray:
    try:
        found = np.asarray(given)
    except (ValueError, OverflowError, RecursionError) as error:
        raise wrong(f"{name} is not an array of numbers: its lists differ in length") from error
    if found.dtype.kind not in "fiub":
        raise wrong(f"{name} must hold real numbers, got {_kinds(found)}")
    return found


def _kinds(found: np.ndarray) -> str:
    return "text" if found.dtype.kind in "US" else "something else"


def _alone(name: str, given: Any) -> Any:
    """A number that may have come as an array without axes."""
    if isinstance(given, np.ndarray):
        if given.ndim or given.dtype.kind not in "fiu":
            raise wrong(f"{name} must be one number, got an array of shape {given.shape}")
        return given.item()
    return given


def _steps(given: Any) -> int | None:
    given = _alone("steps", given)
    if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
        raise wrong(f"steps must be a whole number, got {shown(given)}")
    return given


def _times(given: Any) -> Any:
    if given is None:
        return None
    found = as_array("times", given)
    if isinstance(found, list) or found.ndim > 1:
        raise wrong("times must be a list of numbers")
    return found


def _interval(given: Mapping[str, Any]) -> float | None:
    level = _alone("interval", given.get("interval"))
    if level is None or (isinstance(level, int | float) and not isinstance(level, bool)):
        return level
    raise wrong(f"interval must lie between 0 and 1, like 0.9, got {shown(level)}")


def write_answer(content: Mapping[str, Any], kind: str, limits: Limits) -> bytes:
    """Named arrays and numbers as a body; arrays that differ in size may be lists of them."""
    if kind == NPZ:
        return _to_npz(content)
    count = sum(_size(value) for value in content.values())
    if count > limits.numbers:
        raise too_large(
            f"the answer has {count} numbers, and {limits.numbers} at most are written as JSON: "
            f"ask with the header Accept: {NPZ}"
        )
    plain = {name: _plain(value) for name, value in content.items() if value is not None}
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def _to_npz(content: Mapping[str, Any]) -> bytes:
    """Stored and not deflated, so that a page can read it in a few lines."""
    arrays: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, list) and any(isinstance(part, np.ndarray) for part in value):
            raise wrong("the samples differ in size, and an npz has one array for all: ask in JSON")
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            arrays[name] = np.asarray(value)  # remarks
        elif value is not None and not isinstance(value, list):
            arrays[name] = np.asarray(value)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(_size(part) for part in value)
    return int(value.size) if isinstance(value, np.ndarray) else 1


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
