"""Doors for samples, labelled arrays, tables, scores, and for training itself."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from campaign.attack import Lost
from campaign.attacks import _array_bases as bases
from campaign.attacks import _array_checks as checks
from campaign.attacks._array_cases import LARGE
from campaign.attacks._array_doors import Door


class Samples(Door):
    """`ipot.Sample`, `collate`, `Batch` and `Dataset.from_samples`."""

    name = "samples"
    bases = ("plain", "timed")
    options = ("times", "index")
    words = ("N", "sample", "samples", "batch", "channels", "times")
    also = ("", "batch")
    open_to_guises = False

    def base(self, base):
        draw = np.random.default_rng(0)
        return {
            "points": draw.random((5, 2)),
            "values": draw.standard_normal((5, 1)),
            "queries": draw.random((4, 2)),
            "parameters": draw.random(2),
            "weights": 0.5 + draw.random(4),
            "edges": np.array([[0, 1, 2], [1, 2, 4]]),
            "targets": draw.standard_normal((3, 4, 2))[: 3 if base == "timed" else 1],
        }

    def _sample(self, base: str, arguments: dict[str, Any]) -> Any:
        import ipot

        given = {n: _tensor(n, a) for n, a in arguments.items()}
        return ipot.Sample(**{"times": (1.0, 2.0, 3.0) if base == "timed" else (1.0,)} | given)

    def call(self, base, arguments, folder):
        import ipot
        from ipot.samples import collate

        one, other = self._sample(base, arguments), self._sample(base, self.base(base))
        batch = collate([one, other])
        data = ipot.Dataset.from_samples([one, other])
        return data, batch

    def check(self, result, given):
        data, batch = result
        for name in ("points", "values", "queries", "targets", "parameters"):
            checks.finite(getattr(data[0], name).detach().numpy(), f"what is held of {name}")
        if given.known and batch.size != 2:
            raise Lost(f"two samples became {batch.size}")
        if given.known and "guise" not in given.families:
            other = self.base("timed" if len(data[0].times) > 1 else "plain")
            own = {n: [a, other[n]] for n, a in given.plain.items() if n != "edges"}
            checks.holds(data, replace(given, plain=own))

    def relate(self, also, base, given, result, folder):
        _, batch = result
        if also != "batch" or batch.edges is not None:
            return
        again = batch.take(torch.tensor([1, 0]))
        if not again.values.equal(batch.values.flip(0)):
            raise Lost("take: other rows than those that were asked for")


def _tensor(name: str, a: Any) -> Any:
    """A plain array as the tensor that a sample takes."""
    if type(a) is not np.ndarray or a.dtype not in (np.float64, np.int64) or a.size > LARGE:
        return a
    found = torch.tensor(np.ascontiguousarray(a))
    return found if name == "edges" else found.float() if name == "weights" else found


class Labelled(Door):
    """Windows of an xarray object, and `predict` with one."""

    name = "labelled"
    bases = ("windows", "predict")
    options = ("history", "lead", "every", "stride", "season", "memory", "max_samples")
    words = ("t", "inputs", "targets", "source", "frames", "coordinate", "dimension")

    def base(self, base):
        return bases.series()

    def call(self, base, arguments, folder):
        parts = {n: arguments[n] for n in ("field", "lat", "lon", "time")}
        try:
            source = bases.labelled(parts)
        except Exception:
            return None  # xarray itself does not take it
        if base == "predict":
            return bases.model(folder, "series").predict(source)
        from ipot.formats.series.samples import from_xarray

        told = {"history": 2, "lead": 1} | {n: v for n, v in arguments.items() if n not in parts}
        return from_xarray(source, inputs="t", targets="t", **told)[0]

    def check(self, result, given):
        if result is None:
            return
        if hasattr(result, "dims"):
            checks.finite(result, "the answer")
            return
        for sample in result:
            checks.finite(sample.targets.numpy(), "what is held of targets")
        field = given.plain.get("field")
        if given.known and {"field"} == given.changed and np.isfinite(field).all():
            frames = field.reshape(len(field), -1, 1)
            told = {"targets": frames[2:], "values": np.stack([frames[:-2], frames[1:-1]], -1)}
            told["values"] = told["values"].reshape(len(field) - 2, -1, 2)
            # All frames of a variable are in its units, whichever channel they are.
            checks.holds(result, replace(given, plain=told, values=told), among=field)

    def takes(self, argument, value):
        # xarray makes NaN of what is masked, and NaN are missing values.
        return argument == "field" and isinstance(value, np.ma.MaskedArray)

    def same(self, result, plain):
        if result is not None and plain is not None and hasattr(result, "dims"):
            checks.alike(result, plain, "another answer to the plain form of the same arrays")


class Table(Door):
    """A case written as a table of text and read back."""

    name = "table"
    weight = 0.5
    bases = ("csv", "tsv", "npz")
    words = ("field", "fields", "column", "u", "a", "case", "row", "line")
    open_to_guises = False

    def base(self, base):
        whole = bases.arrays("mesh")
        return {"points": whole["points"], "a": whole["values"][0], "u": whole["targets"][0]}

    def call(self, base, arguments, folder):
        from ipot.formats import Case, read_cases, write_case

        if not all(type(a) is np.ndarray for a in arguments.values()):
            return None  # a case is made by readers, of arrays
        fields = {n: arguments[n] for n in ("a", "u")}
        # The folder is shared: other workers write tables there at the same time.
        with tempfile.TemporaryDirectory(dir=folder) as own:
            file = Path(own) / f"case.{base}"
            write_case(file, Case(points=arguments["points"], fields=fields))
            return read_cases(file)[0]

    def check(self, result, given):
        if result is None:
            return
        found = {"points": result.points, **result.fields}
        for name, value in given.values.items():
            if name not in found:
                raise Lost(f"{name} was written and is not there, only {', '.join(found)}")
            have = np.asarray(found[name])
            if have.size != value.size or not np.array_equal(
                have.astype(value.dtype).ravel(), value.ravel(), equal_nan=value.dtype.kind == "f"
            ):
                raise Lost(f"{name} was written and read back as other numbers")


class Score(Door):
    """Scores of predictions, beside the formula in float64."""

    lenient = True

    name = "score"
    weight = 0.5
    bases = ("one", "many")
    open_to_guises = False

    def base(self, base):
        draw = np.random.default_rng(0)
        shape = (1, 1, 5, 1) if base == "one" else (3, 2, 5, 2)
        return {"prediction": draw.standard_normal(shape), "target": draw.standard_normal(shape)}

    def call(self, base, arguments, folder):
        from ipot.evaluation.evaluate import score

        pair = [_scorable(a) for a in arguments.values()]
        if any(p is None for p in pair) or pair[0].shape != pair[1].shape:
            return None  # a model has no such answers
        return score([(pair[0], pair[1], None, None)]), pair

    def check(self, result, given):
        if result is None:
            return
        from ipot.evaluation.metrics import LARGEST

        scores, pair = result
        # Longer than float64, which has no squares of what is tiny or huge.
        p, t = (x.detach().double().numpy().astype(np.longdouble) for x in pair)
        if not (np.isfinite(p).all() and np.isfinite(t).all()):
            return
        error, norm = (np.sqrt((x**2).sum((1, 2, 3))) for x in (p - t, t))
        wanted = np.minimum(error / np.where(norm > 0, norm, 1), LARGEST).astype(np.float64)
        found = np.array(scores.per_sample)
        if not np.allclose(found, wanted, rtol=1e-6, atol=1e-150):
            raise Lost(f"the relative error is {wanted}, and {found} is said")


def _scorable(a: Any) -> Any:
    """What a model might answer as a tensor; None for anything else."""
    if type(a) is np.ndarray and a.dtype.kind in "fiub" and a.size <= LARGE:
        with np.errstate(all="ignore"):
            a = torch.tensor(a.astype(np.float32))
    if not isinstance(a, torch.Tensor) or a.is_nested or a.is_meta or a.is_quantized:
        return None
    if a.is_complex():
        return None
    return a if a.layout == torch.strided and a.ndim == 4 and 0 < a.numel() <= LARGE else None


class Training(Door):
    """`ipot.fit` for an epoch, and what the model then answers."""

    name = "fit"
    options = bases.FACTS
    words = ("samples", "mesh", "data", "step")

    def base(self, base):
        return bases.arrays(base)

    def call(self, base, arguments, folder):
        import ipot

        data = ipot.Dataset.from_arrays(**arguments)
        fitted = bases.fitted(data)
        known = {
            n: arguments[n]
            for n in ("points", "values", "queries", "parameters")
            if arguments.get(n) is not None
        }
        return fitted, fitted.predict(**known), data

    def check(self, result, given):
        fitted, answer, data = result
        checks.finite(answer, "the answer")
        checks.finite(np.array([fitted.scores["validation"]], np.float64), "the score")
        checks.holds(data, given)
        targets = given.plain.get("targets")
        if targets is None or isinstance(targets, list) or not given.known:
            return
        answers = checks.numbers(answer)
        found = np.concatenate([a.ravel() for a in answers]).astype(np.float64)
        # Places with the axes of a grid are answered with these, whatever axes the targets had.
        places = given.plain.get("queries", given.plain.get("points"))
        # Samples that have nothing of their own are one question; places of one sample, with the
        # axis of samples in front, are those of all.
        by_sample = places.ndim > 2 and len(places) == len(targets)
        own = "values" in given.plain or "parameters" in given.plain or by_sample
        wanted = targets if own else targets[0]
        size, shape = answers[0].size, answers[0].shape
        if len(answers) == 1 and (
            size != wanted.size or (places.ndim == 2 and shape != wanted.shape)
        ):
            raise Lost(f"targets are {wanted.shape}, the answer is {shape}")
        middle, spread = np.mean(targets / 4) * 4, np.ptp(targets / 4) * 4
        if spread <= 1e-12 * np.abs(middle):
            return  # constant: nothing says how far off an epoch may leave it
        if np.isfinite(spread) and np.abs(found - middle).max() > 1000 * spread:
            raise Lost(
                f"targets vary by {spread:.3g} about {middle:.6g}, and answers are "
                f"{found.min():.6g} to {found.max():.6g}"
            )
