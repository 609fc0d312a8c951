"""The texts are plain technical English: no phrase that tools/check_words.py forbids."""

from pathlib import Path

import pytest

from tools.check_words import PHRASES, Finding, clashes, phrases

CHECKED = (
    "README.md",
    "CHANGELOG.md",
    "docs/tutorial",
    "docs/reference/policies",
    "docs/background/scale.md",
    "docs/background/benchmarks.md",
    "benchmarks/peers.py",
    "benchmarks/peers_page.py",
    "benchmarks/peers_players.py",
    "benchmarks/peers_world.py",
    "benchmarks/peers_yardstick.py",
)
"""The files and folders that are checked. `EVERYTHING` of tools/check_words.py is the goal."""


def test_no_forbidden_phrase_is_used() -> None:
    assert [str(each) for each in phrases(CHECKED)] == []


def test_a_phrase_is_found_across_lines_and_comment_signs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n# ten at\n# the most, and So  many more\n")
    assert phrases(["a.py"], tmp_path) == [
        Finding("a.py", 2, "at # the most", PHRASES["at the most"]),
        Finding("a.py", 3, "So many", PHRASES["so many(?! that)"]),
    ]


@pytest.mark.parametrize("text", ["so many that it is slow", "the page is out of date", "at most ten"])
def test_ordinary_text_is_not_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(text)
    assert phrases(["a.md"], tmp_path) == []


def test_suggestions_are_not_forbidden_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("\n\n".join(PHRASES.values()))
    assert phrases(["a.md"], tmp_path) == []


def test_identifiers_are_counted_in_source_and_tests(tmp_path: Path) -> None:
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("policy.learns_any\n")
    assert clashes(tmp_path)[r"\blearns_any\b"] == 2
