"""What a mesh gives is kept while it stays the same, never mistaken, and let go at the end.

That steps with it have the same numbers is in `test_parity.py`.
"""

import copy
import pickle
import weakref
from dataclasses import replace

import pytest
import torch
from training.toys import CPU, SPEC, TINY, model, packed, ragged, stacked

from ipot.accelerate import accelerate, fixed_mesh
from ipot.accelerate.fixed_mesh import FixedMesh
from ipot.accelerate.layers import latent
from ipot.accelerate.operators import regions
from ipot.data.dataset import Stacked
from ipot.errors import DataError
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Step

from .models import shuffled

PLAIN = replace(TINY, lifted=False, decoder="narrow", local=False)
CONFIGS = {"lifted": TINY, "plain": PLAIN}


def parts(config=PLAIN, *, data=None, dtype=torch.float64, **settings):
    """A model, the same accelerated, and the draws that it is trained by."""
    data = (data or stacked()).astype(dtype)
    network = shuffled(model(config=config)).to(dtype)
    draws = Draws(data, SPEC, Training(**{"batch": 4, **settings}))
    return network, accelerate(network, training=True), draws


def keep(quick, draws, *, cast=False):
    return FixedMesh(quick, *draws.mesh(), cast=cast)


def loss_and_gradients(network, draws, number=0):
    network.zero_grad()
    loss = RelativeL2()(network, draws.gather(draws(number)))
    loss.backward()
    # A norm of one channel leaves nothing of its input, and its scale has no gradient.
    found = (torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters())
    return [loss.detach(), *(gradient.clone() for gradient in found)]


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)


def keeps(quick):
    return [part.keeps is not None for part in (quick.inner.encoder, quick.inner.decoder)]


@pytest.fixture
def computed(monkeypatch):
    """How many points features are computed for, each time."""
    counts, compute = [], latent.QuickFourierFeatures._in_place

    def counted(self, x):
        counts.append(x.shape[-2])
        return compute(self, x)

    monkeypatch.setattr(latent.QuickFourierFeatures, "_in_place", counted)
    return counts


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("settings", [{}, {"augment": True}, {"batch": 1}])
def test_positions_are_computed_once(computed, name, settings):
    network, quick, draws = parts(CONFIGS[name], **settings)
    expected = loss_and_gradients(network, draws)
    fixed = keep(quick, draws)
    assert keeps(quick) == [True, True]
    computed.clear()
    for _ in range(2):
        assert_close(loss_and_gradients(quick, draws), expected)
    assert computed == []
    fixed.release()
    assert keeps(quick) == [False, False]
    assert_close(loss_and_gradients(quick, draws), expected)
    assert computed == [12, 12]


def test_only_who_learns_takes_what_is_kept():
    network, quick, draws = parts()
    expected = loss_and_gradients(network, draws)
    keep(quick, draws)
    for part in (quick.inner.encoder, quick.inner.decoder):
        part.keeps.operand.zero_()
    assert not torch.allclose(loss_and_gradients(quick, draws)[0], expected[0])
    assert_close(loss_and_gradients(network, draws), expected)
    for quietly in (torch.no_grad, torch.inference_mode):
        with quietly():
            loss = RelativeL2()(quick, draws.gather(draws(0)))
        torch.testing.assert_close(loss, expected[0])


def test_it_is_found_by_the_tensor_itself():
    _, quick, draws = parts()
    keep(quick, draws)
    encoder, (points, _) = quick.inner.encoder, draws.mesh()
    assert encoder.known(points) is encoder.keeps
    for other in (points.clone(), points[:], points.view_as(points), points.detach()):
        assert encoder.known(other) is None
    encoder.forget()
    assert encoder.known(points) is None


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_rounded_is_for_autocast_alone(name):
    network, quick, draws = parts(CONFIGS[name], dtype=torch.float32)
    exact = loss_and_gradients(network, draws)
    keep(quick, draws, cast=True)
    kept = quick.inner.encoder.keeps
    assert kept.operand.dtype == torch.bfloat16
    # Beside values, before a norm, nothing is rounded.
    rest = [t.dtype for t in (kept.features, kept.sums) if t is not None]
    assert rest == ([torch.float32] * 2 if name == "plain" else [])
    points, _ = draws.mesh()
    assert quick.inner.encoder.known(points) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert quick.inner.encoder.known(points) is kept
    assert_close(loss_and_gradients(quick, draws), exact, 1e-5)


def scattered():
    """A mesh that is no grid: a symmetry moves it."""
    return Stacked(replace(stacked().data, grid=None, query_grid=None))


def one_each():
    """Every sample with points of its own."""
    data = stacked().data
    return Stacked(replace(data, points=data.points.repeat(data.size, 1, 1)))


@pytest.mark.parametrize(
    ("expected", "data", "settings"),
    [
        ([True, True], scattered(), {}),
        ([False, False], scattered(), {"augment": True}),
        ([False, True], stacked(), {"points": 0.5}),
        ([True, False], stacked(), {"queries": 0.5}),
        ([False, True], one_each(), {}),
        ([False, False], stacked(1), {}),
        ([False, False], ragged(), {}),
        ([False, False], packed(), {}),
    ],
)
def test_nothing_is_kept_of_what_changes(expected, data, settings):
    quick = accelerate(model(config=PLAIN), training=True)
    keep(quick, Draws(data, SPEC, Training(batch=4, **settings)))
    assert keeps(quick) == expected


