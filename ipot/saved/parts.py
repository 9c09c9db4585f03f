"""A model as graphs of its parts: inputs are encoded once, a step in time is one graph whatever the
number of steps, and queries are answered in pieces.

    encode    points, values, parameters -> state; with its one step where the model is steady
    step      state -> state, one `dt` later; where there are several
    decode    state, queries -> fields (B, M, K)

A state is one tensor or several. One graph of the whole would hold every step anew (forty of
Navier-Stokes), and would encode again for every piece of the queries. A model without such parts is
one graph, as `ipot export` writes it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ipot.errors import RunError
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.saved.compact import compact
from ipot.saved.export import difference
from ipot.saved.graph import Plain, Signature, batch_of, refuse_structure, trace, traced
from ipot.saved.graph_files import (
    OUTPUT,
    Answer,
    quiet,
    refuse_large,
    run_onnx,
    write_graph,
    write_onnx,
)
from ipot.spec import Spec

WHOLE, ENCODE, STEP, DECODE = "whole", "encode", "step", "decode"
SIZES = ({"batch": 2, "points": 5, "queries": 7}, {"batch": 3, "points": 11, "queries": 7})
"""Two questions: an axis of the state that differs between them is open."""
ASKED = {"batch": 1, "points": 300, "queries": 300}
"""The largest question that the graphs are compared with their model at, beside one point."""
COMBINATIONS = 3


@dataclass(frozen=True)
class Parts:
    """What was written: how to call the graphs, and how far they are from the model."""

    files: dict[str, Path]
    """The graphs by what they do."""
    inputs: dict[str, int]
    """Columns of every tensor that is given."""
    states: tuple[str, ...]
    difference: float


class Encode(nn.Module):
    """From inputs to the tensors of a state."""

    def __init__(self, model: LatentOperator, spec: Spec, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.spec, self.names = model, spec, names

    def latent(self, *given: Tensor) -> Latent:
        """The state at time zero; of a steady model that of its answer."""
        named = dict(zip(self.names, given, strict=True))
        # Encoders do not look at queries; a batch has some.
        named["queries"] = given[0].new_zeros(given[0].shape[0], 1, self.spec.query_dimension)
        latent = self.model.encode(batch_of(named, self.spec, (self.spec.dt,)))
        return self.model.step(latent) if self.spec.steps == 1 else latent

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the state."""
        return _tensors(self.latent(*given))


