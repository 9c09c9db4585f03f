"""The doors that arrays come in by: a call that is right, how to make it, and what must hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from campaign.attack import Lost
from campaign.attacks import _array_bases as bases
from campaign.attacks import _array_checks as checks
from campaign.attacks._array_cases import Given


class Door(ABC):
    """One way in."""

    name: ClassVar[str]
    weight: ClassVar[float] = 1.0
    """How often it is tried, beside the others."""
    bases: ClassVar[tuple[str, ...]] = bases.BASES
    options: ClassVar[tuple[str, ...]] = ()
    """Arguments that are no arrays."""
    words: ClassVar[tuple[str, ...]] = ()
    """What a refusal may name besides the arguments."""
    also: ClassVar[tuple[str, ...]] = ("",)
    """Relations between answers that may be looked at behind the call."""
    open_to_guises: ClassVar[bool] = True
    """Whether plain arrays in any dtype and layout must be let in."""
    lenient: ClassVar[bool] = False
    """Whether it may take what holds no real numbers."""

    def takes(self, argument: str, value: Any) -> bool:
        """Whether it may take this, which is to be refused elsewhere."""
        return self.lenient

    @abstractmethod
    def base(self, base: str) -> dict[str, Any]:
        """Arguments of a call that is right."""

    @abstractmethod
    def call(self, base: str, arguments: dict[str, Any], folder: Path) -> Any:
        """Make the call."""

    @abstractmethod
    def check(self, result: Any, given: Given) -> None:
        """Refuse a result that is wrong."""

    def means_plain(self, base: str, given: Given) -> bool:
        """Whether what was given means the same as the plain form of it."""
        return True

    def same(self, result: Any, plain: Any) -> None:  # noqa: B027 (not all can be compared)
        """Refuse a result that is not that of the plain form of the arguments."""

    def relate(  # noqa: B027 (not all have any)
        self, also: str, base: str, given: Given, result: Any, folder: Path
    ) -> None:
        """Refuse a result that another one contradicts."""


class Arrays(Door):
    """`Dataset.from_arrays`, and what can be done with a data set."""

    name = "from_arrays"
    weight = 3.0
    options = bases.FACTS
    words = ("samples", "mesh")
    also = ("", "select", "split", "samples", "describe")

    def base(self, base):
        return bases.arrays(base)

    def call(self, base, arguments, folder):
        import ipot

        return ipot.Dataset.from_arrays(**arguments)

    def check(self, result, given):
        for sample in result:
            for name in ("points", "values", "queries", "targets", "parameters", "weights"):
                held = getattr(sample, name)
                if held is not None:
                    checks.finite(held.numpy(), f"what is held of {name}")
        checks.holds(result, given)

    def relate(self, also, base, given, result, folder):
        import ipot

        count, random = len(result), Random(len(str(given.values)))
        if also == "select":
            rows = [random.randrange(-count, count) for _ in range(4)]
            for one, row in zip(result.select(rows), rows, strict=True):
                checks.same_sample(one, result[row], "select")
        elif also == "split" and count > 1:
            parts = [s.targets.numpy().tobytes() for part in result.split(0.5) for s in part]
            if sorted(parts) != sorted(s.targets.numpy().tobytes() for s in result):
                raise Lost("split: the parts do not add up to the whole")
        elif also == "samples":
            again = ipot.Dataset.from_samples(list(result))
            for one, other in zip(again, result, strict=True):
                for name in ("values", "targets"):
                    checks.alike(*(getattr(s, name).numpy() for s in (one, other)), "from_samples")
        elif also == "describe" and not (result.describe() and repr(result)):
            raise Lost("describe: nothing is said")


class Choice(Door):
    """`select`, `split` and indices of a data set."""

    name = "choose"
    weight = 0.5
    bases = ("index", "select", "split")
    words = ("sample", "samples")

    def base(self, base):
        if base == "split":
            return {"train": np.array(0.5), "seed": np.array(3)}
        return {"index": np.array(2) if base == "index" else np.array([0, 2, -1])}

    def call(self, base, arguments, folder):
        data = _mesh_data()
        if base == "split":
            given = {
                n: v.item() if type(v) is np.ndarray and v.size == 1 else v
                for n, v in arguments.items()
            }
            return data.split(given["train"], seed=given["seed"])
        index = arguments["index"]
        return data[index] if base == "index" else data.select(index)

    def check(self, result, given):
        whole = {s.targets.numpy().tobytes() for s in _mesh_data()}
        samples = [result] if hasattr(result, "targets") else result
        parts = samples if isinstance(samples, tuple) else (samples,)
        found = [s.targets.numpy().tobytes() for part in parts for s in part]
        if not found or not set(found) <= whole:
            raise Lost("samples that are none of the data set's")
        if isinstance(result, tuple) and sorted(found) != sorted(whole):
            raise Lost("split: the parts do not add up to the whole")

    open_to_guises = False
    lenient = True  # generators and dictionaries of rows are rows


class Prediction(Door):
    """`predict` and `encode(...).at` of a fitted model."""

    name = "predict"
    weight = 3.0
    options = ("steps", "times", "interval")
    words = ("samples",)
    also = ("", "encode", "permute", "alone")

    def base(self, base):
        return bases.question(base)

    def call(self, base, arguments, folder):
        return bases.model(folder, base).predict(**arguments)

    def check(self, result, given):
        checks.answered(result, given)
        if given.values.get("interval") is not None:
            answer, low, high = (checks.numbers(part) for part in result)
            for a, b, c in zip(low, answer, high, strict=True):
                if not ((a <= b) & (b <= c)).all():
                    raise Lost("interval: an answer lies outside its bounds")

    def means_plain(self, base, given):
        # A list of arrays has one for each sample, an array (3, 4, 2) may be the nodes of a grid.
        return base != "grid" or not isinstance(given.values["points"], list | tuple)

    def same(self, result, plain):
        checks.alike(result, plain, "another answer to the plain form of the same arrays")

    def relate(self, also, base, given, result, folder):
        asked, fitted = given.values, bases.model(folder, base)
        if also == "encode":
            known = {n: asked[n] for n in ("points", "values", "parameters") if n in asked}
            rest = {n: v for n, v in asked.items() if n not in known}
            checks.alike(fitted.encode(**known).at(**rest), result, "encode(...).at")
        elif also == "permute" and given.calm and base in ("mesh", "channels", "timed"):
            order = np.random.default_rng(0).permutation(len(given.plain["points"]))
            moved = dict(given.plain, queries=given.plain.get("queries", given.plain["points"]))
            moved["points"] = moved["points"][order]
            moved["values"] = moved["values"][:, order]
            checks.alike(fitted.predict(**moved), result, "points in another order")
        elif also == "alone" and given.calm and base in ("channels", "uneven", "parameters"):
            shared = {"channels": ("points", "queries"), "parameters": ("queries",)}.get(base, ())
            one = {n: a if n in shared else a[1] for n, a in given.plain.items()}
            checks.alike(fitted.predict(**one), result[1], "a sample alone")


class Evaluation(Door):
    """`evaluate` and `calibrate` of a fitted model on other data."""

    name = "evaluate"
    words = ("samples", "data", "model", "time", "geographic")
    also = ("", "calibrate", "by hand")

    def base(self, base):
        return {n: a for n, a in bases.arrays(base).items() if n != "geographic"}

    def call(self, base, arguments, folder):
        return bases.model(folder, base).evaluate(self._data(base, arguments))

    def _data(self, base: str, arguments: dict[str, Any]) -> Any:
        import ipot

        return ipot.Dataset.from_arrays(**arguments, geographic=base == "globe")

    def check(self, result, given):
        scores = [result.relative_l2, *result.per_sample, *result.per_time, *result.per_channel]
        checks.finite(np.array([*scores, *result.rmse_per_time]), "a score")

    def same(self, result, plain):
        checks.alike(np.array(result.per_sample), np.array(plain.per_sample), "other scores")

    def relate(self, also, base, given, result, folder):
        from ipot.errors import DataError

        fitted = bases.model(folder, base)
        if also == "by hand" and given.known and "shape" not in given.families:
            asked = {n: given.plain[n] for n in bases.ASKED if n in given.plain}
            if "times" in given.changed:  # scores are those at the times of the data
                asked["times"] = given.plain["times"]
            checks.scored(result, fitted.predict(**asked), given.plain["targets"])
        if also != "calibrate":
            return
        before = fitted.bounds
        other_times = "times" in given.changed and _others(
            given.plain.get("times"), bases.arrays(base)["times"]
        )
        try:
            try:
                fitted.calibrate(self._data(base, given.values))
            except DataError as error:
                if other_times and "times" in str(error):
                    return  # scores are made at any times, bounds at those of training alone
                raise
            if other_times:
                raise Lost("calibrate: bounds were made at other times than those of training")
            asked = bases.question(base)
            answer, low, high = fitted.predict(**asked, interval=0.4)
            for part in (answer, low, high):
                checks.finite(part, "a bound")
            low, high = checks.numbers(low), checks.numbers(high)
            if not all((a <= b).all() for a, b in zip(low, high, strict=True)):
                raise Lost("calibrate: a lower bound lies above the upper one")
        finally:
            fitted.bounds = before


def _others(times: Any, known: np.ndarray) -> bool:
    """Whether these are known to be other times."""
    return times is not None and (times.shape != known.shape or not np.allclose(times, known))


class Run(Door):
    """`Surrogate.predict` of a run."""

    name = "surrogate"
    bases = ("darcy", "burgers", "navier_stokes")
    options = ("steps", "parameters", "rows", "fill", "precision")
    words = ("step", "steady")

    def base(self, base):
        spec = bases.surrogate(base).spec
        draw = np.random.default_rng(0)
        return {
            "points": draw.random((9, spec.dimension)),
            "values": draw.standard_normal((9, spec.channels)),
            "queries": draw.random((5, spec.query_dimension)),
        }

    def call(self, base, arguments, folder):
        few = {"steps": 2} if base == "navier_stokes" else {}
        return bases.surrogate(base).predict(**few | arguments)

    def check(self, result, given):
        checks.answered(result, given)

    def means_plain(self, base, given):
        # A list of arrays has one for each sample: rows of one coordinate are lists of places.
        return base != "burgers" or not isinstance(given.values["queries"], list | tuple)

    def same(self, result, plain):
        checks.alike(result, plain, "another answer to the plain form of the same arrays")


_DATA: list[Any] = []


def _mesh_data() -> Any:
    import ipot

    if not _DATA:
        _DATA.append(ipot.Dataset.from_arrays(**bases.arrays("mesh")))
    return _DATA[0]
