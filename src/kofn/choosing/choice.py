"""What `choose` returns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kofn.core import Direction, MissingExtra, Subset

ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)
PLAIN = (str, int, float, bool, type(None))


def label(candidate: object) -> str:
    """Return a candidate as text that is the same in every process: no addresses of objects."""
    return candidate if isinstance(candidate, str) else ADDRESS.sub("", repr(candidate))


def listed(candidates: Sequence[Any]) -> str:
    """Return the labels of candidates for a message; at most the first ten."""
    labels = [repr(each) if isinstance(each, str) else label(each) for each in candidates[:10]]
    return f"[{', '.join(labels)}{', ...' if len(candidates) > 10 else ''}]"


@dataclass(frozen=True)
class Evaluation:
    """One call of the score: its number from 1 on, the arms (positions of the candidates), the value, the seconds."""

    number: int
    arms: Subset
    value: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self) | {"arms": list(self.arms)}


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen subset, what it is worth, how it was found, and why the search stopped.

    `arms` are the positions of the subset in the candidates. `value` is the estimated mean score of the subset, with a
    95 % interval from `low` to `high`; for a repeatable score it is the score itself. `expected_loss` is how much
    better the best subset is on average, by the policy's model; None if that is unknown. `reason` says why the search
    stopped, `policy` which policy searched. `repeatable` says whether the same subset always has the same score; None
    if no subset was scored often enough to tell.
    """

    subset: tuple[Any, ...]
    arms: Subset
    value: float
    low: float
    high: float
    expected_loss: float | None
    reason: str
    policy: str
    repeatable: bool | None
    direction: Direction
    seed: int
    history: tuple[Evaluation, ...] = field(repr=False)

    @property
    def evaluations(self) -> int:
        """The number of calls of the score, including those read from a file."""
        return len(self.history)

    def best_so_far(self) -> Iterator[float]:
        """Yield the best score seen until each evaluation; of a noisy score, it is higher than any true value."""
        better = max if self.direction == "maximize" else min
        best = -math.inf if self.direction == "maximize" else math.inf
        for each in self.history:
            best = better(best, each.value)
            yield best

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; a candidate that JSON does not have becomes its label."""
        return {
            "subset": [each if isinstance(each, PLAIN) else label(each) for each in self.subset],
            "arms": list(self.arms),
            "value": self.value,
            "low": _finite(self.low),
            "high": _finite(self.high),
            "expected_loss": self.expected_loss,
            "evaluations": self.evaluations,
            "reason": self.reason,
            "policy": self.policy,
            "repeatable": self.repeatable,
            "direction": self.direction,
            "seed": self.seed,
            "history": [each.to_dict() for each in self.history],
        }

    def to_frame(self) -> Any:
        """Return the history as a pandas data frame, one row for each evaluation."""
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore]
        except ImportError as missing:
            raise MissingExtra("pandas", "pandas") from missing
        return pd.DataFrame([each.to_dict() for each in self.history], columns=["number", "arms", "value", "seconds"])

    def __str__(self) -> str:
        worth = f"{self.value:.4g}"
        if self.repeatable:
            worth += " (exact: the score is repeatable)"
        elif math.isfinite(self.low) and math.isfinite(self.high):
            worth += f" (95 % interval {self.low:.4g} to {self.high:.4g})"
        else:
            worth += " (too few evaluations for an interval)"
        lines = [f"chosen: {listed(self.subset)}", f"value: {worth}"]
        if self.expected_loss is not None:
            lines.append(f"expected loss: {self.expected_loss:.2g}")
        lines.append(f"stopped after {self.evaluations:,} evaluations: {self.reason}")
        return "\n".join(lines)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
