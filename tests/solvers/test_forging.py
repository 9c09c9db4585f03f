"""Forging: the element, the contact and the whole block, against mechanics that is known."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from ipot.solvers import forging, forging_block, plane_stress
from ipot.solvers.forging_block import Block, Die, reference
from ipot.solvers.plane_stress import Metal

METAL = Metal()
SIZE = 21
HEAVY = 100.0  # the mass scaling of most tests: a tenth of the steps


def profile(nodes=SIZE):
    """Dies of one bump beside the middle, two bumps, and a tip near the left edge."""
    x = torch.linspace(0, 1, nodes, dtype=torch.float64)
    shapes = (
        8 * (x - 0.6).square() * 4,
        4 - 4 * torch.cos(4 * math.pi * (x - 0.2)),
        7 - 7 * torch.exp(-((x - 0.85) ** 2) * 60),
    )
    return torch.stack([15 + s - s.min() for s in shapes])


def flat(nodes=11):
    return torch.full((1, nodes), 15.0, dtype=torch.float64)


@pytest.fixture(scope="module")
def forged():
    return forging.solve(profile(), mass_scaling=HEAVY)


def block(samples=1, nodes=11, dt=1e-4):
    """A block that no die touches."""
    return Block(torch.full((samples, nodes), 99.0, dtype=torch.float64), METAL, 1.0, dt)


def advance(body, change):
    """Move the nodes by (x or y, n, m) and let the stress follow."""
    body.motion[1] = change[:, None]
    body.motion[0] += body.motion[1]
    body._stretch(*body._gradients())


def stretched(body, gradient, steps):
    """The stress in MPa after a constant gradient of the displacement, in equal steps."""
    start = reference(body.motion.shape[-2]).movedim(-1, 0)
    change = torch.einsum("ab,bnm->anm", torch.tensor(gradient).double(), start) / steps
    for _ in range(steps):
        advance(body, change)
    return body.stress * METAL.shear


@pytest.mark.parametrize(
    ("xx", "yy", "xy"), [(1e-4, 0.0, 0.0), (0.0, -2e-4, 0.0), (1e-4, 1e-4, 0.0), (0.0, 0.0, 1e-4)]
)
def test_a_cell_is_elastic_at_first(xx, yy, xy):
    p, q, s = stretched(block(), [[xx, xy], [xy, yy]], 50)
    plane, nu = METAL.young / (1 - METAL.poisson**2), METAL.poisson
    first, second = plane * (xx + nu * yy), plane * (yy + nu * xx)
    for got, expected in ((p + q, first), (p - q, second), (s, 2 * METAL.shear * xy)):
        torch.testing.assert_close(got, torch.full_like(got, expected), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        ([[0.006, 0.0], [0.0, 0.006]], (70.0, 70.0, 0.0)),
        ([[0.006, 0.0], [0.0, -0.003]], (70.0, 0.0, 0.0)),
        ([[0.0, 0.0], [0.0, -0.006]], (-140 / math.sqrt(12), -140 / math.sqrt(3), 0.0)),
        ([[0.0, 0.006], [0.006, 0.0]], (0.0, 0.0, 70 / math.sqrt(3))),
    ],
)
def test_a_cell_that_flows_has_the_stress_of_its_direction(gradient, expected):
    p, q, s = stretched(block(), gradient, 100)
    for got, value in zip((p + q, p - q, s), expected, strict=True):
        torch.testing.assert_close(got, torch.full_like(got, value), rtol=0, atol=0.7)


def test_a_turn_makes_no_stress_and_turns_the_one_that_is_there():
    body, start = block(), reference(11).movedim(-1, 0)
    body.stress[0], body.stress[1] = 1e-4, 1e-4  # pulled along x
    steps, angle = 300, 0.5
    for k in range(steps):
        turn = _turn((k + 1) * angle / steps) - _turn(k * angle / steps)
        advance(body, torch.einsum("ab,bnm->anm", turn, start))
    p, q, s = body.stress
    expected = (1e-4, 1e-4 * math.cos(2 * angle), 1e-4 * math.sin(2 * angle))
    for got, value in zip((p, q, s), expected, strict=True):
        torch.testing.assert_close(got, torch.full_like(got, value), rtol=2e-3, atol=0)


def _turn(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]]).double()


def test_a_constant_stress_pulls_at_the_sides_alone():
    body = block()
    body.stress[0], body.stress[1] = 0.5e-3, 0.5e-3  # 1e-3 G along x
    along, down = body._gradients()
    body._forces(along[0], down[0])
    # Forces on the nodes over G, with the sign and size that `response` gives them.
    force = -body.force[:, 0] * body.spacing**2 / 4
    assert force[:, 1:-1].abs().max() < 1e-15
    share = torch.tensor([0.5, 1.0, 1.0, 0.5]).double() * body.spacing * 1e-3
    volume = 1 + METAL.swells_by * 0.5e-3
    torch.testing.assert_close(force[0, 0], -share * volume)  # the right side is pulled left
    torch.testing.assert_close(force[0, -1], share * volume)
    assert force[1].abs().max() < 1e-15


def test_forces_do_the_work_of_the_stress():
    """For any state of a distorted mesh and any motion: the sum of f·v is that of σ:D."""
    random = torch.Generator().manual_seed(1)

    def noise(like, size):
        return size * torch.randn(like.shape, generator=random, dtype=torch.float64)

    body = block(samples=2)
    body.motion[0] = noise(body.motion[0], 0.3)
    body.motion[1] = noise(body.motion[1], 1e-7)
    along, down = body._gradients()
    before = noise(body.stress, 1e-6)
    body.stress.copy_(before)
    body._stretch(along, down)
    growth = body.stress - before  # elastic: strains are growth over moduli, less the turning
    body.stress.copy_(noise(body.stress, 1e-4))
    body._forces(along[0], down[0])
    power = (-body.force * body.spacing**2 / 4 * body.motion[1]).sum((0, 2, 3))
    strain = growth / torch.tensor([METAL.bulk, 1.0, 1.0]).double().view(3, 1, 1, 1, 1, 1)
    volume = body.spacing**2 / 4 * (1 + METAL.swells_by * body.stress[0])
    inverse = forging_block._inverse_area(along[0], down[0])
    stiffness = body._stiffness(along[0], down[0], inverse)
    expected = (body.stress * strain / stiffness * volume).sum((0, 1, 2, 4, 5))
    torch.testing.assert_close(power, -expected, rtol=1e-4, atol=0)


def test_a_thin_bar_rings_at_the_speed_of_sound():
    """The first mode of the free block, pulled along x and let go: half a period is L / c."""
    body = block(nodes=21, dt=2e-4)
    x = reference(21)[..., 0]
    speed = math.sqrt(METAL.young / (METAL.density * 1e-6))
    body.motion[1, 0] = 1e-7 * torch.sin(math.pi * (x + 24.65) / 50)
    period = 2 * 50 / speed
    signs = []
    for _ in range(round(0.75 * period / 2e-4)):
        body.step()
        signs.append(body.motion[1, 0, 0, 0].mean().item())
    turn = next(k for k, v in enumerate(signs) if v * signs[0] < 0)
    # The bar is wide: lateral inertia and the held bottom slow it a little.
    assert (turn + 0.5) * 2e-4 == pytest.approx(period / 4, rel=0.1)


@pytest.mark.parametrize(
    "gradient", [[[1.5, 0], [0, -0.8]], [[0, 3.0], [0, 0]], [[-0.7, 0], [0, 0]]]
)
def test_a_step_is_stable_in_any_cell(gradient, monkeypatch):
    """Noise in a squeezed or sheared mesh must not grow; without the slower sound it would."""
    grown = []
    for safe in (forging_block._SAFE, 100.0):
        monkeypatch.setattr(forging_block, "_SAFE", safe)
        body = block(dt=0.7 * 5 / forging_block.sound(METAL))
        start = reference(11).movedim(-1, 0)
        body.motion[0] = torch.einsum("ab,bnm->anm", torch.tensor(gradient).double(), start)[
            :, None
        ]
        random = torch.Generator().manual_seed(0)
        noise = 1e-9 * torch.randn(body.motion[1].shape, generator=random, dtype=torch.float64)
        body.motion[1] = noise * (body.response != 0)
        before = body.energies()[3]
        body.die.cubic[..., 0] += 1e3
        for _ in range(100):
            body.step()
        grown.append((body.energies()[3] / before).item())
    assert grown[0] < 1.2
    assert grown[1] > 100


def test_a_flat_die_compresses_at_the_yield_stress():
    """No friction, no obstacle: uniaxial stress everywhere, of 70 MPa, and known strains."""
    body = forging.solve(flat(), mass_scaling=4.0)
    height = 15 - 5.7 + 0.1
    widths = body.displacement[0, 0, :, -1, 0] - body.displacement[0, -1, :, -1, 0] + 50
    assert widths.mean().item() == pytest.approx(50 * math.sqrt(15 / height), rel=0.01)
    assert (widths / widths.mean() - 1).abs().max() < 0.02
    tops = body.displacement[0, :, 0, -1, 1]
    torch.testing.assert_close(tops, torch.full_like(tops, -5.6), rtol=0, atol=1e-6)
    assert body.plastic[0, -1].item() == pytest.approx(70 * 750 * math.log(15 / height), rel=0.01)
    heights = torch.tensor([15 + 0.1 - 0.3 * k for k in range(10, 20)]).double()
    force = body.work.diff(dim=1)[0, 10:] / 0.3
    grown = 70 * 50 * 15 / ((heights[:-1] + heights[1:]) / 2)
    torch.testing.assert_close(force, grown, rtol=0.05, atol=0)
    assert force.mean().item() == pytest.approx(grown.mean().item(), rel=0.01)


def test_hardening_makes_the_flat_die_work_more():
    soft = forging.solve(flat(), mass_scaling=HEAVY)
    hard = forging.solve(flat(), metal=replace(METAL, hardening=100.0), mass_scaling=HEAVY)
    strain = math.log(15 / 9.4)
    extra = 750 * 100 * strain**2 / 2
    assert (hard.plastic - soft.plastic)[0, -1].item() == pytest.approx(extra, rel=0.05)


def test_the_work_of_the_die_is_found_again(forged):
    assert (forged.imbalance.abs() < 0.02).all()
    assert (forged.work[:, 1:].diff(dim=1) > 0).all()
    assert (forged.plastic.diff(dim=1) >= 0).all()
    stored = forged.elastic + forged.plastic + forged.kinetic
    torch.testing.assert_close(stored[:, 12:], forged.work[:, 12:], rtol=0.03, atol=0)
    assert (forged.elastic < 0.005 * forged.work)[:, 5:].all()


def test_nothing_penetrates_the_die(forged):
    die = Die(profile(), 50 / (SIZE - 1), 0.35)
    for frame in range(20):
        x, y = (reference(SIZE) + forged.displacement[:, :, :, frame])[:, :, 0].unbind(-1)
        gap = die.at(x)[0] - 0.3 * frame - y
        assert gap.min() > -1e-6
    assert (gap.min(1).values < 0.02).all()
    middle = (x[:, 1:] + x[:, :-1]) / 2, (y[:, 1:] + y[:, :-1]) / 2
    assert (die.at(middle[0])[0] - 5.7 - middle[1]).min() > -0.01


def test_the_block_stands_on_the_ground_and_slides(forged):
    bottom = forged.displacement[:, :, -1]
    assert not bottom[..., 1].any()
    assert (bottom[..., -1, 0].abs().amax(1) > 0.1).all()
    assert not forged.displacement[:, :, :, 0].any()


def test_cells_keep_their_orientation(forged):
    x, y = (reference(SIZE).unsqueeze(2) + forged.displacement).unbind(-1)
    diagonals = [(v[:, 1:, 1:] - v[:, :-1, :-1], v[:, 1:, :-1] - v[:, :-1, 1:]) for v in (x, y)]
    (a, c), (b, d) = diagonals
    area = (b * c - a * d) / 2 / (50 / (SIZE - 1)) ** 2
    assert area[..., 0].min() == pytest.approx(1)
    assert area.min() > 0.1


def test_the_mirrored_die_forges_the_mirrored_block(forged):
    other = forging.solve(profile().flip(1), mass_scaling=HEAVY).displacement.flip(1)
    sign = torch.tensor([-1.0, 1.0]).double()
    torch.testing.assert_close(other * sign, forged.displacement, rtol=0, atol=1e-8)
    sideways = forged.displacement[..., 0]
    assert (sideways - sideways.flip(1)).abs().max() > 1


def test_a_sample_does_not_depend_on_its_company(forged):
    alone = forging.solve(profile()[1:2], mass_scaling=HEAVY)
    torch.testing.assert_close(alone.displacement, forged.displacement[1:2], rtol=0, atol=1e-9)


def test_single_precision_is_enough(forged):
    single = forging.solve(profile().float(), mass_scaling=HEAVY)
    assert single.displacement.dtype == torch.float32
    torch.testing.assert_close(single.displacement.double(), forged.displacement, rtol=0, atol=1e-3)


def test_half_the_step_gives_the_same(forged):
    finer = forging.solve(profile(), mass_scaling=HEAVY, courant=0.4)
    torch.testing.assert_close(finer.displacement, forged.displacement, rtol=0, atol=0.03)


def test_a_lost_sample_is_named(monkeypatch):
    """Where sound is as fast in squeezed cells, a long step blows up."""
    monkeypatch.setattr(forging_block, "_SAFE", 1e6)
    dies = torch.cat((torch.full((1, SIZE), 99.0).double(), profile()[:1]))
    with pytest.raises(forging.Lost, match=r"samples \[1\]") as caught:
        forging.solve(dies, mass_scaling=HEAVY, courant=1.3)
    assert caught.value.samples == [1]


def test_a_die_inside_the_block_is_refused():
    dies = profile()
    dies[1:] -= 0.2
    with pytest.raises(ValueError, match=r"above the block.*samples \[1, 2\]"):
        forging.solve(dies)


def test_a_mesh_without_square_cells_is_refused():
    with pytest.raises(ValueError, match=r"100 nodes.*10 k \+ 1"):
        forging.solve(torch.zeros(1, 100))
    assert forging_block.rows(101) == 31
    corner = reference(101)[[0, -1], [0, -1]]
    torch.testing.assert_close(corner, torch.tensor([[0.35, 14.9], [-49.65, -0.1]]).double())


def test_a_die_is_smooth_and_goes_on_straight():
    x = torch.linspace(0, 1, 51, dtype=torch.float64)
    heights = torch.stack((x**2 * 5, 3 * torch.sin(2 * x)))
    die = Die(heights, 1.0, 0.35)
    torch.testing.assert_close(die.at((0.35 - 50 * x).expand(2, -1))[0], heights)
    places = torch.linspace(-60, 10, 2001, dtype=torch.float64).expand(2, -1)
    height, slope = die.at(places)
    numeric = torch.gradient(height, spacing=(70 / 2000,), dim=1)[0]
    torch.testing.assert_close(slope[:, 1:-1], numeric[:, 1:-1], rtol=0, atol=2e-4)
    inside = (places[0] < 0.35) & (places[0] > -49.65)
    exact = 3 * torch.sin(2 * (0.35 - places[1, inside]) / 50)
    torch.testing.assert_close(height[1, inside], exact, rtol=0, atol=2e-5)
    assert slope[:, places[0] > 0.36].std(1).max() < 1e-12


def test_a_push_is_along_the_normal_and_only_from_above():
    die = Die(torch.tensor([[0.0, -1.0, -2.0, -3.0]]).double(), 1.0, 0.0)  # y = x
    places = torch.tensor([[[-1.0, -1.0]], [[0.0, -4.0]]]).double()
    x_move, y_move = die.push(places, torch.tensor(1.0).double())
    torch.testing.assert_close(x_move, torch.tensor([[1.0, 0.0]]).double())
    torch.testing.assert_close(y_move, torch.tensor([[-1.0, 0.0]]).double())


@pytest.mark.slow
def test_lighter_blocks_converge():
    """Where symmetry keeps the block from sliding, the error is in proportion to the mass."""
    x = torch.linspace(0, 1, SIZE, dtype=torch.float64)
    dies = torch.stack((19 + 4 * torch.cos(4 * math.pi * x), 15 + 28 * (x - 0.5) ** 2))
    runs = [forging.solve(dies, mass_scaling=m) for m in (16.0, 4.0, 1.0, 0.25)]
    apart = [
        ((a.displacement - b.displacement).norm() / b.displacement.norm()).item()
        for a, b in itertools.pairwise(runs)
    ]
    assert apart[0] > 2.5 * apart[1] > 6 * apart[2], apart
    assert apart[2] < 0.01, apart
    assert ((runs[2].kinetic / runs[2].plastic)[:, -1] < 0.005).all()
    sideways = runs[2].displacement[..., 0]
    torch.testing.assert_close(sideways, -sideways.flip(1), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_finer_meshes_converge():
    runs = [forging.solve(profile(n), mass_scaling=HEAVY).displacement for n in (21, 41, 81)]
    coarse = [r[:, :: 2**k, :: 2**k, -1] for k, r in enumerate(runs)]
    first, second = (coarse[0] - coarse[1]).norm(), (coarse[1] - coarse[2]).norm()
    assert second < 0.7 * first, (first, second)
    assert second < 0.05 * coarse[2].norm(), (first, second)


def test_stress_stays_on_the_yield_surface():
    body = Block(profile(11), METAL, HEAVY, 1e-3)
    for _ in range(300):
        body.step()
    mises = plane_stress.mises(body.stress) / METAL.yields_at
    assert mises.max() == pytest.approx(1, abs=1.4e-5)
