"""Every model compiles as one graph; the eager backend shows that quickly."""

import pytest
import torch

from ipot import registry
from ipot.accelerate.operators import regions

from .cases import CASES, all_at_once

pytestmark = pytest.mark.compile


def test_compiles_without_graph_breaks(variant):
    """On all that a batch can have at once; on a grid where a model needs what that has not."""
    case = all_at_once()
    if not registry.find("models", variant[0]).needs <= case.spec.provides:
        case = CASES["grid"]()
    model, batch = case.build(*variant), case.batch()
    if not list(regions(model)):
        pytest.skip("nothing of it is compiled")
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch), model(batch), atol=1e-10, rtol=1e-10)
