"""A policy that plays differently is noticed, and told what to do: raise its version, and store new golden results."""

import copy

import pytest

import kofn
from tests.policies import golden


def test_other_plays_of_the_same_version_are_refused() -> None:
    stored = copy.deepcopy(golden.load())
    stored["uniform"]["runs"]["noisy"]["regret"] *= 1.02
    assert golden.complaint("uniform", stored).endswith(
        "If that is intended, raise Uniform.version to 2 and run python -m tests.policies.golden"
    )
    stored = copy.deepcopy(golden.load())
    stored["uniform"]["runs"]["late"]["plays"][0] += 5
    assert "uniform plays differently (late: regret " in golden.complaint("uniform", stored)


def test_a_version_is_not_raised_without_new_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kofn.Uniform, "version", 2)
    assert golden.complaint("uniform", golden.load()) == (
        "Uniform.version is 2, but its golden results are of version 1: run python -m tests.policies.golden"
    )


def test_a_policy_without_results_is_refused() -> None:
    assert (
        golden.complaint("uniform", {})
        == "uniform has no golden results of late, noisy: run python -m tests.policies.golden"
    )


def test_a_small_change_of_a_policy_is_noticed() -> None:
    """Forgetting with a long half-life is; rewards that differ in the eleventh digit are not."""
    stored = golden.load()["thompson"]["runs"]
    assert not golden.close(stored["noisy"], golden.run("thompson", {"half_life": 3_000}, golden.CASES["noisy"], 1))
    assert golden.close(stored["noisy"], golden.run("thompson", {}, golden.CASES["noisy"], 1, nudge=7))
