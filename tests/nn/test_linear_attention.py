"""Linear attention against its quadratic form, and rotations that know distances alone."""

import pytest
import torch

from ipot.nn.linear_attention import LinearAttention, Rotary, normalize_points, rotate

TIGHT = {"atol": 1e-12, "rtol": 1e-12}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def standard(x):
    """Mean 0 and variance 1 along the rows, by torch's own means."""
    return torch.nn.functional.layer_norm(x.T, (len(x),)).T


def quadratic(layer, x, places, rotary, queries=None):
    """(Q Kᵀ) V / n of one sample, one head after the other, straight from the definition."""
    heads, asked = [], x if queries is None else queries[0]
    at = places if queries is None else queries[1]
    for q, k, v in zip(
        *(m.weight.chunk(layer.heads) for m in (layer.to_query, layer.to_key, layer.to_value)),
        strict=True,
    ):
        query, key, value = asked @ q.T, standard(x @ k.T), x @ v.T
        if layer.kind == "galerkin":
            value = standard(value)
        elif queries is None:
            query = standard(query)
        query = rotate(query[None, None], rotary(at[None]))[0, 0]
        key = rotate(key[None, None], rotary(places[None]))[0, 0]
        heads.append((query @ key.T) @ value / len(x))
    return layer.to_out(torch.cat(heads, -1))


@pytest.fixture(params=["galerkin", "fourier"])
def layer(request):
    torch.manual_seed(0)
    return LinearAttention(6, heads=3, head_width=5, kind=request.param).double()


@pytest.fixture
def rotary():
    return Rotary(2, 5, 7.0).double()


SIZES = (9, 4, 1)


def padded():
    """Three samples of different sizes, with rubbish behind the shorter ones."""
    x, places = draw(3, 9, 6), draw(3, 9, 2, seed=1)
    mask = torch.arange(9) < torch.tensor(SIZES).unsqueeze(1)
    return x.masked_fill(~mask.unsqueeze(-1), 1e5), places, mask


def test_it_equals_its_quadratic_form(layer, rotary):
    x, places, mask = padded()
    out = layer(x, rotary(places), mask)
    for row, size in enumerate(SIZES):
        expected = quadratic(layer, x[row, :size], places[row, :size], rotary)
        torch.testing.assert_close(out[row, :size], expected, **TIGHT)
        alone = layer(x[row : row + 1, :size], rotary(places[row : row + 1, :size]))
        torch.testing.assert_close(alone[0], expected, **TIGHT)


def test_queries_ask_the_summary_what_they_would_ask_the_points(layer, rotary):
    x, places, mask = padded()
    asked, at = draw(1, 7, 6, seed=2), draw(1, 7, 2, seed=3)
    out = layer.read(asked, rotary(at), layer.summary(x, rotary(places), mask))
    assert out.shape == (3, 7, 6)
    for row, size in enumerate(SIZES):
        here, there = x[row, :size], places[row, :size]
        expected = quadratic(layer, here, there, rotary, queries=(asked[0], at[0]))
        torch.testing.assert_close(out[row], expected, **TIGHT)


def test_no_points_say_nothing(layer, rotary):
    x, places = draw(2, 3, 6), draw(2, 3, 2)
    mask = torch.tensor([[False] * 3, [True] * 3])
    out = layer.read(x, rotary(places), layer.summary(x, rotary(places), mask))
    assert out.isfinite().all()
    torch.testing.assert_close(out[0], layer.to_out.bias.expand(3, -1), **TIGHT)
    none = layer.summary(x[:, :0], rotary(places[:, :0]))
    assert torch.equal(none, torch.zeros(2, 3, 5, 5).double())


def test_points_are_normalised_over_the_real_ones():
    x, _, mask = padded()
    found = normalize_points(x.unsqueeze(1), mask)[:, 0]
    for row, size in enumerate(SIZES[:2]):
        torch.testing.assert_close(found[row, :size], standard(x[row, :size]), **TIGHT)
        assert not found[row, size:].any()


@pytest.mark.parametrize(("dimension", "width"), [(1, 4), (2, 9), (3, 6)])
def test_a_product_depends_on_the_distance_alone(dimension, width):
    rotary = Rotary(dimension, width, 20.0).double()
    q, k = draw(1, 1, 1, width, seed=4), draw(1, 1, 1, width, seed=5)
    x, y = draw(1, 1, dimension, seed=6), draw(1, 1, dimension, seed=7)

    def product(a, b):
        return (rotate(q, rotary(a)) * rotate(k, rotary(b))).sum()

    for axis in range(dimension):
        shift = torch.zeros(dimension).double()
        shift[axis] = 0.37
        torch.testing.assert_close(product(x + shift, y + shift), product(x, y), **TIGHT)
        assert (product(x + shift, y) - product(x, y)).abs() > 1e-3
    torch.testing.assert_close(rotate(q, rotary(x)).norm(), q.norm(), **TIGHT)


def test_the_fastest_pair_turns_as_fast_as_it_says():
    turned = rotate(torch.tensor([[[[1.0, 0.0]]]]), Rotary(1, 2, 5.0)(torch.tensor([[[0.3]]])))
    expected = torch.tensor([1.5]).cos().item(), torch.tensor([1.5]).sin().item()
    assert turned.flatten().tolist() == pytest.approx(expected)


def test_one_full_head_is_read_as_it_is():
    assert not list(LinearAttention(8, heads=1).to_out.parameters())
    assert LinearAttention(8, heads=2).to_out.weight.shape == (8, 16)


def test_initial_weights_are_small_and_near_a_multiple_of_the_identity():
    torch.manual_seed(0)
    layer = LinearAttention(8, heads=2)
    before = layer.to_key.weight.clone()
    layer.start_near_identity("query", "value")
    assert torch.equal(layer.to_key.weight, before)
    for projection in (layer.to_query, layer.to_value):
        for head in projection.weight.detach().chunk(2):
            rest = 8 * head - torch.eye(8)
            torch.testing.assert_close(rest @ rest.T, torch.eye(8), atol=1e-5, rtol=0)


def test_a_head_too_narrow_for_the_axes_is_refused():
    with pytest.raises(ValueError, match="width 5 has no pair for 3 axes"):
        Rotary(3, 5, 1.0)
