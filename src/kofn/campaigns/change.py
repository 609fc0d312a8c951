"""Campaigns are created and changed: their settings, arms and state.

What takes long, such as making a policy or solving rules, happens before the transaction, which is repeated if the
campaign has changed meanwhile. A change of the policy is logged as the end of a learning step, so the policy learns it
in order; until then, decisions follow a plan that was made for the new rules and arms by the policy as it was.
"""

from __future__ import annotations

import copy
import json
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select, update

from kofn.campaigns.fold import Row, Transaction, read_record, read_steps
from kofn.campaigns.learning import best_of_segments, changed, policy_of, record_from, record_text, served, take
from kofn.campaigns.names import arm_name
from kofn.campaigns.roster import Roster
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.settings import (
    OF_POLICY,
    UNIFORM,
    Settings,
    check_obeys,
    costs_text,
    joined,
    policy_costs,
    policy_rules,
    rules_text,
)
from kofn.campaigns.store import version
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import ARMS, CAMPAIGNS, FOLDS, PLANS, STATES
from kofn.campaigns.store.stamps import new_stamp
from kofn.campaigns.tally import Cut
from kofn.core import (
    BadInput,
    CampaignExists,
    KofnError,
    NotRunning,
    Policy,
    Seed,
    StateError,
    StoreError,
    Subset,
    seed_number,
)
from kofn.core.campaign_settings import ChangedSettings
from kofn.core.checks import shown, unknown_name
from kofn.policies.registry import make_policy, policy_named, save

TRIES = 20
"""How often a change is tried while the campaign changes."""

OWN = ("n_arms", "k", "seed", "reward_range", "direction", "constraints", "costs", "name")
"""Parameters of policies that `create` takes itself."""

# A new campaign.


def policy_for(
    name: str, roster: Roster, settings: Mapping[str, Any], params: Mapping[str, Any] | None, seed: Seed
) -> Policy:
    """Make the policy of a new campaign; one that needs more than a reward per play is refused."""
    if needs := policy_named(name).needs:
        raise BadInput(
            f"{name} cannot run a campaign, which has one reward per play: it also needs {', '.join(needs)}. Choose "
            "another policy"
        )
    if params is not None and not isinstance(params, Mapping):
        raise BadInput(f"params must be a dict of the policy's own parameters; got {params!r}")
    own = dict(params or {})
    if taken := own.keys() & set(OWN):
        raise BadInput(
            f"params must be the policy's own parameters: pass {', '.join(sorted(taken))} to create() itself"
        )
    own |= {name: value for name, value in settings.items() if name in OWN and value is not None}
    if "costs" in own and "costs" not in policy_named(name).__signature__.parameters:
        raise BadInput(f"{name} does not take costs. Use thompson-sizes, which learns net of them")
    return make_policy(name, len(roster.active), own.pop("k"), seed=seed, **own)


def new_settings(
    policy: str,
    roster: Roster,
    k: int,
    base: Mapping[str, Any],
    params: Mapping[str, Any] | None,
    seed: Seed,
    given: Mapping[str, Any],
) -> tuple[Settings, Policy]:
    """Return the settings and the policy of a new campaign, checked."""
    with warnings.catch_warnings():
        if any(given.get(name) is not None for name in ("constraints", "costs")):
            warnings.simplefilter("ignore")  # it is made again with them
        first = policy_for(policy, roster, {**base, "k": k}, params, seed)
    own = first.params
    settings = Settings(
        policy=first.name,
        n_arms=first.n_arms,
        k=first.k,
        fewest=first.fewest,
        direction=first.direction,
        reward_range=first.reward_range,
        seed=secrets.randbits(62) if seed is None else seed_number(seed) % 2**62,
        takes_context=first.takes_context,
        learns_from_all=first.accepts_unplanned,
        attributes=own.get("attributes"),
        half_life=own.get("half_life"),
    ).changed(given, roster)
    if settings.outside == "widen":
        first.with_params(reward_range=first.reward_range)  # refused unless the policy can do it
    more = {
        "constraints": policy_rules(settings.constraints, roster, settings),
        "costs": policy_costs(settings.costs, roster),
    }
    if any(each is not None for each in more.values()):
        first = policy_for(policy, roster, {**base, "k": k, **more}, params, own.get("seed", seed))
    return settings, first


