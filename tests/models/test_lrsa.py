"""LRSA: a block from its equations, local mixing on grids, padding, what it refuses."""

import pytest
import torch

from ipot.errors import DataError, Unsupported
from ipot.models.lrsa import LRSA, Block, Config, Mixing
from ipot.samples import Batch
from ipot.spec import Need, Spec

SMALL = Config(width=8, blocks=2, heads=2, latents=3, reference=2)


def spec(*needs):
    return Spec(
        name="toy",
        inputs=("a",),
        outputs=("u",),
        domain=((0.0, 1.0), (0.0, 1.0)),
        provides=frozenset({Need.SAME_POINTS, *needs}),
    )


def attend(layer, query, context):
    """Two heads of four channels over all rows of the context."""
    y, x = layer.norm(query), layer.norm_context(context)
    q = layer.to_query(y)
    k, v = layer.to_key_value(x).chunk(2, -1)
    heads = [((q[:, s] @ k[:, s].T) / 2).softmax(-1) @ v[:, s] for s in (slice(0, 4), slice(4, 8))]
    return layer.to_out(torch.cat(heads, -1))


def by_hand(block, x):
    """Down, among the latents, up, and the feed-forward of each point."""
    z = attend(block.down, block.latents, x)
    z = block.among(z.unsqueeze(0))[0]
    x = x + attend(block.up, x, z)
    forward = block.feed_forward
    hidden = torch.nn.functional.gelu(forward.into(forward.norm(x)))
    return x + forward.out(hidden)


def test_a_block_is_that_of_the_equations():
    torch.manual_seed(0)
    block = Block(SMALL, 0).double()
    torch.nn.init.normal_(block.latents)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    found = block(x, None, None)
    torch.testing.assert_close(found, torch.stack([by_hand(block, one) for one in x]))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 4:] = False
    torch.testing.assert_close(block(x, mask, None)[1, :4], by_hand(block, x[1, :4]))


def test_on_a_grid_neighbours_are_mixed_and_no_others():
    torch.manual_seed(0)
    mixing = Mixing(8, 2, 2).double()
    x = torch.randn(1, 30, 8, dtype=torch.float64, requires_grad=True)
    mixing(x, (5, 6))[0, 2 * 6 + 3].sum().backward()
    reached = (x.grad[0].abs().sum(-1) > 0).view(5, 6)
    expected = torch.zeros(5, 6, dtype=torch.bool)
    expected[1:4, 2:5] = True
    assert torch.equal(reached, expected)


def test_a_grid_that_is_lost_is_named():
    model = LRSA(SMALL, spec(Need.GRID))
    points = torch.rand(1, 6, 2)
    batch = Batch(points=points, values=torch.randn(1, 6, 1), queries=points)
    with pytest.raises(DataError, match=r"--model\.mixing points"):
        model(batch)
    apart = LRSA(Config(width=8, heads=2, blocks=1, mixing="points"), spec(Need.GRID))
    assert apart(batch).shape == (1, 1, 6, 1)


def test_blocks_share_nothing():
    model = LRSA(SMALL, spec())
    own = [{id(p) for p in block.parameters()} for block in model.blocks]
    assert not own[0] & own[1]


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(Unsupported, match="heads"):
        Config(width=10, heads=4)
    with pytest.raises(Unsupported, match="reference"):
        Config(reference=-1)
