"""The peers' benchmark: each library that is installed really learns, all see the same luck, the page says it right."""

import math
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import kofn
from benchmarks import peers, peers_page
from benchmarks import peers_yardstick as yardstick
from benchmarks.peers_players import IN_MEMORY, ON_DISK, Player, Thompson, installed, missing
from benchmarks.peers_world import World
from kofn.core import Subset
from kofn.lab.settings import Setting

P = np.array([0.05, 0.95, 0.1, 0.9, 0.05])
PLAYS = {"Optuna": 240, "OptunaSQLite": 120, "Campaign": 300}
MOST = 0.5
"""Of what random subsets lose: the most that may be lost in the last quarter of an easy run."""


def easy(plays: int, reward: str = "mean") -> World:
    """N = 5, K = 2: two good arms, three bad ones."""
    subsets: list[Subset] = list(combinations(range(5), 2))
    drawn = ((np.random.default_rng(1).random((plays, 5)) < P) @ (1 << np.arange(5))).tolist()
    masks = {subset: sum(1 << arm for arm in subset) for subset in subsets}
    return World(kofn.Problem(kofn.Bernoulli(P), reward, 2), P, subsets, masks, drawn, seed=1)


def lost(world: World, regret: Any) -> float:
    """What the last quarter lost, in parts of what random subsets lose."""
    quarter = len(regret) // 4
    return float((regret[-1] - regret[-quarter - 1]) / quarter / world.problem.gap(np.array(world.subsets)).mean())


class Chance(Player):
    label, needs, package = "chance", "kofn", "kofn"

    def ask(self) -> Subset:
        return self.rng.choice(self.subsets)

    def tell(self, subset: Subset, reward: float) -> None:
        pass

    def size(self) -> int:
        return 1


@pytest.mark.filterwarnings("default")  # those of the peers are not ours
@pytest.mark.parametrize("kind", [*IN_MEMORY, *ON_DISK], ids=lambda kind: kind.__name__)
def test_every_player_learns_an_easy_problem(kind: type[Player]) -> None:
    if why := missing(kind.needs):
        pytest.skip(f"{kind.package} cannot be used here: {why}")
    plays = PLAYS.get(kind.__name__, 800)
    world = easy(plays)
    played = peers.play(kind, world, plays, math.inf)
    assert len(played.regret) == plays
    assert played.seconds > 0
    assert played.size > 0
    assert lost(world, played.regret) < MOST


def test_chance_would_not_pass() -> None:
    world = easy(800)
    assert lost(world, peers.play(Chance, world, 800, math.inf).regret) > 1.5 * MOST


@pytest.mark.parametrize("compiled", [False, True])
def test_the_yardstick_learns(compiled: bool) -> None:
    if compiled and (why := missing("numba")):
        pytest.skip(f"numba cannot be used here: {why}")
    world = easy(1)
    loop = yardstick.compiled(yardstick.ucb_loop) if compiled else yardstick.ucb_loop
    played = peers.looped(loop, world, 2_000, math.inf)
    assert lost(world, played.regret) < MOST
    assert played.size == 160


def test_the_yardstick_knows_a_mean_from_a_maximum() -> None:
    """Two arms that always pay and one that never does: only the mean tells the subsets apart."""
    p, subsets = np.array([1.0, 1.0, 0.0]), np.array([(0, 1), (0, 2), (1, 2)])
    shares = [
        np.bincount(yardstick.ucb_loop(p, subsets, 3_000, counts, np.random.default_rng(1))) / 3_000
        for counts in (True, False)
    ]
    assert shares[0][0] > 0.8
    assert shares[1] == pytest.approx([1 / 3] * 3, abs=0.01)


def test_the_loop_that_chooses_nothing_draws_the_first_subset() -> None:
    paid, seconds = yardstick.timed(yardstick.draw_loop, easy(1), 4_000)
    assert paid[0] / 4_000 == pytest.approx(P[0] + P[1], abs=5 * 0.31 / math.sqrt(4_000))
    assert seconds > 0


@pytest.mark.parametrize("reward", ["mean", "max"])
def test_rewards_are_those_of_the_problem(reward: str) -> None:
    world = World.of(Setting(reward, 6, 2), 20_000, seed=3)
    for subset in world.subsets[:3]:
        earned = np.mean([world.reward(play, subset) for play in range(20_000)])
        value = world.problem.value(np.array([subset]))[0]
        assert earned == pytest.approx(value, abs=5 * 0.5 / math.sqrt(20_000))


def test_regret_is_the_gap_of_each_play() -> None:
    world = easy(1)
    assert world.regret([(1, 3), (0, 1), (1, 3), (0, 4)]) == pytest.approx([0, 0.425, 0.425, 1.3])


def test_the_same_seed_is_the_same_world() -> None:
    one, two, other = (World.of(Setting("max", 6, 2), 50, seed) for seed in (1, 1, 2))
    assert (one.outcomes, one.subsets) == (two.outcomes, two.subsets)
    assert one.outcomes != other.outcomes
    assert sorted(one.subsets) == sorted(other.subsets) == list(combinations(range(6), 2))


