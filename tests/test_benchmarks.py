"""The benchmarks run, on sizes that take no time. How long they take is for `make benchmark`."""

import json
import math
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn.lab.settings import Setting

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"(?<![\w^.-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?")


def load(name: str) -> Any:
    return import_module(f"benchmarks.{name}")


def slowly(*case: Any) -> Any:
    """A table of a benchmark that takes half a second and more; `make test` runs another of its tables."""
    return pytest.param(*case, marks=pytest.mark.slow)


def command(*arguments: str) -> str:
    """Run a benchmark as the pages say, and return what it prints."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text: str) -> list[float]:
    """Return the numbers in the text, which must all be finite."""
    assert not re.search(r"(?i)\b(nan|inf|infinity|none)\b", text), text
    return [float(each.replace(",", "")) for each in NUMBER.findall(text)]


def cells(text: str) -> list[list[str]]:
    """Return the rows of the Markdown tables in the text, without their heads."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rules = [index for index, row in enumerate(rows) if row[0].startswith("---")]
    assert rules
    assert all(len(row) == len(rows[0]) for row in rows)
    return [row for index, row in enumerate(rows) if index not in rules and index + 1 not in rules]


@pytest.fixture(scope="module")
def speed() -> Any:
    return load("speed")


@pytest.fixture(scope="module")
def memory() -> Any:
    return load("memory")


def test_the_two_ways_to_run_play_the_same_problem(speed: Any) -> None:
    horizon = 3_000
    lost = speed.plain_loop(horizon, 0.3)
    run = speed.simulated(10**6, 0.3)
    assert lost == pytest.approx(run.regret_at(horizon), rel=0.25)  # the order of plays within a plan differs


def test_a_simulated_run_learns(speed: Any) -> None:
    run = speed.simulated(10**6, 0.05)
    assert run.regret < 0.5 * run.regret_at(10_000) * 100  # regret per play at least halves after the first 10,000


def test_the_median_of_what_was_measured(speed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0])  # calls of 5, 1 and 3 seconds
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    assert speed.seconds(lambda: None, 3) == 3.0


@pytest.mark.parametrize(("n_arms", "k"), [(24, 5), (1_000, 10)])
def test_ask_and_tell_are_measured(speed: Any, monkeypatch: pytest.MonkeyPatch, n_arms: int, k: int) -> None:
    asked: list[int] = []
    ask = kofn.CMABSM.ask

    def counted(policy: kofn.CMABSM) -> tuple[int, ...]:
        asked.append(policy.n_arms)
        return ask(policy)

    monkeypatch.setattr(kofn.CMABSM, "ask", counted)
    assert 0 < speed.ask_tell(n_arms, k, pairs=20) < 1
    assert asked == [n_arms] * 60  # 20 pairs, measured three times


def test_all_numbers_have_a_name(speed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "seconds", lambda work, repeat: float(repeat))
    found = speed.measure()
    assert len(found) == 11
    assert all(isinstance(each, float) for each in found.values())
    json.dumps(found, allow_nan=False)


def test_memory_is_measured(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.PARAMS, "cmab-sm", {"resolution": 0.2})
    monkeypatch.setitem(memory.HORIZONS, "thompson", 10_000)
    for policy in ("cmab-sm", "thompson"):
        said = memory.measure(policy, 30, 3)
        assert set(said) == {"seconds", "plan_rows", "peak_mib", "state_bytes", "regret"}
        assert said["plan_rows"] > 30
        assert said["peak_mib"] > 10
        assert 0 < said["regret"] < 1


def test_the_largest_state_is_that_of_a_plan_half_told(memory: Any) -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 12)), "mean", 3)
    policy = kofn.CMABSM(12, 3, 10**6, resolution=0.2)
    start = len(json.dumps(kofn.save(policy)))
    assert memory.largest_state(policy, problem, plans=3) > start


