"""One JSON object a line for each measured figure."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version


class Report:
    """Prints figures as they are measured and remembers whether every bar held."""

    def __init__(self, bench: str):
        self.bench = bench
        self.held = True
        self._machine = {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "jax": version("jax"),
        }

    def figure(
        self,
        metric: str,
        value: float | None,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        **measured_on: object,
    ) -> None:
        """Print one figure. `value` None means that it could not be measured, which fails a bar."""
        bars = [
            f"{sign} {bar:g}" for sign, bar in (("≥", at_least), ("≤", at_most)) if bar is not None
        ]
        holds = value is not None and (
            (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        )
        line = {
            "bench": self.bench,
            "metric": metric,
            "value": None if value is None else round(value, 4),
            "bar": " and ".join(bars) or None,
            "holds": holds if bars else None,
            "measured_on": {**measured_on, **self._machine},
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
        if bars:
            self.held = self.held and holds
