"""The sizes of packages, on a small tree whose numbers are counted by hand."""

from pathlib import Path

import pytest

from tools.measure_packages import Tree, report

PASSAGE = "".join(f"value_{number} = {number}\n" for number in range(6))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    files = {
        "one/__init__.py": "from kofn.two import value_1\n",
        "one/inner/part.py": f"import math\n{PASSAGE}other = 1\n",
        "two.py": f"{PASSAGE}different = 2\n\n\ndef later():\n    from kofn import one\n",
        "three.py": "from kofn.two import value_2\n# value_0 = 0\n",
        "__main__.py": "from kofn import one\n",
    }
    for name, text in files.items():
        file = tmp_path / "src/kofn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Tree(tmp_path)


def test_sizes(tree: Tree) -> None:
    assert {package: tree.size(package) for package in tree.packages} == {
        "one": (2, 9, 8),
        "two": (1, 11, 11),
        "three": (1, 2, 2),
    }
    assert tree.total() == (4, 22, 11)


def test_imports(tree: Tree) -> None:
    assert {package: tree.imports(package) for package in tree.packages} == {
        "one": {"two"},
        "two": {"one"},
        "three": {"two"},
    }
    assert tree.cycles() == ["one and two"]


def test_repeated_passages(tree: Tree) -> None:
    assert tree.repeated() == 12  # six lines in two files
    (tree.root / "src/kofn/two.py").write_text(PASSAGE.replace("value_3", "changed"))
    assert tree.repeated() == 0


def test_the_tables_have_columns_for_each_tree(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    report([tree, tree])
    lines = capsys.readouterr().out.splitlines()
    assert "| two | 1 | 11 | 11 | 1 | 11 | 11 |" in lines
    assert "| imports between packages | 3 | 3 |" in lines
