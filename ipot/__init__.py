"""Learn the solution operators of PDEs on any points, and query them anywhere.

import ipot

data = ipot.Dataset.from_arrays(points=x, values=a, queries=y, targets=u)
model = ipot.fit(data, minutes=5)                       # on your own data
u_new = model.predict(points=x_new, values=a_new, queries=y_new)

ipot.run(ipot.experiment("darcy"), "runs/darcy")        # generate, train
surrogate = ipot.load("runs/darcy")
u = surrogate.predict(points, values, queries)          # numpy in, numpy out
"""

from __future__ import annotations

from typing import Any

from ipot.version import __version__

_OFFERED = (
    *("Dataset", "Experiment", "Fitted", "Question", "Sample", "Surrogate"),
    *("ask", "compare", "experiment", "fit", "from_pretrained", "load", "resume", "run"),
)
__all__ = ["__version__", *_OFFERED]


def __getattr__(name: str) -> Any:
    """Import the house only when something of it is used, so that `ipot --help` is quick."""
    if name in _OFFERED:
        from ipot import api

        return getattr(api, name)
    raise AttributeError(f"module 'ipot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
