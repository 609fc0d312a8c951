"""Imports point one way: packages import those above them, and the ground floor imports nothing of the lab."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest

import kofn

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/kofn"
PACKAGES = sorted(each.name for each in iter_modules([str(SOURCE)]) if not each.name.startswith("_"))
PAGE = (ROOT / "docs/background/architecture.md").read_text()
FIRST, _, REST = PAGE.partition("## Packages")[2].partition("\n## ")
SERVICE = PAGE.partition("## The packages of the service")[2].partition("\n## ")[0]


def imported(package: str) -> tuple[set[str], set[str]]:
    """The other packages of kofn that a package imports: with it, and when something is called."""
    first: set[str] = set()
    later: set[str] = set()
    for file in (SOURCE / package).rglob("*.py"):
        module = ast.parse(file.read_text())
        typing = {id(each) for block in module.body if isinstance(block, ast.If) for each in ast.walk(block)}
        for statement in ast.walk(module):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "kofn":
                _, _, inside = (statement.module or "").partition(".")
                names = {inside.split(".")[0]} if inside else {each.name for each in statement.names} & set(PACKAGES)
                if id(statement) not in typing:
                    (first if statement in module.body else later).update(names - {package})
    return first, later - first


def test_the_table_of_packages_is_true() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|(.*)\|$", FIRST, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == PACKAGES
    above: set[str] = set()
    for name, *cells in rows:
        found = imported(name)
        assert [", ".join(sorted(each)) for each in found] == [cell.strip() for cell in cells], name
        assert found[0] | found[1] <= above, name
        above.add(name)


def test_the_ground_floor_imports_nothing_of_the_lab() -> None:
    for package in set(PACKAGES) - {"lab", "cli"}:
        assert "lab" not in set().union(*imported(package)), package
    files = [
        file.relative_to(SOURCE.parent) for name in set(PACKAGES) - {"lab"} for file in (SOURCE / name).rglob("*.py")
    ]
    modules = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    program = f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name.startswith('kofn.lab')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_packages_of_the_service_import_those_above_them() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", SERVICE, re.MULTILINE))
    folder = SOURCE / "service"
    assert set(rows) == {each.name for each in iter_modules([str(folder)])}
    above: set[str] = set()
    for name, listed in rows.items():
        files = (folder / name).rglob("*.py") if (folder / name).is_dir() else [folder / f"{name}.py"]
        found = re.findall(r"from kofn\.service(?:\.| import )(\w+)", "".join(file.read_text() for file in files))
        assert listed.strip() == ", ".join(sorted(set(found) - {name}))
        assert set(found) - {name} <= above
        above.add(name)


@pytest.mark.parametrize("name", ["typo", "Thompson", "BadInput"])
def test_a_name_of_kofn_loads_only_its_module(name: str) -> None:
    program = f"import sys, kofn; hasattr(kofn, {name!r}); print(*(each for each in sys.modules if 'kofn.' in each))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {each.split(".")[1] for each in done.stdout.split()}
    assert packages == {"typo": set(), "Thompson": {"core", "constraints", "policies"}, "BadInput": {"core"}}[name]


def test_every_name_of_kofn_is_promised_by_its_module() -> None:
    for module, names in kofn._NAMES.items():
        __import__(f"kofn.{module}")
        promised = getattr(sys.modules[f"kofn.{module}"], "__all__", names.split())
        assert set(names.split()) <= set(promised), module
