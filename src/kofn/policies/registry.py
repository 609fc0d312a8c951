"""Policies by name, and policies as records that can be kept and brought back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

from kofn.core import BadInput, BadRecord, Policy, Seed, ShortHorizonWarning, generator
from kofn.core.checks import check_horizon, unknown_name

FORMAT = 1
"""The version of the record; it changes when an older kofn could not read a newer record."""

POLICIES: dict[str, type[Policy]] = {}

P = TypeVar("P", bound=type[Policy])


def register(policy: P) -> P:
    """Make a policy known by its name; a decorator for its class."""
    POLICIES[policy.name] = policy
    return policy


def policy_named(name: str) -> type[Policy]:
    """The class of the policy of that name."""
    try:
        return POLICIES[name]
    except (KeyError, TypeError):
        raise BadInput(unknown_name("policy", name, sorted(POLICIES))) from None


def _takes(policy: type[Policy]) -> Mapping[str, inspect.Parameter]:
    """The parameters that make this policy: those of its own `from_params`, or else of its class."""
    known = inspect.signature(policy.from_params).parameters
    return known if "n_arms" in known else inspect.signature(policy).parameters


def make_policy(
    name: str, n_arms: int, k: int, *, horizon: int | None = None, seed: Seed = None, **params: Any
) -> Policy:
    """A new policy by its name. A policy that needs no horizon or seed accepts one and ignores it.

    >>> make_policy("cmab-sm", n_arms=24, k=5, horizon=10**6).ask()
    (1, 2, 3, 4, 5)
    """
    policy = policy_named(name)
    if policy.needs_horizon and horizon is None:
        raise BadInput(f"{name} needs a horizon: give horizon=, or let doubling find it: make_policy('doubling', ...)")
    if horizon is not None:
        horizon = check_horizon(horizon)
    generator(seed)  # what is ignored must make sense too
    known = _takes(policy)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in known.values())
    if unknown := sorted(set(params) - set(known)) if not open_ended else []:
        offered = sorted(set(known) - {"n_arms", "k"})
        raise BadInput(f"{name} does not take {', '.join(unknown)}; it takes: {', '.join(offered)}")
    given = {"horizon": horizon, "seed": seed}
    params |= {key: value for key, value in given.items() if value is not None and key in known}
    return policy.from_params(n_arms=n_arms, k=k, **params)


def save(policy: Policy) -> dict[str, Any]:
    """The policy as a record of plain values, ready for JSON; `restore` brings it back.

    >>> record = save(make_policy("cmab-sm", n_arms=24, k=5, horizon=10**6))
    >>> record["policy"], record["format"], restore(record).ask()
    ('cmab-sm', 1, (1, 2, 3, 4, 5))
    """
    return {"policy": policy.name, "format": FORMAT, "params": policy.params, "state": policy.state()}


def restore(record: Mapping[str, Any]) -> Policy:
    """The policy that `save` described."""
    if not isinstance(record, Mapping) or not {"policy", "format", "params", "state"} <= record.keys():
        raise BadRecord("a record has the keys policy, format, params and state, as kofn.save() makes them")
    if type(record["format"]) is not int or record["format"] != FORMAT:
        raise BadRecord(f"this record has format {record['format']!r}, but this kofn reads format {FORMAT}")
    if not isinstance(record["policy"], str) or record["policy"] not in POLICIES:
        raise BadRecord(f"this record is of the policy {record['policy']!r}, which this kofn does not have")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            policy = POLICIES[record["policy"]].from_params(**record["params"])
    except (BadInput, TypeError) as why:
        raise BadRecord(f"the record's params do not make a {record['policy']}: {why}") from why
    policy.load(record["state"])
    return policy
