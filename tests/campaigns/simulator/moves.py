"""Campaigns that are replaced under processes that use them: deleted, then created again or imported from an export.

An export is a backup of one campaign. What was decided since is lost when it is imported, and with another secret, no
id from before is valid. A process that has the old campaign open must be refused until it opens the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.campaigns import Campaign
from kofn.campaigns.records.names import write_id
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import OF_CAMPAIGN
from kofn.core import NoSuchCampaign, UnknownDecision
from tests.campaigns.simulator.calls import Call, ChangeKept, Enter, Outcome
from tests.campaigns.simulator.faults import FAULTS, draw_fault
from tests.campaigns.simulator.model import FINAL, SHIPPED_FOR, Model, Truth, check, place_of
from tests.campaigns.simulator.world import Records, create_campaign, records_of, set_records

if TYPE_CHECKING:
    from tests.campaigns.simulator.run import Process, Run

WITH_MOVES = 0.15
"""Part of the seeds that replace campaigns. Higher: slower."""

MOVE_RATE = 0.2
"""Probability that a step of these seeds exports or replaces a campaign."""

KEPT = ("names", "active", "origin", "record", "played", "changes")
KEPT_TABLES = ("rewards", "totals", "buckets", "estimates")
"""What an import keeps exactly, with the secret or without it."""


class Source(NamedTuple):
    """What a campaign is replaced by: an export, or None for a new campaign; and what is then true and recorded."""

    exported: dict[str, Any] | None
    truth: Truth
    records: Records

    def make(self, store: Store, model: Model, seed: int) -> Campaign:
        """Create or import the campaign."""
        if self.exported is None:
            return create_campaign(store, model.setting, seed)
        return Campaign.import_(self.exported, store=store)


class Moves:
    """The exports and the replacements of one seed."""

    def __init__(self, run: Run, seed: int) -> None:
        self.run = run
        self.rng = Random(f"moves {seed}")
        self.rate = MOVE_RATE if self.rng.random() < WITH_MOVES else 0.0
        self.sources: list[list[Source]] = [[Source(None, model.new_truth(), {})] for model in run.models]

    def step(self) -> None:
        """Perhaps export a campaign, or replace one."""
        if not self.rate or self.rng.random() >= self.rate:
            return
        model = self.rng.choice(self.run.models)
        if self.rng.random() < 0.3:
            self._call(ChangeKept(model.campaign, self.rng.choice([0, 2, 1000])))
        if self.rng.random() < 0.2:
            self._end(model)
            self._replace(model, self._source(model))
        if self.rng.random() < 0.6:
            self._export(model)
        if self.rng.random() < 0.6:
            self._replace(model, self._source(model))
        elif self.rng.random() < 0.4:
            self._replace_in_lost_timeline(model)

    def _call(self, call: Call) -> None:
        """Make a call that is not a worker's, perhaps with a fault."""
        number, faulty = self.rng.randrange(len(self.run.processes)), self.rng.random() < self.run.profile.fault_rate
        self.run.calls(number, [call], "operator", faulty=faulty)

    def _end(self, model: Model) -> None:
        """Stop or archive a campaign, which is final, and make the calls that wait for it."""
        self._call(Enter(model.campaign, self.rng.choice(FINAL)))
        for call in self.run.pending:
            if call is not None and call.campaign == model.campaign:
                self.run.calls(self.rng.randrange(len(self.run.processes)), [call], "after its end")

    def _source(self, model: Model) -> Source:
        """Return the latest export, or any of them, or a new campaign."""
        sources = self.sources[model.campaign]
        return sources[-1] if self.rng.random() < 0.6 else self.rng.choice(sources)

    def _replace_in_lost_timeline(self, model: Model) -> None:
        """Replace a campaign, and restore a backup of before. On SQLite, the next one gets the id of the lost one."""
        self.run.backup()
        self._replace(model, self._source(model))
        for process in self.run.processes:
            process.present(model)
        self.run.restore(len(self.run.backups) - 1)
        self._replace(model, self._source(model))

    def _attempt(self, what: str, work: Callable[[Process], Any]) -> Outcome:
        """Let some process do something, perhaps with a fault."""
        number = self.rng.randrange(len(self.run.processes))
        faulty = self.rng.random() < self.run.profile.fault_rate
        process = self.run.processes[number]
        FAULTS.arm(draw_fault(self.rng) if faulty else None)
        outcome = process.outcome(lambda: work(process))
        fired = FAULTS.fired
        FAULTS.arm(None)
        result = "done" if outcome.answered else outcome
        self.run.note(f"process {number}: {what}{f' [{fired}]' if fired else ''} -> {result}")
        check(not outcome.failed or fired is not None, "it failed without a fault: {}", outcome)
        check(outcome.refused is None, "{} was refused: {}", what, outcome)
        return outcome

    def _export(self, model: Model) -> None:
        """Keep an export, with the secret or without it."""
        with_secret = self.rng.random() < 0.5

        def export(process: Process) -> dict[str, Any]:
            exported: dict[str, Any] = process.present(model).export(with_secret=with_secret)
            return exported

        outcome = self._attempt(f"{model.setting.name} is exported", export)
        if outcome.answered:
            plain = json.loads(json.dumps(outcome.value))
            records = records_of(self.run.world, model.id)
            self.sources[model.campaign].append(Source(plain, model.backup(), records))

    def _replace(self, model: Model, source: Source) -> None:
        """Delete a campaign, and make it again. All of it is there, or nothing, also after a fault."""
        before = model.row()
        while self._is_there(model):
            check(model.row() == before, "a campaign that was not deleted has changed")
            outcome = self._attempt(f"{model.setting.name} is deleted", lambda each: each.present(model).delete())
            check(not (outcome.answered and self._is_there(model)), "a deleted campaign is still there")
        self._refuse_pending(model)
        verb, seed = "created" if source.exported is None else "imported", self.rng.randrange(100)
        while not self._is_there(model):
            outcome = self._attempt(
                f"{model.setting.name} is {verb}", lambda each: source.make(each.store, model, seed)
            )
            check(not (outcome.answered and not self._is_there(model)), "a campaign that was made is not there")
        model.restore(source.truth)
        model.find()
        if source.truth.secret not in (b"", model.secret):
            _rename_decisions(model)
        set_records(self.run.world, model.id, source.records)
        self._compare(model, source)

    def _is_there(self, model: Model) -> bool:
        """Return whether the store has the campaign; then it has all of it, else nothing."""
        rows = self.run.world.rows
        found = rows("SELECT id FROM kofn_campaigns WHERE name = ?", model.setting.name)
        id = found[0][0] if found else model.id
        left = [each.name for each in OF_CAMPAIGN if rows(f"SELECT 1 FROM {each.name} WHERE campaign = ?", id)]
        least = {"kofn_rosters", "kofn_states", "kofn_plans", "kofn_events"}
        check(least <= set(left) if found else not left, "a part of a campaign is there: {}", left)
        return bool(found)

    def _refuse_pending(self, model: Model) -> None:
        """While the campaign is gone, what a worker asks of it is refused."""
        calls = [call for call in self.run.pending if call is not None and call.campaign == model.campaign]
        number = self.rng.randrange(len(self.run.processes))
        check_refused(self.run, number, model, calls[:1])

    def _compare(self, model: Model, source: Source) -> None:
        """Compare the counters, and all that an import keeps."""
        model.compare(model.row())
        if source.exported is None:
            return
        again = json.loads(json.dumps(self.run.processes[0].present(model).export()))
        for name in KEPT:
            check(again[name] == source.exported[name], "{} differs after the import", name)
        for name in KEPT_TABLES:
            check(again["tables"][name] == source.exported["tables"][name], "{} differ after the import", name)


