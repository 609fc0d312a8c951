"""The command line: what each command prints, writes and answers, and how it behaves in a shell."""

import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kofn
from kofn.cli import cli, main
from kofn.cli.options import Count
from kofn.cli.output import _two_digits
from kofn.core.pictures import picture_files
from kofn.lab.applications import APPLICATIONS
from kofn.lab.paper import FIGURES
from kofn.lab.settings import FAMILIES, Setting
from kofn.lab.suite import SUITE
from kofn.lab.theory import learning_budget
from kofn.policies.registry import POLICIES
from tests.cases import for_each

WROTE = "wrote out/{0}.png, out/{0}.svg\n"
KOFN = [sys.executable, "-c", "from kofn.cli import main; main()"]
RUN = ["run", "cmab-sm", "--arms", "6", "--k", "2", "--set", "resolution=0.2"]
SMALL = ["paper", "max-12", "--horizon", "500", "--runs", "2", "--workers", "1"]
COMMANDS, NO_EXAMPLES = list(cli.commands), ("lab", "policies")
FEW = ["--arms", "6", "--k", "2", "--horizon", "1000", "--runs", "2", "--workers", "1"]

Kofn = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pictures() -> None:
    """Pictures are really drawn, which takes longer than most commands; without this fixture their files are empty."""


def empty_picture(figure: object, path: Path) -> list[Path]:
    for file in picture_files(path):
        file.touch()
    return picture_files(path)


@pytest.fixture
def answer(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kofn_main: Kofn,
    tmp_path: Path,
) -> Kofn:
    """`kofn ARGV` through main, here, in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("kofn.core.pictures.save_figure", empty_picture)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it

    def call(*argv: str) -> tuple[int, str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # as in a shell
            return kofn_main(*argv)

    return call


def without_columns() -> dict[str, str]:
    """The environment without the width that pytest-xdist sets."""
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"}


def shell(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`kofn ARGV` in a process of its own."""
    return subprocess.run(
        [*KOFN, *argv], capture_output=True, text=True, check=False, cwd=cwd, env=without_columns() | environment
    )


def numbers(text: str) -> str:
    return text.replace(",", "")


# Help.


def test_help_and_version(answer: Kofn) -> None:
    assert answer("--version") == (0, f"kofn, version {kofn.__version__}\n", "")
    code, out, err = answer("--help")
    assert (code, err) == (0, "")
    assert answer("-h") == (code, out, err)
    for name in COMMANDS:
        assert f"\n  {name} " in out


def test_a_group_alone_shows_its_help(answer: Kofn) -> None:
    for group in ([], ["campaign"], ["token"]):
        code, out, err = answer(*group)
        assert (code, err) == (2, "")
        assert out == answer(*group, "--help")[1]


@pytest.mark.parametrize(
    "argv", [["--help"], *([name, "--help"] for name in COMMANDS if name not in ("lab", "policies"))]
)
def test_help_has_examples(argv: list[str], answer: Kofn) -> None:
    lines = [line.strip() for line in answer(*argv)[1].splitlines()]
    examples = [line for line in lines if line.startswith(("kofn ", 'eval "$(kofn'))]
    assert examples
    if argv[0] in ("run", "budget", "compare", "forecast", "suite"):
        for example in examples:  # they parse
            with cli.make_context("kofn", example.split()[1:]) as context:
                cli.commands[argv[0]].make_context(argv[0], example.split()[2:], parent=context)


def test_help_names_every_figure_and_problem(answer: Kofn) -> None:
    words = " ".join(answer("paper", "--help")[1].split())
    assert all(name in words for name in FIGURES)
    words = " ".join(answer("run", "--help")[1].split())
    assert all(name in words for name in (*FAMILIES, *APPLICATIONS))


def test_help_imports_nothing_slow(tmp_path: Path) -> None:
    # How `kofn --help` answers in 0.3 s: numpy alone takes a good part of that.
    program = (
        "import json, sys\n"
        "from contextlib import suppress\n"
        "from kofn.cli import main\n"
        "for argv in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['kofn', *argv]\n"
        "    with suppress(SystemExit):\n"
        "        main()\n"
        "    slow = {'numpy', 'scipy', 'joblib', 'matplotlib', 'rich', 'fastapi', 'uvicorn', 'httpx'}\n"
        "    slow &= set(sys.modules)\n"
        "    print(json.dumps([argv, sorted(slow)]), file=sys.stderr)\n"
    )
    quick: list[list[str]] = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS), []]
    asked = json.dumps([*quick, ["policies"]])
    done = subprocess.run([sys.executable, "-c", program, asked], capture_output=True, text=True, check=False)
    *found, last = map(json.loads, done.stderr.splitlines())
    assert found == [[argv, []] for argv in quick]
    assert "numpy" in last[1]  # what needs it does import it: the check above can see it


