"""Rows, points and a shared mesh through layers with products in bf16, against float64."""

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate
from ipot.accelerate.cpu import blocks, halves
from ipot.accelerate.cpu.build import why_not_bf16
from ipot.accelerate.cpu.project import waves
from ipot.accelerate.projected import project_mesh, project_points
from ipot.accelerate.shared_mesh import Laid, attend_laid, sums_of
from ipot.nn.attention import AttentionBlock
from tests.accelerate.cpu import test_mesh as meshes
from tests.accelerate.cpu.test_block import drawn
from tests.accelerate.cpu.test_project import FEATURES, exactly, points_of
from tests.accelerate.cpu.threads import with_one_and_with_three
from tests.accelerate.models import target

pytestmark = pytest.mark.skipif(
    why_not_bf16() is not None, reason=f"no kernels in bf16: {why_not_bf16()}"
)

NOISE = 8e-3
"""Of an answer: numbers that are rounded to eight bits are off by 2e-3 at most, each by itself."""


def gap(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def rounding():
    return torch.autocast("cpu", torch.bfloat16)


def laid(tokens, norm, linear):
    """Tokens as `project_mesh` leaves them, exact."""
    weight = (linear.weight * norm.weight)[:, : tokens.position.shape[-1]]
    return Laid(tokens.position @ weight.T, sums_of(tokens.position), tokens.value)


@pytest.mark.parametrize("count", [0, 1, 48, 49, 500])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [20, 33, 64])
def test_a_norm_and_a_projection(count, bias, width):
    part = drawn(width, 16, 1, bias=bias).attend
    rows = 3 * torch.randn(count, width) + 1
    layers = tuple(blocks._layer(m, part.norm) for m in (part.to_query, part.to_key_value))
    found = halves.norm_project(rows, layers, part.norm.eps)
    normed = part.double().norm(rows.double())
    wanted = torch.cat([part.to_query(normed), part.to_key_value(normed)], -1)
    assert found.shape == wanted.shape == (count, 48)
    assert count == 0 or gap(found, wanted) < NOISE


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize(
    ("width", "inner", "multiplier"), [(64, 32, 2), (16, 10, 5), (32, 64, 1), (48, 7, 3)]
)
def test_what_is_behind_the_attention(width, inner, multiplier, samples):
    made = drawn(width, inner, multiplier)
    rows, attended = torch.randn(1, 75, width), torch.randn(samples, 75, inner)
    part, last = made.attend, made.feed_forward
    layers = [
        blocks._layer(part.to_out),
        blocks._layer(last.into, last.norm),
        blocks._layer(last.out),
    ]
    found = halves.finish(rows, attended, *layers, last.norm.eps)
    made.double()
    update = rows.double() + part.to_out(attended.double())
    wanted = update + last(update)
    assert found.shape == wanted.shape == (samples, 75, width)
    assert 1e-4 < gap(found, wanted) < NOISE


def test_residuals_are_not_rounded():
    made = drawn(16, 16, 1)
    nn.init.zeros_(made.attend.to_out.weight)
    nn.init.zeros_(made.feed_forward.out.weight)
    part, last = made.attend, made.feed_forward
    layers = [
        blocks._layer(part.to_out),
        blocks._layer(last.into, last.norm),
        blocks._layer(last.out),
    ]
    rows = torch.randn(1, 9, 16)
    found = halves.finish(rows, torch.randn(1, 9, 16), *layers, 1e-5)
    torch.testing.assert_close(found, rows + part.to_out.bias + last.out.bias)


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize(("channels", "columns"), [(0, 64), (1, 128), (3, 7)])
def test_projections_are_those_of_the_layers(name, channels, columns):
    position = FEATURES[name]
    points = points_of(position)
    values = torch.randn(2, 131, channels) if channels else None
    norm = nn.LayerNorm(position.width + channels)
    linear = nn.Linear(position.width + channels, columns)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    with torch.no_grad():
        layer = blocks._layer(linear, norm)
        found = halves.project(points, values, waves(position), layer, norm.eps)
        tokens = exactly(position, points)
        if values is not None:
            tokens = torch.cat([tokens, values.double()], -1)
        wanted = linear.double()(norm.double()(tokens))
    assert found.shape == wanted.shape
    assert gap(found, wanted) < NOISE


