"""The rules: small frozen dataclasses, written to JSON and read from it. Each is a linear inequality in its arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import repeat
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from kofn.core import BadInput, finite_numbers, whole
from kofn.core.checks import shown, unknown_name

Arm: TypeAlias = int | str
"""An arm: its number in policies and problems, its name in campaigns."""

MOST_SHOWN = 6
"""Most arms of a rule that an error message lists."""


ROUNDING = 1e-9
"""Relative slack of a budget: costs such as 0.1 + 0.2 are added up in floating point."""


def slack(limit: float) -> float:
    """Return by how much a sum may exceed its limit."""
    return ROUNDING * max(1.0, limit) if math.isfinite(limit) else ROUNDING


class Row(NamedTuple):
    """One inequality: `low` <= the sum of the coefficients of a subset's arms <= `high`."""

    coefficients: dict[Arm, float]
    low: float
    high: float


@dataclass(frozen=True)
class Rule:
    """A rule about some arms; `name` is for people, such as "brand Acme"."""

    kind: ClassVar[str]

    @property
    def listed(self) -> tuple[Arm, ...]:
        """The arms that the rule names."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """Return the rule as inequalities."""
        raise NotImplementedError

    def holds(self, subset: Sequence[Arm]) -> bool:
        """Return whether a subset obeys the rule."""
        sums = [(sum(map(row.coefficients.get, subset, repeat(0.0))), row) for row in self.rows()]
        return all(row.low - slack(row.high) <= total <= row.high + slack(row.high) for total, row in sums)

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return what the rule demands of these arms if there are no others; None if that is nothing."""
        raise NotImplementedError

    def renamed(self, name_of: Callable[[Arm], Arm]) -> Rule:
        """Return the same rule about arms of other names or numbers."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"rule": self.kind} | {name: value for name, value in values.items() if value or name != "name"}


@dataclass(frozen=True)
class _OfArms(Rule):
    arms: Sequence[Arm]
    name: str = ""

    fewest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", _arms(self.kind, self.arms, self.fewest))
        _check_name(self.kind, self.name)

    @property
    def listed(self) -> tuple[Arm, ...]:
        """The arms that the rule names."""
        return tuple(self.arms)

    @property
    def limits(self) -> tuple[float, float]:
        """The fewest and the most of the arms that a subset has."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """Return one inequality."""
        return [Row(dict.fromkeys(self.arms, 1.0), *self.limits)]

    def renamed(self, name_of: Callable[[Arm], Arm]) -> Self:
        """Return the same rule about arms of other names or numbers."""
        return replace(self, arms=tuple(name_of(arm) for arm in self.arms))

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return the rule about the arms that are kept; None if too few are left for it to demand anything."""
        arms = tuple(filter(keep, self.arms))
        return replace(self, arms=arms) if len(arms) >= self.fewest else None

    def __str__(self) -> str:
        return f"{self.kind.replace('-', ' ')} {_shown(self.arms, self.name)}"


@dataclass(frozen=True)
class Always(_OfArms):
    """These arms are in every subset."""

    kind = "always"

    @property
    def limits(self) -> tuple[float, float]:
        """All of the arms."""
        return float(len(self.arms)), float(len(self.arms))

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return the rule unchanged, or refuse: an arm that is always in cannot leave."""
        if gone := [arm for arm in self.arms if not keep(arm)]:
            raise BadInput(f"arm {gone[0]!r} is always in, so it cannot be retired: change the rule first ({self})")
        return self


@dataclass(frozen=True)
class Never(_OfArms):
    """These arms are in no subset."""

    kind = "never"
    limits = (0.0, 0.0)


@dataclass(frozen=True)
class NeverTogether(_OfArms):
    """No two of these arms are in the same subset."""

    kind = "never-together"
    fewest = 2
    limits = (0.0, 1.0)


@dataclass(frozen=True)
class OnlyTogether(_OfArms):
    """A subset has all of these arms or none of them."""

    kind = "only-together"
    fewest = 2

    def rows(self) -> list[Row]:
        """Return an equality for each pair of neighbours."""
        return [Row({a: 1.0, b: -1.0}, 0.0, 0.0) for a, b in zip(self.arms, self.arms[1:], strict=False)]

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return the rule; if one of its arms has left, the others cannot be in a subset either."""
        left = tuple(filter(keep, self.arms))
        if len(left) == len(self.arms):
            return self
        return Never(left, self.name) if left else None


@dataclass(frozen=True)
class _Count:
    count: int


@dataclass(frozen=True)
class _Counted(_OfArms, _Count):  # in this order, `count` is the first field
    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole(f"count of the rule {self.kind}", self.count, least=0))
        super().__post_init__()

    def __str__(self) -> str:
        return f"{self.kind.replace('-', ' ')} {self.count} of {_shown(self.arms, self.name)}"


@dataclass(frozen=True)
class AtMost(_Counted):
    """A subset has at most `count` of these arms."""

    kind = "at-most"

    @property
    def limits(self) -> tuple[float, float]:
        """At most `count`."""
        return 0.0, float(self.count)


