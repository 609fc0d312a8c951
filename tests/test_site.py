"""The documentation site builds without a warning, has every page and public name, and asks nothing of another host."""

import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system import missing
from tests.test_docs import PAGES, PUBLIC, ROOT
from tools import build_site

ASSET = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]*?(?:src|href)="(https?:[^"]*)"|@import|url\((https?:)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `build` is strict: a broken link or an API name that is not there fails it."""
    if not find_spec("zensical") or not find_spec("mkdocstrings_handlers"):
        missing("the extra `docs` is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    assert build_site.build(folder) == 0
    return folder / "site"


def where(page: Path) -> str:
    """The file of a page on the site."""
    path = page.relative_to(ROOT)
    folder = path.parent if path.stem in ("index", "README") else path.with_suffix("")
    return (folder / "index.html").as_posix()


def test_every_page_and_every_public_name_is_on_the_site(site: Path) -> None:
    assert [where(page) for page in PAGES if not (site / where(page)).is_file()] == []
    api = "".join(page.read_text() for page in (site / "docs/reference/api").rglob("index.html"))
    named = {found.rpartition(".")[2] for found in re.findall(r'id="(kofn\.[\w.]+)"', api)}
    promised = {name for module in [*PUBLIC, "kofn.campaigns", "kofn.client"] for name in import_module(module).__all__}
    assert promised - named - {"__version__", "lab", "Store", "store_at"} == set()


def test_doctests_are_shown_as_code(site: Path) -> None:
    core = (site / "docs/reference/api/core/index.html").read_text()
    assert "<blockquote>" not in core
    assert '<span class="gp">&gt;&gt;&gt; </span>' in core


def test_blocks_after_two_colons_are_shown_as_code(site: Path) -> None:
    for page, code in ("client", "kofn.example.com"), ("core", "├── BadInput"):
        text = (site / f"docs/reference/api/{page}/index.html").read_text()
        assert re.search(rf"<pre>(?:(?!</pre>).)*{code}", text, re.DOTALL)
        assert "::</p>" not in text


def test_a_policy_does_not_repeat_the_methods_that_all_policies_share(site: Path) -> None:
    text = (site / "docs/reference/api/policies/index.html").read_text()
    assert 'id="kofn.policies.thompson.Thompson.with_arms"' in text
    assert 'id="kofn.policies.cmab_sm.CMABSM.ask"' not in text


def test_pages_ask_nothing_of_another_host(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if ASSET.search(page.read_text())] == []


def test_results_can_be_downloaded(site: Path) -> None:
    assert (site / "results/leaderboard.csv").is_file()
    assert "results/leaderboard.csv" in (site / "docs/background/leaderboard/index.html").read_text()


def test_search_finds_words_of_the_pages(site: Path) -> None:
    index = (site / "search.json").read_text()
    assert "How kofn is built" in index
    assert "probability_best" in index


def pages_in(navigation: Any) -> list[str]:
    """The pages that a part of the navigation leads to."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in parts for page in pages_in(part)]


def test_the_navigation_has_every_page_once() -> None:
    listed = pages_in(tomllib.loads(build_site.configuration())["project"]["nav"])
    made = [f"examples/{each.name}.md" for each in (ROOT / "examples").glob("*.py")]
    made += [f"{name}.md" for name in build_site.AS_CODE]
    assert sorted(listed) == sorted([*(page.relative_to(ROOT).as_posix() for page in PAGES), *made])


def test_links_to_programs_become_links_to_their_pages(tmp_path: Path) -> None:
    build_site.copy_pages(tmp_path)
    text = (tmp_path / "docs/index.md").read_text()
    assert "](../examples/front_page.py.md)" in text
    assert (tmp_path / "examples/front_page.py.md").read_text().startswith("# examples/front_page.py\n\n```python\n")


@pytest.mark.parametrize("file", [".github/workflows/ci.yml", ".github/dependabot.yml", ".pre-commit-config.yaml"])
def test_files_of_the_forge_parse(file: str) -> None:
    assert yaml.safe_load((ROOT / file).read_text())


def test_the_workflow_runs_commands_that_make_has() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ["make check", "make ${{ matrix.target }}"]
    assert {"check", *jobs["test"]["strategy"]["matrix"]["target"]} <= targets


def test_the_citation_has_this_version() -> None:
    import kofn

    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == kofn.__version__


def test_lower_bounds_are_those_that_are_tested() -> None:
    """constraints-oldest.txt pins each run-time dependency at the bound that pyproject.toml declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("plots", "pandas", "store", "postgres", "serve", "client", "dask")
    declared = [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    bounds = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)", "\n".join(declared), re.MULTILINE))
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-oldest.txt").read_text(), re.MULTILINE))
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pinned[name]), name
