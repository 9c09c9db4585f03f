"""What would make a GPU wait for the host, or the host for a GPU, made an error on the CPU."""

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SIZES_FROM_VALUES = (
    aten._local_scalar_dense,
    aten.equal,
    aten.masked_select,
    aten.nonzero,
    aten.repeat_interleave,
    aten._unique2,
)
"""Their results, or the sizes of these, have to be fetched from the device."""
BY_PYTHON = ("cpu", "item", "numpy", "tolist", "__bool__", "__int__", "__float__", "__index__")


class Waited(Exception):
    """Somebody would have waited."""


class Watch(TorchDispatchMode):
    """Refuses operations that wait, wherever they are called from; backward passes too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kind = func.overloadpacket
        if kind in SIZES_FROM_VALUES and func is not aten.repeat_interleave.self_int:
            raise Waited(str(func))
        if kind is aten.lift_fresh and args[0].ndim:  # a number alone may be only written somewhere
            raise Waited("a tensor made from numbers of the host")
        if kind in (aten.index, aten.index_put, aten.index_put_):
            masks = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            if masks:
                raise Waited("a mask as an index")
        return func(*args, **kwargs or {})


@contextmanager
def nothing_waits(*, watch=True):
    """Raise `Waited` where a step on a GPU would wait. Compiled code runs without the watch, which
    would make it fall back to eager; what Python asks of a tensor is refused there as well."""

    def refuse(name):
        def method(self, *args, **kwargs):
            raise Waited(f"Tensor.{name}")

        return method

    with pytest.MonkeyPatch.context() as patch:
        for name in BY_PYTHON:
            patch.setattr(Tensor, name, refuse(name))
        if not watch:
            yield
            return
        with Watch():
            yield