def test_the_plain_cascade_has_the_same_mean_as_ours() -> None:
    """In the karate club, 4,000 cascades against 40,000: a z below 5.3."""
    influence = load("influence")
    problem = influence.karate()
    graph, rng = influence.as_networkx(problem.graph), influence.random.Random(3)
    theirs = np.array([influence.plain(graph, (0, 33), 0.1, rng) for _ in range(4_000)])
    walker = influence.BitCascades(problem.graph, problem.probabilities, "cascade")
    ours = walker.reached(np.tile((0, 33), (40_000, 1)), np.random.default_rng(3))
    assert abs(theirs.mean() - ours.mean()) < 5.3 * theirs.std() * (1 / 4_000 + 1 / 40_000) ** 0.5


def test_policies_are_set_against_greedy(capsys: pytest.CaptureFixture[str]) -> None:
    influence = load("influence")
    stars = [(centre, 10 * centre + leaf) for centre in (1, 2, 3) for leaf in range(5)]
    problem = kofn.lab.problems.Influence(stars, 2, probability=0.5, source_sets=2**14)
    influence.regret(problem, 2_000, 1, 1)
    shown = capsys.readouterr().out
    assert all(f"| {name} |" in shown for name in influence.POLICIES)
    assert "greedy reaches" in shown


# Each command, with --quick.


