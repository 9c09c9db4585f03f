"""The wrappers and what all models share."""

import pytest
import torch

from ipot.accelerate.operators import regions
from ipot.data.dataset import Ragged, Stacked
from ipot.data.statistics import Statistics
from ipot.models._wrappers import Normalized, wrap
from ipot.models.base import LatentOperator, Operator, parameter_count
from ipot.models.ipot import IPOT, Config
from ipot.samples import collate
from ipot.spec import Need, Spec

SPEC = Spec(
    name="toy",
    inputs=("a", "b"),
    outputs=("u",),
    domain=((0.0, 1.0),) * 2,
    parameters=("p",),
    dt=0.5,
    provides=frozenset({Need.GRID}),
)


class Echo(Operator):
    """Remembers the batch and answers with zeros."""

    needs = frozenset({Need.GRID})

    def __init__(self, answer=torch.float32):
        super().__init__(None, SPEC)
        self.answer = answer

    def forward(self, batch):
        self.seen = batch
        return torch.ones(batch.size, 1, batch.queries.shape[-2], 1, dtype=self.answer)


@pytest.fixture
def data(make_sample):
    return Ragged([make_sample(50, 40, c=2, p=1, seed=i) for i in range(20)])


def test_the_inner_model_sees_unit_scales_and_answers_in_physical_units(data):
    statistics = Statistics.of(data)
    model = wrap(Echo(), statistics)
    out = model(collate(data.samples))
    seen = Statistics.of(Stacked(model.inner.seen))
    for name, tensor in seen.tensors().items():
        if not name.startswith("output"):
            expected = float(name.endswith("scale"))
            torch.testing.assert_close(tensor, torch.full_like(tensor, expected), atol=1e-5, rtol=0)
    expected = (statistics.output_mean + statistics.output_scale).float()
    torch.testing.assert_close(out, expected.expand_as(out))


def test_answers_are_at_least_float32(data):
    out = wrap(Echo(torch.bfloat16), Statistics.of(data))(collate(data.samples))
    assert out.dtype == torch.float32


def test_the_scales_are_part_of_the_weights(data):
    statistics = Statistics.of(data)
    state = wrap(Echo(), statistics).state_dict()
    assert set(state) == set(statistics.tensors())
    other = wrap(Echo(), Statistics.identity(2, 1, 1))
    other.load_state_dict(state)
    torch.testing.assert_close(
        other.output_scale.double(), statistics.output_scale, atol=0, rtol=1e-6
    )


def test_the_wrapper_needs_what_the_model_needs(data):
    assert wrap(Echo(), Statistics.of(data)).needs == Echo.needs


def test_the_parts_stay_open_where_the_model_has_them():
    latent = IPOT(Config(latents=2, width=8, heads=2, cross_heads=2), SPEC)
    scales = Statistics.identity(2, 1, 1)
    assert isinstance(wrap(latent, scales), LatentOperator)
    plain = wrap(Echo(), scales)
    assert isinstance(plain, Normalized)
    assert not isinstance(plain, LatentOperator)
    assert list(regions(wrap(latent, scales))) == list(regions(latent)) != []
    assert list(regions(plain)) == [plain.inner]


def test_times_are_whole_steps():
    model = Echo()
    assert model.steps((0.5, 1.0, 20.0)) == [1, 2, 40]
    assert model.steps((0.1 * 5, 0.3 * 5)) == [1, 3]
    for wrong in ((0.7,), (1.0, 0.5), (0.0,), (0.5, 0.5), (-0.5,)):
        with pytest.raises(ValueError, match=r"increasing multiples of dt=0\.5"):
            model.steps(wrong)


@pytest.mark.parametrize(
    ("kind", "missing"), [(Operator, "forward"), (LatentOperator, "decode, encode, step")]
)
def test_what_is_not_defined_is_said_by_name(kind, missing):
    with pytest.raises(TypeError, match=f"Bare.* abstract methods? {missing}"):
        type("Bare", (kind,), {})(None, SPEC)


def test_frozen_parameters_are_not_counted():
    layer = torch.nn.Linear(3, 2)
    assert parameter_count(layer) == 8
    layer.bias.requires_grad_(False)
    assert parameter_count(layer) == 6
