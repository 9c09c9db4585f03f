"""The relay against its equations in NumPy, and its neighbours on grids and on few sensors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ipot.accelerate import accelerate
from ipot.errors import Unsupported
from ipot.models.base import Latent
from ipot.models.relay import Config, Relay
from ipot.nn.neighbours import Neighbours, Surroundings
from ipot.nn.relay import LocalMixing
from ipot.spec import Spec
from tests.models.by_hand import ByHand, disturb, gelu, softmax

SQUARE = ((0.0, 1.0), (0.0, 1.0))
SIZES = {"width": 8, "heads": 2, "latents": 3, "states": 4, "cross_heads": 2, "blocks": 2}
OFFSETS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
SIZES |= {"bins": (2,), "max_frequency": (4.0,), "feed_forward": 2}


def grid(n: int, m: int | None = None) -> torch.Tensor:
    lines = (torch.linspace(0, 1, k, dtype=torch.float64) for k in (n, m or n))
    return torch.cartesian_prod(*lines)


def model(shape=(6, 6), **changes) -> Relay:
    torch.manual_seed(0)
    return Relay.for_tensors(SQUARE, shape=shape, **SIZES | changes).double()


class Relayed(ByHand):
    """The equations of `ipot/models/relay.py`, for a steady problem on any points."""

    def __init__(self, net: Relay) -> None:
        super().__init__(net)
        self.net = net

    def lift(self, part, x, values=None):
        features = getattr(self.net, part).position(torch.from_numpy(x)).numpy()
        hidden = self.linear(f"{part}.lift.from_position", features)
        if values is not None:
            hidden = hidden + self.linear(f"{part}.lift.from_value", values)
        return self.linear(f"{part}.lift.out", gelu(hidden))

    def feed_forward(self, name, x):
        """With a gate, as around the latent state."""
        hidden = self.linear(f"{name}.into", self.norm(f"{name}.norm", x))
        first, gate = np.split(hidden, 2, 1)
        return self.linear(f"{name}.out", first * gelu(gate))

    def relay(self, name, h):
        pairs = self.linear(f"{name}.to_key_value", self.norm(f"{name}.norm", h))
        keys, values = (np.split(t, SIZES["heads"], 1) for t in np.split(pairs, 2, 1))
        back = []
        for q, k, v in zip(
            np.split(self.w[f"{name}.latents"], SIZES["heads"], 1), keys, values, strict=True
        ):
            z = softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v
            back.append(softmax(k @ q.T / q.shape[1] ** 0.5, 1) @ z)
        return self.linear(f"{name}.to_out", np.concatenate(back, 1))

    def mixed(self, name, h, x, delta):
        hidden = self.linear(f"{name}.into", self.norm(f"{name}.norm", h))
        heard = hidden.copy()
        for weight, o in zip(self.w[f"{name}.mix.weight"], OFFSETS, strict=True):
            places = x + delta * np.array(o)
            nearest = ((places[:, None] - x) ** 2).sum(-1).argmin(1)
            heard += weight * hidden[nearest]
        return self.linear(f"{name}.out", gelu(heard))

    def __call__(self, x, a, delta):
        h = self.lift("encoder", x, a)
        for block in range(SIZES["blocks"]):
            name = f"encoder.blocks.{block}"
            h = h + self.relay(f"{name}.attend", h)
            h = h + self.mixed(f"{name}.feed_forward", h, x, delta)
        state = self.block("encoder.block", self.w["encoder.latents"], h, SIZES["cross_heads"])
        out = self.block("decoder.block", self.lift("decoder", x), state, SIZES["cross_heads"])
        out = out + self.linear("decoder.to_local", self.norm("decoder.norm_local", h))
        out = self.norm("decoder.norm", out)
        return self.linear("decoder.head.layers.2", gelu(self.linear("decoder.head.layers.0", out)))


def test_the_equations_in_numpy():
    net, x = model(), grid(6)
    disturb(net)
    a = torch.randn(36, 1, dtype=torch.float64)
    expected = Relayed(net)(x.numpy(), a.numpy(), 0.2)
    np.testing.assert_allclose(net.at(x[None], a[None])[0].detach(), expected, atol=1e-9)


def test_on_its_grid_mixing_is_a_convolution_and_on_a_finer_one_the_dilated():
    around, mix = Surroundings(SQUARE, (None, None)).double(), LocalMixing(3, 9).double()
    around.measure(grid(9))
    torch.testing.assert_close(around.spacing, torch.full((2,), 1 / 8, dtype=torch.float64))
    kernel = mix.weight.T.reshape(3, 1, 3, 3)
    for points, dilation in ((9, 1), (25, 3)):
        h = torch.randn(2, points**2, 3, dtype=torch.float64)
        image = h.transpose(1, 2).unflatten(2, (points, points))
        image = F.pad(image, (dilation,) * 4, mode="replicate")
        expected = F.conv2d(image, kernel, groups=3, dilation=dilation).flatten(2).transpose(1, 2)
        torch.testing.assert_close(mix(h, around(grid(points)[None])), expected)


def test_periodic_axes_wrap():
    n = 8
    x = torch.cartesian_prod(*[torch.arange(n).double() / n] * 2)
    around, mix = Surroundings(SQUARE, (1.0, 1.0)).double(), LocalMixing(2, 9).double()
    around.measure(x)
    h = torch.randn(1, n * n, 2, dtype=torch.float64)
    image = F.pad(h.transpose(1, 2).unflatten(2, (n, n)), (1,) * 4, mode="circular")
    expected = F.conv2d(image, mix.weight.T.reshape(2, 1, 3, 3), groups=2)
    torch.testing.assert_close(mix(h, around(x[None])), expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("count", [1, 4])
def test_a_constant_field_is_mixed_alike_whatever_the_density(count):
    around, mix = (
        Surroundings(SQUARE, (None, None), count=count).double(),
        LocalMixing(2, 9).double(),
    )
    around.measure(grid(9))
    torch.manual_seed(1)
    for x in (grid(9), grid(33), grid(9)[torch.randperm(81)[:20]], torch.rand(50, 2).double()):
        out = mix(torch.ones(1, len(x), 2, dtype=torch.float64), around(x[None]))
        torch.testing.assert_close(out, mix.weight.sum(0).expand_as(out))


def test_a_linear_field_is_met_between_the_inputs_and_any_field_at_them():
    around = Surroundings(SQUARE, (None, None)).double()
    around.measure(grid(9))
    torch.manual_seed(2)
    y = 0.1 + 0.8 * torch.rand(200, 2).double()
    x = grid(9)
    field = x @ torch.tensor([[2.0], [-1.0]]).double() + 3
    found = around(x[None], y[None]).look_up(field[None])[0]
    wanted = y @ torch.tensor([[2.0], [-1.0]]).double() + 3
    assert (found - wanted).abs().max() < 2e-3
    rough = torch.randn(1, 81, 4, dtype=torch.float64)
    torch.testing.assert_close(around(x[None], x[None]).look_up(rough), rough, atol=1e-5, rtol=0)


def test_a_tree_and_a_comparison_of_all_with_all_agree(monkeypatch):
    from ipot.nn import neighbours

    for periods in ((None, None), (1.0, None)):
        around = Surroundings(SQUARE, periods, count=3)
        x, y = torch.rand(1, 300, 2), 1.2 * torch.rand(1, 100, 2) - 0.1
        expected = around(x), around(x, y)
        monkeypatch.setattr(neighbours, "TREE", 0)
        for one, other in zip(expected, (around(x), around(x, y)), strict=True):
            assert torch.equal(one.index, other.index)
            torch.testing.assert_close(one.weight, other.weight, atol=1e-3, rtol=1e-3)
        monkeypatch.undo()


def test_odd_inputs_have_finite_answers():
    net = model(shape=(), neighbours=5)
    values = torch.randn(1, 4, 1, dtype=torch.float64)
    one = net.at(torch.full((1, 1, 2), 0.5).double(), values[:, :1], grid(3)[None])
    twice = net.at(torch.full((1, 4, 2), 0.5).double(), values, grid(3)[None])
    row = net.at(grid(4, 1)[None], values)
    for out in (one, twice, row):
        assert out.isfinite().all()


def test_spaces_that_differ_have_no_local_part_and_both_is_refused():
    spec = Spec(
        name="from a line",
        inputs=("a",),
        outputs=("u",),
        domain=((0.0, 1.0),),
        query_domain=((0.0, 1.0),) * 3,
    )
    assert not Relay(Config(**SIZES), spec).local
    with pytest.raises(Unsupported, match=r"from a line lie in different spaces.*decoder global"):
        Relay(Config(**SIZES, decoder="both"), spec)


def test_the_local_part_knows_how_long_ago_the_inputs_were_seen():
    net = model(steps=3)
    state = torch.randn(1, 4, 8, dtype=torch.float64)
    x, values = grid(6)[None], torch.randn(1, 36, 1, dtype=torch.float64)
    from ipot.models.base import batch_of

    seen = net.encode(batch_of(net.spec, x, values, None, None, None, None)).seen
    early, late = (
        net.decode(Latent(state, seen=seen, age=torch.full((1,), t).double()), x) for t in (1, 3)
    )
    assert (early - late).abs().max() > 1e-6


def frames(**changes) -> Relay:
    """A relay whose inputs are two past frames of its output."""
    spec = Spec(
        name="frames",
        inputs=("u0", "u1"),
        outputs=("u",),
        domain=SQUARE,
        history=2,
        steps=3,
    )
    torch.manual_seed(0)
    return Relay(Config(**SIZES | changes), spec).double()


@pytest.mark.parametrize("stepping", ["state", "points"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_change_of_nothing_is_the_last_frame(stepping, shared):
    net = frames(change=True, stepping=stepping, processor=1)
    for parameter in net.decoder.head.layers[2].parameters():
        torch.nn.init.zeros_(parameter)
    x = grid(6)[None].expand(1 if shared else 2, -1, -1)
    values = torch.randn(2, 36, 2, dtype=torch.float64)
    for way in (net, accelerate(net)):
        out = way.at(x, values, x)
        last = values[:, None, :, 1:].expand(-1, 3, -1, -1)
        torch.testing.assert_close(out.double(), last, atol=1e-4, rtol=1e-4)


def test_changes_need_past_frames_and_a_decoder_that_sees_inputs():
    with pytest.raises(Unsupported, match=r"model\.change .* it has none: use --model\.no-change"):
        model(change=True)
    with pytest.raises(Unsupported, match="frames, and its answers hear no inputs"):
        frames(change=True, decoder="global")


def test_the_spacing_is_kept_with_the_weights():
    first, second = model(shape=()), model(shape=())
    first.surroundings.measure(grid(11))
    first.surroundings.measure(grid(5))  # what comes later does not change it
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second.surroundings.spacing, torch.full((2,), 0.1).double())


def test_padding_is_nobodys_neighbour():
    around = Surroundings(SQUARE, (None, None), query_count=4)
    x = torch.rand(1, 10, 2)
    mask = torch.arange(10)[None] < 6
    for found, alone in (
        (around(x, None, mask), around(x[:, :6])),
        (around(x, x[:, :3], mask), around(x[:, :6], x[:, :3])),
    ):
        field = torch.randn(1, 10, 2)
        if found.index.shape[1] == 90:
            found = Neighbours(
                *(t.unflatten(1, (9, 10))[:, :, :6].flatten(1, 2) for t in found[:2])
            )
        torch.testing.assert_close(found.look_up(field), alone.look_up(field[:, :6]))