def insert(store: Store, name: str, roster: Roster, settings: Settings, policy: Policy) -> Row:
    """Write all rows of a new campaign, and return its row."""
    plan = ServedPlan(0, **served(policy, roster, (), settings.control == UNIFORM))
    record = record_text(save(policy), roster.active)

    def work(connection: Connection) -> Row:
        now = store.now(connection)
        row = Row(name, secrets.token_hex(16), settings, new_stamp(), now, now, Cut(0, 0, 0, now))
        insert_row(connection, row)
        of = {"campaign": row.id}
        connection.execute(ARMS.insert(), arms_of(roster) | of)
        connection.execute(PLANS.insert(), {"plan": plan.to_text(), **of})
        connection.execute(STATES.insert(), {"step": 0, "record": record, **of})
        connection.execute(FOLDS.insert(), {"step": 0, "at": now, "tallies": "[]", "record": record, **of})
        tx = Transaction(store, connection, row, now)
        row.progress.plan(plan.rows)
        tx.note("created", f"{settings.n_arms} arms, {settings.k} places, {settings.policy}")
        tx.write()
        return row

    return store.transact(work)


def insert_row(connection: Connection, row: Row) -> None:
    """Insert a campaign's row and set its id; raise CampaignExists if the name is taken."""
    version.check(connection)
    if connection.execute(select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.name == row.name)).first():
        raise CampaignExists(f"a campaign named {row.name!r} already exists: open it, or choose another name")
    values = row.values()
    del values["id"]
    key = connection.execute(CAMPAIGNS.insert().values(values)).inserted_primary_key
    assert key is not None
    row.id = int(key[0])


def arms_of(roster: Roster) -> dict[str, str]:
    """Return the columns of a roster."""
    return {"names": json.dumps(roster.names), "active": json.dumps(roster.active)}


# Changes.


class _Changed(Exception):
    """The campaign has changed since it was read."""