def _rename_decisions(model: Model) -> None:
    """Give the decisions the ids that they have with another secret: nobody knows them, nor any key of a request."""
    truth = model.truth
    names = {id: write_id(model.secret, *place_of(id)) for id in truth.decisions}
    model.truth = replace(
        truth,
        decisions={names[id]: subset for id, subset in truth.decisions.items()},
        rewards={names[id]: value for id, value in truth.rewards.items()},
        cost_of={names[id]: cost for id, cost in truth.cost_of.items()},
        requests={},
        unstored={},
        arrived={},
    )
    model.ids.update(model.truth.decisions)
    model.about.update({new: model.about[id] for id, new in names.items() if id in model.about})


def check_refused(run: Run, number: int, model: Model, calls: list[Call]) -> None:
    """A process that has another campaign of this name open is refused, but for decisions that need no store."""
    for call in calls:
        outcome = run.processes[number].execute([call])[0]
        if run.traced:
            run.note(f"process {number}, which has another campaign open: {call} -> {outcome}")
        if outcome.answered:
            unstored = isinstance(outcome.value, list) and getattr(outcome.value[0], "id", "").startswith("s")
            check(unstored and run.now - model.unstored_at <= SHIPPED_FOR, "it was not refused: {}", outcome)
        else:
            fits = isinstance(outcome.refused, NoSuchCampaign | UnknownDecision)
            check(fits, "a call of another campaign gives: {}", outcome)
