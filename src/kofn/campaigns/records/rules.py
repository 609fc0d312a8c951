"""The constraints of a campaign: rules about its arms by name. The policy's rules follow from them.

The options have the rules that the user gave. Retiring an arm leaves them unchanged, so an arm that comes back is in
its groups again. The policy has the rules about the active arms, by its own numbers of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kofn.constraints import Always, Budget, Constraints, Rule
from kofn.constraints.rules import rule_of
from kofn.core import BadInput
from kofn.core.checks import shown

if TYPE_CHECKING:
    from kofn.campaigns.records.rows import Roster


def named_rules(given: Any, roster: Roster) -> Constraints | None:
    """Return the constraints that a user gave, by names of arms, checked; None if there are no rules.

    Rules may name arms that are retired: those obey when they come back.
    """
    if given is None:
        return None
    known = set(roster.names)

    def name_of(arm: int | str) -> str:
        if isinstance(arm, str) and arm in known:
            return arm
        if isinstance(arm, int) and 0 <= arm < len(roster.names):
            return roster.names[arm]
        some = ", ".join(repr(roster.names[active]) for active in roster.active[:3])
        raise BadInput(f"a rule names the arm {shown(arm)}, which the campaign does not have; it has {some}...")

    rules = Constraints(*(rule.renamed(name_of) for rule in Constraints.of(given)))
    for rule in rules:
        retired = [arm for arm in rule.listed if arm not in roster.number_of]
        if isinstance(rule, Always) and retired:
            raise BadInput(f"arm {retired[0]!r} is retired, so it cannot be always in: add it again first ({rule})")
    return rules if len(rules) else None


def policy_rules(rules: Constraints | None, roster: Roster, sizes: tuple[int, int]) -> list[dict[str, Any]] | None:
    """Return the rules about the active arms as the policy takes them: by its numbers, as plain values.

    Rules that cannot all hold are refused, with the names of their arms, and so are rules that are too slow to solve:
    other campaigns of a SQLite store wait while a plan is made. `sizes` are the fewest and the most arms of a subset.
    """
    if rules is None:
        return None
    active = roster.names_of(tuple(roster.active))
    found = rules.kept(active).numbered(active)
    fewest, k = sizes
    if (seconds := found.allowed(len(active), k, active, fewest=fewest).seconds) > SLOWEST:
        raise BadInput(
            f"these rules are too hard for a campaign: to find one subset took {seconds:.1f} seconds, and at most "
            f"{SLOWEST:g} are allowed. Use fewer rules, or one rule about many arms in place of many about two"
        )
    return found.to_list()


def joined(rules: Constraints | None, arm: str, groups: Sequence[str]) -> Constraints | None:
    """Return the rules after adding a new arm to the rules with these names, such as the quota of its brand."""
    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise BadInput(f"groups must be a list of names of rules; got {shown(groups)}")
    names = [name for rule in rules or () if (name := _name(rule)) and not isinstance(rule, Budget)]
    for group in groups:
        if group not in names:
            there = ", ".join(map(repr, dict.fromkeys(names))) or "none"
            raise BadInput(f"no rule about arms has the name {shown(group)}; names of rules: {there}")
    if rules is None or not groups:
        return rules
    return Constraints(*(_with_arm(rule, arm) if _name(rule) in groups else rule for rule in rules))


def _name(rule: Rule) -> str:
    return str(rule.to_dict().get("name", ""))


def _with_arm(rule: Rule, arm: str) -> Rule:
    if arm in rule.listed or isinstance(rule, Budget):
        return rule
    return rule_of({**rule.to_dict(), "arms": [*rule.listed, arm]})


def check_obeys(rules: Constraints | None, arms: Sequence[str], what: str, remedy: str) -> None:
    """Raise BadInput, naming the rules, if a subset of arms breaks some."""
    if rules is not None and (broken := rules.broken(arms)):
        rule = "rule" if len(broken) == 1 else "rules"
        raise BadInput(f"{what} breaks the {rule} {'; '.join(map(str, broken))}. {remedy}")


def rules_text(rules: Constraints | None) -> str:
    """Return the rules for an event."""
    return "no rules" if rules is None else "; ".join(map(str, rules))[:MAX_TEXT]


SLOWEST = 1.0
"""Most seconds of processor time in which the solver finds a subset. Most rules take milliseconds. An update of the
policy asks the solver twice, and the first plan some times more. Higher: other campaigns wait longer meanwhile."""

MAX_TEXT = 500
"""Longest text of rules in an event, in characters."""
