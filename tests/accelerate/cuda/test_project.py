"""One kernel equals features, LayerNorm and projections; interpreted where there is no GPU."""

import copy
import math

import pytest
import torch
from torch import nn

from ipot.accelerate import cuda as kernels
from ipot.accelerate.shared_mesh import Split, project
from ipot.nn.mlp import Precise
from ipot.nn.points import FourierFeatures, Lift

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter knows no products in bf16.
HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float16


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def kernel():
    from ipot.accelerate.cuda import project

    return project


POSITIONS = {
    "plane": lambda: FourierFeatures((8, 8), (16.0, 16.0), domain=((0.0, 1.0), (-1.0, 2.0))),
    "raw line": lambda: FourierFeatures((5,), (9.0,)),
    "high": lambda: FourierFeatures((64, 32), (64.0, 128.0), domain=((0.0, 0.7), (0.0, 3.0))),
    "torus": lambda: FourierFeatures(
        (7, 5), (8.0, 8.0), domain=((0.0, 1.0), (0.0, 3.0)), periods=(1.0, 3.0)
    ),
    "globe": lambda: FourierFeatures(
        (6, 9), (8.0, 8.0), domain=((-90.0, 90.0), (0.0, 359.0)), periods=(None, 360.0)
    ),
    "four axes": lambda: FourierFeatures((3, 2, 4, 1), (6.0, 3.0, 8.0, 2.0)),
}


def random_layers(*layers):
    """Weights at random everywhere, since a LayerNorm starts with ones and zeros."""
    for layer in layers:
        for parameter in layer.parameters():
            if parameter.ndim == 1:
                nn.init.normal_(parameter, std=0.5)
        layer.to(DEVICE)


def places(position, *shape):
    """Coordinates all over the domain and somewhat beyond it."""
    x = 2.2 * torch.rand(*shape, len(position.centre), device=DEVICE) - 1.1
    return x * position.radius + position.centre


def setting(name, channels, out, bias=False, seed=0):
    torch.manual_seed(seed)
    position = POSITIONS[name]().to(DEVICE)
    norm = nn.LayerNorm(position.width + channels)
    linear = nn.Linear(position.width + channels, out, bias=bias)
    random_layers(norm, linear)
    return position, norm, linear


def double(module):
    return copy.deepcopy(module).double()


def by_the_book(position, norm, linear, points, values):
    """linear(norm([features, values])) in float64."""
    features = double(position)(points.double())
    features = features if features.ndim == 3 else features.unsqueeze(0)
    if values is not None:
        features = Split(features.expand(len(values), -1, -1), values.double()).joined()
    return double(linear)(double(norm)(features))


def lifted_by_the_book(position, lift, norm, linear, points, values):
    features = double(position)(points.double())
    features = features if features.ndim == 3 else features.unsqueeze(0)
    token = double(lift)(features, None if values is None else values.double())
    return token, double(linear)(double(norm)(token))


def error(found, exact):
    """The largest, by the size of the whole."""
    assert found.shape == exact.shape
    return ((found - exact).abs().max() / exact.abs().max()).item()


TOKENS = {  # position, samples, points, values, projections
    "one sample": ("plane", 1, 150, 1, 48),
    "a shared mesh": ("plane", 3, 70, 2, 64),
    "a line": ("raw line", 2, 33, 1, 7),
    "many columns": ("globe", 2, 40, 3, 200),
    "many values": ("raw line", 2, 50, 40, 20),
    "four axes": ("four axes", 1, 97, 2, 30),
    "periods alone": ("torus", 2, 65, 1, 32),
    "one point": ("plane", 2, 1, 1, 16),
}