@pytest.mark.parametrize("name", FEATURES)
def test_products_come_with_the_sums_of_features(name):
    position = FEATURES[name]
    points, weight = points_of(position), torch.randn(9, position.width + 2)
    scale = torch.randn(position.width)
    layer = halves.RoundedLayer(weight[:, : position.width], None, scale)
    found, sums = halves.mesh_products(points, waves(position), layer)
    tokens = exactly(position, points)
    wanted = tokens @ (weight[:, : position.width] * scale).double().T
    assert gap(found, wanted) < NOISE
    assert (sums - sums_of(tokens)).abs().max() < 2e-5 * position.width  # these are not rounded


@torch.no_grad()
@pytest.mark.parametrize("name", meshes.SIZES)
def test_attention_over_a_shared_mesh(name):
    query, tokens, norm, linear, heads, _ = meshes.problem(name)
    layer = blocks._layer(linear, norm)
    given = laid(tokens, norm, linear)
    found = halves.attend_mesh(query, *given, layer, norm.eps, heads)
    wanted = meshes.by_formula(*meshes.problem(name, torch.float64)[:5])
    assert found.shape == wanted.shape
    assert 1e-4 < gap(found, wanted) < NOISE


@torch.no_grad()
def test_a_mesh_answers_the_same_with_any_number_of_threads():
    query, tokens, norm, linear, heads, _ = meshes.problem("several groups of samples")
    given = *laid(tokens, norm, linear), blocks._layer(linear, norm), norm.eps, heads
    assert torch.equal(*with_one_and_with_three(lambda: halves.attend_mesh(query, *given)))


@torch.no_grad()
@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_scores_over_a_mesh_may_be_large(scale):
    """In float64, of queries and products that are rounded as the kernels round them."""
    query, tokens, norm, linear, heads, _ = meshes.problem("several groups of samples")
    query = (scale * query).bfloat16().float()
    steps = 128 * (query.shape[-1] // heads) ** -0.5 / torch.log(torch.tensor(2.0))
    query = (query * steps).bfloat16().double() / steps.double()
    given = laid(tokens, norm, linear)
    given = given._replace(products=given.products.bfloat16().float())
    found = halves.attend_mesh(query.float(), *given, blocks._layer(linear, norm), norm.eps, heads)
    exact = Laid(*(t.double() for t in given))
    wanted = mesh_in_float64(query, exact, norm.double(), linear.double(), heads)
    assert gap(found, wanted) < NOISE


def mesh_in_float64(query, laid, norm, linear, heads):
    """Keys and values as `ipot.accelerate.shared_mesh` has them, and the formula."""
    products, sums, value = laid
    width = linear.in_features
    weight = linear.weight * norm.weight
    mean = (sums[..., :1] + value.sum(-1, keepdim=True)) / width
    squares = sums[..., 1:] + value.square().sum(-1, keepdim=True)
    scale = (squares / width - mean.square() + norm.eps).rsqrt()
    pairs = products + value @ weight[:, -value.shape[-1] :].T - mean * weight.sum(1)
    pairs = pairs * scale + linear.weight @ norm.bias
    pairs = pairs if linear.bias is None else pairs + linear.bias
    query, key, value = (
        t.unflatten(-1, (heads, -1)).transpose(1, 2)
        for t in (query, *pairs.split([query.shape[-1]] * 2, -1))
    )
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


@torch.no_grad()
def test_a_token_without_a_deviation_is_left_to_others():
    query, tokens, norm, linear, heads, _ = meshes.problem("heads and channels")
    tokens.position[:, 7] = tokens.value[:, 7] = 0.0
    given = laid(tokens, norm, linear)
    layer = blocks._layer(linear, norm)
    assert halves.attend_mesh(query, *given, layer, norm.eps, heads) is not None
    assert halves.attend_mesh(query, *given, layer, 0.0, heads) is None


@torch.no_grad()
def test_nothing_behind_the_last_key_sets_the_measure():
    """The last block begins with a large token and ends with a small one: the product of the one
    times the factor of the other would exceed all scores by far."""
    query, tokens, norm, linear, heads, _ = meshes.problem("heads and channels")
    for at, size in ((64, 1000.0), (69, 1e-3)):
        tokens.position[:, at] *= size
        tokens.value[:, at] *= size
    given = laid(tokens, norm, linear)
    found = halves.attend_mesh(query, *given, blocks._layer(linear, norm), norm.eps, heads)
    exact = (t.double() for t in given)
    wanted = mesh_in_float64(query.double(), Laid(*exact), norm.double(), linear.double(), heads)
    assert gap(found, wanted) < NOISE


@torch.no_grad()
@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e35])
@pytest.mark.parametrize("which", ["query", "products", "sums", "value"])
def test_numbers_beyond_measure_are_left_to_others(which, number):
    query, tokens, norm, linear, heads, _ = meshes.problem("heads and channels")
    given = laid(tokens, norm, linear)
    numbers = {"query": query, **given._asdict()}[which]
    numbers[0, 3, 1] = number
    layer = blocks._layer(linear, norm)
    assert halves.attend_mesh(query, *given, layer, norm.eps, heads) is None
    with rounding():
        found = attend_laid(query, given, norm, linear, heads)
    wanted = attend_laid(query, given, norm, linear, heads)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@torch.no_grad()
