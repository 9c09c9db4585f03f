# The first hour of a researcher: the paper's rows, a model of one's own beside them, the bare module.
# In an empty folder: bash research.sh
set -e

# What the paper prints, what it costs to run, and one row at toy sizes to see it work.
ipot reproduce --list
ipot reproduce table1/darcy/ipot --small --device cpu

# A problem and a system, trained and asked with fewer sensors at a finer grid.
ipot problems darcy
ipot models --problem darcy
ipot train darcy --small --minutes 1 --out runs/darcy
ipot evaluate runs/darcy --keep 0.25 --query-resolution 33
ipot plot runs/darcy

# A model of one's own: one file, and then it is a name like others.
cat > my_models.py <<'EOF'
"""The nearest sensor's value, passed through a linear map."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    bias: bool = True


class Nearest(Operator):
    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.map = nn.Linear(spec.channels, spec.steps * len(spec.outputs), bias=config.bias)

    def forward(self, batch: Batch) -> Tensor:
        points = batch.points.expand(batch.size, -1, -1)
        queries = batch.queries.expand(batch.size, -1, -1)
        nearest = torch.cdist(queries, points).argmin(-1, keepdim=True)
        values = batch.values.gather(1, nearest.expand(-1, -1, batch.values.shape[-1]))
        return self.map(values).unflatten(-1, (len(batch.times), -1)).transpose(1, 2)
EOF
ipot train darcy my_models.Nearest --small --minutes 0.2 --out runs/nearest
ipot evaluate runs/nearest --trust
ipot compare darcy --models ipot fno my_models.Nearest --small --minutes 0.5

# The bare module, in a loop of one's own.
python - <<'EOF'
import torch

from ipot.models import IPOT

torch.manual_seed(0)
model = IPOT.for_tensors(
    domain=[(0, 1), (0, 1)], inputs=1, outputs=1, width=32, latents=32, blocks=2
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(200):
    x, y, c = torch.rand(16, 64, 2), torch.rand(16, 64, 2), torch.randn(16, 1, 2)
    a = (c * torch.sin(3 * x)).sum(-1, keepdim=True)
    u = (c * torch.cos(3 * y)).sum(-1, keepdim=True)
    loss = (model.at(x, a, y) - u).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"mean square error {loss.item():.3f} where the mean square is {u.square().mean().item():.3f}")
EOF