@pytest.mark.parametrize("sizes", TOKENS.values(), ids=TOKENS.keys())
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_projections_equal_features_norm_and_linear(kernel, sizes, bias):
    name, b, n, c, p = sizes
    position, norm, linear = setting(name, c, p, bias)
    points, values = places(position, n), torch.randn(b, n, c, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    assert found.dtype == torch.float32
    assert error(found, by_the_book(position, norm, linear, points, values)) < 3e-6


@pytest.mark.parametrize("name", ["plane", "torus", "globe"])
def test_queries_are_projections_without_values(kernel, name):
    position, norm, linear = setting(name, 0, 24)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    for shape in ((83,), (1, 83), (3, 29)):
        points = places(position, *shape)
        found = kernel.project_tokens(points, None, weights)
        assert error(found, by_the_book(position, norm, linear, points, None)) < 3e-6


def test_each_sample_may_have_a_mesh_of_its_own(kernel):
    position, norm, linear = setting("globe", 2, 24)
    points, values = places(position, 3, 41), torch.randn(3, 41, 2, device=DEVICE)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    found = kernel.project_tokens(points, values, weights)
    assert error(found, by_the_book(position, norm, linear, points, values)) < 3e-6
    same = kernel.project_tokens(points[:1], values, weights)
    torch.testing.assert_close(same[0], found[0])


def test_it_equals_the_version_that_it_stands_for(kernel):
    position, norm, linear = setting("plane", 2, 24)
    points, values = places(position, 1, 60), torch.randn(3, 60, 2, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    plain = project(Split(position(points), values), norm, linear)
    assert error(found, plain) < 1e-5


def test_strided_inputs(kernel):
    position, norm, linear = setting("plane", 1, 16)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    points = places(position, 60)
    values = torch.randn(2, 60, 3, device=DEVICE)[..., 1:2]
    found = kernel.project_tokens(points.T.contiguous().T[::2], values[:, ::2], weights)
    whole = kernel.project_tokens(points, values, weights)
    torch.testing.assert_close(found, whole[:, ::2])


def test_high_frequencies(kernel):
    # Two hundred radians, where float32 coordinates are good to 2e-5 of one.
    position, norm, linear = setting("high", 1, 32)
    points, values = places(position, 90), torch.randn(1, 90, 1, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    assert error(found, by_the_book(position, norm, linear, points, values)) < 1e-5


def circle(period):
    torch.manual_seed(3)
    position = FourierFeatures((6,), (1.0,), domain=((0.0, period),), periods=(period,))
    norm, linear = nn.LayerNorm(position.width), nn.Linear(position.width, 16)
    random_layers(norm, linear)
    return position.to(DEVICE), norm, linear


@pytest.mark.parametrize("period", [2.0, 30.0])
def test_many_turns_are_taken_off_exactly(kernel, period):
    # Eighths times whole frequencies are exact: tens of thousands of turns leave nothing behind,
    # not even where the inverse of the radius is no round number.
    position, norm, linear = circle(period)
    near = torch.arange(0, 16, device=DEVICE).view(-1, 1) * (period / 16)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    exact = by_the_book(position, norm, linear, near, None)
    for turns in (0, -3, 7000, -12345):
        found = kernel.project_tokens(near + period * turns, None, weights)
        assert error(found, exact) < 3e-6


def test_what_is_out_of_reach_stays_bounded(kernel):
    position, norm, linear = circle(2.0)
    points = places(position, 40)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    before = kernel.project_tokens(points, None, weights)
    far = points.clone()
    # The first is where adding what cuts off the fraction changes the exponent.
    far[3], far[4], far[5], far[7] = 2.0**27 - 8, 1e7, -1e15, math.nan
    after = kernel.project_tokens(far, None, weights)
    others = [i for i in range(40) if i not in (3, 4, 5, 7)]
    torch.testing.assert_close(after[:, others], before[:, others])
    assert after[:, [3, 4, 5]].abs().max() < 3 * before.abs().max()
    assert after[:, 7].isnan().all()


def test_values_far_from_zero(kernel):
    position, norm, linear = setting("raw line", 6, 16)
    points = places(position, 50)
    values = 280 + torch.randn(2, 50, 6, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    assert error(found, by_the_book(position, norm, linear, points, values)) < 3e-6
    # Were all channels values, as good as: a mean of squares would cancel.
    found = kernel.project_tokens(
        points, 100 * values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    assert error(found, by_the_book(position, norm, linear, points, 100 * values)) < 1e-5


LIFTS = {  # position, samples, points, values, hidden, width, projections
    "encoder": ("plane", 3, 70, 2, 32, 32, 64),
    "decoder": ("plane", 1, 150, 0, 32, 32, 32),
    "odd": ("globe", 2, 35, 1, 40, 24, 7),
    "many columns": ("torus", 1, 20, 3, 130, 72, 150),
    "narrow": ("four axes", 2, 17, 1, 3, 5, 2),
}


def lift_setting(name, c, hidden, width, p):
    torch.manual_seed(1)
    position = POSITIONS[name]().to(DEVICE)
    lift = Lift(position.width, c, width, hidden=hidden)
    norm, linear = nn.LayerNorm(width), nn.Linear(width, p, bias=False)
    random_layers(lift, norm, linear)
    return position, lift, norm, linear


@pytest.mark.parametrize("sizes", LIFTS.values(), ids=LIFTS.keys())
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_lifted_tokens_and_their_projections(kernel, sizes, own):
    name, b, n, c, hidden, width, p = sizes
    layers = lift_setting(name, c, hidden, width, p)
    points = places(layers[0], b, n) if own else places(layers[0], n)
    values = torch.randn(b, n, c, device=DEVICE) if c else None
    token, projected = lifted_by_the_book(*layers, points, values)
    weights = kernel.prepare_lift(*layers, dtype=torch.float32)
    found, kept = kernel.lift_tokens(points, values, weights, keep=True)
    assert error(found, projected) < 3e-6
    assert error(kept, token) < 3e-6
    alone, nothing = kernel.lift_tokens(points, values, weights)
    assert nothing is None
    assert torch.equal(alone, found)
    nothing, alone = kernel.lift_tokens(
        points, values, kernel.prepare_lift(*layers[:2], dtype=torch.float32)
    )
    assert nothing is None
    assert torch.equal(alone, kept)


def test_half_precision(kernel):
    near = 2e-2 if torch.bfloat16 == HALF else 3e-3
    position, norm, linear = setting("plane", 1, 96)
    points, values = places(position, 150), torch.randn(2, 150, 1, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=HALF)
    )
    assert found.dtype == HALF
    assert error(found, by_the_book(position, norm, linear, points, values)) < near
    layers = lift_setting("plane", 1, 64, 48, 96)
    found, kept = kernel.lift_tokens(
        points, values, kernel.prepare_lift(*layers, dtype=HALF), keep=True
    )
    token, projected = lifted_by_the_book(*layers, points, values)
    assert found.dtype == kept.dtype == HALF
    assert error(found, projected) < near
    assert error(kept, token) < near


def test_coordinates_are_not_rounded_to_half_precision(kernel):
    # The phases of neighbours on a fine mesh differ, and so do the coordinates themselves.
    position, norm, linear = setting("high", 0, 32)
    points = places(position, 40)
    weights = kernel.prepare(position, norm, linear, dtype=HALF)
    step = kernel.project_tokens(points + 2e-3, None, weights).float()
    step = step - kernel.project_tokens(points, None, weights).float()
    exact = by_the_book(position, norm, linear, points + 2e-3, None)
    exact = exact - by_the_book(position, norm, linear, points, None)
    assert error(step, exact) < 5e-2


@pytest.mark.parametrize("programs", [1, 6])
def test_samples_are_shared_out_among_programs(kernel, monkeypatch, programs):
    position, norm, linear = setting("plane", 1, 24)
    points, values = places(position, 40), torch.randn(3, 40, 1, device=DEVICE)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    layers = lift_setting("plane", 1, 32, 32, 40)
    lifting = kernel.prepare_lift(*layers, dtype=torch.float32)
    one = kernel.project_tokens(points, values, weights)
    two = kernel.lift_tokens(points, values, lifting)[0]
    monkeypatch.setattr(kernel, "PROGRAMS", programs)
    assert torch.equal(kernel.project_tokens(points, values, weights), one)
    assert torch.equal(kernel.lift_tokens(points, values, lifting)[0], two)


def test_every_place_is_written_and_none_beside(kernel, monkeypatch):
    position, norm, linear = setting("plane", 1, 70)
    points, values = places(position, 150), torch.randn(2, 150, 1, device=DEVICE)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    lifting = kernel.prepare_lift(*lift_setting("plane", 1, 24, 20, 70), dtype=torch.float32)
    new_empty, around, made = torch.Tensor.new_empty, 4096, []

    def poisoned(self, *shape, **kind):
        if len(shape) != 3:  # the interpreter's own
            return new_empty(self, *shape, **kind)
        size = math.prod(shape)
        made.append(new_empty(self, size + 2 * around, **kind).fill_(math.nan))
        return made[-1][around : around + size].view(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    kernel.project_tokens(points, values, weights)
    kernel.lift_tokens(points, values, lifting, keep=True)
    assert [len(x) - 2 * around for x in made] == [2 * 150 * 70, 2 * 150 * 70, 2 * 150 * 20]
    for x in made:
        assert x[around:-around].isfinite().all()
        assert x[:around].isnan().all()
        assert x[-around:].isnan().all()


def test_nothing_in_is_nothing_out(kernel):
    position, norm, linear = setting("plane", 1, 24)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    none = torch.zeros(0, 2, device=DEVICE), torch.zeros(2, 0, 1, device=DEVICE)
    assert kernel.project_tokens(*none, weights).shape == (2, 0, 24)
    lifting = kernel.prepare_lift(*lift_setting("plane", 1, 32, 32, 40), dtype=torch.float32)
    found, kept = kernel.lift_tokens(*none, lifting, keep=True)
    assert (found.shape, kept.shape) == ((2, 0, 40), (2, 0, 32))


def test_autocast_does_not_round_the_weights(kernel):
    position, norm, linear = setting("plane", 1, 24, bias=True)
    layers = lift_setting("plane", 1, 32, 32, 40)
    exact = kernel.prepare(position, norm, linear, dtype=torch.float32)
    lifted = kernel.prepare_lift(*layers, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = kernel.prepare(position, norm, linear, dtype=torch.float32)
        same = kernel.prepare_lift(*layers, dtype=torch.float32)
    for one, other in zip(
        found.weights + same.weights, exact.weights + lifted.weights, strict=True
    ):
        assert torch.equal(one, other)


def test_supported_sizes(kernel):
    position = POSITIONS["plane"]()
    assert kernel.supports(position, values=64, out=1024)
    assert not kernel.supports(position, values=65)
    assert not kernel.supports(position, out=1025)
    assert not kernel.supports(POSITIONS["plane"]().double())
    assert not kernel.supports(FourierFeatures((2,) * 5, (4.0,) * 5))
    assert kernel.supports(FourierFeatures((128, 128), (4.0, 4.0)))
    assert not kernel.supports(FourierFeatures((128, 129), (4.0, 4.0)))
    assert kernel.supports(position, lift=Lift(position.width, 1, 128))
    assert not kernel.supports(position, lift=Lift(position.width, 1, 300))
    precise = Lift(position.width, 1, 32, precise=True)
    assert isinstance(precise.from_position, Precise)
    assert not kernel.supports(position, lift=precise)
    with torch.enable_grad():
        assert not kernel.supports(position)


def test_the_largest_sizes_work(kernel):
    torch.manual_seed(2)
    position = FourierFeatures((128, 100), (8.0, 8.0)).to(DEVICE)
    norm, linear = nn.LayerNorm(position.width + 64), nn.Linear(position.width + 64, 1024)
    random_layers(norm, linear)
    points, values = places(position, 20), torch.randn(1, 20, 64, device=DEVICE)
    found = kernel.project_tokens(
        points, values, kernel.prepare(position, norm, linear, dtype=torch.float32)
    )
    assert error(found, by_the_book(position, norm, linear, points, values)) < 3e-6


def test_gradients_are_refused(kernel):
    position, norm, linear = setting("plane", 1, 24)
    layers = lift_setting("plane", 1, 32, 32, 40)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    points, values = places(position, 20), torch.randn(2, 20, 1, device=DEVICE)
    with torch.enable_grad():
        with pytest.raises(RuntimeError, match="no backward"):
            kernel.prepare(position, norm, linear)
        with pytest.raises(RuntimeError, match="no backward"):
            kernel.prepare_lift(*layers)
        with pytest.raises(RuntimeError, match="no backward"):
            kernel.project_tokens(points, values.requires_grad_(), weights)


def test_what_does_not_fit_is_refused(kernel):
    position, norm, linear = setting("plane", 1, 24)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    lifting = kernel.prepare_lift(*lift_setting("plane", 1, 32, 32, 40), dtype=torch.float32)
    points, values = places(position, 20), torch.randn(2, 20, 1, device=DEVICE)
    for call, given in ((kernel.project_tokens, weights), (kernel.lift_tokens, lifting)):
        with pytest.raises(ValueError, match="1 values a point, got 0"):
            call(points, None, given)
        with pytest.raises(ValueError, match="2 coordinates a point, got 3"):
            call(torch.zeros(20, 3, device=DEVICE), values, given)
        with pytest.raises(ValueError, match="do not belong together"):
            call(points[:10], values, given)
        with pytest.raises(ValueError, match="do not belong together"):
            call(places(position, 3, 20), values, given)
        with pytest.raises(TypeError, match="float64"):
            call(points.double(), values, given)
    with pytest.raises(ValueError, match="both its norm and its linear"):
        kernel.prepare_lift(*lift_setting("plane", 1, 32, 32, 40)[:3])


def test_operators_are_what_they_say(kernel):
    position, norm, linear = setting("plane", 1, 24)
    points, values = places(position, 20), torch.randn(2, 20, 1, device=DEVICE)
    weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
    lifting = kernel.prepare_lift(*lift_setting("plane", 1, 32, 32, 40), dtype=torch.float32)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(kernel._project, (points, values, *weights), test_utils=tests)
    for keep in (False, True):
        torch.library.opcheck(kernel._lift, (points, values, *lifting, keep), test_utils=tests)


@pytest.mark.compile
def test_a_compiler_takes_it_as_a_whole(kernel):
    position, norm, linear = setting("plane", 1, 24)
    layers = lift_setting("plane", 1, 32, 32, 40)
    points, values = places(position, 20), torch.randn(2, 20, 1, device=DEVICE)

    def both(points, values):
        weights = kernel.prepare(position, norm, linear, dtype=torch.float32)
        lifting = kernel.prepare_lift(*layers, dtype=torch.float32)
        return kernel.project_tokens(points, values, weights), *kernel.lift_tokens(
            points, values, lifting, keep=True
        )

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for found, exact in zip(compiled(points, values), both(points, values), strict=True):
        torch.testing.assert_close(found, exact)
