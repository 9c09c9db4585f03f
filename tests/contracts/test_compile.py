"""Every model compiles as one graph; the eager backend shows that quickly."""

import pytest
import torch

from ipot.accelerate.operators import regions

from .cases import CASES, all_at_once

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("make", [CASES["grid"], all_at_once])
def test_compiles_without_graph_breaks(make, variant):
    case = make()
    model, batch = case.build(*variant), case.batch()
    if not list(regions(model)):
        pytest.skip("nothing of it is compiled")
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch), model(batch), atol=1e-10, rtol=1e-10)
