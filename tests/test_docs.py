"""What a stranger reads is true: programs run, links lead somewhere, commands parse, every policy has its page."""

import importlib
import importlib.util
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest

import kofn
from kofn.cli import cli
from kofn.policies.registry import POLICIES
from tests.cases import for_each

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
PAPERS = ("https://doi.org/", "https://arxiv.org/abs/", "https://proceedings.mlr.press/")
"""Where links may lead outside: to the papers that a page talks about."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PUBLIC = {
    "kofn": """
        Alarm ArctanExponential AsyncClient AttributeInsight BadBackend BadInput BadRecord BadReward BadScore BadTally
        Band Bernoulli Beta CMABSM Campaign CampaignError CampaignExists Choice Client Comparison Conflict Constraints
        ContextualThompson Curve Doubling Empirical Evaluation Forecast Insight KofnError MissingExtra NoSuchCampaign
        NotAllowed NotRunning Plan Policy Prior Problem ProblemWarning RealCell RealTable Replayed RewardsRefused Run
        SegmentInsight ShortHorizonWarning Standing StoreError Tally ThinLogWarning Thompson ThompsonGuaranteed
        ThompsonSizes TooManySubsets Uniform UnknownDecision Unreachable __version__ choose choose_async compare
        constraints forecast lab make_policy policy_named register replay restore run_real run_seeds save simulate
        simulate_many
    """,
    "kofn.constraints": "Always AtLeast AtMost Budget Constraints Never NeverTogether OnlyTogether Rule",
    "kofn.campaigns.evidence": "Lift Look MeanEstimate SampleRatio Stop Sums lift sample_ratio",
    "kofn.lab.problems": """
        AbstractProblem ArctanExponential Arms Bernoulli Beta Check ContextualProblem Correlated Empirical Finding Graph
        Influence Interactions Lognormal NetOfCosts Pareto Problem Recommendations Segment
        contextual_problem storage
    """,
    "kofn.lab.problems.real": "Coverage REAL RealProblem TableProblem load",
    "kofn.lab.logs": """
        DecisionLog LoggedProblem OffPolicyEstimate Replayed ValueWithError evaluate evaluate_all replay
    """,
    "kofn.lab.rewards": "Reward as_reward by_name cross_selling maximum mean minimum threshold total utility",
    "kofn.service": "ServiceSettings Token create_token make_app revoke_token tokens",
    "kofn.adapters.sklearn": "EnsembleSelector SubsetSelector",
    "kofn.lab.theory": """
        FamilyBudget LearningBudget Schedule ThompsonBudget YEAR actions affordable_resolution bounds_cross_at
        default_resolution doubling_loss error_probability exploitation_regret_bound exploration_bound group_bound
        groups horizon_for learning_budget log_subsets proven_from regret_bound resolution shortest_useful_horizon
        thompson_budget time_to_try_all ucb_regret_bound ucb_wins_from
    """,
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


each_page = for_each("page", PAGES)


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks in that language, each with the number of lines before it."""
    text = page.read_text()
    return [(text[: m.start(2)].count("\n"), m[2]) for m in FENCE.finditer(text) if m[1] == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


# Programs.


@pytest.fixture
def _policies_as_they_were() -> Iterator[None]:
    before = dict(POLICIES)
    yield
    POLICIES.clear()
    POLICIES.update(before)


EXPERIMENTS = ("doubling.md", "shared-credit.md")
"""Pages whose programs play tens of millions of plays for a table: `make test-slow` runs them."""


def programs() -> Iterator[object]:
    """Yield the pages with programs."""
    for page in PAGES:
        if blocks(page, "python"):
            yield pytest.param(page, marks=pytest.mark.slow) if page.name in EXPERIMENTS else page


@pytest.mark.usefixtures("_policies_as_they_were")
@pytest.mark.parametrize("page", list(programs()), ids=name_of)
def test_programs_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, program in blocks(page, "python"):
        exec(compile("\n" * line + program, str(page), "exec"), namespace)
    printed = capsys.readouterr().out
    assert [shown for _, shown in blocks(page, "text") if shown not in printed] == []


def test_the_readmes_program_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    program, prints, _ = "\n".join(each for _, each in blocks(ROOT / "README.md", "python")).partition("print(")
    shown = re.search(r"print\(policy\.best\(\)\) +# (.*)", (ROOT / "README.md").read_text())
    assert prints
    assert shown
    exec(f"{program}print(policy.best())", {})
    assert capsys.readouterr().out.strip() == shown[1]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("campaign", r"best goods: +lid, cup, jug; (.*\n)+everyone sees: +lid, cup, jug\n"),
        ("choose_examples", r"kofn.choose: +\d\d\.\d% with the examples \("),
        ("client", r"fastest servers: ash, birch\n"),
        ("compare_policies", r"thompson +\d{2,3} (.*\n)+improved-ucb +\d\d,\d{3} "),
        ("front_page", r"second half: 5\d\.\d%; the best page is \(1, 4, 8\)"),
        ("slowest_server", r"last 5,000: +4\d ms, best are the servers \(1, 4, 6\)"),
    ],
)
def test_examples_run(program: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / f"{program}.py"), run_name="__main__")
    assert re.search(expected, capsys.readouterr().out)