# budget.

BUDGET = ["budget", "--arms", "30", "--k", "15", "--horizon", "1e6"]


def test_budget_prints_what_theory_says(answer: Kofn) -> None:
    said = learning_budget(30, 15, 10**6)
    code, out, err = answer(*BUDGET)
    assert (code, err) == (0, "")
    assert out.startswith("thompson, N = 30, K = 15, T = 1,000,000")
    assert "cmab-sm, N = 30, K = 15, T = 1,000,000" in out
    for each in said.thompson.families:
        (row,) = (line for line in out.splitlines() if line.startswith(f"  {each.family} "))
        assert f" {_two_digits(each.regret)} {_two_digits(each.regret_error)} " in " ".join(row.split())
        assert f" {each.settled_90:,} plays" in row
    assert f"{said.shortest_useful_horizon:,} plays" in out
    assert f"{said.resolution:.4g}" in out
    assert f"{said.ucb_wins_from:.2g} (paper)" in out
    words = " ".join(out.split())
    assert words.index(said.thompson.verdict) < words.index(said.cmab_sm_verdict)


def test_budget_has_no_error_probability_for_a_schedule_that_explores_nothing(answer: Kofn) -> None:
    assert "error probability" not in answer(*BUDGET)[1]
    assert json.loads(answer(*BUDGET, "--json")[1])["error_probability"] is None
    asked = [*BUDGET, "--resolution", "0.1", "--lipschitz", "2"]
    assert "error probability" in answer(*asked)[1]
    said = learning_budget(30, 15, 10**6, lipschitz=2.0, resolution=0.1).to_dict()
    assert json.loads(answer(*asked, "--json")[1]) == said


def test_budget_outside_the_table_gives_a_reason_instead_of_a_guess(answer: Kofn) -> None:
    code, out, _ = answer("budget", "--arms", "1000", "--k", "5", "--horizon", "1e6")
    assert code == 0
    assert "no forecast, because the table has 4 to 300 arms, not 1,000." in out


def test_a_horizon_past_all_counting_is_refused(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer("suite", "--horizon", "1e99")
    assert (code, out) == (2, "")
    assert err.startswith("kofn: Invalid value for '--horizon': '1e99' is too large: the maximum is 4.6e+18 (")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["run", "thomson"], "there is no policy 'thomson': did you mean 'thompson'?"),
        (["compare", "--problem", "maximum"], "there is no problem 'maximum': did you mean 'max'?"),
        (["suite", "--settings", "rar"], "there is no setting 'rar': did you mean 'rare'?"),
    ],
)
def test_a_similar_name_is_suggested(argv: list[str], hint: str, answer: Kofn) -> None:
    code, _, err = answer(*argv)
    assert code == 2
    assert err.startswith(f"kofn: {hint}")


# Width.


def test_no_name_is_cut_at_80_columns(answer: Kofn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["thompson-subsets", "shared-credit-ucb", "linear-thompson", "cucb", "improved-ucb"]
    for argv in (["compare", *names, *FEW], ["policies", "--all"], [*SMALL], [*BUDGET]):
        code, out, _ = answer(*argv)
        assert code == 0
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= 80
        if argv[0] in ("compare", "policies"):
            rows = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line.strip()]
            assert set(names) <= set(rows)


