"""A model that starts local attends to what is near before it has learnt anything."""

from dataclasses import replace

import pytest
import torch

from ipot.errors import Unsupported
from ipot.models.ipot import IPOT, Config
from ipot.nn.points import spread
from ipot.spec import Spec

SPEC = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0), (0.0, 1.0)))
GLOBE = replace(SPEC, domain=((-1.0, 1.0),) * 3, query_domain=(), periods=(), sphere=True)
CONFIG = Config(latents=64, width=64, blocks=2, bins=(16,), max_frequency=(32.0,))


def build(spec=SPEC, **changes) -> IPOT:
    torch.manual_seed(0)
    return IPOT(replace(CONFIG, **changes), spec).eval()


def weights(block, query, context):
    """The attention of a block, averaged over its heads: (queries, keys)."""
    attend = block.attend
    q = attend.to_query(attend.norm(query)).unflatten(-1, (attend.heads, -1))
    k = attend.to_key_value(attend.norm_context(context))[..., : q.shape[-2] * q.shape[-1]]
    k = k.unflatten(-1, (attend.heads, -1))
    scores = torch.einsum("mhe,nhe->hmn", q, k) * q.shape[-1] ** -0.5
    return scores.softmax(-1).mean(0)


def mean_distance(attention, here, there):
    return (attention * torch.cdist(here, there)).sum(-1).mean()


def points(spec, count):
    if spec.sphere:
        return torch.nn.functional.normalize(torch.randn(count, 3), dim=-1)
    return torch.rand(count, 2)


@pytest.mark.parametrize("spec", [SPEC, GLOBE], ids=["square", "sphere"])
@torch.no_grad()
def test_inducing_points_attend_to_inputs_near_their_place(spec):
    x = points(spec, 500)
    places = spread(64, spec.domain, sphere=spec.sphere).float()
    found = {}
    for local in (True, False):
        encoder = build(spec, local=local).encoder
        tokens = encoder.lift(encoder.position(x), torch.randn(500, 1))
        found[local] = mean_distance(weights(encoder.block, encoder.latents, tokens), places, x)
    assert found[True] < 0.85 * found[False]


@pytest.mark.parametrize("spec", [SPEC, GLOBE], ids=["square", "sphere"])
@torch.no_grad()
def test_queries_attend_to_inducing_points_near_them_even_after_the_processor(spec):
    x, y = points(spec, 300), points(spec, 200)
    places = spread(64, spec.domain, sphere=spec.sphere).float()
    found = {}
    for local in (True, False):
        model = build(spec, local=local)
        state = model.encoder(x[None], torch.randn(1, 300, 1))
        for _ in range(3):
            state = model.step(state)
        embedded = model.decoder.lift(model.decoder.position(y))
        attention = weights(model.decoder.block, embedded, state.state[0])
        found[local] = mean_distance(attention, y, places)
    assert found[True] < 0.85 * found[False]


@torch.no_grad()
def test_close_means_close_in_space():
    """Faded, the embedding of a step to the side is closer than that of a step across."""
    lift, position = build().encoder.lift, build().encoder.position
    start = torch.rand(200, 2) * 0.5
    here = lift(position(start), torch.zeros(200, 1))
    similar = [
        torch.cosine_similarity(here, lift(position(start + step), torch.zeros(200, 1))).mean()
        for step in (0.02, 0.1, 0.4)
    ]
    assert similar[0] > 0.9
    assert similar[0] > similar[1] > similar[2]


def test_two_spaces_keep_embeddings_of_their_own():
    other = replace(SPEC, query_domain=((0.0, 1.0),) * 3, query_periods=())
    model = build(other)
    assert model.decoder.lift.from_position.weight.shape[1] == model.decoder.position.width
    assert not torch.equal(model.decoder.lift.out.weight, model.encoder.lift.out.weight)
    same = build()
    assert torch.equal(same.decoder.lift.out.weight, same.encoder.lift.out.weight)


def test_it_needs_lifted_inputs():
    with pytest.raises(Unsupported, match=r"local starts from lifted inputs"):
        Config(lifted=False, decoder="narrow")