def test_every_example_is_run() -> None:
    (names,) = [mark.args[1] for mark in test_examples_run.pytestmark]  # type: ignore[attr-defined]
    assert {name for name, _ in names} == {path.stem for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("page", ["background/theory"])
def test_quoted_verdicts_are_those_of_the_budget(page: str) -> None:
    verdicts = [
        kofn.lab.theory.learning_budget(12, 3, 10**5).verdict,
        kofn.lab.theory.learning_budget(30, 15, 10**6).verdict,
    ]
    quote = " ".join(re.findall(r"^> (.*)$", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE))
    assert quote
    assert any(verdict.startswith(quote.removesuffix(" ...")) for verdict in verdicts)


# Commands.


def shell_lines(page: Path) -> list[str]:
    return [line for _, block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


def words(line: str) -> list[str]:
    return shlex.split(line.partition(" | ")[0], comments=True)


COMMANDS = sorted({line for page in PAGES for line in shell_lines(page) if line.startswith("kofn ")})
SPANS = sorted({span for page in PAGES for span in re.findall(r"`(kofn [a-z][^`]*)`", prose(page))})


@for_each("line", COMMANDS)
def test_commands_parse(line: str) -> None:
    name, *arguments = words(line)[1:]
    cli.commands[name].make_context(name, arguments)


@for_each("span", SPANS)
def test_commands_in_the_text_exist(span: str) -> None:
    command: click.Command = cli
    arguments = words(span)[1:]
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        command = command.commands[arguments.pop(0)]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize("line", [line for line in COMMANDS if words(line)[1] in ("budget", "policies")])
def test_quick_commands_run(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(words(line)[1:], prog_name="kofn", standalone_mode=False)
    assert capsys.readouterr().out


@each_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [words(line)[1] for line in shell_lines(page) if line.startswith("make ")]
    assert {*named, *re.findall(r"`make ([a-z-]+)`", prose(page))} <= targets


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "generate_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cli_reference_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/cli.md").read_text() == generator().page(), "run: make docs"


def test_the_list_of_policies_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/policies/index.md").read_text() == generator().policies_page(), "run: make docs"


def test_the_cli_reference_has_every_command_and_option() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    for name, command in cli.commands.items():
        section = text.partition(f"## kofn {name}\n")[2].partition("\n## ")[0]
        assert section
        for param in command.params:
            assert not isinstance(param, click.Option) or f"`{param.opts[0]}`" in section


# Links, pages, names.


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if target.startswith("http"):
            assert target.startswith(PAPERS), "links lead outside only to papers"
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        assert file.is_relative_to(ROOT), target
        if anchor:
            assert anchor in map(slug, re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text()), re.MULTILINE)), target


