"""The texts are plain technical English: no phrase that tools/check_words.py forbids."""

from pathlib import Path

import pytest

from tools.check_words import CLASHES, OLD_FORMATS, PHRASES, ROOT, Clash, Finding, clashes, phrases


def test_no_forbidden_phrase_is_used() -> None:
    assert [str(each) for each in phrases()] == []


def test_a_phrase_is_found_across_lines_and_comment_signs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n# ten at\n# the most, and So  many more\n")
    assert phrases(["a.py"], tmp_path) == [
        Finding("a.py", 2, "at # the most", PHRASES["at the most"]),
        Finding("a.py", 3, "So many", PHRASES["so many(?! that)"]),
    ]


@pytest.mark.parametrize(
    "text", ["so many that it is slow", "the page is out of date", "at most ten", "some of its own plans became"]
)
def test_ordinary_text_is_not_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(text)
    assert phrases(["a.md"], tmp_path) == []


def test_suggestions_are_not_forbidden_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("\n\n".join(PHRASES.values()))
    assert phrases(["a.md"], tmp_path) == []


def test_no_word_of_the_glossary_has_an_old_meaning() -> None:
    assert {word: count for word, count in clashes().items() if count} == {}


def test_identifiers_are_counted_in_their_folders(tmp_path: Path) -> None:
    for folder in ("src", "tests", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("policy.old_name, policy.old_names\n")
        (tmp_path / folder / "a.md").write_text("old_name\n")
    both, one = Clash("both", r"\bold_name\b", "new_name"), Clash("one", r"\bold_name\b", "new_name", ("src",))
    assert clashes(tmp_path, [both, one]) == {"both": 2, "one": 1}


def test_files_that_read_old_formats_may_use_old_names(tmp_path: Path) -> None:
    for path in (*OLD_FORMATS, "src/kofn/a.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("old_name\n")
    assert clashes(tmp_path, [Clash("old", "old_name", "new_name")]) == {"old": 1}
    assert all((ROOT / path).is_file() for path in OLD_FORMATS)


def test_each_clash_names_folders_that_exist() -> None:
    assert all((ROOT / folder).is_dir() for each in CLASHES for folder in each.folders)
    assert len({each.word for each in CLASHES}) == len(CLASHES)
