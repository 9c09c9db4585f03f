"""Towers of blocks against a loop over the blocks in float64; interpreted where there is no GPU."""

import copy

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate
from ipot.accelerate import cuda as kernels
from ipot.nn.attention import AttentionBlock
from ipot.nn.latent import Processor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if not kernels.available(DEVICE):
    pytest.skip("Triton is not here, or not for this device", allow_module_level=True)

from ipot.accelerate.cuda import blocks as fused  # noqa: E402
from ipot.accelerate.cuda import (  # noqa: E402
    rows_layout,
    tower,
    tower_few,
    tower_many,
    tower_weights,
)
from ipot.accelerate.cuda.tower import FewRows, ManyRows  # noqa: E402

EXACT = 2e-5
WIDTH = 32


@pytest.fixture(params=["few", "many"])
def way(request, monkeypatch):
    """Both ways, whatever the number of rows."""
    many = request.param == "many"
    monkeypatch.setattr(rows_layout, "VERY_MANY", {WIDTH: 1} if many else {})
    return ManyRows if many else FewRows


def draw_blocks(count=1, *, seed=0, **options):
    """Blocks none of whose parameters is where it starts out."""
    torch.manual_seed(seed)
    options = {"heads": 2, **options}
    blocks = nn.ModuleList(AttentionBlock(WIDTH, **options) for _ in range(count))
    with torch.no_grad():
        for p in blocks.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return blocks.to(DEVICE)


def packing(block):
    part, last = block.attend, block.feed_forward
    before = (part.norm.weight, part.norm.bias, part.to_query.weight, part.to_key_value.weight)
    out = (part.to_out.weight, part.to_out.bias, last.norm.weight, last.norm.bias)
    hidden = (last.into.weight, last.into.bias, last.out.weight, last.out.bias)
    return before, None, (*out, *hidden)


def draw_state(*shape, seed=1):
    random = torch.Generator().manual_seed(seed)
    return (1 + 2 * torch.randn(*shape, WIDTH, generator=random)).to(DEVICE)


def loop(blocks, repeats, state, wanted):
    """The plain version."""
    states = []
    for step in range(1, wanted[-1] + 1):
        for _ in range(repeats):
            for block in blocks:
                state = block(state)
        if step in wanted:
            states.append(state)
    return torch.stack(states)


def gradients(function, blocks, repeats, state, wanted):
    """The states, and the gradients of the first one and of all parameters."""
    blocks, state = copy.deepcopy(blocks), state.clone().requires_grad_()
    answer = function(list(blocks), repeats, state, wanted)
    upstream = torch.Generator().manual_seed(2)
    upstream = torch.randn(answer.shape, generator=upstream).to(DEVICE)
    answer.backward(upstream.to(answer.dtype))
    names = [f"parameter {name}" for name, _ in blocks.named_parameters()]
    found = [answer.detach(), state.grad, *(p.grad for p in blocks.parameters())]
    return dict(zip(["answer", "state", *names], found, strict=True))


def compare(blocks, repeats, state, wanted, tolerance=EXACT):
    expected = gradients(loop, copy.deepcopy(blocks).double(), repeats, state.double(), wanted)
    found = gradients(fused.roll, blocks, repeats, state, wanted)
    for name, b in expected.items():
        error = (found[name].double() - b).norm() / b.norm()
        assert error < tolerance, f"{name}: {error}"
    return found


# The interpreter takes its time for every launch, so each test has applications of its own kind:
# steps with a gap, different blocks and steps in a row, the first step alone, a later one alone.
def test_steps_of_a_tied_block_are_a_loop(way):
    compare(draw_blocks(), 2, draw_state(2, 9), (1, 3))


def test_different_blocks_have_gradients_of_their_own(way):
    compare(draw_blocks(2), 2, draw_state(1, 21), (1, 2))


def test_biases_of_projections_count(way):
    compare(draw_blocks(bias=True), 2, draw_state(1, 18), (1,))


def test_other_sizes_of_heads_and_hidden_layers(way):
    compare(draw_blocks(heads=4, head_width=16, multiplier=3), 1, draw_state(3, 7), (2,))


def test_many_programs_share_the_sums(monkeypatch):
    monkeypatch.setattr(rows_layout, "VERY_MANY", {WIDTH: 1})
    monkeypatch.setattr(tower_many, "PROGRAMS", 3)  # several rounds of each
    compare(draw_blocks(), 1, draw_state(5, 31), (1, 2))


@pytest.mark.parametrize(("biased", "count"), [(True, 1), (False, 2)])
def test_weights_of_few_rows_by_the_library(biased, count, monkeypatch):
    monkeypatch.setattr(tower_weights, "LIBRARY", 1)
    monkeypatch.setattr(tower_weights, "weight_shares", None)  # the other way is closed
    compare(draw_blocks(count, bias=biased), 2, draw_state(2, 9), (1, 2))