def test_every_page_is_in_the_index() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in (ROOT / "docs/index.md", ROOT / "docs/reference/policies/index.md")
        for target in re.findall(r"\]\(([^)#]+)", page.read_text())
    }
    assert [name_of(page) for page in DOCS if page.name != "index.md" and page not in linked] == []


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_has_its_page(name: str) -> None:
    page = ROOT / "docs/reference/policies" / f"{name}.md"
    assert page.is_file(), f"{name_of(page)} is missing: what the policy does, and the table below"
    text = page.read_text()
    assert f"`{name}`" in text
    assert re.search(rf"`kofn\.(?:lab\.rivals\.)?{POLICIES[name].__name__}\(", text)
    for row in ("paper", "sources", "regret bound", "assumptions", "memory"):
        assert re.search(rf"^\| {row} \| \S", text, re.MULTILINE), f"the table has no row '{row}'"


def test_every_choice_in_the_margin_is_explained() -> None:
    source = (ROOT / "src/kofn/policies/cmab_sm.py").read_text()
    marked = set(re.findall(r"\(([a-z])\)", " ".join(re.findall(r"#.*", source))))
    rows = re.findall(r"^\| \(([a-z])\) \|", (ROOT / "docs/reference/policies/cmab-sm.md").read_text(), re.MULTILINE)
    assert marked
    assert sorted(marked) == rows


@cache
def code_of_the_tests() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))


@each_page
def test_tests_named_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"`(test_\w+)`", prose(page))
    assert [name for name in named if f"def {name}(" not in code_of_the_tests()] == []


EXAMPLE = {  # the files that a reader of docs/guides/adding-a-policy.md makes
    "src/kofn/lab/rivals/explore_then_commit.py",
    "tests/lab/rivals/test_explore_then_commit.py",
    "docs/reference/policies/explore-then-commit.md",
}


def test_files_named_in_the_text_exist() -> None:
    named = {
        path
        for page in PAGES
        for path in re.findall(r"`((?:src|tests|docs|examples|tools|scripts)/[\w/.-]+)`", prose(page))
    }
    assert named
    assert [path for path in sorted(named - EXAMPLE) if not (ROOT / path).exists()] == []


def test_functions_named_beside_a_file_are_in_it() -> None:
    named = [found for page in PAGES for found in re.findall(r"`(\w+)` (?:\(|in )`(src/[\w/]+\.py)`", prose(page))]
    assert len(named) > 10
    missing = [
        (name, path) for name, path in named if not re.search(rf"(?:def|class) {name}\b", (ROOT / path).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_a_decision(name: str) -> None:
    """What is in `__all__` is promised. Add a name above on purpose, or leave it out of there."""
    module = importlib.import_module(name)
    assert all(hasattr(module, each) for each in module.__all__)
    assert sorted(module.__all__) == sorted(PUBLIC[name].split())


def test_every_rival_is_public() -> None:
    assert {each.__name__ for each in POLICIES.values() if each.__module__.startswith("kofn.lab.")} == set(
        kofn.lab.rivals.__all__
    )


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/getting-started.md"])
def test_extras_are_those_of_the_project(page: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r'"(?:kofn|\.)\[(\w+)\]"', (ROOT / page).read_text()))
    for_us = {"dev", "bench", "docs", "test"}
    assert named - for_us == set(extras) - for_us


def test_the_changelog_has_this_version() -> None:
    assert f"## [{kofn.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@each_page
def test_no_host_and_no_machine_is_named(page: Path) -> None:
    assert re.findall(r"(?i)pypi|localhost|/work/|/tmp/|/home/|127\.0", page.read_text()) == []


@each_page
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert re.findall(r"TODO|FIXME|XXX|\b[A-Z]+_[A-Z]+\b", re.sub(r"UPDATE_MEAN|KOFN_\w+", "", prose(page))) == []
    assert page.read_text().count("```") % 2 == 0
