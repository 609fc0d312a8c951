"""Constraints: an immutable set of rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kofn.constraints.allowed import Allowed, allowed
from kofn.constraints.rules import Arm, AtLeast, AtMost, Rule, rule_of
from kofn.core import BadInput


@dataclass(frozen=True, init=False)
class Constraints:
    """Rules that every subset obeys; arms are numbers in policies and problems, names in campaigns.

    >>> from kofn.constraints import Always, AtMost, Budget
    >>> rules = Constraints(AtMost(1, [0, 1, 2]), Always([5]), Budget(4.0, {0: 3.0, 3: 2.0, 4: 2.0}))
    >>> rules.allows([(0, 3, 5), (1, 3, 5)], n_arms=6, k=3)
    array([False,  True])
    >>> Constraints.of(rules.to_list()) == rules
    True

    Rules that cannot all hold are refused when N and K are known; the error names the rules that clash.
    """

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule) -> None:
        object.__setattr__(self, "rules", tuple(rule_of(rule) for rule in rules))

    @classmethod
    def of(cls, value: Any) -> Constraints:
        """Return constraints unchanged, or make them from a list of rules or of their plain values."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str | Rule) or not isinstance(value, Sequence):
            raise BadInput(f"constraints must be kofn.Constraints or a list of rules; got {value!r}")
        return cls(*map(rule_of, value))

    @classmethod
    def by_group(
        cls, groups: Iterable[Hashable], *, at_most: int | None = None, at_least: int | None = None
    ) -> Constraints:
        """Return quotas for groups of arms: `groups` has the group of each arm, such as its brand; None for no group.

        >>> [str(rule) for rule in Constraints.by_group(["Acme", "Acme", None, "Bolt"], at_most=1).rules]
        ['at most 1 of Acme (0, 1)', 'at most 1 of Bolt (3)']
        """
        members: dict[Hashable, list[int]] = {}
        for arm, group in enumerate(groups):
            if group is not None:
                members.setdefault(group, []).append(arm)
        quotas = [(kind, count) for kind, count in ((AtMost, at_most), (AtLeast, at_least)) if count is not None]
        if not quotas:
            raise BadInput("by_group needs at_most= or at_least=, a number of arms of each group")
        return cls(*(kind(count, tuple(arms), str(group)) for group, arms in members.items() for kind, count in quotas))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __add__(self, other: Constraints) -> Constraints:
        """Return the rules of both."""
        return Constraints(*self.rules, *other.rules)

    def __repr__(self) -> str:
        return f"Constraints({', '.join(map(repr, self.rules))})"

    def to_list(self) -> list[dict[str, Any]]:
        """Return the rules as plain values, ready for JSON; `Constraints.of` reads them."""
        return [rule.to_dict() for rule in self.rules]

    def numbered(self, names: Sequence[str]) -> Constraints:
        """Return the rules with the arms' numbers in place of their names, in the order of `names`."""
        number = {name: place for place, name in enumerate(names)}

        def number_of(arm: Arm) -> int:
            if str(arm) not in number:
                raise BadInput(f"a rule names the arm {arm!r}, which does not exist. Arms: {', '.join(names[:20])}")
            return number[str(arm)]

        return Constraints(*(rule.renamed(number_of) for rule in self.rules))

    def kept(self, keep: Sequence[Arm]) -> Constraints:
        """Return what the rules demand when only these arms are left; refused if an arm that must be in has left.

        If an arm that is allowed only together with others has left, the others are in no subset.
        """
        left = set(keep)
        return Constraints(*(rule for rule in (each.only(left.__contains__) for each in self.rules) if rule))

    def groups(self, n_arms: int) -> list[int | None]:
        """Return the group of each arm: the first of the rules `AtMost` and `AtLeast` about it; None if there is none.

        >>> Constraints(AtMost(1, [0, 1]), AtLeast(1, [1, 3])).groups(5)
        [0, 0, None, 1, None]
        """
        found: list[int | None] = [None] * n_arms
        for number, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, AtMost | AtLeast):
                for arm in rule.arms:
                    found[int(arm)] = number
        return found

    def renumbered(self, keep: Sequence[int]) -> Constraints:
        """Return the rules of arms that are numbered from 0 in this order; other arms have left."""
        number = {arm: place for place, arm in enumerate(keep)}
        return Constraints(*(rule.renamed(lambda arm: number[arm]) for rule in self.kept(keep).rules))  # type: ignore[index]

    def allowed(self, n_arms: int, k: int, names: Sequence[str] | None = None, *, fewest: int | None = None) -> Allowed:
        """Return the allowed subsets of K of N arms; BadInput with the rules that clash if there are none.

        With `names`, the error has these in place of the arms' numbers. With `fewest`, a subset may have fewer than K
        arms: K - `fewest` further arms, numbered from N on, stand for places that stay empty.
        """
        return allowed(self.rules, n_arms, k, names, k if fewest is None else fewest)

    def allows(self, subsets: Any, n_arms: int, k: int) -> Any:
        """Return whether each of these subsets obeys the rules."""
        return self.allowed(n_arms, k).allows(subsets)

    def broken(self, subset: Sequence[Arm]) -> list[Rule]:
        """Return the rules that a subset breaks."""
        return [rule for rule in self.rules if not rule.holds(subset)]