@pytest.mark.parametrize(
    ("turns", "steps", "expected"), [(1, 2, [1] * 4), (2, 3, [1] * 2 + [2] * 2)]
)
def test_weights_of_some_applications_at_a_time(turns, steps, expected, monkeypatch):
    blocks, state = draw_blocks(2), draw_state(2, 9)
    like = state[0].new_zeros(18, WIDTH)
    block = tower_weights.PackedBlock.of(*FewRows.pack(*packing(blocks[0])), torch.float32)
    each = 3 * tower_weights.Left.size(block, like, like)  # two blocks, and one begun
    monkeypatch.setattr(tower_few, "SCRATCH", turns * each)
    groups = []
    known = tower_weights.Left.gradients
    monkeypatch.setattr(
        tower_weights.Left, "gradients", lambda self: groups.append(len(self.x)) or known(self)
    )
    compare(blocks, 1, state, tuple(range(1, steps + 1)))
    assert groups == expected


def test_the_way_goes_by_the_number_of_rows(way):
    assert tower.tower_for(draw_state(2, 3)) is way


def test_states_that_nobody_asks_for_leave_no_gradient(way):
    blocks, state = draw_blocks(), draw_state(1, 10)
    one = gradients(fused.roll, blocks, 1, state, (3,))
    all_of_them = fused.roll(list(blocks), 1, state, (1, 2, 3))
    torch.testing.assert_close(all_of_them[-1], one["answer"][0], rtol=0, atol=0)


def test_weights_alone_are_differentiated_too(way):
    blocks, state = draw_blocks(), draw_state(1, 10)
    fused.roll(list(blocks), 1, state, (1,)).sum().backward()
    assert all(p.grad is not None for p in blocks.parameters())


def test_some_weights_may_be_frozen(way):
    blocks, state = draw_blocks(), draw_state(1, 10)
    fused.roll(list(blocks), 2, state, (1,)).square().sum().backward()
    frozen = copy.deepcopy(blocks)
    frozen.zero_grad(set_to_none=True)
    frozen[0].attend.requires_grad_(False)
    fused.roll(list(frozen), 2, state, (1,)).square().sum().backward()
    assert frozen[0].attend.to_out.weight.grad is None
    kept = frozen[0].feed_forward.into.weight.grad
    torch.testing.assert_close(kept, blocks[0].feed_forward.into.weight.grad)


def test_gradients_are_those_of_the_state_that_came(way):
    """Of whatever precision, and not side by side."""
    blocks = draw_blocks()
    state = draw_state(WIDTH, 6).transpose(0, 2)[:3].double().requires_grad_()
    fused.roll(list(blocks), 1, state.float(), (1,)).sum().backward()
    plain = state.detach().float().contiguous().requires_grad_()
    fused.roll(list(blocks), 1, plain, (1,)).sum().backward()
    torch.testing.assert_close(state.grad.float(), plain.grad)


def test_there_is_no_tower_where_blocks_must_be_called(way, monkeypatch):
    """For answers, with a mask, of other sizes, or hooked; as its own twin says."""
    ran, known = [], tower.roll
    monkeypatch.setattr(tower, "roll", lambda *given: ran.append(1) or known(*given))
    processor = Processor(WIDTH, blocks=2, heads=2, multiplier=1).to(DEVICE)
    state = draw_state(2, 9).requires_grad_()
    mask = torch.ones(2, 9, dtype=torch.bool, device=DEVICE)

    def towers(*given, training=True, attention="kernel"):
        ran.clear()
        accelerate(processor, training=training, attention=attention).roll(state, (1,), *given)
        return len(ran)

    assert towers() == 1
    assert towers(mask) == towers(training=False) == towers(attention="fused") == 0
    with torch.no_grad():
        assert towers() == 0
    hook = processor[1].feed_forward.register_forward_hook(lambda *_: None)
    assert towers() == 0
    hook.remove()
    processor[1] = AttentionBlock(WIDTH, heads=2, multiplier=3).to(DEVICE)
    assert towers() == 0


@pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter has no products of bf16")
@pytest.mark.parametrize("shape", [(3, 65), (40, 512)])
def test_bf16_is_rounded_and_no_more(way, shape):
    blocks, state = draw_blocks(), draw_state(*shape)
    expected = gradients(loop, copy.deepcopy(blocks).double(), 2, state.double(), (1, 2))
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = gradients(fused.roll, blocks, 2, state, (1, 2))
        torchs = gradients(loop, blocks, 2, state, (1, 2))
    for name, b in expected.items():
        error, usual = ((x[name].double() - b).norm() / b.norm() for x in (found, torchs))
        assert error < max(2e-2, 2 * usual), f"{name}: {error}, torch's {usual}"
