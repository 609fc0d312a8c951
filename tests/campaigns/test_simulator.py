"""Histories from the simulator keep all promises, and replay exactly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import postgres
from tests.campaigns.simulator.__main__ import simulated
from tests.campaigns.simulator.run import run_seed
from tests.campaigns.simulator.world import World

BLOCK = 25
"""Seeds of one test."""


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


def test_a_seed_replays_exactly(world: World) -> None:
    assert run_seed(world, 7) == run_seed(world, 7)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 3000, 200))
def test_all_promises_are_kept_for_long(world: World, start: int) -> None:
    assert broken(world, range(start, start + 200)) == []


@pytest.mark.postgres
def test_all_promises_are_kept_on_postgres() -> None:
    with postgres.server() as url, simulated(postgres=url) as world:
        assert broken(world, range(5)) == []
