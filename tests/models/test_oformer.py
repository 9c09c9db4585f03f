"""OFormer: time passes in its latent space, and its size is that of the tables."""

from dataclasses import replace

import pytest
import torch

from ipot.errors import Unsupported
from ipot.models import oformer
from ipot.models.base import Operator, parameter_count
from ipot.models.oformer import Config, OFormer
from ipot.problems import airfoil, darcy, elasticity, era5, navier_stokes, plasticity
from ipot.samples import Batch
from ipot.spec import Spec

SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u", "v"),
    domain=((0.0, 1.0), (0.0, 1.0)),
    steps=3,
    dt=0.5,
)
SMALL = Config(width=8, blocks=2, heads=2, decoder_width=6, cross_heads=2, latent_width=10)
TIMES = (0.5, 1.0, 2.0)


def model(spec=SPEC, **changes) -> OFormer:
    torch.manual_seed(0)
    return OFormer(replace(SMALL, rotary=(5.0,), cross_rotary=5.0, **changes), spec).double()


def batch(**changes) -> Batch:
    random = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64)

    fields = {"points": draw(2, 7, 2), "values": draw(2, 7, 1), "queries": draw(2, 5, 2)}
    return Batch(**fields | {"times": TIMES} | changes)


def test_all_steps_at_once_are_one_step_after_the_other():
    """From the latent state alone: the inputs are not looked at again."""
    net, here = model(propagators=2), batch()
    state = net.start(net.encode(here), here.queries)
    frames = []
    for step in range(1, 5):
        state = net.propagate(state, here.queries)
        if step in (1, 2, 4):
            frames.append(net.decode(state, here.queries))
    torch.testing.assert_close(net(here), torch.stack(frames, 1), atol=1e-12, rtol=0)
    assert not torch.allclose(frames[0], frames[1], atol=1e-4)


def test_a_step_is_made_at_every_query_by_itself():
    net, here = model(), batch()
    state = net.start(net.encode(here), here.queries)
    whole = net.propagate(state, here.queries)
    some = net.propagate(state[:, 2:3], here.queries[:, 2:3])
    torch.testing.assert_close(some, whole[:, 2:3], atol=1e-12, rtol=0)


def test_parts_at_rest_pass_on_what_they_got():
    """Residuals: around the step, around the queries' attention, and around what is normalised."""
    net, here = model(propagators=2, latent_width=6), batch()
    block = net.encoder.blocks[0]
    at_rest = [layer.layers[-1] for layer in net.propagator.layers]
    at_rest += [net.decoder.attend.to_out, net.decoder.feed_forward.out]
    at_rest += [block.attend.to_out, block.feed_forward.out]
    with torch.no_grad():
        for layer in at_rest:
            for parameter in layer.parameters():
                parameter.zero_()
    state = net.start(net.encode(here), here.queries)
    torch.testing.assert_close(state, net.decoder.embed(net.decoder.features(here.queries)))
    assert torch.equal(net.propagate(state, here.queries), state)
    x = 3 + torch.randn(2, 7, 8).double()
    plain = torch.nn.functional.layer_norm(x, (8,))
    torch.testing.assert_close(block(x, here.points), plain, atol=1e-4, rtol=0)


def test_a_mesh_that_stands_still_is_one_that_does_not_move():
    net, here = model(), batch()
    moving = replace(here, queries=here.queries.unsqueeze(1).expand(-1, 3, -1, -1))
    torch.testing.assert_close(net(moving), net(here), atol=1e-12, rtol=0)


def test_a_long_rollout_is_computed_again_and_stays_the_same(monkeypatch):
    net, here = model(), batch()
    gradients = []
    for rows in (1 << 20, 1):
        monkeypatch.setattr(oformer, "ROWS_AT_ONCE", rows)
        net.zero_grad()
        net(here).square().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)


def test_random_frequencies_are_kept_with_the_weights():
    first = model()
    other = OFormer(first.config, SPEC).double()
    key = "decoder.features.frequency"
    assert not torch.equal(first.state_dict()[key], other.state_dict()[key])
    assert key not in dict(first.named_parameters())
    other.load_state_dict(first.state_dict())
    assert torch.equal(first(batch()), other(batch()))


def test_features_have_the_deviation_that_was_asked_for():
    torch.manual_seed(0)
    features = oformer.GaussianFeatures(2, 4000, 3.0)
    assert features.frequency.std().item() == pytest.approx(3.0, rel=0.03)
    places = torch.tensor([[[0.1, 0.4]]])
    phase = 2 * torch.pi * (0.1 * features.frequency[0] + 0.4 * features.frequency[1])
    expected = torch.cat([phase.sin(), phase.cos()])
    torch.testing.assert_close(features(places)[0, 0], expected, atol=1e-5, rtol=0)


def test_inputs_and_queries_of_two_spaces_have_no_distance():
    assert model().decoder.rotary is not None
    assert model(replace(SPEC, query_domain=((0.0, 2.0), (0.0, 1.0)))).decoder.rotary is None


def test_every_block_has_its_rotation_and_the_last_one_serves_the_rest():
    torch.manual_seed(0)
    blocks = OFormer(replace(SMALL, blocks=4, rotary=(9.0, 3.0)), SPEC).encoder.blocks
    assert [block.rotary.frequency[0].item() for block in blocks] == [9.0, 3.0, 3.0, 3.0]


def test_steady_problems_take_no_step_unless_asked():
    steady = replace(SPEC, steps=1, dt=1.0)
    assert model(steady).propagator is None
    here = batch(times=(1.0,))
    assert model(steady)(here).shape == (2, 1, 5, 2)
    assert model(steady, propagators=3)(here).shape == (2, 1, 5, 2)
    with pytest.raises(Unsupported, match="toy is steady: times must be"):
        model(steady)(batch(times=(1.0, 2.0)))


FLOW = {"heads": 1, "blocks": 5, "decoder_width": 192, "latent_width": 384}
WING = {"blocks": 5, "decoder_width": 96, "latent_width": 192, "propagators": 1}
BLOCK = {"width": 64, "blocks": 4, "decoder_width": 64, "latent_width": 128, "propagators": 1}


@pytest.mark.parametrize(
    ("problem", "changes", "millions"),
    [
        (navier_stokes, FLOW, 1.85),
        (era5, FLOW, 1.85),
        (elasticity, {}, 2.56),
        (darcy, WING, 1.28),
        (airfoil, WING, 1.28),
        (plasticity, BLOCK, 0.49),
    ],
)
def test_sizes_are_those_of_the_paper(problem, changes, millions):
    net: Operator = OFormer(Config(**changes), problem.PROBLEM.spec)
    assert round(parameter_count(net) / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 0}, "model.width must be positive, got 0"),
        ({"frequency": float("nan")}, "model.frequency must be positive"),
        ({"rotary": ()}, "model.rotary must be positive numbers"),
        ({"rotary": (1.0, -1.0)}, "model.rotary must be positive numbers"),
        ({"propagators": -1}, "model.propagators must not be negative"),
        ({"latent_width": 7}, "model.latent_width must be even, got 7"),
    ],
)
def test_nonsense_is_refused(changes, said):
    with pytest.raises(Unsupported, match=said):
        replace(SMALL, **changes)


def test_steps_without_a_propagator_are_refused():
    with pytest.raises(Unsupported, match="takes 3 steps on toy"):
        model(propagators=0)