@dataclass(frozen=True)
class AtLeast(_Counted):
    """A subset has at least `count` of these arms."""

    kind = "at-least"

    @property
    def limits(self) -> tuple[float, float]:
        """At least `count`."""
        return float(self.count), math.inf

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return the rule about the arms that are kept, or refuse if fewer are left than it demands."""
        arms = tuple(filter(keep, self.arms))
        if len(arms) < self.count:
            raise BadInput(f"a rule demands {self}, but only {len(arms)} of these arms are left: change the rule first")
        return replace(self, arms=arms) if arms else None


@dataclass(frozen=True)
class Budget(Rule):
    """The costs of a subset's arms add up to at most `most`; `costs` are pairs of arm and cost, or a mapping.

    Arms without a cost are free.
    """

    most: float
    costs: Mapping[Any, float] | Sequence[tuple[Arm, float]]
    name: str = ""

    kind = "budget"

    def __post_init__(self) -> None:
        try:
            pairs = [(arm, cost) for arm, cost in self.pairs]
        except (TypeError, ValueError):
            raise BadInput(f"costs of a budget must be pairs of arm and cost; got {shown(self.costs)}") from None
        arms = _arms(self.kind, [arm for arm, _ in pairs], 1)
        costs = finite_numbers("costs of a budget", [cost for _, cost in pairs])
        most = float(finite_numbers("most of a budget", self.most))
        if costs.min() < 0 or most < 0:
            raise BadInput(f"a budget and its costs must be at least 0; got most={most:g} and costs {shown(pairs)}")
        object.__setattr__(self, "most", most)
        object.__setattr__(self, "costs", tuple(zip(arms, costs.tolist(), strict=True)))
        _check_name(self.kind, self.name)

    @property
    def listed(self) -> tuple[Arm, ...]:
        """The arms that the rule names."""
        return tuple(arm for arm, _ in self.pairs)

    @property
    def pairs(self) -> Sequence[tuple[Arm, float]]:
        """The costs, as pairs of arm and cost."""
        return tuple(self.costs.items()) if isinstance(self.costs, Mapping) else self.costs

    def rows(self) -> list[Row]:
        """Return one inequality."""
        return [Row(dict(self.pairs), 0.0, self.most)]

    def only(self, keep: Callable[[Arm], bool]) -> Rule | None:
        """Return the budget of the arms that are kept; None if there are none."""
        costs = tuple((arm, cost) for arm, cost in self.pairs if keep(arm))
        return replace(self, costs=costs) if costs else None

    def renamed(self, name_of: Callable[[Arm], Arm]) -> Budget:
        """Return the same rule about arms of other names or numbers."""
        return replace(self, costs=tuple((name_of(arm), cost) for arm, cost in self.pairs))

    def __str__(self) -> str:
        priced = [f"{arm} {cost:g}" for arm, cost in self.pairs]
        return f"costs of at most {self.most:g} for {_shown(priced, self.name)}"


KINDS: dict[str, type[Rule]] = {
    kind.kind: kind for kind in (AtMost, AtLeast, NeverTogether, OnlyTogether, Always, Never, Budget)
}


def rule_of(plain: Any) -> Rule:
    """Return a rule, or the rule that plain values of `to_dict` describe."""
    if isinstance(plain, Rule):
        return plain
    if not isinstance(plain, Mapping) or "rule" not in plain:
        raise BadInput(f"a rule must be one of kofn.constraints, or its plain values with the key rule; got {plain!r}")
    values = {key: value for key, value in plain.items() if key != "rule"}
    kind = KINDS.get(plain["rule"]) if isinstance(plain["rule"], str) else None
    if kind is None:
        raise BadInput(unknown_name("rule", plain["rule"], KINDS))
    takes = [field.name for field in fields(kind)]
    if set(values) - set(takes) or {key for key in takes if key != "name"} - set(values):
        raise BadInput(f"the rule {kind.kind} has the keys {', '.join(takes)}; got {', '.join(values) or 'none'}")
    return kind(**values)


def _arms(kind: str, arms: Any, fewest: int) -> tuple[Arm, ...]:
    """Return arms as a tuple of different names or numbers, or raise BadInput."""
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise BadInput(f"the arms of the rule {kind} must be a list of arms; got {arms!r}")
    found = tuple(int(arm) if isinstance(arm, np.integer) else arm for arm in arms)
    for arm in found:
        if isinstance(arm, bool) or not isinstance(arm, int | str):
            raise BadInput(f"an arm of the rule {kind} must be a number or a name; got {arm!r}")
    if len(set(found)) != len(found):
        twice = next(arm for arm in found if found.count(arm) > 1)
        raise BadInput(f"arm {twice!r} is listed twice in the rule {kind}")
    if len(found) < fewest:
        raise BadInput(f"the rule {kind} needs at least {fewest} arm{'s' * (fewest > 1)}; got {shown(found)}")
    return found


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise BadInput(f"the name of the rule {kind} must be text; got {name!r}")


def _plain(value: Any) -> Any:
    """Return a value with lists in place of tuples."""
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _shown(arms: Sequence[Arm], name: str) -> str:
    more = ", ..." if len(arms) > MOST_SHOWN else ""
    listed = f"({', '.join(map(str, arms[:MOST_SHOWN]))}{more})"
    return f"{name} {listed}" if name else listed
