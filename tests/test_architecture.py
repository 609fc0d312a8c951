"""Imports point one way: each package imports only the packages that are listed for it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "kofn"

MAY_IMPORT: dict[str, str] = {
    "core": "",
    "rewards": "core",
    "subsets": "core",
    "curves": "core",
    "backends": "core",
    "theory": "core",
    "responses": "core",
    "policies": "core subsets theory",
    "problems": "core rewards subsets",
    "logs": "core problems",
    "simulation": "backends core curves problems",
    "experiments": "backends core curves plots policies problems simulation",  # plots: only inside Comparison.plot()
    "plots": "core experiments problems simulation",
    "campaigns": "core policies responses",
    "service": "campaigns core policies responses",
    "client": "core responses",
    "cli": "backends campaigns core experiments logs plots policies problems service simulation theory",
}


def imported(tree: ast.AST) -> Iterator[str]:
    """The packages of kofn that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "kofn":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kofn."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("kofn."))


def packages() -> list[str]:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return sorted(found - {"__init__", "__main__"})


def test_every_package_is_listed() -> None:
    assert packages() == sorted(MAY_IMPORT)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_is_listed(package: str) -> None:
    files = [SOURCE / f"{package}.py"] if (SOURCE / f"{package}.py").is_file() else (SOURCE / package).rglob("*.py")
    found = {name for file in files for name in imported(ast.parse(file.read_text()))}
    assert sorted(found - {package, "__version__"}) == sorted(set(MAY_IMPORT[package].split()) & found)
