"""A campaign as a report sees it: what folds have counted, and what has been appended since."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, cast

from sqlalchemy import Connection, select

from kofn.campaigns.fold import Row, Transaction, insight_from, lift_of, read_slots
from kofn.campaigns.roster import Roster, subset_from
from kofn.campaigns.serving import SERVING
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import STATES
from kofn.campaigns.tally import Slot, tally
from kofn.core import Insight, Subset
from kofn.core.responses import Lift, State, Summary, moment


class View:
    """One moment of a campaign: its row, with the progress up to now."""

    def __init__(self, store: Store, connection: Connection, campaign: int) -> None:
        self.tx = tx = Transaction.open(store, connection, campaign)
        self.store, self.connection, self.now = store, connection, tx.now
        self.row, self.id, self.settings, self.progress = tx.row, tx.row.id, tx.row.settings, tx.row.progress
        tail = tally(connection, campaign, self.settings, self.progress, tx.row.cut, tx.end)
        self._new_slots = tail.slots
        self.new_plays = tail.plays()
        tail.add_to(self.progress, self.settings.sign)

    @cached_property
    def roster(self) -> Roster:
        """The campaign's arms."""
        return self.tx.roster()

    @cached_property
    def _state(self) -> Any:
        columns = STATES.c.step, STATES.c.insight, STATES.c.segments, STATES.c.record
        return self.connection.execute(select(*columns).where(STATES.c.campaign == self.id)).one()

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {} if self._state.insight is None else dict(json.loads(self._state.insight))

    @cached_property
    def insight(self) -> Insight | None:
        """What the policy knew at its last learning step."""
        return insight_from(self._known.get("known"))

    @property
    def plain_insight(self) -> dict[str, Any] | None:
        """The same as plain values."""
        return self._known.get("known")

    @property
    def updates(self) -> int:
        """How often the policy has learned."""
        return int(self._known.get("updates", 0))

    @cached_property
    def best(self) -> Subset:
        """The policy's best subset, as arm numbers: of the arms and by the rules that are in force."""
        return subset_from(self.tx.plan().best)

    @cached_property
    def active(self) -> list[int]:
        """The arms to which the insight's numbers belong."""
        return list(json.loads(self._state.record)["active"])

    @cached_property
    def of_segments(self) -> dict[str, Any]:
        """What the policy knew about segments and attributes."""
        return {} if self._state.segments is None else dict(json.loads(self._state.segments))

    @cached_property
    def slots(self) -> dict[int, Slot]:
        """The history up to now."""
        found = read_slots(self.connection, self.id)
        for slot, here in self._new_slots.items():
            found[slot] = found.get(slot, Slot()) + here
        return dict(sorted(found.items()))

    @property
    def lift(self) -> Lift | None:
        """What learning has earned beyond the control so far."""
        return lift_of(self.settings, self.progress)


def summary(row: Row) -> Summary:
    """Return a campaign at a glance."""
    settings, progress = row.settings, row.progress
    return Summary(
        name=row.name,
        state=cast(State, row.state),
        policy=settings.policy,
        arms=settings.n_arms,
        k=settings.k,
        reward_range=settings.reward_range,
        direction=settings.direction,
        plays=progress.plays,
        rewards=progress.rewards,
        mean=progress.mean,
        in_flight=progress.open,
        expired=progress.expired,
        created=moment(row.created),
        changed=moment(row.changed),
        version=row.version + row.folds,
        unit=settings.unit,
        alarms=len(progress.alarms) if row.state in SERVING else 0,
        takes_context=settings.takes_context,
        failing=row.failure is not None,
    )
