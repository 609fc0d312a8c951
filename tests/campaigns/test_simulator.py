"""Histories from the simulator keep all promises, replay exactly, and show what a missing mend breaks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kofn.campaigns.store import database
from tests.campaigns.simulator import __main__ as simulator
from tests.campaigns.simulator.__main__ import Job, main, play, simulated
from tests.campaigns.simulator.mutations import MUTATIONS
from tests.campaigns.simulator.run import PROMISED, run_seed
from tests.campaigns.simulator.world import World

BLOCK = 40
"""Seeds of one test."""

OFTEN = ["keys", "fresh-rows", "idempotent-rewards", "expired-plays"]
"""Mends whose absence shows in the first seeds; the slow tests take out the others too."""

SELDOM = {"whole-keys": range(3_100, 3_200)}
"""Mends whose absence shows in one of some thousand seeds, and seeds of which one does."""

ON_POSTGRES = {"failed-commits": range(1024, 1025)}
"""Mends whose absence shows on PostgreSQL only, and a seed that shows it."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with simulated() as made:
        yield made


def broken(world: World, seeds: range) -> list[tuple[int, str]]:
    found = [(seed, run_seed(world, seed, PROMISED, traced=False)[1]) for seed in seeds]
    return [(seed, why) for seed, why in found if why]


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, BLOCK])
def test_all_promises_are_kept(world: World, start: int) -> None:
    assert broken(world, range(start, start + BLOCK)) == []


@pytest.mark.parametrize("seed", [3167, 12_029])
def test_seeds_that_break_a_promise_without_a_mend(world: World, seed: int) -> None:
    """Without "whole-keys", a part of the decisions of a call is forgotten, and its repetition is refused."""
    assert broken(world, range(seed, seed + 1)) == []


def test_calls_with_the_same_key_in_one_group_whose_answers_are_lost(world: World) -> None:
    """The second one gets the decision of the first: the model must not take that of a third call for it."""
    assert broken(world, range(50_961, 50_962)) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 15_000, 500))
def test_all_promises_are_kept_in_thousands_of_seeds(world: World, start: int) -> None:
    assert broken(world, range(start, start + 500)) == []


def test_a_seed_replays_exactly(world: World) -> None:
    seeds = range(20, 26)
    once = [run_seed(world, seed, PROMISED)[0] for seed in seeds]
    again = [run_seed(world, seed, PROMISED)[0] for seed in reversed(seeds)]
    assert once == again[::-1]
    assert len({tuple(trace) for trace in once}) == len(once)


def test_a_seed_replays_in_another_process(world: World) -> None:
    expected = run_seed(world, 26, PROMISED)[0]
    command = [sys.executable, "-m", "tests.campaigns.simulator", "--seed", "26", "--trace"]
    other = os.environ | {"PYTHONHASHSEED": "26", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=other, timeout=120, check=True)
    assert done.stdout.splitlines() == [*expected, "seed 26: all promises kept"]


KINDS = [rf"\b{call}\(" for call in ("Decide", "Reward", "Total", "AddArm", "RetireArm", "Enter", "Expire", "Read")]
KINDS += [
    r"partial=True",
    r"stored=False",
    r"-> s[0-9a-f]+-",
    "ChangeCosts",
    "visitor",
    "BadReward",
    r"refused=\[Refusal",
]
KINDS += [rf"\[{fault} (?:before|after)" for fault in ("error", "lost", "kill")]
KINDS += [r"after commit\]", r"before commit\]", "is restored", "restarts", "refused: Conflict"]
KINDS += ["is exported", "is deleted", "is imported", "is created", "another campaign open", "ChangeKept", "archived"]


def test_seeds_are_varied_and_keep_all_promises(world: World) -> None:
    """In at most 100 seeds, faults of every kind fire, calls of every kind are made, backups are restored, and all
    promises are kept."""
    missing = KINDS
    for seed in range(300, 400):
        trace, broken_promise = run_seed(world, seed, PROMISED)
        assert not broken_promise
        text = "\n".join(trace)
        assert set(re.findall(r"\[(\w+) (?:before|after)", text)) <= {"error", "lost", "kill"}
        missing = [kind for kind in missing if not re.search(kind, text)]
        if not missing:
            return
    assert missing == []


@pytest.mark.parametrize(
    "name",
    [*OFTEN, *(pytest.param(n, marks=pytest.mark.slow) for n in MUTATIONS if n not in OFTEN and n not in ON_POSTGRES)],
)
def test_a_missing_mend_is_found(name: str) -> None:
    seeds = range(100 if name in OFTEN else 3000) if name not in SELDOM else SELDOM[name]
    found = play(Job(seeds, PROMISED, (name,), most=1))
    assert found, f"{len(seeds):,} seeds did not show that {name} is missing"
    steps = simulator.shrunk(found[0].seed, Job((), PROMISED, (name,)))
    assert steps <= 30


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "40"]) == 0
    assert re.fullmatch(r"3 seeds in \d+ s, [\d,]+ per minute: all promises kept\n", capsys.readouterr().out)
    assert main(["--seeds", "60", "--without", "fresh-rows"]) == 1
    seed, steps = re.findall(r"seed (\d+) with --steps (\d+): ", capsys.readouterr().out)[0]
    assert main(["--seed", seed, "--steps", steps, "--trace", "--without", "fresh-rows"]) == 1
    assert "VIOLATION" in capsys.readouterr().out


def test_promises_are_kept_on_postgres(postgres_url: str) -> None:
    assert play(Job([*range(500, 506), 1024], PROMISED, postgres=postgres_url)) == []


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_missing_mend_is_found_on_postgres(name: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.5)  # seconds that the seed waits for the lock
    assert play(Job(ON_POSTGRES[name], PROMISED, (name,), postgres_url))


@pytest.mark.slow
def test_promises_are_kept_on_postgres_in_hundreds_of_seeds(postgres_url: str) -> None:
    assert play(Job(range(1000, 1500), PROMISED, postgres=postgres_url)) == []