def test_only_bernoulli_arms_are_played() -> None:
    with pytest.raises(kofn.BadInput, match="the peers play Bernoulli arms"):
        World.of(Setting("cross-selling", 6, 2), 10, 1)


def test_a_coin_keeps_the_mean() -> None:
    player = Chance(easy(1))
    assert {player.coin(1.0), player.coin(0.0)} == {0, 1}
    tossed = [player.coin(0.3) for _ in range(10_000)]
    assert set(tossed) == {0, 1}
    assert np.mean(tossed) == pytest.approx(0.3, abs=5 * 0.46 / 100)


def test_a_slow_run_is_cut_and_not_repeated() -> None:
    worlds = [easy(50)] * 3
    cut = peers.play(Chance, worlds[0], 50, 0.0)
    assert len(cut.regret) == 2  # the first is not timed
    short, whole = peers.Played(np.zeros(7), 1.0, 1), peers.Played(np.zeros(50), 1.0, 1)
    assert len(peers.runs_of(lambda *_: short, worlds, 50, 100.0)) == 1
    assert len(peers.runs_of(lambda *_: whole, worlds, 50, 100.0)) == 3
    assert len(peers.runs_of(lambda *_: whole, worlds, 50, 0.0)) == 1


def test_what_is_not_installed_is_named() -> None:
    assert missing("no_such_library") == "ModuleNotFoundError: No module named 'no_such_library'"
    assert missing("kofn") is None
    assert installed("no-such-library") == "?"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> peers.Found:
    """A whole measurement with nothing but kofn, and a loop that is not compiled."""
    monkeypatch.setattr(peers, "SETTINGS", {Setting("max", 5, 2): 1.0})
    monkeypatch.setattr(peers, "ON_DISK_TOO", ())
    monkeypatch.setattr(peers, "IN_MEMORY", [Thompson, Chance])
    monkeypatch.setattr(peers, "FAR", (1_000,))
    monkeypatch.setattr(peers, "far", lambda _, setting: [FAR_ROW | {"setting": setting.name}])
    monkeypatch.setattr(yardstick, "compiled", lambda loop: loop)
    monkeypatch.setattr(peers, "missing", lambda needs: "ImportError: gone" if needs == "optuna" else None)
    return peers.measure(horizon=200, runs=2, budget=10.0)


FAR_ROW: dict[str, Any] = {"horizon": 10**6, "ours": 0.5, "loops": [1.0, 20.0]}


def test_a_measurement_has_a_row_for_each_player(small: peers.Found) -> None:
    assert [row.player.split(",")[0] for row in small.rows] == ["kofn", "chance", "kofn", "compiled loop (Numba)"]
    assert all((row.plays, row.runs, row.subsets) == (200, 2, 10) for row in small.rows)
    assert small.rows[0].regret == small.rows[0].beside
    assert all(row.beside == small.rows[0].beside for row in small.rows)
    assert small.left_out == {"optuna": "ImportError: gone"}


def test_the_page_has_the_ratios(small: peers.Found) -> None:
    found = asdict(small)
    found["rows"][0] |= {"per_second": 5_000.0, "regret": 10.0, "beside": 10.0, "size": 1_000}
    found["rows"][1] |= {"per_second": 100.0, "regret": 25.0, "beside": 10.0, "size": 2_500_000}
    found["rows"][2] |= {"plays": 99}
    text = peers_page.page(found)
    assert "| chance | 100 | 50 | 200 | 2 | 25 | 10 | 2.5 | 2.5 MB | 2,500 |" in text
    assert "### max/N5-K2: 10 subsets" in text
    assert "| max/N5-K2 | 10^6 | 0.5 | 1.0 | 20 | 2.0 | 40 |" in text
    assert "- optuna: `ImportError: gone`" in text
    (few,) = [line for line in text.splitlines() if "simulated |" in line and "| 99 |" in line]
    assert few.split("|")[8].strip() == ""


def test_a_loop_in_its_first_round_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "FAR", (10, 110))
    monkeypatch.setattr(yardstick, "speed", lambda loop, world, plays: 10.0)
    short, long = peers.far([yardstick.draw_loop, yardstick.ucb_loop], Setting("max", 5, 2))
    assert (short["loops"], long["loops"]) == ([1.0, None], [11.0, 10.0])
    assert "| max/N5-K2 | 10^1 |" in peers_page.far([short])


def test_simulation_and_ask_and_tell_lose_alike() -> None:
    """The same policy on the same instances by two ways: means of 6 runs, each within a half of what is expected."""
    worlds = [World.of(Setting("mean", 8, 2), 1_000, seed) for seed in range(1, 7)]
    asked = np.mean([peers.play(Thompson, world, 1_000, math.inf).regret[-1] for world in worlds])
    drawn = np.mean([peers.simulated(world, 1_000, math.inf).regret[-1] for world in worlds])
    assert 0.5 < asked / drawn < 2
