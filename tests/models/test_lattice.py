"""IPOT on lattices against its equations in NumPy; how it goes on in time; odd inputs; refusals."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot.accelerate import accelerate
from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import wrap
from ipot.models.lattice import Config, Lattice
from ipot.samples import Batch
from ipot.spec import Spec
from tests.models.by_hand import ByHand, disturb, gelu

SQUARE = ((0.0, 1.0), (0.0, 1.0))
SIZES = {"width": 4, "most_width": 8, "levels": 1, "blocks": 1, "processor": 1, "heads": 2}
SIZES |= {"bins": (2,), "max_frequency": (4.0,)}


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model(shape=(5, 6), facts=None, **changes) -> Lattice:
    torch.manual_seed(0)
    told = {"domain": SQUARE, "shape": shape, **(facts or {})}
    return Lattice.for_tensors(told.pop("domain"), **told, **SIZES | changes).double()


def film(history=2, *, steps=3, static=0, **changes) -> Lattice:
    """Past frames of one field on 6 x 6 places of a torus."""
    names = tuple(f"u{i}" for i in range(history)) + tuple("abc"[:static])
    spec = Spec(
        name="film",
        inputs=names,
        outputs=("u",),
        domain=SQUARE,
        periods=(1.0, 1.0),
        history=history,
        steps=steps,
        shape=(6, 6),
    )
    torch.manual_seed(0)
    return Lattice(Config(**SIZES | changes), spec).double()


class OnLattices(ByHand):
    """The equations of `ipot/models/lattice.py`, for a steady problem whose inputs are the places
    of a lattice that does not wrap."""

    def __init__(self, net: Lattice, counts: tuple[int, int]) -> None:
        super().__init__(net)
        self.net, self.counts = net, counts

    def conv(self, name, image):
        """3 x 3 with zeros around; the image is (rows, columns, channels)."""
        weight, bias = self.w[f"{name}.layer.weight"], self.w[f"{name}.layer.bias"]
        around = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        out = np.zeros((*image.shape[:2], len(weight))) + bias
        for i, j in itertools.product(range(3), repeat=2):
            part = around[i : i + image.shape[0], j : j + image.shape[1]]
            out += part @ weight[:, :, i, j].T
        return out

    def stage(self, name, image):
        inner = gelu(self.conv(f"{name}.0.into", self.norm(f"{name}.0.norm", image)))
        return image + self.conv(f"{name}.0.out", inner)

    def coarser(self, name, image):
        """The last row or column of an odd number is met once more."""
        odd = [(0, n % 2) for n in image.shape[:2]]
        image = np.pad(image, (*odd, (0, 0)), mode="edge")
        weight = self.w[f"{name}.layer.weight"]
        out = sum(
            image[i::2, j::2] @ weight[:, :, i, j].T
            for i, j in itertools.product(range(2), repeat=2)
        )
        return out + self.w[f"{name}.layer.bias"]

    def finer(self, name, image, shape):
        parts = self.linear(f"{name}.layer", image)
        parts = parts.reshape(*image.shape[:2], 2, 2, -1)
        out = np.zeros((2 * image.shape[0], 2 * image.shape[1], parts.shape[-1]))
        for i, j in itertools.product(range(2), repeat=2):
            out[i::2, j::2] = parts[:, :, i, j]
        return out[: shape[0], : shape[1]]

    def feed_forward(self, name, x):
        hidden = self.linear(f"{name}.into", self.norm(f"{name}.norm", x))
        first, gate = np.split(hidden, 2, 1)
        return self.linear(f"{name}.out", first * gelu(gate))

    def __call__(self, a):
        places = self.net.places.coordinates()[0]
        features = self.net.position(places).numpy()
        hidden = self.linear("lift.from_position", features) + self.linear("lift.from_value", a)
        image = self.linear("lift.out", gelu(hidden)).reshape(*self.counts, -1)
        first = self.stage("cycle.down.0", image)
        coarse = self.stage("cycle.bottom", self.coarser("cycle.coarser.0", first))
        rows = coarse.reshape(-1, coarse.shape[-1])
        rows = self.block("cycle.processor.0", rows, None, SIZES["heads"])
        fine = self.finer("cycle.finer.0", rows.reshape(coarse.shape), self.counts)
        image = self.stage("cycle.up.0", first + fine)
        return self.linear("head", self.norm("norm", image.reshape(len(a), -1)))


def test_the_equations_in_numpy():
    net = model()
    disturb(net)
    a = torch.randn(30, 1, dtype=torch.float64)
    x = net.places.coordinates()
    np.testing.assert_allclose(
        net.at(x, a[None])[0].detach(), OnLattices(net, (5, 6))(a.numpy()), atol=1e-9
    )


def test_one_set_of_weights_serves_other_grids_of_the_same_field():
    net = model((), places=(9, 9))

    def field(p):
        return torch.sin(2 * p[..., :1]) * p[..., 1:]

    grids = {n: torch.cartesian_prod(*[torch.linspace(0, 1, n).double()] * 2) for n in (9, 33)}
    queries = draw(1, 20, 2)
    answers = [net.at(x[None], field(x)[None], queries) for x in grids.values()]
    torch.testing.assert_close(*answers, atol=1e-4, rtol=0)


def test_a_step_adds_a_change_to_the_last_frame_and_lets_the_oldest_go():
    net = film(3, past=2)
    disturb(net)
    frames, x = draw(1, 36, 3), net.places.coordinates()
    batch = Batch(points=x, values=frames, queries=x, times=(1.0,))
    latent = net.encode(batch)
    torch.testing.assert_close(latent.state[..., :2], frames[..., 1:])  # the oldest is not heard
    later = net.step(latent)
    torch.testing.assert_close(later.state[..., 0], latent.state[..., 1])
    still = film(3, past=2)
    still.load_state_dict(net.state_dict())
    torch.nn.init.zeros_(still.head.weight)
    torch.nn.init.zeros_(still.head.bias)
    torch.testing.assert_close(still.step(latent).state[..., 1], latent.state[..., 1])
    moved = film(3, past=2, change=False)
    moved.load_state_dict(net.state_dict())
    change = later.state[..., 1] - latent.state[..., 1]
    torch.testing.assert_close(moved.step(latent).state[..., 1], change)


def test_a_rollout_from_a_true_frame_is_the_rest_of_a_longer_one():
    """What goes on are frames at the places, so it may begin at any of them."""
    net = film(1)
    disturb(net)
    x, first = net.places.coordinates(), draw(1, 36, 1)
    batch = Batch(points=x, values=first, queries=x, times=(1.0, 2.0, 3.0))
    whole = net(batch)
    rest = net(replace(batch, values=whole[:, 0], times=(1.0, 2.0)))
    torch.testing.assert_close(rest, whole[:, 1:])


def test_past_frames_are_taken_to_the_scales_of_answers():
    """A network that adds nothing is persistence, whatever the scales of inputs and outputs are."""
    net = film(2)
    for part in (net.head.weight, net.head.bias):
        torch.nn.init.zeros_(part)
    scales = Statistics.identity(2, 1)
    inputs = {"input_mean": torch.tensor([3.0, 5.0]), "input_scale": torch.tensor([2.0, 7.0])}
    outputs = {"output_mean": torch.tensor([4.0]), "output_scale": torch.tensor([3.0])}
    whole = wrap(net, replace(scales, **inputs, **outputs)).double()
    x = net.places.coordinates()
    frames = 4 + draw(1, 36, 2)
    out = whole(Batch(points=x, values=frames, queries=x, times=(1.0, 3.0)))
    for step in range(2):
        torch.testing.assert_close(out[:, step], frames[..., 1:], atol=1e-5, rtol=0)


def test_without_past_frames_features_go_on():
    net = model(facts={"steps": 3})
    disturb(net)
    x, a = net.places.coordinates(), draw(1, 30, 1)
    out = net.at(x, a)
    assert out.shape == (1, 3, 30, 1)
    assert (out[:, 1] - out[:, 0]).abs().max() > 1e-6
    latent = net.encode(Batch(points=x, values=a, queries=x, times=(1.0,)))
    for step in range(3):
        latent = net.step(latent)
        torch.testing.assert_close(net.decode(latent, x), out[:, step])


SCATTERED = draw(1, 7, 2, seed=3)
ODD = {
    "one point": SCATTERED[:, :1],
    "every point twice": SCATTERED.repeat(1, 2, 1),
    "all at one place": SCATTERED[:, :1].repeat(1, 5, 1),
    "a row": torch.cartesian_prod(torch.linspace(0, 1, 7), torch.tensor([0.5])).double()[None],
    "outside of the domain": 5 * SCATTERED - 2,
}


@pytest.mark.parametrize("places", [(), (1, 8), (3,)], ids=str)
@pytest.mark.parametrize("case", ODD)
def test_odd_points(case, places):
    net, x = model(shape=(), places=places), ODD[case]
    a, queries = draw(2, x.shape[1], 1), torch.cat([x[:, :3], draw(1, 4, 2)], 1)
    out = net.at(x, a, queries)
    quick = accelerate(net, training=True)
    torch.testing.assert_close(quick.at(x, a, queries), out)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_a_point_that_is_there_twice_counts_as_the_mean_of_both():
    net = model((), places=(5, 6))
    once = net.places.coordinates()[:, ::2]
    a = draw(1, 15, 1)
    apart = torch.stack([a + 1, a - 1], 2).flatten(1, 2)
    twice = once.repeat_interleave(2, 1)
    torch.testing.assert_close(net.at(twice, apart, SCATTERED), net.at(once, a, SCATTERED))


def test_places_are_those_of_the_grid_or_four_to_a_point():
    assert model((5, 6)).places.counts == (5, 6)
    assert model((5, 6), places=(4,)).places.counts == (4, 4)
    assert model((100,), levels=3).places.counts == (20, 20)
    globe = Spec(
        name="globe", inputs=("a",), outputs=("u",), domain=((-1.0, 1.0),) * 3, sphere=True
    )
    net = Lattice(Config(**SIZES | {"levels": 3}), globe)
    assert net.places.counts == (45, 89)
    assert net.places.wraps == (False, True)


def test_lattices_are_halved_until_few_places_attend():
    for shape, levels in (((14, 14), 0), ((15, 14), 1), ((85, 85), 3), ((64, 64), 3)):
        net = model(shape, levels=None, width=8)
        assert len(net.cycle.coarser) == levels
    assert len(model((30, 30), levels=None, finest=0).cycle.down[0]) == 0


def test_what_cannot_be_is_refused_by_name():
    spec = Spec(name="toy", inputs=("a",), outputs=("u",), domain=SQUARE)

    def refused(match, spec=spec, **changes):
        with pytest.raises(Unsupported, match=match):
            Lattice(Config(**SIZES | changes), spec)

    refused(
        "lie in different spaces", replace(spec, query_domain=((0.0, 1.0),) * 3, query_periods=())
    )
    refused("lie in different spaces", replace(spec, query_periods=(1.0, None)))
    four = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),) * 4)
    refused("1 to 3 axes, and toy has 4", four)
    refused(r"one number or 2, got \(1, 2, 3\)", places=(1, 2, 3))
    refused("places must be positive", places=(4, 0))
    refused("more than 4,194,304: set --model.places lower", places=(3000, 3000))
    refused("--model.levels 1 or --model.processor 0", places=(200, 200), levels=0)
    refused("do not divide among 3 heads", heads=3)
    refused("model.levels must not be negative", levels=-1)
    refused("model.finest must not be negative", finest=-1)
    refused("model.past must be positive", past=0)
    history = replace(spec, history=1, change=True)
    refused("leave --training.change out", history)


def test_queries_may_reach_beyond_the_inputs():
    spec = Spec(
        name="toy", inputs=("a",), outputs=("u",), domain=SQUARE, query_domain=((-1.0, 2.0),) * 2
    )
    net = Lattice(Config(**SIZES | {"places": (7,)}), spec).double()
    ends = net.places.coordinates().aminmax()
    torch.testing.assert_close(torch.stack(ends), torch.tensor([-1.0, 2.0]).double())
