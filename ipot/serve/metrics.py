"""Counters of a server, in the text that Prometheus reads. Nothing of a request is in them."""

from __future__ import annotations

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Seconds below which answers are counted."""


class Metrics:
    """Requests by route and status, their time, and gauges that are read when asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.below: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self.seconds: dict[str, float] = defaultdict(float)
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "ipot_memory_bytes": ("Memory of the process", resident)
        }

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request that has ended."""
        with self.lock:
            self.requests[route, method, status] += 1
            place = next((i for i, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
            self.below[route][place] += 1
            self.seconds[route] += seconds

    def text(self) -> str:
        """All of them."""
        with self.lock:
            lines = ["# HELP ipot_requests_total Requests by route, method and status."]
            lines.append("# TYPE ipot_requests_total counter")
            lines += [
                f'ipot_requests_total{{route="{route}",method="{method}",status="{status}"}} {n}'
                for (route, method, status), n in sorted(self.requests.items())
            ]
            lines.append("# HELP ipot_request_seconds Time of a request, from its head to its end.")
            lines.append("# TYPE ipot_request_seconds histogram")
            for route, counts in sorted(self.below.items()):
                total = 0
                for bound, n in zip((*BOUNDS, "+Inf"), counts, strict=True):
                    total += n
                    lines.append(
                        f'ipot_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
                    )
                lines.append(f'ipot_request_seconds_count{{route="{route}"}} {total}')
                spent = self.seconds[route]
                lines.append(f'ipot_request_seconds_sum{{route="{route}"}} {spent:.6f}')
        for name, (about, read) in self.gauges.items():
            lines += [f"# HELP {name} {about}.", f"# TYPE {name} gauge", f"{name} {read():g}"]
        return "\n".join(lines) + "\n"


def resident() -> float:
    """Bytes of memory that the process has; 0 where nothing tells."""
    try:
        found = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    except OSError:
        return 0.0
    return int(found[1]) * 1024.0 if found else 0.0
