"""docs/guides/adding-a-policy.md is true: its four pieces, in a copy of the repository, are all that a policy needs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/guides/adding-a-policy.md").read_text()
NAME = "explore-then-commit"
MODULE = "explore_then_commit"


def piece(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def run(tree: Path, *argv: str) -> str:
    """What a Python command prints in the copy; it has to succeed."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    done = subprocess.run(
        [sys.executable, *argv], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kofn(tree: Path, *argv: str) -> str:
    return run(tree, "-c", "from kofn.cli import main; main()", *argv)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the policy of the page in it."""
    copy = tmp_path_factory.mktemp("repository")
    for folder in ("src", "tests", "tools", "docs", "examples", "deploy"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in (
        *ROOT.glob("*.md"),
        ROOT / "pyproject.toml",
        ROOT / "LICENSE",
        ROOT / "Makefile",
        ROOT / "CITATION.cff",
    ):
        shutil.copy(file, copy / file.name)
    (copy / f"src/kofn/policies/{MODULE}.py").write_text(piece("python"))
    (copy / f"tests/test_{MODULE}.py").write_text(piece("py"))
    (copy / f"docs/reference/policies/{NAME}.md").write_text(piece("markdown"))
    lines = piece("diff").splitlines()
    before = "\n".join(line[1:] for line in lines if line.startswith(" "))
    after = "\n".join(line[1:] for line in lines)
    init = copy / "src/kofn/policies/__init__.py"
    assert len([line for line in lines if line.startswith("+")]) == 1
    assert init.read_text().count(before) == 1
    init.write_text(init.read_text().replace(before, after))
    for line in re.findall(r"^\t\$\(BIN\)/python (.*)$", (copy / "Makefile").read_text(), re.MULTILINE):
        if "docs" in line:  # what `make docs` does
            command, _, page = line.partition(" > ")
            printed = run(copy, *command.split())
            if page:
                (copy / page).write_text(printed)
    run(copy, "-m", "tests.policies.golden")
    return copy


@pytest.mark.slow
def test_it_is_the_copy_that_is_tried(tree: Path) -> None:
    assert run(tree, "-c", "import kofn; print(kofn.__file__)").startswith(str(tree))


def test_the_contract_and_the_docs_find_it_and_it_passes_its_own_test(tree: Path) -> None:
    own = ["tests/policies/test_policy_contract.py", f"tests/test_{MODULE}.py", f"src/kofn/policies/{MODULE}.py"]
    docs = ["tests/test_docs.py", "tests/test_bad_input.py"]
    known = (
        f"{NAME} or {MODULE} or index or public or up_to_date or lead or targets or tests_named or machine or fill_in"
    )
    out = run(tree, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "-k", known, *own, *docs)
    passed = [out.count(f"{file}::") for file in (*own, *docs)]
    assert out.count(" PASSED") == sum(passed)
    assert passed[0] >= 15  # the contract
    assert passed[1:3] == [3, 1]  # its own tests, and the program in its docstring
    assert passed[3] >= 9
    assert passed[4] >= 1
    assert f"[`{NAME}`]({NAME}.md)" in (tree / "docs/reference/policies/index.md").read_text()


def test_it_is_clean(tree: Path) -> None:
    run(tree, "-m", "ruff", "check", "--no-cache", "src/kofn/policies", f"tests/test_{MODULE}.py")
    run(tree, "-m", "ruff", "format", "--no-cache", "--check", "src/kofn/policies", f"tests/test_{MODULE}.py")


def test_the_command_line_finds_it(tree: Path) -> None:
    facts = {fact["name"]: fact for fact in json.loads(kofn(tree, "policies", "--json"))}
    assert facts[NAME] == {
        "name": NAME,
        "needs_horizon": True,
        "linear_memory": True,
        "keeps_subsets": False,
        "needs": [],
        "description": "Play random subsets for a while, then the K arms whose subsets earned most on average.",
    }
    said = json.loads(kofn(tree, "run", NAME, "--arms", "6", "--k", "2", "--horizon", "1e5", "--json"))
    assert (said["policy"], said["exploration"]) == (NAME, 3_915)


def test_the_suite_finds_it(tree: Path) -> None:
    said = json.loads(
        kofn(tree, "suite", "--settings", "min/N12-K3", "--horizon", "100", "--runs", "1", "--workers", "1", "--json")
    )
    (result,) = (each for each in said["results"] if each["policy"] == NAME)
    assert result["row"]["regret"] > 0
    assert NAME in [row["policy"] for row in said["standings"]]
