"""The shapes of a model's tensors, found before memory is taken for them.

A file of settings is a few bytes, and what it asks for may be anything. A model is therefore first
built without memory (on torch's device `meta`), and stopped as soon as it has more tensors than it
may; the result is compared with a file of weights, or with the free memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ipot import registry
from ipot.data.statistics import Statistics
from ipot.errors import IpotError, RunError, Unsupported
from ipot.memory import free_memory, in_words
from ipot.models._blend import beside_simple
from ipot.models._wrappers import seen_spec, wrap, wrap_globe
from ipot.models.base import Operator
from ipot.spec import Spec

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Shape and number type of every tensor, by its name."""

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
SMALL = 4096
"""Whole numbers in settings up to here are believed whatever the file of weights says."""
LARGEST_SIDE = 1 << 24
"""No size among the settings of a model that is trained may be larger."""
MOST_TENSORS = 20_000
"""Nor may it have more tensors: building them takes time, whatever memory there is."""


def shapes_of(tensors: dict[str, Tensor]) -> Shapes:
    """The shapes and types of tensors."""
    return {n: (tuple(t.shape), KINDS.get(t.dtype, str(t.dtype))) for n, t in tensors.items()}


def wanted_shapes(name: str, config: Any, spec: Spec, found: Shapes, where: Path | str) -> Shapes:
    """The tensors that a model has, found out without memory for them.

    Settings that make a model much larger than what was `found` are refused before the model is
    built, however large: a file of settings is a few bytes, and what it asks for may be anything.
    """
    largest = max((max(shape, default=1) for shape, _ in found.values()), default=1)
    refuse_large(vars(config), max(SMALL, largest), f"{where}: model")
    try:
        with _at_most(2 * len(found) + 64):
            model = built(name, config, spec, where, device="meta")
    except _TooLarge as error:
        raise RunError(
            f"{where}: these settings make a model of more tensors than the {len(found)} that are "
            "in the file of weights. Put the settings back that it was saved with."
        ) from error
    return shapes_of(model.state_dict())


def built(
    name: str, config: Any, spec: Spec, where: Path | str, device: torch.device | str = "cpu"
) -> Operator:
    """A model whose weights are still to be loaded."""
    sizes = (spec.channels, len(spec.outputs), len(spec.parameters))
    try:
        with torch.random.fork_rng(devices=[]):
            seen = seen_spec(spec)  # computed from numbers, that a device without any has not
            with torch.device(device):
                inner = registry.find("models", name)(config, seen)
            scaled = wrap(inner, Statistics.identity(*sizes))
            with torch.device(device):
                whole = beside_simple(scaled)
            return wrap_globe(whole, spec)
    except _TooLarge:
        raise
    except IpotError as error:
        raise RunError(f"{where}: {error}") from error
    except Exception as error:  # constructors have many ways to say that sizes do not fit
        raise RunError(
            f"{where}: the settings of {name} do not fit ({str(error) or type(error).__name__}). "
            "Put back those that it was saved with."
        ) from error


def of_prefix(prefix: str, found: Shapes) -> Shapes:
    """The tensors that a file keeps under a prefix; all of them where there is none."""
    if not prefix:
        return found
    start = f"{prefix}/"
    return {n.removeprefix(start): s for n, s in found.items() if n.startswith(start)}


def refuse_beyond_memory(name: str, config: Any, spec: Spec) -> None:
    """Refuse settings of a new model whose weights do not fit into memory."""
    for setting, value in vars(config).items():
        values = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(v, int) and abs(v) > LARGEST_SIDE for v in values):
            raise RunError(f"model.{setting} is {value}: {LARGEST_SIDE} is the most. Choose less.")
    seen = seen_spec(spec)  # computed from numbers, that a device without any has not
    try:
        with torch.device("meta"), _at_most(MOST_TENSORS):
            model = registry.find("models", name)(config, seen)
    except _TooLarge as error:
        raise RunError(
            f"the settings of {name} make a model of more than {MOST_TENSORS} tensors. Choose "
            "fewer blocks or layers."
        ) from error
    except Unsupported:
        raise
    except Exception:
        if "." in name:  # somebody's own model may need numbers to be built with
            return
        raise
    refuse_tensors(model, f"the weights of {name}", 1)


def refuse_tensors(model: nn.Module, what: str, copies: int) -> None:
    """Refuse tensors of which `copies` do not fit into the free memory."""
    tensors = (*model.parameters(), *model.buffers())
    needed = copies * sum(t.numel() * t.element_size() for t in tensors)
    free = free_memory()
    if free is not None and needed > free:
        raise RunError(
            f"{what} take {in_words(needed)} of memory, and {in_words(free)} are free. Choose a "
            "smaller model (width, blocks, latents), or a machine with more memory."
        )


def refuse_unlike(found: Shapes, wanted: Shapes, where: Path | str) -> None:
    """Refuse weights that lack a tensor of the model, or have another, and name some of them."""
    both = [n for n in wanted if n in found]
    parts = []
    for label, names in (
        ("missing", sorted(set(wanted) - set(found))),
        ("unknown", sorted(set(found) - set(wanted))),
        ("other shape or type", [n for n in both if found[n] != wanted[n]]),
    ):
        if names:
            parts.append(f"{label}: {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}")
    if parts:
        raise RunError(
            f"the weights in {where} do not fit its settings ({'; '.join(parts)}). Both files must "
            "be of one model: copy or download the folder again."
        )


def refuse_large(settings: Any, most: int, where: str) -> None:
    """Refuse whole numbers that are too large to be sizes of a model with these tensors."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            refuse_large(value, most, f"{where}.{name}")
    elif isinstance(settings, list | tuple):
        for value in settings:
            refuse_large(value, most, where)
    elif isinstance(settings, int) and abs(settings) > most:
        raise RunError(
            f"{where} is {settings}, and no tensor of its weights is larger than {most} along any "
            "side: put the number back that it was saved with"
        )


class _TooLarge(Exception):
    """A model asks for more parameters than it may have."""


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Stop building modules in this thread once they have more than `count` parameters."""
    seen, here = 0, threading.get_ident()

    def one_more(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal seen
        if threading.get_ident() == here:
            seen += 1
            if seen > count:
                raise _TooLarge

    handle = register_module_parameter_registration_hook(one_more)
    try:
        yield
    finally:
        handle.remove()