class Change:
    """A change of a campaign: what was read of it, and on demand its policy, before the transaction that writes."""

    def __init__(self, store: Store, campaign: int) -> None:
        self.store, self.campaign = store, campaign
        with store.read() as connection:
            tx = Transaction.open(store, connection, campaign)
            self.row, self.roster, self.step = tx.row, tx.roster(), tx.learned
            self._record = connection.execute(select(STATES.c.record).where(STATES.c.campaign == campaign)).scalar_one()
        self.uniform = self.row.settings.control == UNIFORM
        self._policy: tuple[Policy, Roster] | None = None

    @property
    def policy(self) -> Policy:
        """The policy as of its last learning step, with the changes that it has still to learn."""
        return self._restored()[0]

    def _restored(self) -> tuple[Policy, Roster]:
        if self._policy is None:
            known = record_from(self._record)
            with self.store.read() as connection:
                record, active, before = read_record(connection, self.campaign, known, self.step)
                waiting = read_steps(connection, self.campaign, self.step, self.row.step - 1)
            with self.computing():
                policy, roster = policy_of(record, active)
                for each in before:
                    policy, roster = take(policy, roster, each)
                for each in waiting:
                    if each.change is not None:
                        policy, roster = changed(policy, roster, each.change)
            self._policy = policy, roster
        return self._policy

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Raise StateError if the policy fails. That it refuses something is an error of the caller."""
        try:
            yield
        except KofnError:
            raise
        except Exception as why:
            raise StateError(
                f"the policy of the campaign {self.row.name!r} failed: {type(why).__name__}: {why}"
            ) from why

    def best(self) -> tuple[Subset, dict[str, Subset]]:
        """Return the best subset, and the best ones of segments."""
        policy, known = self._restored()
        with self.computing():
            return known.to_numbers(policy.best()), best_of_segments(policy, known)

    def after(self, change: Mapping[str, Any]) -> tuple[Policy, ServedPlan]:
        """Return the policy after a change, and a plan for it."""
        policy, known = self._restored()
        with self.computing():
            if change != {"params": {}}:
                policy, known = changed(copy.deepcopy(policy), known, change)
            return policy, ServedPlan(self.row.step, **served(policy, known, (), self.uniform))

    def write(self, work: Callable[[Transaction], None]) -> None:
        """Execute `work` in a transaction, if the campaign is still what was read."""

        def checked(connection: Connection) -> None:
            tx = Transaction.open(self.store, connection, self.campaign)
            if (tx.row.version, tx.row.stamp, tx.row.step) != (self.row.version, self.row.stamp, self.row.step):
                raise _Changed
            before = tx.row.version
            work(tx)
            if tx.row.version == before:
                tx.row.change()
            tx.write()

        self.store.locked(self.campaign, checked)


def attempt(store: Store, campaign: int, secret: bytes, make: Callable[[Change], None]) -> None:
    """Make a change; again, if the campaign has changed meanwhile."""
    from kofn.core import NoSuchCampaign

    for _ in range(TRIES):
        change = Change(store, campaign)
        if bytes.fromhex(change.row.secret) != secret:
            raise NoSuchCampaign(
                f"the campaign {change.row.name!r} has been deleted, or its store replaced: open it again"
            )
        try:
            make(change)
        except _Changed:
            continue
        store.serving(campaign, again=True)
        return
    raise StoreError("the campaign changes all the time: try again")


def check_not_archived(row: Row) -> None:
    """Raise NotRunning if the campaign is archived: then it changes no more."""
    if row.state == "archived":
        raise NotRunning(f"the campaign {row.name!r} is archived: it cannot be changed")


def _check_shipped(change: Change, settings: Settings) -> None:
    """Raise BadInput if the campaign is shipped, and a subset that it serves breaks the rules."""
    if change.row.state == "shipped":
        for shipped in map(change.roster.names_of, settings.served):
            check_obeys(settings.constraints, shipped, "the subset that is shipped", "Resume first, or change the rule")


def configure(change: Change, given: Mapping[str, Any]) -> None:
    """Change the settings that are given. All of them are checked first."""
    for name in given.keys() - ChangedSettings.__annotations__.keys():
        raise BadInput(unknown_name("setting", name, ChangedSettings.__annotations__))
    check_not_archived(change.row)
    before = change.row.settings
    settings = before.changed(given, change.roster)
    differs = {name for name in given if getattr(settings, name) != getattr(before, name)}
    params = _params(change, settings, differs)
    if settings.outside == "widen" != before.outside:
        policy = change.policy
        with change.computing():
            policy.with_params(reward_range=policy.reward_range)
    if "constraints" in differs:
        _check_shipped(change, settings)
    change.uniform = settings.control == UNIFORM
    plan = None
    if params or (change.uniform and "control" in differs):
        policy, plan = change.after({"params": params})
        settings = replace(settings, learns_from_all=policy.accepts_unplanned, reward_range=policy.reward_range)

    def work(tx: Transaction) -> None:
        new = settings
        if differs & {"control", "control_share"}:
            new = replace(new, control_from=tx.end.decisions)
            tx.row.progress.compare_again()
        if "silence" in differs or (before.outside == "clip" and differs & {"outside", "reward_range"}):
            tx.row.progress.revalued |= tx.row.progress.rewarded > 0
        if differs & {"stop_when", "constraints", "costs"}:
            tx.row.progress.look = None
        tx.row.settings = new
        if params:
            tx.close_step({"params": params})
        if plan is not None:
            tx.serve(replace(plan, after=tx.row.cut.decisions))
        if "constraints" in differs:
            tx.note("changed", f"rules: {rules_text(new.constraints)}")
        if "costs" in differs:
            tx.note("changed", f"costs: {costs_text(new.costs)}")
        if own := [_changed(name, value) for name, value in params.items() if name not in ("constraints", "costs")]:
            tx.note("changed", ", ".join(own))
        if others := sorted(given.keys() - set(OF_POLICY)):
            tx.note("configured", ", ".join(others))

    change.write(work)


def _params(change: Change, settings: Settings, differs: set[str]) -> dict[str, Any]:
    """Return the changed parameters of the policy."""
    params: dict[str, Any] = {name: getattr(settings, name) for name in OF_POLICY if name in differs}
    if "reward_range" in params:
        params["reward_range"] = list(settings.reward_range)
    if "constraints" in params:
        params["constraints"] = policy_rules(settings.constraints, change.roster, settings)
    if "costs" in params:
        params["costs"] = policy_costs(settings.costs, change.roster)
    return params


def _changed(name: str, value: Any) -> str:
    """Return a parameter and its new value, for people to read."""
    return f"{name} is {value[0]:g} to {value[1]:g}" if name == "reward_range" else f"{name} is {value}"


def add_arm(change: Change, name: str, groups: Sequence[str] = ()) -> None:
    """Add an arm, or bring a retired one back as a new arm. The policy keeps what it has learned about the others.

    It joins the rules whose names are in `groups`.
    """
    check_not_archived(change.row)
    roster = change.roster
    if arm_name(name) in roster.number_of:
        raise BadInput(f"the campaign already has an arm {name!r}: choose another name")
    number = len(roster.names)
    new = Roster([*roster.names, name], [*roster.active, number], new_stamp())
    settings = replace(change.row.settings, constraints=joined(change.row.settings.constraints, name, groups))
    if isinstance(settings.control, tuple):
        control = roster.names_of(settings.control)
        check_obeys(settings.constraints, control, "the control", "Change the control or the rule")
    _check_shipped(change, settings)
    log = {"added": number}
    if settings.costs is not None:
        log["costs"] = [settings.costs.get(name, 0.0)]  # type: ignore[assignment]
    _change_arms(change, new, settings, log, "arm back" if name in roster.names else "arm added", name)


def retire_arm(change: Change, name: str) -> None:
    """Retire an arm. Rewards of decisions that show it are still counted, but ignored for learning."""
    check_not_archived(change.row)
    roster, settings = change.roster, change.row.settings
    if not isinstance(name, str) or name not in roster.number_of:
        raise BadInput(f"there is no arm {shown(name)} to retire")
    if len(roster.active) <= settings.k + 1:
        raise BadInput(
            f"cannot retire {name!r}: the campaign has {len(roster.active)} arms and needs more than k={settings.k}. "
            "Add an arm first"
        )
    number = roster.number_of[name]
    if isinstance(settings.control, tuple) and number in settings.control:
        raise BadInput(f"cannot retire {name!r}: it is in the control. Change the control first")
    if change.row.state == "shipped" and any(number in subset for subset in settings.served):
        raise BadInput(f"cannot retire {name!r}: it is in a subset that was shipped. Ship another one first")
    new = Roster(roster.names, [arm for arm in roster.active if arm != number], new_stamp())
    _change_arms(change, new, settings, {"retired": number}, "arm retired", name)


def _change_arms(change: Change, roster: Roster, settings: Settings, log: dict[str, Any], kind: str, name: str) -> None:
    settings = replace(settings, n_arms=len(roster.active))
    rules = policy_rules(settings.constraints, roster, settings)
    if rules is not None:
        log["constraints"] = rules
    _, plan = change.after(log)

    def work(tx: Transaction) -> None:
        row = tx.row
        row.settings, row.arms_version = settings, roster.version
        tx.connection.execute(update(ARMS).where(ARMS.c.campaign == row.id).values(arms_of(roster)))
        tx.close_step(log)
        tx.serve(replace(plan, after=row.cut.decisions))
        tx.note(kind, name)

    change.write(work)


def enter(change: Change, state: str, allowed: set[str]) -> None:
    """Change the state."""
    row = change.row
    if row.state == state:
        return
    if row.state not in allowed:
        raise NotRunning(final(row))

    def work(tx: Transaction) -> None:
        tx.row.state = state
        tx.note("resumed" if state == "running" else state)

    change.write(work)


def ship(change: Change, arms: Sequence[Any] | None, *, store: bool) -> None:
    """Give everyone the best subset, or these arms."""
    row, settings = change.row, change.row.settings
    if row.state not in ("running", "paused", "shipped"):
        raise NotRunning(final(row))
    of_segments: dict[str, Subset] = {}
    if arms is not None:
        subset = change.roster.subset_of(arms, settings.k, settings.fewest)
    elif not row.progress.rewards:
        raise BadInput("there is no best subset before the first reward: name the arms to ship")
    else:
        subset, of_segments = change.best()
    for names in map(change.roster.names_of, (subset, *of_segments.values())):
        check_obeys(settings.constraints, names, "this subset", "Ship other arms, or change the rule first")
    change.write(lambda tx: tx.ship(subset, of_segments, store=store))


def final(row: Row) -> str:
    """Return why the state cannot change."""
    return f"the campaign {row.name!r} is {row.state}, which is final: create another campaign"
