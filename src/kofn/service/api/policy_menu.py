"""The policies that can run a campaign, those that make sense first, with what each one is for."""

from __future__ import annotations

import inspect
from typing import Any

from kofn.policies.registry import POLICIES

DEFAULT = "thompson"

SETTINGS = ("half_life", "guarantee")
"""Settings of a campaign that only some policies have."""

ALTERNATIVES = {
    "thompson": "Learns the effect of each arm. Right for nearly every campaign.",
    "contextual-thompson": "Learns what is best for whom, such as phones and desktops.",
    "thompson-sizes": "As thompson, for arms that cost something: it shows fewer arms where that earns more.",
    "thompson-subsets": "Learns each subset by itself. For few arms that work only together.",
    "linear-thompson": "Assumes that the effects of arms add up, such as sales of separate products.",
    "glm-max": "For rewards of 0 or 1 that one good arm is enough to earn, such as a click on any item.",
    "oful": "Assumes that effects add up, and plays the most promising subset. Explores more than it needs to.",
}
"""What each policy is for, in the order in which a menu offers them."""

COMPARISONS = {
    "shared-credit": "Gives each arm the credit for the whole reward. Simple, and slow to find the best subset.",
    "shared-credit-ucb": "As shared-credit, with confidence bounds instead of draws.",
    "uniform": "Learns nothing: every decision has random arms. To collect unbiased data.",
}
"""Policies that lose rewards on purpose or by design. A menu shows them last."""

DOUBLING = "For simulations: it plays poor subsets for long stages, each longer than the one before."
HORIZON = "For simulations: it explores first, for a number of plays (horizon) that must be known in advance."


def policy_menu() -> list[dict[str, Any]]:
    """Return each policy with what it is for: the default, then alternatives, comparisons, and those for simulations.

    A policy that a user has registered is an alternative, with the first line of its docstring.
    """
    known = [*ALTERNATIVES, *COMPARISONS]
    order = {name: place for place, name in enumerate(known)}
    uses = ["default", "alternative", "comparison", "simulation"]
    found = [_entry(name) for name, each in POLICIES.items() if not each.needs]
    return sorted(found, key=lambda each: (uses.index(each["use"]), order.get(each["name"], len(order)), each["name"]))


def _entry(name: str) -> dict[str, Any]:
    policy = POLICIES[name]
    use = "default" if name == DEFAULT else "comparison" if name in COMPARISONS else "alternative"
    description = (ALTERNATIVES | COMPARISONS).get(name) or (policy.__doc__ or "").strip().partition("\n")[0]
    if policy.needs_horizon or name == "doubling":
        use, description = "simulation", HORIZON if policy.needs_horizon else DOUBLING
    entry = {"name": name, "description": description, "use": use, "needs_horizon": policy.needs_horizon}
    settings = [each for each in SETTINGS if each in inspect.signature(policy).parameters]
    return entry | {"takes_context": policy.takes_context, "settings": settings}