@pytest.mark.parametrize("names", [[], ["--json"]], ids=["table", "json"])
def test_speed(speed: Any, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    speed.main(["--quick", *names])
    shown = capsys.readouterr().out
    found = list(json.loads(shown).values()) if names else [numbers(line)[-1] for line in shown.splitlines()]
    assert len(found) == 11
    assert all(0 < each < math.inf for each in found)


def test_memory() -> None:
    """Each size runs in a process of its own."""
    said, head, *rows = command("benchmarks/memory.py", "cmab-sm", "--quick").splitlines()
    assert said.startswith("cmab-sm, a run of ")
    assert "state [kB]" in head
    (row,) = map(numbers, rows)
    assert row[:2] == [20, 3]
    assert len(row) == 8
    assert row[6] > 10  # MiB


def test_growth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    growth = load("growth")
    monkeypatch.setattr(growth, "in_its_own_process", lambda policy, case: growth.measure(policy, *case))
    growth.main(["--quick"])
    for part in capsys.readouterr().out.split("\n\n| N |")[1:]:
        rows = cells("| N |" + part)
        assert len(rows) == 7
        assert all(len(numbers(" ".join(row))) >= 7 for row in rows)
        exponents = [line for line in part.splitlines() if line.startswith("exponent of growth")]
        assert len(exponents) == 3
        assert all(len(numbers(line)) == 3 for line in exponents)


@pytest.mark.slow
def test_growth_as_a_command() -> None:
    shown = command("benchmarks/growth.py", "thompson", "--only", "large", "--quick")
    (row,) = cells(shown)
    assert row[:3] == ["40", "8", "10^5"]
    assert all(float(each.replace(",", "")) >= 0 for each in row[3:])


def test_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    load("campaign").main(["--quick", "--no-postgres"])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 5  # the disk, and two kinds of stores with two batches
    assert all(numbers(line)[-1] > 0 for line in shown)


@pytest.mark.postgres
@pytest.mark.process
@pytest.mark.slow
def test_campaign_on_postgres(capsys: pytest.CaptureFixture[str]) -> None:
    load("campaign").main(["--quick", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert sum("PostgreSQL" in name for name in found) == 2
    assert all(value > 0 for value in found.values())


@pytest.mark.slow
@pytest.mark.process
def test_service(capsys: pytest.CaptureFixture[str]) -> None:
    load("service").main(["load", "learning", "--quick", "--no-postgres", "--json"])
    machine, loaded, learned = json.loads(capsys.readouterr().out).values()
    assert machine["cores"] > 0
    assert loaded["pairs/s"] > 0
    assert 0 < loaded["median ms"] <= loaded["p99 ms"]
    assert learned["runs"] == 2
    assert learned["regret through HTTP"] > 0
    assert all(math.isfinite(value) for value in learned.values())


@pytest.mark.browser
@pytest.mark.slow
def test_many_campaigns(capsys: pytest.CaptureFixture[str]) -> None:
    load("many_campaigns").main(["--quick", "--json"])
    one, two = json.loads(capsys.readouterr().out).values()
    assert min(one.values()) > 0
    assert one.keys() == load("many_campaigns").UNITS.keys()
    assert two["list kB"] == pytest.approx(2 * one["list kB"], rel=0.2)


@pytest.mark.process
def test_client(capsys: pytest.CaptureFixture[str]) -> None:
    load("client").main(["--quick", "--json"])
    machine, *cases = json.loads(capsys.readouterr().out).values()
    assert machine["cores"] > 0
    assert len(cases) == 6
    for found in cases:
        assert found["pairs/s"] > 0
        assert 0 < found["decide: median us"] <= found["p99 us"]
        assert found["unused"] >= 0
    assert [found["unused"] for found in cases[:3]] == [0, 0, 0]


@pytest.mark.process
@pytest.mark.slow
def test_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    load("throughput").main(["--quick", "--no-postgres", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["rounds"] == 1
    for servers in found["measured"].values():
        assert all(numbers["pairs/s"] > 0 for numbers in servers.values())
    assert found["ratios"]


@pytest.mark.browser
@pytest.mark.process
@pytest.mark.slow
def test_service_page(capsys: pytest.CaptureFixture[str]) -> None:
    load("service").main(["page", "--quick", "--json"])
    found = json.loads(capsys.readouterr().out)["the dashboard"]
    assert found["decisions"] == 2_000
    assert 0 < found["ms, best"] <= found["ms, worst"]


ROWS = {"regret": 2, "tails": 2, "least": 1, "anytime": 2, "delay": 4, "drift": 6, "guard": 2}
"""The rows that each table of `thompson` has with --quick."""


@pytest.mark.parametrize("table", ROWS)
def test_thompson(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = "2" if table in ("tails", "delay") else "1"  # the worst run against the mean; intervals
    load("thompson").main([table, "--quick", "--runs", runs, "--archive", str(tmp_path)])
    shown = capsys.readouterr().out
    rows = cells(shown)
    assert len(rows) == ROWS[table]
    for row in rows:
        said = " ".join(row[1:])
        assert numbers(said if table != "drift" else " ".join(row).replace("none", ""))


@pytest.mark.parametrize(("table", "rows"), [("price", 1), ("bases", 2), ("bound", 12)])
def test_guarantee(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("guarantee").main([table, "--quick", "--runs", "2"])
    found = cells(capsys.readouterr().out)
    assert len(found) == rows
    assert all(numbers(" ".join(row[1:])) for row in found)


@pytest.mark.parametrize(("table", "rows"), [("suite", 3), ("drift", 2), ("synergy", 2)])
def test_calibration(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("calibration").main([table, "--quick", "--runs", "2"])
    found = cells(capsys.readouterr().out)
    assert len(found) >= rows
    assert all(numbers(" ".join(row[1:])) for row in found)


@pytest.mark.parametrize(("table", "rows"), [("same", 2), ("better", 2), ("policy", 2), ("ratio", 6)])
def test_lift(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("lift").main([table, "--quick", "--runs", "3"])
    found = cells(capsys.readouterr().out)
    assert len(found) == rows
    assert all(numbers(" ".join(row[1:]).replace("%", " ").replace("+", " ")) for row in found)


@pytest.mark.parametrize("table", ["suite", "base", slowly("large")])
def test_stopping(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    stopping = load("stopping")
    stopping.main([table, "--quick", "--runs", "2"])
    shown = capsys.readouterr().out
    (row,) = cells(shown)
    assert len(row) == 7
    assert "x = 20.0%: of 1 settings, " in shown


def test_a_run_that_is_not_ready_counts_as_such() -> None:
    stopping = load("stopping")
    assert stopping.cells(np.array([[0.5, 100], [math.nan, math.nan], [1.5, 300]])) == ("1.00 ± 0.98", "200", "33%")
    assert stopping.cells(np.array([[math.nan, math.nan]])) == ("", "", "100%")


def test_every_table_of_thompson_is_tested() -> None:
    assert set(ROWS) == set(load("thompson").TABLES)


SAFETY_ROWS = {"base": 1, "ranges": 1, "ablation": 3, "rare": 1, "speed": 2, "together": 1}
"""The rows that each table of `thompson_safety` has with --quick."""


@pytest.mark.parametrize("table", SAFETY_ROWS)
def test_thompson_safety(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    load("thompson_safety").main([table, "--quick", "--runs", "2"])
    rows = cells(capsys.readouterr().out)
    assert len(rows) == SAFETY_ROWS[table]
    assert all(numbers(" ".join(row[1:])) for row in rows)


def test_every_table_of_thompson_safety_is_tested() -> None:
    assert set(SAFETY_ROWS) == set(load("thompson_safety").TABLES)


def test_a_part_of_the_table_of_base_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "thompson", "--policy", "dart"]
    load("thompson_safety").main(["base", "--quick", "--runs", "2", "--only", "steep", *policies])
    shown = capsys.readouterr().out
    assert [row[0] for row in cells(shown)] == ["0.1 + 0.6 steep sigmoid, N=60, K=3"]
    assert "| thompson | thompson, found | dart | dart, found | thompson / dart |" in shown


def test_pick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the same from the archive. `uniform` is not ranked, and equal arms have no gap to compare."""
    arguments = ["--quick", "--runs", "2", "--archive", str(tmp_path / "runs")]
    load("pick").main(arguments)
    shown = capsys.readouterr().out
    load("pick").main([*arguments, "--page", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text().replace(f" --page {tmp_path}/page.md", "") == shown
    assert shown.count("`thompson` (2)") == 2
    assert shown.count("| `uniform` |") == 4
    assert "`uniform` (2)" not in shown
    assert [line for line in shown.splitlines() if line.startswith("## ")] == [
        "## Over all settings",
        "## max/N12-K3",
        "## close/N12-K3",
    ]


@pytest.mark.slow
def test_small_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["thompson", "pairwise-thompson"]
    load("small_budgets").main(["pairs", "--quick", "--runs", "2", "--policies", *names])
    rows = cells(capsys.readouterr().out)
    assert [row[1] for row in rows] == [f"`{name}`" for name in names]
    assert all(numbers(" ".join(row[2:])) for row in rows)


def test_the_bonus_of_small_budgets_is_paid_for_whole_pairs() -> None:
    sampler = load("small_budgets").PairSampler(np.linspace(0, 0.5, 6), np.array([[0, 3], [1, 2], [4, 5]]))
    assert sampler.value(np.array([[0, 1, 4], [0, 3, 4], [1, 2, 0]])).tolist() == pytest.approx(
        [0.5 / 6, 0.7 / 6 + 0.25, 0.3 / 6 + 0.25]
    )


def test_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    budget = load("budget")
    before = budget.TABLE.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(budget, "FAMILIES", ("mean",))
        budget.main(["--quick", "--runs", "1"])
    budget.main(["--quick", "--runs", "2", "--out", str(tmp_path / "table.csv")])
    assert budget.TABLE.read_bytes() == before
    assert "cross-selling/N4-K2" in capsys.readouterr().out
    head, *rows = [line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines()]
    assert head == budget.COLUMNS
    assert len(rows) == 3 * 2  # families, sizes
    assert all(0 <= float(row[5]) < int(row[3]) for row in rows)


def test_budget_has_the_95_percent_error_of_the_mean_regret() -> None:
    budget = load("budget")
    played = [budget.Played([regret], [0.0], 1.0) for regret in (1.0, 2.0, 3.0, 6.0)]
    (row,) = budget.rows_of(budget.Setting("mean", 4, 1), played, [100])
    named = dict(zip(budget.COLUMNS, row, strict=True))
    assert float(named["regret"]) == 3.0
    assert float(named["regret_error"]) == pytest.approx(3.182 * math.sqrt(14 / 3) / 2, rel=1e-3)  # t of 3 degrees


def test_draws(capsys: pytest.CaptureFixture[str]) -> None:
    load("draws").main(["--quick"])
    ((draws, early, late, seconds),) = cells(capsys.readouterr().out)
    assert draws == "256"
    assert 0 < numbers(early)[0] < numbers(late)[0] < 1_000  # regret of 100 and 1,000 plays
    assert numbers(seconds)[0] >= 0


@pytest.mark.slow
def test_grid(capsys: pytest.CaptureFixture[str]) -> None:
    load("grid").main(["shared-credit", "--quick"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["family", "N", "K"]
    assert len(rows) == 9
    for row in rows:
        n_arms, k, mean, worst, *ratios = numbers(row)
        assert (n_arms, k) in ((12, 2), (12, 3), (12, 5))
        assert 0 < mean <= worst + 1
        assert len(ratios) == 2


@pytest.mark.parametrize("form", ["table", "json"])
def test_outside(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    outside = load("outside")
    outside.main(["--quick", *(["--json"] if form == "json" else [])])
    shown = capsys.readouterr().out
    if form == "json":
        found: list[Any] = [(each["horizon"], each["theirs"], each["ours"]) for each in json.loads(shown)]
    else:
        found = [tuple(numbers(line)[-4:-1]) for line in shown.splitlines()[1:]]
    assert len(found) == len(outside.OURS)
    assert all(horizon == 1_000 and theirs > 0 and ours > 0 for horizon, theirs, ours in found)


@pytest.mark.parametrize("table", [slowly("speed"), "karate", slowly("candidates"), "large"])
def test_influence(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    influence = load("influence")
    assert table in influence.TABLES
    influence.main([table, "--quick", "--runs", "1"])
    rows = cells(capsys.readouterr().out)
    assert len(rows) == (4 if table == "speed" else len(influence.POLICIES))
    assert all(numbers(" ".join(row[1:])) for row in rows)


def engine(name: str) -> dict[str, str]:
    shown = command("benchmarks/engines.py", name, "--quick")
    return {line[:24].strip(): line[25:] for line in shown.splitlines()}


@pytest.mark.parametrize(
    "name", ["kofn-local", pytest.param("kofn-dask", marks=[pytest.mark.cluster, pytest.mark.slow])]
)
def test_engines(name: str) -> None:
    found = engine(name)
    assert found["engine"] == name
    assert float(found["s for the runs"]) > 0
    assert float(found["MB of all processes"]) > 10
    assert re.fullmatch("[0-9a-f]{12}", found["digest"])


def test_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    peers = load("peers")
    players = load("peers_players")
    monkeypatch.setattr(peers, "SETTINGS", {Setting("max", 5, 2): 1.0})
    monkeypatch.setattr(peers, "IN_MEMORY", [players.Thompson])
    monkeypatch.setattr(peers, "ON_DISK", [])
    monkeypatch.setattr(peers, "FAR", (1_000,))
    monkeypatch.setattr(peers, "missing", lambda needs: "not here" if needs == "numba" else None)
    peers.main(["--quick", "--page", str(tmp_path / "page.md"), "--json", str(tmp_path / "found.json")])
    assert "skipped: numba (not here)" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["plays"] for row in found["rows"]] == [1_000] * 2
    page = (tmp_path / "page.md").read_text()
    assert page.count("| kofn, `thompson`") == 3  # two rows, and the head of the long runs
    assert "| max/N5-K2 | 10^3 |" in page


@pytest.mark.slow
def test_peers_as_a_command() -> None:
    shown = command("-m", "benchmarks.peers", "--quick")
    assert "### max/N12-K3: 220 subsets" in shown
    assert "| kofn, `thompson`" in shown


def test_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    load("alarms").main(["arrivals", "--quick", "--runs", "1"])
    rows = cells(capsys.readouterr().out)
    assert [row[2] for row in rows] == ["none", "heavy tail", "silence", "missing", "delay"]
    assert [row[4] for row in rows] == ["", "", "1", "1", "1"]


@pytest.mark.parametrize(("table", "rows"), [slowly("features", 6), ("ensembles", 6)])
def test_features(table: str, rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second command reads the results of the first from the file, and prints the same."""
    features, shown = load("features"), []
    for name in ("first.png", "second.png"):
        kept = ["--keep", str(tmp_path / "kept.jsonl"), "--out", str(tmp_path / name)]
        features.main([table, "--quick", "--runs", "2", *kept])
        shown.append(capsys.readouterr().out)
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    assert shown[0] == shown[1]
    found = cells(shown[0])
    assert len(found) == rows
    assert all(0 < numbers(row[2])[0] <= 100 for row in found)
    assert sum(row[3] == "" for row in found) == 1  # the reference


def test_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load("prompts").main(["examples", "--quick", "--runs", "2", "--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"prompts.png", "prompts-digits.png"}
    found = cells(capsys.readouterr().out)
    assert len(found) == 5
    assert all(0 < numbers(row[2])[0] <= 100 for row in found)


@pytest.mark.parametrize(("table", "rows"), [("exact", 4), ("noisy", 4), ("interval", 1), ("policies", 1)])
def test_choose(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("choose").main([table, "--quick", "--runs", "2"])
    found = cells(capsys.readouterr().out)
    assert len(found) == rows
    assert all(numbers(row[-1].replace("%", " ")) for row in found)


def test_the_functions_of_choose_are_as_described() -> None:
    """Each by another formula: a regression by least squares, and a greedy pick of an additive function is the best."""
    choose = load("choose")
    rng = np.random.default_rng([5, 0])
    columns = rng.normal(size=(200, choose.N_ARMS)) + 0.7 * rng.normal(size=(200, 4)) @ rng.normal(size=(4, 20))
    target = columns @ (rng.normal(size=20) * (rng.random(20) < 0.5)) + 2 * rng.normal(size=200)
    design = np.column_stack([np.ones(200), columns[:, [0, 3, 4, 9, 17]]])
    residual = target - design @ np.linalg.lstsq(design, target)[0]
    task = choose.Task("regression", 0.0, 100, 5)
    assert task.true([0, 3, 4, 9, 17]) == pytest.approx(1 - residual.var() / target.var())
    assert choose.Task("additive", 0.0, 100, 5).loss(choose.greedy(choose.Task("additive", 0.0, 100, 5))) == 0
    assert choose.Task("pairs", 0.0, 100, 5).loss(choose.hill_climbing(choose.Task("pairs", 0.0, 3000, 5))) == 0


def test_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    load("sizes").main(["regret", "--quick", "--runs", "2"])
    rows = cells(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["sum", "sum", "mean", "mean", "maximum", "maximum"]


def test_every_benchmark_has_a_test() -> None:
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main(" in path.read_text()}
    assert len(scripts) == 33
    assert {f"test_{name}" for name in scripts} <= set(globals())


def test_export_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    load("export_coverage").main(["--campaigns", "1"])
    rows = cells(capsys.readouterr().out)
    assert [row[0] for row in rows] == [case.title for case in load("export_coverage").CASES]
    assert all(0 <= share <= 100 for row in rows for share in numbers(" ".join(row[1:]).replace("%", "")))


def test_short_runs(capsys: pytest.CaptureFixture[str]) -> None:
    load("short_runs").main(["linear-thompson", "--quick"])
    rows = cells(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["mean/N12-K3", "mean/N24-K5"]
    for row in rows:
        mean, error = numbers(row[1].replace("±", " "))
        assert 0 < error < mean < 300


@pytest.mark.parametrize(("table", "rows"), [slowly("ways", 3), slowly("price", 3), slowly("repair", 9), ("time", 1)])
def test_constraints(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("constraints").main([table, "--quick", "--runs", "2"])
    printed = capsys.readouterr().out
    assert len(cells(printed)) == rows
    means = [line for line in printed.splitlines() if "| difference |" not in line]
    assert min(numbers("\n".join(means).replace("mean/N12-K3", ""))) >= 0


def test_how_much_constraints_and_repair_explore(capsys: pytest.CaptureFixture[str]) -> None:
    load("constraints").main(["explored", "--quick", "--runs", "2", "--rules", "brands"])
    assert [row[2] for row in cells(capsys.readouterr().out)] == ["constraints", "repair", "difference"]


def test_the_picture_of_constraints(tmp_path: Path) -> None:
    load("constraints").main(
        ["picture", "--quick", "--runs", "2", "--rules", "brands", "--out", str(tmp_path / "a.png")]
    )
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_a_repaired_subset_is_allowed_and_keeps_what_it_can() -> None:
    benchmark = load("constraints")
    allowed = kofn.Constraints.of([{"rule": "at-most", "count": 1, "arms": [0, 1, 2]}]).allowed(6, 3)
    mean = np.array([0.1, 0.3, 0.2, 0.0, 0.9, 0.5])
    assert benchmark._repaired(np.array([0, 1, 3]), mean, allowed).tolist() == [1, 3, 4]
    assert benchmark._repaired(np.array([0, 3, 4]), mean, allowed).tolist() == [0, 3, 4]


def test_priors(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = load("priors")
    benchmark.main(["regret", "--quick", "--runs", "2"])
    assert len(cells(capsys.readouterr().out)) == len(benchmark.WAYS)
    benchmark.main(["arms", "--quick", "--runs", "2"])
    assert len(cells(capsys.readouterr().out)) == 3 * len(benchmark.GROUP_EFFECTS)


def test_the_misleading_ranking_has_the_best_five_last() -> None:
    means = np.array([0.1, 0.9, 0.8, 0.2, 0.7, 0.6, 0.5])
    assert load("priors").misleading(means, np.random.default_rng(1)).tolist() == [3, 0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(("table", "rows"), [slowly("regret", 4), ("cost", 1)])
def test_context(table: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    load("context").main([table, "--quick", "--runs", "2", "--workers", "1"])
    printed = capsys.readouterr().out
    assert len(cells(printed)) == rows or "skipped: obp" in printed
    assert len(numbers(printed.replace("max/N12-K3", ""))) >= rows or "skipped" in printed


def test_the_three_ways_with_contexts_lose_what_they_must() -> None:
    """In 3 segments that differ, after 3,000 plays: one subset for all loses the most."""
    context = load("context")
    problem = kofn.lab.problems.contextual_problem("different", 3, 8, 2, "mean", seed=1)
    _, for_policy, for_plays = kofn.run_seeds(1, 0)
    pooled, plain, separate = (way(problem, (300, 3_000), for_policy, for_plays) for way in context.WAYS.values())
    assert max(pooled[1], separate[1]) < 0.8 * plain[1]
    assert all(0 < each[0] < each[1] for each in (pooled, plain, separate))


def test_rivals_see_the_same_visitors(capsys: pytest.CaptureFixture[str]) -> None:
    load("context").main(["rivals", "--quick", "--runs", "2"])
    rows = [row for row in cells(capsys.readouterr().out) if "kofn" in row[1]]
    assert len(rows) == 6
    assert all(row[2] == "60" for row in rows)
    assert rows[0][3] == rows[0][4]
