"""wip"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kofn.core import BadInput, Insight
from kofn.responses import Response


@dataclass(frozen=True)
class Look(Response):
    plays: int
    bound: float | None
    since: int | None
    ready: bool
    reason: str


@dataclass(frozen=True)
class Stop:
    loss: float | None = None
    value: float | None = None
    horizon: int | None = None

    @property
    def threshold(self) -> float:
        return self.loss if self.loss is not None else self.value / self.horizon

    @classmethod
    def parse(cls, text: str) -> Stop:
        m = re.fullmatch(r"\s*loss\s*<\s*([\d.e+-]+)\s*", text)
        if not m:
            raise BadInput(f"a stop rule is text such as 'loss<0.01'; got {text!r}")
        return cls(loss=float(m[1]))

    def look(self, insight: Insight | None, plays: int, before: Look | None = None) -> Look:
        bound = insight.expected_loss if insight else None
        ready = bound is not None and bound < self.threshold
        return Look(
            plays,
            bound,
            plays if ready else None,
            ready,
            "expected loss is below the threshold" if ready else "not yet",
        )
