"""Histories from the simulator keep all promises, replay exactly, and show that a safety is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.campaigns.simulator.__main__ import Job, main, play, simulated
from tests.campaigns.simulator.mutations import MUTATIONS, ON_POSTGRES
from tests.campaigns.simulator.run import run_seed
from tests.campaigns.simulator.world import World

BLOCK = 25
"""Seeds of one test."""

OFTEN = ["versions", "cut-time", "due", "decisions-first"]
"""Safeties whose absence shows in the first seeds; the slow tests take out the others, too."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with simulated() as made:
        yield made


def broken(world: World, seeds: range) -> list[tuple[int, str]]:
    found = [(seed, run_seed(world, seed, traced=False)[1]) for seed in seeds]
    return [(seed, why) for seed, why in found if why]


@pytest.mark.parametrize("start", [0, BLOCK])
def test_all_promises_are_kept(world: World, start: int) -> None:
    assert broken(world, range(start, start + BLOCK)) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 200))
def test_all_promises_are_kept_in_thousands_of_seeds(world: World, start: int) -> None:
    assert broken(world, range(start, start + 200)) == []


def test_a_seed_replays_exactly(world: World) -> None:
    seeds = range(20, 24)
    once = [run_seed(world, seed)[0] for seed in seeds]
    again = [run_seed(world, seed)[0] for seed in reversed(seeds)]
    assert once == again[::-1]
    assert len({tuple(trace) for trace in once}) == len(once)


KINDS = [
    rf"{call}\(" for call in ("Decide", "Report", "Total", "ChangeArm", "Configure", "Enter", "ReadTask", "Publish")
]
KINDS += [rf"\[{fault} before" for fault in ("error", "lost", "kill", "pause")]
KINDS += [r"Publish.*-> (True|False)", r"late=[1-9]", r"partial=True", r"-> s[0-9a-f]+-", "visitor", "meanwhile"]
KINDS += [
    "is restored",
    "restarts",
    "policy is broken",
    "is exported",
    "is deleted",
    "is imported",
    "refused: Conflict",
]


@pytest.mark.slow
def test_seeds_are_varied(world: World) -> None:
    text = "\n".join("\n".join(run_seed(world, seed)[0]) for seed in range(300, 500))
    assert [kind for kind in KINDS if not re.search(kind, text)] == []


@pytest.mark.parametrize(
    "name",
    [*OFTEN, *(pytest.param(n, marks=pytest.mark.slow) for n in MUTATIONS if n not in (*OFTEN, *ON_POSTGRES))],
)
def test_a_missing_safety_is_found(name: str) -> None:
    seeds = range(50 if name in OFTEN else 2000)
    assert play(Job(seeds, (name,), most=1)), f"{len(seeds):,} seeds did not show that {name} is missing"


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "40"]) == 0
    assert re.fullmatch(r"3 seeds in \d+ s, [\d,]+ per minute: all promises kept\n", capsys.readouterr().out)
    assert main(["--seeds", "5", "--without", "versions"]) == 1
    seed, steps = re.findall(r"seed (\d+) with --steps (\d+): ", capsys.readouterr().out)[0]
    assert main(["--seed", seed, "--steps", steps, "--trace", "--without", "versions"]) == 1
    assert "VIOLATION" in capsys.readouterr().out


def test_all_promises_are_kept_on_postgres(postgres_url: str) -> None:
    with simulated(postgres=postgres_url, name="simulated_4") as world:
        world.backup()  # a seed that breaks a promise leaves its backups, of which the next world must know nothing
    assert play(Job(range(4, 9), postgres=postgres_url)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_missing_safety_is_found_on_postgres(name: str, postgres_url: str) -> None:
    assert play(Job(range(500), (name,), postgres_url, most=1))


@pytest.mark.slow
def test_all_promises_are_kept_on_postgres_in_hundreds_of_seeds(postgres_url: str) -> None:
    assert play(Job(range(1000, 1300), postgres=postgres_url)) == []
