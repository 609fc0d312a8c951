"""The benchmarks run, on sizes that take no time. How long they take is for `make benchmark`."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kofn

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def speed() -> Any:
    return load("speed")


@pytest.fixture(scope="module")
def memory() -> Any:
    return load("memory")


def test_the_two_ways_to_run_play_the_same_problem(speed: Any) -> None:
    horizon = 3_000
    lost = speed.plain_loop(horizon, 0.3)
    run = speed.simulated(10**6, 0.3)
    assert lost == pytest.approx(run.regret_at(horizon), rel=0.25)  # the order of plays within a plan differs


def test_a_simulated_run_learns(speed: Any) -> None:
    run = speed.simulated(10**6, 0.05)
    assert run.regret < 0.5 * run.regret_at(10_000) * 100  # regret per play at least halves after the first 10,000


def test_the_median_of_what_was_measured(speed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0])  # calls of 5, 1 and 3 seconds
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    assert speed.seconds(lambda: None, 3) == 3.0


@pytest.mark.parametrize(("n_arms", "k"), [(24, 5), (1_000, 10)])
def test_ask_and_tell_are_measured(speed: Any, monkeypatch: pytest.MonkeyPatch, n_arms: int, k: int) -> None:
    asked: list[int] = []
    ask = kofn.CMABSM.ask

    def counted(policy: kofn.CMABSM) -> tuple[int, ...]:
        asked.append(policy.n_arms)
        return ask(policy)

    monkeypatch.setattr(kofn.CMABSM, "ask", counted)
    assert 0 < speed.ask_tell(n_arms, k, pairs=20) < 1
    assert asked == [n_arms] * 60  # 20 pairs, measured three times


def test_all_numbers_have_a_name(speed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "seconds", lambda work, repeat: float(repeat))
    numbers = speed.measure()
    assert len(numbers) == 11
    assert all(isinstance(each, float) for each in numbers.values())
    json.dumps(numbers, allow_nan=False)


def test_memory_is_measured(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.PARAMS, "cmab-sm", {"resolution": 0.2})
    monkeypatch.setitem(memory.HORIZONS, "thompson", 10_000)
    for policy in ("cmab-sm", "thompson"):
        said = memory.measure(policy, 30, 3)
        assert set(said) == {"seconds", "decisions", "peak_mib", "state_bytes", "regret"}
        assert said["decisions"] > 30
        assert said["peak_mib"] > 10
        assert 0 < said["regret"] < 1


def test_the_largest_state_is_that_of_a_plan_half_told(memory: Any) -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 12)), "mean", 3)
    policy = kofn.CMABSM(12, 3, 10**6, resolution=0.2)
    start = len(json.dumps(kofn.save(policy)))
    assert memory.largest_state(policy, problem, plans=3) > start


def test_a_size_runs_in_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "memory.py", "cmab-sm", "20", "3"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["state_bytes"] > 100


def test_the_plain_cascade_has_the_same_mean_as_ours() -> None:
    """In the karate club, 4,000 cascades against 40,000: a z below 5.3."""
    influence = load("influence")
    problem = influence.karate()
    graph, rng = influence.as_networkx(problem.graph), influence.random.Random(3)
    theirs = np.array([influence.plain(graph, (0, 33), 0.1, rng) for _ in range(4_000)])
    walker = influence.Bits(problem.graph, problem.chances, "cascade")
    ours = walker.reached(np.tile((0, 33), (40_000, 1)), np.random.default_rng(3))
    assert abs(theirs.mean() - ours.mean()) < 5.3 * theirs.std() * (1 / 4_000 + 1 / 40_000) ** 0.5


def test_policies_are_set_against_greedy(capsys: pytest.CaptureFixture[str]) -> None:
    influence = load("influence")
    stars = [(centre, 10 * centre + leaf) for centre in (1, 2, 3) for leaf in range(5)]
    problem = kofn.problems.Influence(stars, 2, probability=0.5, source_sets=2**14)
    influence.regret(problem, 2_000, 1, 1)
    shown = capsys.readouterr().out
    assert all(f"| {name} |" in shown for name in influence.POLICIES)
    assert "greedy reaches" in shown