def test_nothing_is_kept_that_is_too_large_or_that_does_not_tell_of_changes(monkeypatch):
    _, quick, draws = parts()
    # Twelve points with six features, in float64 and rounded.
    monkeypatch.setattr(fixed_mesh, "MOST_KEPT", 12 * 6 * 10 - 1)
    keep(quick, draws)
    assert keeps(quick) == [False, False]
    monkeypatch.setattr(fixed_mesh, "MOST_KEPT", 12 * 6 * 10)
    points, queries = draws.mesh()
    with torch.inference_mode():
        untold = points.clone()
    FixedMesh(quick, untold, queries, cast=False)
    assert keeps(quick) == [False, True]
    FixedMesh(quick, points.clone().requires_grad_(), None, cast=False)
    assert keeps(quick) == [False, True]


def test_points_of_another_dimension_are_left_to_who_refuses_them():
    _, quick, _ = parts()
    data = stacked().astype(torch.float64).data
    flat = Stacked(replace(data, points=data.points.expand(-1, -1, 2)))
    draws = Draws(flat, SPEC, Training(batch=4))
    keep(quick, draws)
    assert keeps(quick) == [False, True]
    with pytest.raises(DataError):
        loss_and_gradients(quick, draws)


def test_memory_is_freed_at_the_end():
    _, quick, draws = parts()
    fixed = keep(quick, draws)
    kept = [weakref.ref(layer.keeps.operand) for layer in fixed.layers]
    loss_and_gradients(quick, draws)
    assert None not in [ref() for ref in kept]
    fixed.release()
    assert [ref() for ref in kept] == [None, None]


def test_a_model_that_keeps_nothing_is_left_alone():
    fixed = FixedMesh(torch.nn.Linear(2, 1), *parts()[2].mesh(), cast=False)
    fixed.renew()
    fixed.release()
    assert fixed.layers == []


def test_points_that_are_changed_in_place_are_never_mistaken():
    """By who asks, and by who runs captured steps, which read what is kept where it lies."""
    network, quick, draws = parts()
    fixed = keep(quick, draws)
    places = [layer.keeps.operand.data_ptr() for layer in fixed.layers]
    points, queries = draws.mesh()
    for change in (lambda: None, fixed.renew):
        points[0].mul_(0.7)  # through a view
        queries.mul_(0.8)
        change()
        assert_close(loss_and_gradients(quick, draws), loss_and_gradients(network, draws))
    assert places == [layer.keeps.operand.data_ptr() for layer in fixed.layers]
    kept = [layer.keeps for layer in fixed.layers]
    keep(quick, draws)
    for old, layer in zip(kept, fixed.layers, strict=True):
        assert layer.keeps is not old
        torch.testing.assert_close(old.operand, layer.keeps.operand)


def test_the_model_and_its_copies_do_not_know_of_it():
    network, quick, draws = parts()
    before = len(pickle.dumps(network))
    keep(quick, draws)
    assert list(quick.state_dict()) == list(network.state_dict())
    assert len(pickle.dumps(network)) == before
    assert not any(hasattr(m, "keeps") for m in copy.deepcopy(network).modules())


def steps(kind, *, fix, config=PLAIN, poison=False):
    """The sum of losses and the weights after three steps, with what a mesh gives kept or not."""
    network, _, draws = parts(config)
    settings = replace(draws.settings, step=kind)
    step = Step(
        *(network, RelativeL2(), make_optimizer(network, settings, [], CPU), draws, settings),
        device=CPU,
        precision="float64",
        mode=kind,
        world=World(),
    )
    assert len(step.fixed.layers) == 2
    if not fix:
        step.fixed.release()
    for number in range(3):
        if poison and number == 2:
            for layer in step.fixed.layers:
                layer.keeps.operand.zero_()
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            step(draws(number), number, 1e-3)
    step.close()
    assert step.mode == kind
    return [step.loss_sum.clone(), *(p.detach().clone() for p in network.parameters())]


@pytest.mark.parametrize("name", CONFIGS)
def test_eager_steps_are_the_same(name):
    expected = steps("eager", fix=False, config=CONFIGS[name])
    assert_close(steps("eager", fix=True, config=CONFIGS[name]), expected)


@pytest.mark.compile
@pytest.mark.usefixtures("traced_only")
@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_steps_are_the_same_and_compiled_once(name):
    expected = steps("eager", fix=False, config=CONFIGS[name])
    torch._dynamo.reset()
    assert_close(steps("compiled", fix=True, config=CONFIGS[name]), expected)
    torch._dynamo.reset()
    poisoned = steps("compiled", fix=True, config=CONFIGS[name], poison=True)
    assert not torch.allclose(poisoned[0], expected[0], rtol=1e-6)


@pytest.mark.compile
def test_compiled_regions_see_other_points_and_changes():
    torch._dynamo.reset()
    network, quick, draws = parts()
    fixed = keep(quick, draws)
    for region in regions(quick):
        region.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    data = draws.data.data
    other = Draws(Stacked(replace(data, points=1 - data.points)), SPEC, draws.settings)
    for of in (draws, other, draws):
        assert_close(loss_and_gradients(quick, of), loss_and_gradients(network, of))
    data.points.mul_(0.7)
    data.queries.mul_(0.8)
    fixed.renew()
    assert_close(loss_and_gradients(quick, draws), loss_and_gradients(network, draws))
    fixed.release()
    assert_close(loss_and_gradients(quick, draws), loss_and_gradients(network, draws))