class Step(nn.Module):
    """From a state to the next."""

    def __init__(self, model: LatentOperator, like: Latent) -> None:
        super().__init__()
        self.model, self.like = model, _Like(like)

    def forward(self, *state: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the state one step later."""
        return _tensors(self.model.step(self.like.filled(state)))


class Decode(nn.Module):
    """From a state and queries to fields."""

    def __init__(self, model: LatentOperator, like: Latent) -> None:
        super().__init__()
        self.model, self.like = model, _Like(like)

    def forward(self, *given: Tensor) -> Tensor:
        """The fields (B, M, K)."""
        return self.model.decode(self.like.filled(given[:-1]), given[-1])


class _Like:
    """A state without its tensors."""

    def __init__(self, latent: Latent) -> None:
        leaves, self.structure = pytree.tree_flatten(latent)
        self.rest = tuple(None if isinstance(x, Tensor) else x for x in leaves)
        self.held = tuple(isinstance(x, Tensor) for x in leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Like) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[Any, ...]:
        return self.structure, self.rest, self.held

    def filled(self, tensors: tuple[Tensor, ...]) -> Latent:
        """The state with these tensors."""
        each = iter(tensors)
        leaves = [
            next(each) if held else rest for held, rest in zip(self.held, self.rest, strict=True)
        ]
        return cast(Latent, pytree.tree_unflatten(leaves, self.structure))


def _tensors(latent: Latent) -> tuple[Tensor, ...]:
    # A graph must not give out what it was given: ONNX has one name for both.
    return tuple(x.clone() for x in pytree.tree_leaves(latent) if isinstance(x, Tensor))


def write_parts(
    model: Operator,
    spec: Spec,
    folder: Path,
    *,
    points: bool | None = None,
    tolerance: float = 1e-5,
    rounded: float | None = None,
) -> Parts:
    """Write the graphs of a model into a folder, and compare them with it.

    Weights that half precision holds are written in it. With `rounded` the others have 16 bits too,
    unless the answers differ by more than that. Refused where the largest difference at a few
    sizes, of any channel relative to the largest number in it, is more than the tolerance.
    """
    refuse_structure(model)
    refuse_large(model)
    signature = Signature(spec, points)
    # Without gradients the graph takes less work to make, and its answers are plain numbers.
    model = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)
    with quiet():
        plan = _plan(model, spec, signature)
        if plan is None:
            files, states = _write_whole(model, spec, signature, folder), ()
        else:
            files, states = _write_parts(plan, spec, signature, folder)

    def compared(files: dict[str, Path]) -> float:
        with quiet():
            answer = read_parts(files, spec, states)
        return difference(answer, model, spec, signature, combinations=COMBINATIONS, largest=ASKED)

    if rounded is not None:
        few = {part: path.with_name(f"{part}.few.onnx") for part, path in files.items()}
        lost = [compact(path, few[part], rounded=True) for part, path in files.items()]
        if any(lost) and (gap := compared(few)) <= rounded:
            for part, path in few.items():
                path.replace(files[part])
            return Parts(files, dict(signature.columns), states, gap)
        for path in few.values():
            path.unlink()
    for path in files.values():
        compact(path, path, rounded=False)
    gap = compared(files)
    if not gap <= tolerance:
        raise RunError(
            f"{model.name} cannot be exported: its graph differs from it by {gap:.2e}, relative to "
            f"the largest number of the channel, and at most {tolerance:.0e} is allowed"
        )
    return Parts(files, dict(signature.columns), states, gap)


@dataclass(frozen=True)
class _Plan:
    """The parts of a model with examples of their tensors."""

    model: LatentOperator
    encode: Encode
    given: tuple[Tensor, ...]
    state: Latent
    axes: list[tuple[str | None, ...]]


def _plan(model: Operator, spec: Spec, signature: Signature) -> _Plan | None:
    """How a model comes apart; None where it does not, or where a state has sizes that follow
    neither the batch nor the points."""
    if not isinstance(model, LatentOperator):
        return None
    names = tuple(name for name in signature.columns if name != "queries")
    encode = Encode(model, spec, names)
    given = [tuple(torch.rand(signature.shape(n, sizes)) for n in names) for sizes in SIZES]
    with torch.no_grad():
        one, two = (encode.latent(*some) for some in given)
        if spec.steps > 1 and _Like(model.step(one)) != _Like(one):
            return None  # it counts its steps, which a graph of one step cannot
    axes = []
    for a, b in zip(_tensors(one), _tensors(two), strict=True):
        found: list[str | None] = []
        for pair in zip(a.shape, b.shape, strict=True):
            open_ = {(s["batch"], t["batch"]): "batch" for s, t in (SIZES,)}
            open_ |= {(s["points"], t["points"]): "points" for s, t in (SIZES,)}
            if pair[0] != pair[1] and pair not in open_:
                return None
            found.append(open_.get(pair))
        axes.append(tuple(found))
    return _Plan(model, encode, given[0], one, axes)


def _write_parts(
    plan: _Plan, spec: Spec, signature: Signature, folder: Path
) -> tuple[dict[str, Path], tuple[str, ...]]:
    state = _tensors(plan.state)
    states = tuple(f"state {i}" for i in range(len(state)))
    given = {name: signature.axes(name) for name in plan.encode.names}
    held = dict(zip(states, plan.axes, strict=True))
    asked = torch.rand(signature.shape("queries", SIZES[0]))
    parts: dict[str, tuple[nn.Module, tuple[Tensor, ...], Mapping[str, Any], tuple[str, ...]]] = {
        ENCODE: (plan.encode, plan.given, given, states),
        DECODE: (
            Decode(plan.model, plan.state),
            (*state, asked),
            held | {"queries": signature.axes("queries")},
            (OUTPUT,),
        ),
    }
    if spec.steps > 1:
        after = tuple(f"next {name}" for name in states)
        parts[STEP] = (Step(plan.model, plan.state), state, held, after)
    files = {}
    for part, (function, example, axes, outputs) in parts.items():
        files[part] = folder / f"{part}.onnx"
        program = traced(function, example, list(axes.values()))
        write_graph(program, axes, outputs, files[part])
    return files, states


def _write_whole(
    model: Operator, spec: Spec, signature: Signature, folder: Path
) -> dict[str, Path]:
    path = folder / f"{WHOLE}.onnx"
    write_onnx(trace(Plain(model, spec, signature), signature), signature, path)
    return {WHOLE: path}


def read_parts(files: Mapping[str, Path], spec: Spec, states: tuple[str, ...]) -> Answer:
    """The graphs in files as one function of inputs, asked as a page does."""
    run = {part: run_onnx(path) for part, path in files.items()}
    if WHOLE in run:
        return lambda given: run[WHOLE](given)[0]

    def answer(given: dict[str, Tensor]) -> Tensor:
        others = {name: tensor for name, tensor in given.items() if name != "queries"}
        state = dict(zip(states, run[ENCODE](others), strict=True))
        fields = []
        for _ in range(spec.steps):
            if spec.steps > 1:
                state = dict(zip(states, run[STEP](state), strict=True))
            fields += run[DECODE](state | {"queries": given["queries"]})
        return torch.stack(fields, 1)

    return answer
