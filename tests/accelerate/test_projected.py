"""What a kernel reads is made once, and again when a weight has changed."""

import gc
import weakref
from copy import deepcopy

import pytest
import torch
from torch import nn

from ipot.accelerate import projected as ready
from ipot.accelerate.cpu import build
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.accelerate.shared_mesh import Split, lay
from ipot.nn.points import FourierFeatures

from .models import target


def made(calls):
    def make(*modules, dtype):
        calls.append(dtype)
        return object()

    return make


def test_prepared_once_for_as_long_as_no_weight_changes():
    calls, norm, linear = [], nn.LayerNorm(3), nn.Linear(3, 2)
    first = ready._prepared(made(calls), norm, linear)
    assert ready._prepared(made(calls), norm, linear) is first
    assert len(calls) == 1


def test_any_change_of_a_weight_is_seen():
    calls, norm, linear = [], nn.LayerNorm(3), nn.Linear(3, 2)
    optimizer = torch.optim.SGD([*norm.parameters(), *linear.parameters()], lr=0.1)

    def step():
        linear(norm(torch.ones(1, 3))).sum().backward()
        optimizer.step()

    changes = (
        step,
        lambda: norm.load_state_dict({k: v + 1 for k, v in norm.state_dict().items()}),
        lambda: linear.to(torch.float64),
        # As a captured step does it, which torch does not see by itself.
        lambda: torch.autograd.graph.increment_version(list(linear.parameters())),
    )
    for number, change in enumerate(changes, 1):
        ready._prepared(made(calls), norm, linear)
        assert len(calls) == number
        change()
    ready._prepared(made(calls), norm, linear)
    assert len(calls) == len(changes) + 1


def test_weights_that_do_not_tell_are_prepared_every_time():
    with torch.inference_mode():
        norm, linear = nn.LayerNorm(3), nn.Linear(3, 2)
    calls = []
    for _ in range(2):
        ready._prepared(made(calls), norm, linear)
    assert len(calls) == 2


def test_buffers_count_as_weights():
    calls, norm, linear = [], nn.BatchNorm1d(3), nn.Linear(3, 2)
    ready._prepared(made(calls), norm, linear)
    norm.running_mean.add_(1)
    ready._prepared(made(calls), norm, linear)
    assert len(calls) == 2


def test_other_weights_with_the_same_version_are_seen():
    calls, linear = [], nn.Linear(3, 2)
    for _ in range(2):
        before = linear.weight  # which must live, or another one may lie in its place
        linear.weight = nn.Parameter(torch.zeros(2, 3))
        ready._prepared(made(calls), linear)
        del before
    assert len(calls) == 2


def test_layers_are_not_kept_alive():
    linear = nn.Linear(3, 2)
    ready._prepared(made([]), linear)
    left = weakref.ref(linear)
    del linear
    gc.collect()
    assert left() is None


ANSWERS = target(training=False)
needs_library = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")


def layers(channels, columns=12, *, bias=False):
    torch.manual_seed(0)
    position = FourierFeatures((9, 7), (16.0, 12.0), domain=((0.0, 1.0), (-1.0, 3.0)))
    norm = nn.LayerNorm(position.width + channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return position, norm, nn.Linear(position.width + channels, columns, bias=bias)


def exactly(position, norm, linear, points, values):
    """The layers one by one, in float64."""
    position, norm, linear = (deepcopy(m).double() for m in (position, norm, linear))
    tokens = position(points.double())
    if values is not None:
        tokens = torch.cat([tokens.expand(len(values), -1, -1), values.double()], -1)
    return linear(norm(tokens))


@needs_library
@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [0, 2])
def test_points_are_projected_in_one_pass(channels, bias):
    position, norm, linear = layers(channels, bias=bias)
    points = torch.rand(3, 70, 2)
    values = 0.01 * torch.randn(3, 70, channels) if channels else None
    norm.eps = 0.1
    found = ready.project_points(ANSWERS, position, None, norm, linear, points, values)
    assert found.tokens is None
    wanted = exactly(position, norm, linear, points, values)
    assert (found.projected - wanted).abs().max() < 2e-5 * wanted.abs().max()


@needs_library
@torch.no_grad()
def test_a_mesh_is_laid_as_its_tokens_are():
    position, norm, linear = layers(2)
    points, values = torch.rand(1, 70, 2), torch.randn(3, 70, 2)
    found = ready.project_mesh(ANSWERS, position, None, norm, linear, points, values)
    wanted = lay(Split(position(points), values), norm, linear)
    assert found.value is values
    torch.testing.assert_close(found.products, wanted.products, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.sums, wanted.sums, rtol=1e-5, atol=1e-4)


WHYS = (
    *("gradients", "compiling", "another path", "autocast to float16", "no library", "lift"),
    *("points in float64", "values in float64", "weights in float64", "positions in float64"),
    *("norm in float64", "hook of the positions", "wide values", "for training"),
)


@needs_library
@pytest.mark.parametrize("call", [ready.project_points, ready.project_mesh])
@pytest.mark.parametrize("why", [None, *WHYS])
def test_elsewhere_nothing_is_ready(monkeypatch, why, call):
    channels = 40 if why == "wide values" else 2
    position, norm, linear = layers(channels)
    points, values = torch.rand(1, 70, 2), torch.randn(3, 70, channels)
    if call is ready.project_points:
        points = points.expand(3, -1, -1)
    lift = nn.Linear(1, 1) if why == "lift" else None
    if why == "compiling":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    if why == "no library":
        monkeypatch.setattr(build, "_tried", lambda: (None, "left out by a test"))
    if why == "points in float64":
        points = points.double()
    if why == "values in float64":
        values = values.double()
    if why == "weights in float64":
        linear.double()
    if why == "norm in float64":
        norm.double()
    if why == "hook of the positions":
        position.register_forward_hook(lambda *given: None)
    if why == "positions in float64":
        position.double()
    path = "fused" if why == "another path" else "auto"
    with (
        torch.set_grad_enabled(why == "gradients"),
        torch.autocast("cpu", torch.float16, enabled=why == "autocast to float16"),
    ):
        to = target(path, training=why == "for training")
        found = call(to, position, lift, norm, linear, points, values)
    assert (found is None) == (why is not None)


@needs_library
@torch.no_grad()
def test_samples_that_share_points_and_samples_that_do_not():
    position, norm, linear = layers(2)
    points, values = torch.rand(3, 70, 2), torch.randn(3, 70, 2)
    given = ANSWERS, position, None, norm, linear
    assert ready.project_points(*given, points[:1], values) is None
    assert ready.project_mesh(*given, points, values) is None
    # One sample alone has no one to share with.
    assert ready.project_mesh(*given, points[:1], values[:1]) is None
    assert ready.project_points(*given, points[:1], values[:1]) is not None
