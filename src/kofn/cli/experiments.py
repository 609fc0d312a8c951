"""The commands that compare policies: compare and suite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.functions import load_object, names_object
from kofn.cli.options import ARCHIVE, AS_JSON, BACKEND, HORIZON, PICTURE, SEED, WORKERS, Count
from kofn.cli.output import (
    OPTIONAL,
    comparison_table,
    echo_json,
    new_table,
    picture,
    progress_bar,
    resumable,
    show,
    write_picture,
)

if TYPE_CHECKING:
    from kofn.lab.competitors import Instances


PROBLEM = (
    click.option(
        "--problem",
        default="max",
        show_default=True,
        help="mean, max, min, cross-selling, close, rare, dominant, equal, likely-min, threshold or correlated, with "
        "random arms; or karate, influence, influence-threshold, storage, interactions, recommendations or catalogue "
        "from applications; or context/KIND-SEGMENTS, such as context/part-6, of the kinds alike, different, part, "
        "some or attribute; or a Python file or function.",
    ),
    click.option("--arms", type=Count(), default=24, show_default=True, help="N, for a problem by name or a function."),
    click.option("--k", "-k", type=Count(), default=5, show_default=True, help="K, for a problem by name or function."),
    click.option(
        "--reward", help="Another reward for a problem by name: mean, sum, max, min, cross-selling or threshold."
    ),
    click.option("--minimize", is_flag=True, help="Smaller rewards are better, for a function."),
    click.option(
        "--reward-range",
        type=float,
        nargs=2,
        help="The smallest and the largest reward of a function. Default: 0 1, or found from draws.",
    ),
)


def with_problem(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a problem: `problem` is its name, and `instances` what `problem_named` returns."""

    @wraps(command)
    def wrapped(problem: str, **given: Any) -> None:
        chosen = {name: given.pop(name) for name in ("arms", "k", "reward", "minimize", "reward_range")}
        command(problem=problem, instances=problem_named(problem, **chosen), **given)

    for option in reversed(PROBLEM):
        wrapped = option(wrapped)
    return wrapped


