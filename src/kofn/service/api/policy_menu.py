"""The policies that can run a campaign, those for practitioners first, with what each one is for."""

from __future__ import annotations

import inspect
from typing import Any

from kofn.policies.registry import POLICIES

SETTINGS = ("half_life",)
"""Settings of a campaign that only some policies have."""


def policy_menu() -> list[dict[str, Any]]:
    """Return each policy with what it is for. Menus offer those with a purpose, and the others as research policies."""
    found = [_entry(name) for name, each in POLICIES.items() if not each.needs]
    return sorted(found, key=lambda each: not each["offered"])


def _entry(name: str) -> dict[str, Any]:
    policy = POLICIES[name]
    return {
        "name": name,
        "description": policy.purpose or (policy.__doc__ or "").strip().partition("\n")[0],
        "offered": bool(policy.purpose),
        "needs_horizon": policy.needs_horizon,
        "takes_context": policy.takes_context,
        "settings": [each for each in SETTINGS if each in inspect.signature(policy).parameters],
    }
