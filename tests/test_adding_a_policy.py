"""docs/guides/adding-a-policy.md is true: its policy keeps the contract, passes its own test and is found by name."""

import inspect
import json
import re
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kofn.policies.registry import POLICIES
from tests.policies import test_policy_contract as contract

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/guides/adding-a-policy.md").read_text()
NAME = "explore-then-commit"


def piece(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


@pytest.fixture(autouse=True)
def _the_policy_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("kofn.lab.rivals.explore_then_commit")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(piece("python"), vars(module))
    monkeypatch.setitem(POLICIES, NAME, module.ExploreThenCommit)


@pytest.mark.filterwarnings("ignore::kofn.ShortHorizonWarning")
def test_it_keeps_the_contract() -> None:
    kept = 0
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["policy"]:
            with suppress(pytest.skip.Exception):
                test(contract.make(NAME))
                kept += 1
    assert kept >= 9


def test_it_passes_its_own_test() -> None:
    tests: dict[str, Callable[[], None]] = {}
    exec(piece("py"), tests)
    names = [name for name in tests if name.startswith("test_")]
    assert len(names) == 3
    for name in names:
        tests[name]()


def test_the_line_fits_where_the_page_puts_it() -> None:
    lines = piece("diff").splitlines()
    before = "\n".join(line[1:] for line in lines if line.startswith(" "))
    assert [line[0] for line in lines].count("+") == 1
    assert (ROOT / "src/kofn/policies/registry.py").read_text().count(before) == 1


def test_the_command_line_and_the_suite_find_it(kofn_main: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    def answer(*argv: str) -> object:
        code, out, err = kofn_main(*argv, "--json")
        assert code == 0, err
        return json.loads(out)

    (facts,) = (fact for fact in answer("policies", "--all") if fact["name"] == NAME)  # type: ignore[attr-defined]
    assert (facts["needs_horizon"], facts["linear_memory"]) == (True, True)
    done = answer("run", NAME, "--arms", "6", "--k", "2", "--horizon", "1e5")
    assert done["exploration"] == 3_915  # type: ignore[index]
    few = ("--horizon", "100", "--runs", "1", "--workers", "1", "--archive", str(tmp_path))
    suite = answer("suite", "--settings", "min/N12-K3", *few)
    assert NAME in [row["policy"] for row in suite["standings"]]  # type: ignore[index]