@click.command()
@click.argument("policies", nargs=-1)
@with_problem
@click.option("--horizon", type=HORIZON, default=10**6, show_default=True, help="Plays of each run.")
@click.option("--runs", type=Count(), default=30, show_default=True, help="Runs of each policy.")
@SEED
@BACKEND
@WORKERS
@ARCHIVE
@PICTURE
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values instead of a table.")
@AS_JSON
def compare(
    policies: tuple[str, ...],
    problem: str,
    instances: Instances,
    archive: Path | None,
    out: Path | None,
    as_csv: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare POLICIES on one problem: the same runs for all, a table and a picture.

    Without POLICIES, all policies that can play the problem. A Python file must define `problem`: a kofn.Problem, or a
    function that makes one from a seed, for a fresh problem in each run. A Python function, script.py:name or
    package.module:name, takes a subset (a tuple of K arms) and a NumPy generator, and returns the reward.

    \b
    kofn compare cmab-sm dart csar --problem mean --arms 45 --k 4 --out mean
    kofn compare --problem max --runs 5
    kofn compare contextual-thompson thompson --problem context/part-6 --arms 12 -k 3
    kofn compare cmab-sm shared-credit --problem shop.py --csv
    kofn compare thompson dart --problem shop.py:clicks --arms 40 -k 5 --horizon 1e4 --runs 5
    kofn compare --runs 1000 --archive sweep --backend dask:tcp://10.0.0.1:8786
    """
    from kofn.lab.compare import compare as compare_policies
    from kofn.policies.registry import POLICIES

    if out := picture(out, "compare", for_people=not (as_json or as_csv)):
        from kofn.core.pictures import picture_files

        picture_files(out)  # refuses a bad name before the runs
    with resumable(archive), progress_bar(f"{len(policies) or len(POLICIES)} policies") as progress:
        result = compare_policies(
            policies or sorted(POLICIES), instances, archive=archive, progress=progress, skip=not policies, **asked
        )
    if out:
        write_picture(result.plot(), out)
    if as_json:
        echo_json(result.to_dict())
    elif as_csv:
        click.echo(result.to_csv(), nl=False)
    else:
        skipped = (f"skipped: {name}: {why}" for name, why in result.skipped.items())
        show(comparison_table(result), *best_note(instances), *skipped, optional=OPTIONAL)


def best_note(problem: Instances) -> Iterator[str]:
    """Yield how the best subset of one problem was found, unless it was computed."""
    from kofn.lab.problems import AbstractProblem

    if isinstance(problem, AbstractProblem) and (evidence := problem.best_evidence) != "computed":
        yield f"best subset: {problem.best} ({evidence}), expected reward {problem.optimum:.4g}"


def problem_named(
    name: str, arms: int, k: int, reward: str | None, minimize: bool, reward_range: tuple[float, float] | None
) -> Instances:
    """Return the family of a name, what a Python file defines as `problem`, or the problem of a Python function."""
    from kofn.core import BadInput
    from kofn.lab.problems import Problem
    from kofn.lab.settings import ContextualSetting, RealSetting, Setting

    if not names_object(name):
        if minimize or reward_range:
            raise BadInput(f"--minimize and --reward-range are for a function, such as shop.py:clicks, not for {name}")
        if name.startswith("real/"):
            if reward:
                raise BadInput(f"--reward is for a family, such as mean; {name} has its own reward")
            return RealSetting.named(name)
        if name.startswith("context/"):
            return ContextualSetting.named(name, arms, k, reward)
        return Setting(name, arms, k, reward)
    found: Any = load_object(name, default="problem")
    if reward:
        raise BadInput(f"--reward is for a problem by name, such as mean; {name} has its own reward")
    if not callable(found) or name.endswith(".py") or _takes_seed(found):
        if minimize or reward_range:
            raise BadInput(f"--minimize and --reward-range are for a function of (subset, rng); {name} is a problem")
        return found  # type: ignore[no-any-return]
    return Problem.of(
        found, arms, k, direction="minimize" if minimize else "maximize", reward_range=reward_range or None
    )


def _takes_seed(function: Any) -> bool:
    """Return whether a function makes a problem from a seed: its first argument is named so."""
    try:
        return next(iter(inspect.signature(function).parameters), "") == "seed"
    except (TypeError, ValueError):
        return False


@click.command()
@click.option(
    "--settings",
    multiple=True,
    metavar="NAME",
    help="Only this setting, such as max/N24-K5, or family of settings, such as max; repeatable.",
)
@click.option("--policy", "policies", multiple=True, help="Only this policy; repeatable.")
@click.option("--without", multiple=True, help="All policies but this one; repeatable.")
@click.option("--horizon", type=HORIZON, default=10**6, show_default=True, help="Plays of each run.")
@click.option("--runs", type=Count(), default=10, show_default=True, help="Runs of each policy on each setting.")
@SEED
@BACKEND
@WORKERS
@click.option(
    "--archive", type=click.Path(path_type=Path), default=Path("suite"), show_default=True, help="Folder of the runs."
)
@click.option("--list", "only_list", is_flag=True, help="List the settings and exit.")
@click.option("--against", metavar="VERSION", help="Compare with the archived results of another version of kofn.")
@AS_JSON
def suite(
    settings: tuple[str, ...],
    policies: tuple[str, ...],
    without: tuple[str, ...],
    archive: Path,
    only_list: bool,
    against: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Run the suite, a fixed set of settings that every policy plays. Archived runs are not repeated, so that the
    same command resumes an interrupted suite.

    Without --settings, it has all settings except the families real (data of installed packages) and context.

    \b
    kofn suite --list
    kofn suite --settings max --settings rare --runs 3
    kofn suite --settings real --horizon 1e4
    """
    from kofn.lab.archive import RunArchive
    from kofn.lab.suite import Leaderboard, run_suite, settings_named, versus

    chosen = settings_named(settings)
    if only_list:
        click.echo("\n".join(setting.name for setting in chosen))
        return
    kept = RunArchive(archive)
    earlier = kept.of_version(against) if against else None  # reports a missing version before the runs
    with resumable(archive), progress_bar("suite") as progress:
        results = run_suite(
            kept, settings=chosen, policies=policies or None, without=without, progress=progress, **asked
        )
        board = Leaderboard(tuple(results))
    if earlier:
        rows = versus(board.results, earlier)
        if as_json:
            echo_json(rows)
            return
        table = new_table(f"regret: {against} and this version", "setting", "policy", "before", "after", names=2)
        for row in rows:
            table.add_row(row["setting"], row["policy"], f"{row['before']:,.0f}", f"{row['after']:,.0f}")
        show(table)
        return
    if as_json:
        echo_json({"standings": board.standings(), "results": board.results})
        return
    table = new_table("regret relative to the best policy", "policy", "settings", "best in", "median", "worst")
    for row in board.standings():
        ratios = f"{row['median_ratio']:,.1f}", f"{row['worst_ratio']:,.0f}"
        table.add_row(row["policy"], str(row["settings"]), str(row["wins"]), *ratios)
    show(table)
