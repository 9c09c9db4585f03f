"""Physics attention: slices are shares of the points, and the formula by numpy."""

import numpy as np
import pytest
import torch
from models.by_hand import ByHand, disturb, physics_attention, pointwise

from ipot.nn.slices import PhysicsAttention, gather


def build(width=6, heads=2, slices=3, axes=0) -> PhysicsAttention:
    torch.manual_seed(0)
    layer = PhysicsAttention(width, heads=heads, slices=slices, axes=axes).double()
    disturb(layer)
    return layer


def draw(*shape) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=random, dtype=torch.float64)


def convolved(shape: tuple[int, ...]):
    """Three nodes along every axis, zeros beyond the ends, node by node."""

    def project(hand: ByHand, x: np.ndarray) -> np.ndarray:
        weight, bias = hand.w["project.weight"], hand.w["project.bias"]
        field = x.reshape(*shape, -1)
        out = np.zeros((*shape, len(bias))) + bias
        for node in np.ndindex(shape):
            for tap in np.ndindex((3,) * len(shape)):
                other = tuple(i + t - 1 for i, t in zip(node, tap, strict=True))
                if all(0 <= i < n for i, n in zip(other, shape, strict=True)):
                    out[node] += weight[(..., *tap)] @ field[other]
        return out.reshape(len(x), -1)

    return project


@pytest.mark.parametrize("heads", [1, 2])
def test_the_formula_in_numpy(heads):
    layer, x = build(heads=heads), draw(2, 9, 6)
    got = layer(x).detach().numpy()
    for row in range(2):
        np.testing.assert_allclose(
            got[row], physics_attention(layer, pointwise, x[row].numpy()), atol=1e-11
        )


@pytest.mark.parametrize("shape", [(9,), (3, 4), (2, 3, 4)])
def test_on_a_grid_neighbours_are_projected_together(shape):
    layer, x = build(axes=len(shape)), draw(2, int(np.prod(shape)), 6)
    got = layer(x, None, shape).detach().numpy()
    for row in range(2):
        expected = physics_attention(layer, convolved(shape), x[row].numpy())
        np.testing.assert_allclose(got[row], expected, atol=1e-11)


def test_a_point_is_shared_out_whole():
    layer, place = build(), draw(2, 2, 7, 3)
    mask = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    assert torch.allclose(layer.weights(place).sum(-1), torch.ones(2, 2, 7).double())
    whole = layer.weights(place, mask).sum(-1)
    torch.testing.assert_close(whole, mask[:, None].expand(2, 2, 7).double())


def test_in_and_out_of_slices_that_own_their_points_gives_their_means():
    owner, values = torch.tensor([0, 2, 0, 1, 2, 0]), draw(1, 1, 6, 4)
    weights = torch.nn.functional.one_hot(owner, 3).double()[None, None]
    back = weights @ gather(weights, values)
    for slice_ in range(3):
        members = owner == slice_
        mean = values[0, 0, members].mean(0)
        # A slice of one point is divided by 1 + 1e-5.
        torch.testing.assert_close(
            back[0, 0, members], mean.expand(int(members.sum()), 4), rtol=2e-5, atol=0
        )


def test_padding_has_no_part():
    layer, x = build(), draw(2, 9, 6)
    mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    poisoned = torch.where(mask.unsqueeze(-1), x, 1e4)
    torch.testing.assert_close(layer(poisoned, mask)[mask], layer(x, mask)[mask])
    torch.testing.assert_close(layer(x, mask)[1, :5], layer(x[1:, :5])[0])


def test_a_sample_of_padding_alone_is_finite_with_its_gradient():
    layer, x = build(), draw(1, 4, 6).requires_grad_()
    out = layer(x, torch.zeros(1, 4, dtype=torch.bool))
    out.square().sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_heat_blurs_the_slices_within_bounds():
    layer, place = build(), draw(1, 2, 7, 3)

    def sharpest(heat: float) -> float:
        with torch.no_grad():
            layer.temperature.fill_(heat)
            return float(layer.weights(place).max(-1).values.mean())

    assert sharpest(0.2) > sharpest(1.0) > sharpest(4.0)
    assert sharpest(0.01) == sharpest(0.1)
    assert sharpest(50.0) == sharpest(5.0)


def test_a_width_must_divide_among_the_heads():
    with pytest.raises(ValueError, match="width of 6 does not divide among 4 heads"):
        build(heads=4)
