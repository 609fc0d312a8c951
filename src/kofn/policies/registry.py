"""Policies by name, and policies as records that can be saved and restored."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

from kofn.core import BadInput, BadRecord, Policy, Seed, ShortHorizonWarning, generator
from kofn.core.checks import check_horizon, unknown_name

FORMAT = 1
"""The version of the record. It changes when an older kofn cannot read a new record."""

KOFNS_OWN = {
    "thompson": "kofn.policies.thompson:Thompson",
    "contextual-thompson": "kofn.policies.contextual:ContextualThompson",
    "uniform": "kofn.policies.uniform:Uniform",
    "thompson-guaranteed": "kofn.policies.guaranteed:ThompsonGuaranteed",
    "thompson-sizes": "kofn.policies.thompson_sizes:ThompsonSizes",
    "cmab-sm": "kofn.policies.cmab_sm:CMABSM",
    "doubling": "kofn.policies.doubling:Doubling",
    "case": "kofn.lab.rivals.case:CASE",
    "combinatorial-thompson": "kofn.lab.rivals.combinatorial_thompson:CombinatorialThompson",
    "csar": "kofn.lab.rivals.csar:CSAR",
    "cucb": "kofn.lab.rivals.cucb:CUCB",
    "dart": "kofn.lab.rivals.dart:DART",
    "etcg": "kofn.lab.rivals.etcg:ETCG",
    "glm-max": "kofn.lab.rivals.glm_max:GLMMax",
    "improved-ucb": "kofn.lab.rivals.improved_ucb:ImprovedUCB",
    "linear-thompson": "kofn.lab.rivals.linear_thompson:LinearThompson",
    "oful": "kofn.lab.rivals.oful:OFUL",
    "oracle": "kofn.lab.rivals.oracle:Oracle",
    "pairwise-thompson": "kofn.lab.rivals.pairwise_thompson:PairwiseThompson",
    "shared-credit": "kofn.lab.rivals.shared_credit:SharedCredit",
    "shared-credit-ucb": "kofn.lab.rivals.shared_credit:SharedCreditUCB",
    "slate-glm": "kofn.lab.rivals.slate_glm:SlateGLM",
    "slots": "kofn.lab.rivals.slots:Slots",
    "sub-ucb": "kofn.lab.rivals.sub_ucb:SubUCB",
    "thompson-subsets": "kofn.lab.rivals.thompson_subsets:ThompsonSubsets",
}
"""The module and class of each policy of kofn. A policy is imported when it is first asked for by its name."""

P = TypeVar("P", bound=type[Policy])


class _Registry(MutableMapping[str, type[Policy]]):
    """Classes of policies by name: kofn's own, and classes that a program has registered."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._known: dict[str, type[Policy] | str] = dict(places)

    def __getitem__(self, name: str) -> type[Policy]:
        found = self._known[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self._known[name] = getattr(import_module(module), attribute)
        return found

    def __setitem__(self, name: str, policy: type[Policy]) -> None:
        self._known[name] = policy

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known


POLICIES: MutableMapping[str, type[Policy]] = _Registry(KOFNS_OWN)


def register(policy: P) -> P:
    """Make a policy of your own available by its name; a decorator for its class."""
    POLICIES[policy.name] = policy
    return policy


def policy_named(name: str) -> type[Policy]:
    """Return the class of the policy of that name."""
    try:
        return POLICIES[name]
    except (KeyError, TypeError):
        raise BadInput(unknown_name("policy", name, sorted(POLICIES))) from None


def _takes(policy: type[Policy]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of this policy's own `from_params`, or else of its class."""
    known = inspect.signature(policy.from_params).parameters
    return known if "n_arms" in known else inspect.signature(policy).parameters


def make_policy(
    name: str, n_arms: int, k: int, *, horizon: int | None = None, seed: Seed = None, **params: Any
) -> Policy:
    """Return a new policy by its name. A policy that needs no horizon or seed ignores it.

    >>> make_policy("cmab-sm", n_arms=24, k=5, horizon=10**6).ask()
    (1, 2, 3, 4, 5)
    """
    policy = policy_named(name)
    if policy.needs_horizon and horizon is None:
        raise BadInput(f"{name} needs a horizon: give horizon= (--horizon), or use doubling, which needs none")
    if horizon is not None:
        horizon = check_horizon(horizon)
    generator(seed)  # a horizon that is ignored must be valid too
    known = _takes(policy)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in known.values())
    if unknown := sorted(set(params) - set(known)) if not open_ended else []:
        offered = sorted(set(known) - {"n_arms", "k"})
        raise BadInput(f"{name} does not take {', '.join(unknown)}; it takes: {', '.join(offered)}")
    given = {"horizon": horizon, "seed": seed}
    params |= {key: value for key, value in given.items() if value is not None and key in known}
    return policy.from_params(n_arms=n_arms, k=k, **params)


def save(policy: Policy) -> dict[str, Any]:
    """Return the policy as a record of plain values, ready for JSON; `restore` reads it.

    >>> record = save(make_policy("cmab-sm", n_arms=24, k=5, horizon=10**6))
    >>> record["policy"], record["format"], restore(record).ask()
    ('cmab-sm', 1, (1, 2, 3, 4, 5))
    """
    return {"policy": policy.name, "format": FORMAT, "params": policy.params, "state": policy.state()}


def restore(record: Mapping[str, Any]) -> Policy:
    """Return the policy of a record that `save` made."""
    if not isinstance(record, Mapping) or not {"policy", "format", "params", "state"} <= record.keys():
        raise BadRecord("a record must have the keys policy, format, params and state, as kofn.save() makes them")
    if type(record["format"]) is not int or record["format"] != FORMAT:
        raise BadRecord(
            f"this record has format {record['format']!r}; this kofn reads format {FORMAT}. Restore it with the kofn "
            "that saved it"
        )
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
