"""Measure the packages of kofn: files, lines, the longest file, repeated passages, and imports between packages.

python -m tools.measure_packages                   of this checkout
python -m tools.measure_packages --before 43d45f6  beside those of another commit
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = "sync_client.py"
"""A file that `tools/generate_sync_client.py` makes of another one: it repeats that one on purpose."""

PASSAGE = 6
"""Lines of code from which a repetition counts. Lower values count idioms, higher ones miss copies with one change."""


@dataclass(frozen=True)
class Tree:
    """The sources of kofn in a checkout."""

    root: Path

    @cached_property
    def packages(self) -> dict[str, list[Path]]:
        """The files of each package; a module beside the packages is one of its own."""
        folder = self.root / "src/kofn"
        found = defaultdict(list)
        for file in sorted(folder.rglob("*.py")):
            name = file.relative_to(folder).parts[0].removesuffix(".py")
            if not name.startswith("__"):
                found[name].append(file)
        return dict(found)

    def size(self, package: str) -> tuple[int, int, int]:
        """Return the files of a package, their lines, and the lines of the longest."""
        lengths = [len(file.read_text().splitlines()) for file in self.packages.get(package, [])]
        return len(lengths), sum(lengths), max(lengths, default=0)

    def total(self) -> tuple[int, int, int]:
        """Return the files of all packages, their lines, and the lines of the longest."""
        files, lines, longest = zip(*map(self.size, self.packages), strict=True)
        return sum(files), sum(lines), max(longest)

    def imports(self, package: str) -> set[str]:
        """Return the other packages that a package imports: with it, when something is called, or for types."""
        found = {name for file in self.packages[package] for name in _imported(ast.parse(file.read_text()))}
        return found & set(self.packages) - {package}

    def cycles(self) -> list[str]:
        """Return the pairs of packages that import each other."""
        graph = {package: self.imports(package) for package in self.packages}
        return [f"{one} and {other}" for one in graph for other in graph[one] if one < other and one in graph[other]]

    def repeated(self) -> int:
        """Return the lines of code that are in a passage of at least `PASSAGE` lines which occurs elsewhere."""
        texts = {
            file: [line for line in map(str.strip, file.read_text().splitlines()) if _is_code(line)]
            for files in self.packages.values()
            for file in files
            if file.name != GENERATED
        }
        windows = Counter(window for lines in texts.values() for _, window in _windows(lines))
        return sum(
            len({start + i for start, window in _windows(lines) if windows[window] > 1 for i in range(PASSAGE)})
            for lines in texts.values()
        )


def _imported(module: ast.Module) -> Iterator[str]:
    for statement in ast.walk(module):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "kofn":
            _, _, inside = (statement.module or "").partition(".")
            yield from [inside.split(".")[0]] if inside else [each.name for each in statement.names]


def _is_code(line: str) -> bool:
    return len(line) > 1 and not line.startswith(("#", "import ", "from ", '"""'))


def _windows(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for start in range(len(lines) - PASSAGE + 1):
        yield start, tuple(lines[start : start + PASSAGE])


def _row(*cells: object) -> None:
    print("|", " | ".join(f"{each:,}" if isinstance(each, int) else str(each) for each in cells), "|")


def report(trees: Sequence[Tree]) -> None:
    """Print the tables, with columns for each tree."""
    names = sorted({package for tree in trees for package in tree.packages})
    _row("package", *["files", "lines", "longest file"] * len(trees))
    _row("---", *["---:"] * 3 * len(trees))
    for name in names:
        _row(name, *(number or "" for tree in trees for number in tree.size(name)))
    _row("all", *(number for tree in trees for number in tree.total()))
    print()
    _row("", *("" for _ in trees))
    _row("---", *("---:" for _ in trees))
    _row("packages", *(len(tree.packages) for tree in trees))
    _row("imports between packages", *(sum(len(tree.imports(each)) for each in tree.packages) for tree in trees))
    _row("packages that import each other", *("; ".join(tree.cycles()) or "none" for tree in trees))
    _row(f"lines of code in passages of {PASSAGE} or more that are repeated", *(tree.repeated() for tree in trees))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        trees = [Tree(ROOT)]
        if given.before:
            archive = subprocess.run(
                ["git", "-C", ROOT, "archive", given.before, "src"], stdout=subprocess.PIPE, check=True
            ).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            trees.insert(0, Tree(Path(folder)))
        report(trees)


if __name__ == "__main__":
    main(sys.argv[1:])
