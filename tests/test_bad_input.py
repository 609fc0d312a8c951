"""Every wrong call of `tests.bad_input`: the right error, the right words, and nothing changed."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import KofnError, Policy
from tests.bad_input import COMMANDS, SECTIONS, Wrong, WrongCommand, command, markdown, prepared, refusal
from tests.cases import for_each

CALLS = [(title, wrong) for title, wrongs in SECTIONS.items() for wrong in wrongs]
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"


def seen(names: dict[str, Any]) -> dict[str, Any]:
    """Return the visible state of the policies and records."""
    policies = {name: each for name, each in names.items() if isinstance(each, Policy)}
    return {
        "saved": {name: kofn.save(each) for name, each in policies.items()},
        "plans": {name: list(each.plan()) for name, each in policies.items()},
        "record": copy.deepcopy(names["record"]),
    }


@for_each("title, wrong", CALLS)
def test_a_wrong_call_is_refused_with_its_message_and_changes_nothing(title: str, wrong: Wrong) -> None:
    names = prepared()
    before = seen(names)
    error = refusal(wrong, names)
    assert type(error) is wrong.error
    assert isinstance(error, KofnError)
    assert str(error).startswith(wrong.message), str(error)
    assert "\n" not in str(error)
    assert seen(names) == before
    after, twin = names["used"], prepared()["used"]
    for _ in range(20):  # it continues as if the call had not been made
        subset = after.ask()
        assert subset == twin.ask()
        after.tell(subset, 0.5)
        twin.tell(subset, 0.5)
    assert kofn.save(after) == kofn.save(twin)


@for_each("wrong", COMMANDS)
def test_a_wrong_command_is_refused_in_one_line(wrong: WrongCommand) -> None:
    output = command(wrong.argv)
    assert output.code == 2
    assert output.stdout == ""
    *notes, line = output.stderr.splitlines()
    assert line.startswith(f"kofn: {wrong.message}")
    assert notes == []
    assert output.files == ["taken"]


def test_there_are_enough_of_them() -> None:
    assert len(CALLS) >= 40
    assert len(COMMANDS) >= 12
    assert len({wrong.call for _, wrong in CALLS}) == len(CALLS)
    assert len({wrong.argv for wrong in COMMANDS}) == len(COMMANDS)


def test_the_table_would_notice_a_call_that_works() -> None:
    with pytest.raises(AssertionError, match="was accepted"):
        refusal(Wrong("fine", "kofn.CMABSM(5, 2, 1_000_000)", KofnError, ""), {"kofn": kofn, "np": np})


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m tests.bad_input > docs/reference/errors.md"