def test_columns_that_do_not_fit_are_named(answer: Kofn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    narrow = answer("compare", "dart", *FEW)[1]
    assert "Not shown at this width: state, s per run, plan rows" in " ".join(narrow.split())
    assert "found best   final gap" in narrow
    monkeypatch.setenv("COLUMNS", "150")
    wide = answer("compare", "dart", *FEW)[1]
    assert "Not shown" not in wide


def test_a_budget_past_all_numbers_is_still_json(answer: Kofn) -> None:
    code, out, _ = answer("budget", "--arms", "1e6", "--k", "5e5", "--horizon", "1e9", "--json")
    assert code == 0
    assert json.loads(out)["ucb_regret_bound"] is None
    code, out, _ = answer("budget", "--arms", "1e6", "--k", "5e5", "--horizon", "1e9")
    assert code == 0
    assert "1e301027" in out  # C(10^6, 5 * 10^5)


@for_each("text", ["1000000", "1e6", "1_000_000", "1,000,000", "1E6", "10e5", " 1e6 ", "1000000.0"])
def test_whole_numbers_in_all_their_forms(text: str) -> None:
    assert Count().convert(text, None, None) == 10**6


@pytest.mark.parametrize("text", ["", "1.5", "2,5", "-3", "0", "nan", "1e400", "1,000,00", "9" * 5000])
def test_what_is_not_a_whole_number(text: str, answer: Kofn) -> None:
    code, out, err = answer("budget", "--arms", "30", "--k", "5", "--horizon", text)
    assert (code, out) == (2, "")
    assert err.startswith("kofn: Invalid value for '--horizon': ")
    assert err.count("\n") == 1


# run.


def test_run_shows_what_it_found(answer: Kofn) -> None:
    code, out, err = answer(*RUN, "--horizon", "1e5", "--problem", "mean")
    assert (code, err) == (0, WROTE.format("run"))
    said = json.loads(answer(*RUN, "--horizon", "1e5", "--problem", "mean", "--json")[1])
    assert "cmab-sm on mean, N = 6, K = 2" in out
    rows = {line[2:20].strip(): line[20:].strip() for line in out.splitlines()}
    assert (rows["found"], rows["best"]) == (str(tuple(said["final"])), str(tuple(said["best"])))
    assert rows["final gap"] == f"{said['final_gap']:.3g} of an expected reward of {said['optimum']:.4g} per play"
    assert rows["optimal"] == ("yes" if said["optimal"] else "no")
    assert rows["expected regret"].startswith(f"{said['regret']:,.1f} (")
    assert rows["exploration"] == f"{said['exploration']:,} plays"
    assert rows["plan rows"] == f"{said['plan_rows']:,}"
    assert said["realised_regret"] is None
    assert "realised regret" not in rows
    assert said["final"] == said["best"]


def test_run_repeats_a_run_on_a_problem_of_a_file(answer: Kofn, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import numpy as np\nimport kofn\n\ndef problem(seed):\n"
        "    return kofn.Problem(kofn.Bernoulli(np.random.default_rng(seed).random(7)), 'maximum', k=3)\n"
    )
    shop = ["--problem", "shop.py", "--horizon", "500", "--seed", "5", "--json"]
    numbers = [json.loads(answer("run", "dart", *shop, "--run", str(run))[1])["regret"] for run in range(3)]
    (row,) = json.loads(answer("compare", "dart", *shop, "--runs", "3", "--workers", "1")[1])["rows"]
    assert (row["regret"], row["worst"]) == (pytest.approx(sum(numbers) / 3), max(numbers))
    assert "dart on shop.py, N = 7, K = 3" in answer("run", "dart", *shop[:-1])[1]


def test_run_says_what_part_of_the_range_was_lost(answer: Kofn) -> None:
    """Milliseconds are no shares: of a range of 1,000 ms, uniform play of the slowest server loses less than all."""
    argv = ["run", "uniform", "--problem", "storage", "--arms", "8", "--k", "2", "--horizon", "100"]
    numbers = json.loads(answer(*argv, "--json")[1])
    low, high = Setting("storage", 8, 2).problem(0).reward_range
    said = re.search(r"\(([\d.]+)% of the reward range per play\)", answer(*argv)[1])
    assert said
    assert float(said[1]) == pytest.approx(numbers["regret"] / (high - low), abs=1e-4)  # percent, of 100 plays


def test_run_realised(answer: Kofn) -> None:
    argv = [*RUN, "--horizon", "1e5", "--realised"]
    said = json.loads(answer(*argv, "--json")[1])
    assert said["realised_regret"] != said["regret"]
    assert f"{said['realised_regret']:,.1f}" in answer(*argv)[1]


def test_the_same_seed_gives_the_same_numbers(answer: Kofn) -> None:
    argv = [*RUN, "--horizon", "1e5", "--json", "--seed"]
    assert answer(*argv, "1") == answer(*argv, "1") != answer(*argv, "2")
    assert answer(*argv, "2021") == answer(*argv[:-1])


def test_a_policy_is_set_by_name_and_value(answer: Kofn) -> None:
    fine, coarse = (
        json.loads(answer("run", "cmab-sm", "--arms", "6", "--k", "2", "--set", f"resolution={value}", "--json")[1])
        for value in ("0.05", "0.3")
    )
    assert fine["exploration"] > coarse["exploration"] > 0
    code, out, _ = answer("run", "doubling", "--set", "of=improved-ucb", "--set", "first=64", *RUN[2:6], "--json")
    assert (code, json.loads(out)["policy"]) == (0, "doubling")


@pytest.mark.usefixtures("pictures")
def test_run_writes_its_picture(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer(*RUN, "--horizon", "1e5", "--out", "sub/folder/picture", "--json")
    assert code == 0
    json.loads(out)
    written = [Path("sub/folder/picture.png"), Path("sub/folder/picture.svg")]
    assert err == f"wrote {written[0]}, {written[1]}\n"
    assert all((tmp_path / path).stat().st_size > 1_000 for path in written)


def test_a_short_horizon_is_noted_on_stderr(answer: Kofn) -> None:
    code, out, err = answer("run", "cmab-sm", "--horizon", "1000", "--json")
    assert code == 0
    assert json.loads(out)["exploration"] == 0
    assert err.startswith("kofn: note: a horizon of 1,000 plays is too short")
    assert err.count("\n") == 1
    assert "shortest useful horizon is" in err


# policies.


def test_policies_are_listed(answer: Kofn) -> None:
    offered = json.loads(answer("policies", "--json")[1])
    assert [fact["name"] for fact in offered] == ["thompson", "contextual-thompson", "uniform"]
    assert f"{len(POLICIES) - 3} more are for research: kofn policies --all" in answer("policies")[1]
    code, out, err = answer("policies", "--all", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert [fact["name"] for fact in facts] == list(POLICIES)
    table = answer("policies", "--all")[1]
    for fact in facts:
        (row,) = (line for line in table.splitlines() if line.startswith(f"  {fact['name']} "))
        assert ("needs it" in row) == fact["needs_horizon"]
        assert ("O(N)" in row) == fact["linear_memory"]
        assert ("all subsets" in row) == fact["keeps_subsets"]
        assert ", ".join(fact["needs"]) in row
        assert fact["description"][:30] in row


# paper.


@pytest.mark.usefixtures("pictures")
def test_paper_writes_pictures_and_numbers(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer(*SMALL, "--out", "figures")
    assert (code, err) == (0, "")
    names = ["max-12.json", "max-12.png", "max-12.svg"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == names
    said = json.loads((tmp_path / "figures" / "max-12.json").read_text())
    assert (said["figure"], said["horizon"], said["runs"], said["seed"]) == ("max-12", 500, 2, 2021)
    assert "wrote figures/max-12.png, figures/max-12.svg, figures/max-12.json" in " ".join(out.split())
    for cell in said["cells"]:
        named = [cell["policy"], *([f"({cell['schedule']})"] if cell["schedule"] else []), str(cell["k"])]
        row = next(line.split() for line in out.splitlines() if line.split()[: len(named)] == named)[len(named) :]
        assert numbers(row[0]) == f"{cell['final']:.0f}"
        assert cell["published"] is None or numbers(row[2]) == f"{cell['published']:.0f}"


def test_paper_as_json_prints_what_it_writes(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer(*SMALL, "--json")
    assert code == 0
    assert json.loads(out) == [json.loads((tmp_path / "out" / "max-12.json").read_text())]
    assert err == "wrote out/max-12.png, out/max-12.svg, out/max-12.json\n"


def test_paper_says_whether_the_order_is_the_published_one(answer: Kofn) -> None:
    out = answer(*SMALL[:3], "20000", *SMALL[4:])[1]
    assert "Published values, ratios and orders are those after 20,000 plays." in out
    orders = [line for line in out.splitlines() if line.startswith("K = ")]
    assert [line[:6] for line in orders] == ["K = 2:", "K = 3:", "K = 5:"]
    assert all("as published" in line or "published: " in line for line in orders)


def test_paper_with_a_horizon_before_the_first_published_point_compares_nothing(answer: Kofn) -> None:
    out = answer(*SMALL)[1]
    assert "Not compared with the paper" in out
    assert "as published" not in out
    assert "ours / published" not in out  # no empty columns
    (said,) = json.loads(answer(*SMALL, "--json")[1])
    assert said["compared_at"] is None
    assert {cell["published"] for cell in said["cells"]} == {None}


def test_paper_without_a_name_draws_all(answer: Kofn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = {name: FIGURES[name] for name in ("max-12", "dominance-bernoulli")}
    monkeypatch.setattr("kofn.lab.paper.FIGURES", small)
    assert answer("paper", *SMALL[2:])[0] == 0
    assert {path.stem for path in (tmp_path / "out").iterdir()} == set(small)


# compare.


def test_compare_prints_a_table_best_first(answer: Kofn) -> None:
    code, out, err = answer("compare", "uniform", "cucb", "dart", "oracle", *FEW)
    assert (code, err) == (0, WROTE.format("compare"))
    assert out.startswith("max/N6-K2: regret after 1,000 plays, 2 runs")
    rows = [line.split() for line in out.splitlines() if line.startswith("  ") and line.strip()]
    assert [row[0] for row in rows] == ["policy", "oracle", "dart", "uniform", "cucb"]
    said = json.loads(answer("compare", "uniform", "cucb", "dart", "oracle", *FEW, "--json")[1])
    assert [row["name"] for row in said["rows"]] == ["oracle", "dart", "uniform", "cucb"]
    assert numbers(rows[3][1]) == f"{said['rows'][2]['regret']:.0f}"
    assert said["rows"][3]["reference"]
    assert rows[4][1:3] == ["(sees", "arms)"]


def test_compare_as_json_is_what_python_says(answer: Kofn) -> None:
    code, out, err = answer("compare", "dart", "uniform", *FEW, "--problem", "rare", "--seed", "7", "--json")
    assert (code, err) == (0, "")
    result = kofn.compare(["dart", "uniform"], Setting("rare", 6, 2), 1000, runs=2, seed=7, workers=1).to_dict()
    said = json.loads(out)
    for row in (*said["rows"], *result["rows"]):
        del row["seconds"]
    assert said == result


def test_compare_as_csv_with_a_picture(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer("compare", "dart", "uniform", *FEW, "--csv", "--out", "sub/picture")
    assert (code, err) == (0, "wrote sub/picture.png, sub/picture.svg\n")
    assert (tmp_path / "sub/picture.svg").exists()
    head, *rows = out.splitlines()
    assert head.startswith(
        "name,policy,reference,regret,low,high,worst,found_best,final_gap,plan_rows,seconds,state_bytes"
    )
    assert [row.split(",")[0] for row in rows] == ["dart", "uniform"]


def test_compare_without_names_plays_all_that_can_and_says_what_cannot(answer: Kofn) -> None:
    argv = ["compare", "--problem", "min", *FEW[:4], "--horizon", "100", "--runs", "1", "--workers", "1"]
    said = json.loads(answer(*argv, "--json")[1])
    assert {row["name"] for row in said["rows"]} | set(said["skipped"]) == set(POLICIES)
    assert list(said["skipped"]) == ["contextual-thompson", "etcg", "sub-ucb", "thompson-sizes"]
    assert "skipped: etcg: etcg plays fewer than K arms" in answer(*argv)[1]


AS_OBJECT = """
from kofn import Bernoulli, Problem
problem = Problem(Bernoulli([0.9, 0.2, 0.8, 0.1]), "mean", k=2)
"""
AS_FUNCTION = """
import numpy as np
import kofn

N = 4

def reward(x):
    return np.sqrt(x.sum(axis=-1) / 2)

def problem(seed):
    return kofn.Problem(kofn.Bernoulli(np.random.default_rng(seed).random(N)), reward, k=2)
"""


@pytest.mark.parametrize(
    ("program", "title"),
    [(AS_OBJECT, "Problem(<4 Bernoulli arms>, <reward mean>, k=2)"), (AS_FUNCTION, "problem")],
    ids=["object", "function"],
)
def test_compare_on_a_problem_of_ones_own(program: str, title: str, answer: Kofn, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(program)
    argv = ["compare", "uniform", "shared-credit", "--problem", "shop.py", "--horizon", "500", "--runs", "3", "--json"]
    said = []
    for workers in ("1", "2"):
        code, out, err = answer(*argv, "--workers", workers)
        assert (code, err) == (0, "")
        said.append(json.loads(out))
        for row in said[-1]["rows"]:
            del row["seconds"]
    assert said[0] == said[1]
    assert said[0]["problem"] == title
    assert [row["name"] for row in said[0]["rows"]] == ["shared-credit", "uniform"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (None, "there is no file shop.py"),
        ("arms = 4", "shop.py defines no `problem`; it defines no functions. To name another object"),
        ("import nowhere", "shop.py failed: ModuleNotFoundError: No module named 'nowhere'"),
        ("def problem(seed): return 4", "a problem must be a Problem, a Setting, or a function that makes one"),
        ("import sys; sys.exit(0)", "shop.py failed: SystemExit: 0"),
    ],
)
def test_a_file_without_a_problem_is_one_line(program: str | None, message: str, answer: Kofn, tmp_path: Path) -> None:
    if program is not None:
        (tmp_path / "shop.py").write_text(program)
    code, out, err = answer("compare", "--problem", "shop.py", "--workers", "1")
    assert (code, out) == (2, "")
    assert err.startswith(f"kofn: {message}")
    assert err.count("\n") == 1


# suite.


def test_suite_lists_its_settings(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer("suite", "--list")
    assert (code, err) == (0, "")
    assert out.split() == [setting.name for setting in SUITE]
    assert answer("suite", "--settings", "rare", "--list") == (0, "rare/N12-K3\nrare/N24-K5\n", "")
    assert list(tmp_path.iterdir()) == []


TINY = ["suite", "--settings", "min/N12-K3", "--settings", "rare/N12-K3", "--horizon", "200", "--runs", "2"]
THREE = [*TINY, "--workers", "1", "--policy", "dart", "--policy", "uniform", "--policy", "etcg"]


def test_suite_runs_and_stores(answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer(*THREE)
    assert (code, err) == (0, "")
    files = [path.relative_to(tmp_path / "suite" / kofn.__version__) for path in tmp_path.rglob("*.jsonl")]
    assert sorted(str(path).rpartition("-")[0] for path in files) == [
        "min/N12-K3/dart",
        "min/N12-K3/uniform",
        "rare/N12-K3/dart",
        "rare/N12-K3/etcg",
        "rare/N12-K3/uniform",
    ]
    assert answer(*THREE)[:2] == (0, out)  # from the store
    rows = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line.strip()]
    assert rows[0] == "policy"
    assert set(rows[1:]) == {"dart", "etcg"}
    said = json.loads(answer(*THREE, "--json")[1])
    assert {row["policy"] for row in said["standings"]} == {"dart", "etcg"}
    assert "etcg plays fewer than K arms" in said["results"][5]["skipped"]
    said = json.loads(answer(*THREE, "--without", "dart", "--runs", "1", "--json")[1])  # not all that is stored
    assert {(each["policy"], each.get("runs", 1)) for each in said["results"]} == {("uniform", 1), ("etcg", 1)}


def test_suite_against_another_version(answer: Kofn, tmp_path: Path) -> None:
    answer(*THREE)
    (tmp_path / "suite" / kofn.__version__).rename(tmp_path / "suite" / "0.0.9")
    (path,) = tmp_path.glob("suite/0.0.9/rare/N12-K3/dart-*.jsonl")
    head, *lines = map(json.loads, path.read_text().splitlines())
    for line in lines:
        line["regret"][-1] = 12345.0
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines]))
    code, out, err = answer(*THREE, "--against", "0.0.9")
    assert (code, err) == (0, "")
    assert "regret: 0.0.9 and this version" in out
    (row,) = (line.split() for line in out.splitlines() if line.split()[:2] == ["rare/N12-K3", "dart"])
    said = json.loads(answer(*THREE, "--against", "0.0.9", "--json")[1])
    assert row[2:] == ["12,345", f"{said[0]['after']:,.0f}"]
    assert said[0]["before"] == 12345
    assert [(each["setting"], each["policy"]) for each in said] == [
        ("rare/N12-K3", "dart"),
        ("rare/N12-K3", "uniform"),
        ("rare/N12-K3", "etcg"),
        ("min/N12-K3", "dart"),
        ("min/N12-K3", "uniform"),
    ]
    assert all(each["before"] == each["after"] for each in said[1:])
    (tmp_path / "suite" / kofn.__version__).rename(tmp_path / "away")
    code, out, err = answer(*THREE, "--against", "0.0.8")
    assert (code, out) == (2, "")
    assert err.startswith("kofn: suite has no results of version '0.0.8'; it has: 0.0.9\n")
    assert not (tmp_path / "suite" / kofn.__version__).exists()  # said before anything is played


# completion.


def test_completion(answer: Kofn, tmp_path: Path) -> None:
    for name, word in (("bash", "complete "), ("zsh", "compdef"), ("fish", "complete ")):
        assert word in answer("completion", name)[1]
    done = shell(cwd=tmp_path, _KOFN_COMPLETE="bash_complete", COMP_WORDS="kofn p", COMP_CWORD="1")
    assert done.stdout.split() == ["plain,paper", "plain,policies"]


# Errors.


@pytest.mark.parametrize(
    "argv",
    [
        ["nope"],
        ["run", "--nope"],
        ["run", "--arms", "2", "--k", "2"],
        ["run", "--set", "k=1"],
        ["run", "--set", "=1"],
        ["run", "--set", "two\nlines=1"],
        ["budget"],
        ["paper", "nope"],
        ["completion", "tcsh"],
        ["compare", "nope"],
        ["suite", "--settings", "rare", "--policy", "nope"],
        ["suite", "--settings", "rare", "--without", "nope"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(argv: list[str], answer: Kofn, tmp_path: Path) -> None:
    code, out, err = answer(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("kofn: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_one_line(answer: Kofn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert answer(*RUN, "--out", "file/picture") == (2, "", "kofn: file: File exists\n")
    code, _, err = answer("paper", "dominance", "--out", "file/sub")
    assert code == 2
    assert err == "kofn: file/sub: Not a directory\n"


def test_an_error_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kofn", "policies"])
    monkeypatch.setattr("kofn.cli.show", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main()


def test_stopping_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["kofn", "policies"])
    monkeypatch.setattr("kofn.cli.show", stop)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process goes on
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err.strip().endswith("kofn: stopped")


# In a shell.


def test_kofn_is_installed() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("kofn"), "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kofn, version {kofn.__version__}\n", "")


def test_errors_look_the_same_from_a_shell(tmp_path: Path) -> None:
    done = shell("run", "nope", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kofn: there is no policy 'nope'. Available: {', '.join(sorted(POLICIES))}\n"


@pytest.mark.parametrize("argv", [["policies"], ["policies", "--json"]])
def test_a_reader_that_stops_is_no_crash(argv: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)  # as if `head` had gone before the first line
    done = subprocess.run([*KOFN, *argv], stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_files_and_pipes_get_no_colours(tmp_path: Path) -> None:
    done = shell(*RUN, cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stderr == WROTE.format("run")  # and no bar, even if colours are forced
    assert shell(*RUN, "--json", cwd=tmp_path, FORCE_COLOR="1", TTY_COMPATIBLE="1").stderr == ""


def at_a_terminal(*argv: str, cwd: Path, **environment: str) -> tuple[int, str]:
    """`kofn ARGV` at a terminal: exit code, and all that it showed."""
    master, slave = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color"} | environment
    with subprocess.Popen([*KOFN, *argv], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            shown += part
        code = process.wait()
    os.close(master)
    return code, shown.decode()


def test_a_terminal_gets_a_bar_and_bold_titles(tmp_path: Path) -> None:
    code, shown = at_a_terminal(*SMALL, cwd=tmp_path, COLUMNS="120")
    assert code == 0
    assert "Maximum, N = 12" in shown
    assert "100 %" in shown
    assert "\x1b[1m" in shown


def test_narrow_terminals(tmp_path: Path) -> None:
    code, shown = at_a_terminal(*RUN, cwd=tmp_path, COLUMNS="40", NO_COLOR="1")
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    assert max(len(line) for line in lines if not line.startswith("wrote ")) <= 40  # paths stay whole


def test_people_get_a_picture_and_programs_do_not(answer: Kofn) -> None:
    assert answer(*RUN, "--json")[0] == 0
    assert answer("compare", "uniform", "--arms", "4", "--k", "2", "--horizon", "100", "--runs", "1", "--csv")[0] == 0
    assert not Path("out").exists()
    assert answer(*RUN)[0] == 0
    assert sorted(each.name for each in Path("out").iterdir()) == ["run.png", "run.svg"]