def test_layers_go_this_way_under_autocast(monkeypatch):
    """Each once: a projection of points, of a mesh, of rows; attention over it; a block."""
    ran = []

    def counted(name):
        kernel = getattr(halves, name)
        return lambda *given: ran.append(name) or kernel(*given)

    for name in ("project", "mesh_products", "norm_project", "attend_mesh", "finish"):
        monkeypatch.setattr(halves, name, counted(name))
    position = FEATURES["plane"]
    points, values = points_of(position, 1), torch.randn(3, 131, 1)
    norm, linear = nn.LayerNorm(position.width + 1), nn.Linear(position.width + 1, 32)
    alone = nn.LayerNorm(position.width), nn.Linear(position.width, 32)
    query, block = torch.randn(1, 90, 16), AttentionBlock(16, heads=2)
    cross = AttentionBlock(16, heads=2, context=16)

    def steps():
        kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        answers = target(training=False, products=kind)
        found = project_mesh(answers, position, None, norm, linear, points, values)
        return [
            project_points(answers, position, None, *alone, points).projected,
            attend_laid(query, found, norm, linear, 2),
            accelerate(block)(query),
            accelerate(cross).attend.pairs_of(query),
        ]

    exact = steps()
    assert not ran
    with rounding():
        found = steps()
        assert ran == [
            "mesh_products",
            "project",
            "attend_mesh",
            "norm_project",
            "finish",
            "norm_project",
        ]
        accelerate(block, attention="fused")(query)
    assert len(ran) == 6
    for one, wanted in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        assert 0 < gap(one, wanted) < NOISE


@torch.no_grad()
def test_weights_may_lie_anyhow():
    part = drawn(20, 16, 1, bias=True).attend
    rows, layer = torch.randn(60, 20), blocks._layer(part.to_query, part.norm)
    wanted = halves.norm_project(rows, (layer,), 1e-5)
    other = layer._replace(weight=layer.weight.T.contiguous().T)
    assert other.weight.stride(-1) != 1
    assert torch.equal(halves.norm_project(rows, (other,), 1e-5), wanted)
    wide = torch.cat([layer.weight, layer.weight], 1)[:, :20]
    assert torch.equal(halves.norm_project(rows, (layer._replace(weight=wide),), 1e-5), wanted)
