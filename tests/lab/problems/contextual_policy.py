"""A policy that takes a context and plays a script: the same rows in every plan, and fillers by number."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kofn.core import Plan, Policy, Subset, Tally
from kofn.core.contexts import Attributes

Row = tuple[Mapping[str, str], Subset, int]


class ContextualScript(Policy):
    """Plays the rows (context, subset, times). `learned` has what each plan was, as {(segment, subset): sums}."""

    name = "contextual-script"
    takes_context = True
    accepts_unplanned = True

    def __init__(self, n_arms: int, rows: Sequence[Row], fillers: Sequence[Subset], attributes: Any = None) -> None:
        super().__init__(n_arms, len(fillers[0]))
        self._attributes, self._rows, self._subsets = Attributes(attributes), rows, fillers
        self.learned: list[dict[Any, tuple[float, ...]]] = []

    def segment(self, context: Mapping[str, Any] | None) -> str:
        return self._attributes.key(context, ())

    def best(self, context: Mapping[str, Any] | None = None) -> Subset:
        del context
        return self._subsets[0]

    def filler(self, index: int, segment: str | None = None) -> Subset:
        assert segment is not None
        return self._subsets[(index + len(segment)) % len(self._subsets)]

    def _next(self) -> Plan:
        contexts, subsets, times = zip(*self._rows, strict=True)
        return Plan(np.array(subsets), np.array(times), tuple(map(self.segment, contexts)))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        found: dict[Any, tuple[float, ...]] = {}
        for row in range(len(plan)):
            sums = np.array([each[row] for each in (tally.count, tally.total, tally.squares)])
            key = plan.key(row)
            found[key] = tuple(sums + found.get(key, (0, 0, 0)))
        self.learned.append(found)
