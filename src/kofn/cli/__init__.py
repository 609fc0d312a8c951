"""The command line: parse, call, print. A command imports what it needs when it runs, so that --help is fast."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import __version__
from kofn.cli.backups import backup, restore
from kofn.cli.campaigns import campaign
from kofn.cli.choose import choose
from kofn.cli.experiments import compare, suite, with_problem
from kofn.cli.forecast import forecast
from kofn.cli.lab import lab
from kofn.cli.options import ARCHIVE, AS_JSON, BACKEND, HORIZON, PICTURE, SEED, WORKERS, Count, help_if_alone, setting
from kofn.cli.output import (
    echo_json,
    forecast_table,
    new_table,
    pairs,
    panel_notes,
    panel_table,
    picture,
    progress_bar,
    resumable,
    show,
    write_picture,
)
from kofn.cli.real import real
from kofn.cli.replay import replay
from kofn.cli.serve import serve, token

if TYPE_CHECKING:
    from kofn.lab.competitors import Instances
    from kofn.lab.problems import AbstractProblem
    from kofn.lab.simulation import Run


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, invoke_without_command=True
)
@click.version_option(__version__, prog_name="kofn")
@click.pass_context
def cli(context: click.Context) -> None:
    """Pick the best K of N when all you ever see is one number.

    \b
    kofn budget --arms 24 --k 5 --horizon 1e6   what will learning cost?
    kofn forecast --arms 24 --k 5 --base 2% --lift 10% --per-day 5000   how many days will it take?
    kofn run thompson --problem max --out run   one run, with a picture
    kofn compare thompson dart --problem max    which policy is best?
    kofn choose script.py:score --candidates items.txt -k 5   the best 5 by a function of yours
    kofn paper max-12                           reproduce a figure of the paper
    kofn replay log.csv --uniform               evaluate subsets from a log
    """
    help_if_alone(context)


@cli.command()
@click.argument("name", required=False)
@click.option(
    "--reading",
    type=click.Choice(["scale", "rate", "scale-1", "rate-1", "factor"]),
    default="scale",
    show_default=True,
    help="How the arms of the cross-selling figures are drawn; see docs/background/paper.md.",
)
@click.option("--runs", type=Count(), help="Runs of each policy. Default: the paper's number, 30 or 25.")
@click.option("--horizon", type=HORIZON, default=10**6, show_default=True, help="Plays of each run.")
@SEED
@BACKEND
@WORKERS
@ARCHIVE
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out"),
    show_default=True,
    help="Folder for pictures and numbers.",
)
@AS_JSON
def paper(
    name: str | None,
    reading: str,
    backend: str,
    workers: int | None,
    archive: Path | None,
    out: Path,
    as_json: bool,
    **asked: Any,
) -> None:
    """Reproduce the figures of the paper: pictures (PNG, SVG), numbers (JSON) and a table.

    Without NAME, all figures: cross-selling-12, cross-selling-24, max-12, max-24, mean-45, dominance-bernoulli,
    dominance-exponential. A prefix selects several: `max` means max-12 and max-24.

    With a shorter horizon, results are compared with the published curves at that play.

    \b
    kofn paper                     all figures, with the paper's 10^6 plays and 30 runs
    kofn paper mean --runs 5       one figure with fewer runs
    kofn paper cross-selling --reading rate   the parameter of the exponential arms as a rate
    """
    from kofn.backends import open_backend
    from kofn.core.pictures import save_figure
    from kofn.lab.paper import Dominance, figures_named, run_panel
    from kofn.lab.plots import draw_dominance, draw_panel

    results = []
    figures = figures_named(name, reading)
    out.mkdir(parents=True, exist_ok=True)
    with resumable(archive), open_backend(backend, workers) as (ready, processes):
        for figure in figures:
            if isinstance(figure, Dominance):
                files = save_figure(draw_dominance(figure), out / figure.name)
            else:
                with progress_bar(figure.title) as progress:
                    result = run_panel(
                        figure, archive=archive, backend=ready, workers=processes, progress=progress, **asked
                    )
                numbers = result.to_dict()
                (out / f"{figure.name}.json").write_text(json.dumps(numbers, indent=1) + "\n")
                files = [*save_figure(draw_panel(result), out / figure.name), out / f"{figure.name}.json"]
                results.append(numbers)
                if not as_json:
                    show(
                        panel_table(result),
                        *panel_notes(result),
                        optional=("explored", "± 95 %", "found best", "deviations", "its 95 %"),
                    )
            click.echo(f"wrote {', '.join(map(str, files))}", err=as_json)
    if as_json:
        echo_json(results)


@cli.command()
@click.argument("policy", default="thompson")
@with_problem
@click.option("--horizon", type=HORIZON, default=10**6, show_default=True, help="Plays of the run.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the policy; repeatable.")
@click.option(
    "--run",
    "number",
    type=Count(least=0),
    default=0,
    show_default=True,
    help="Repeat this run of `kofn compare`, from 0 on.",
)
@click.option("--realised", is_flag=True, help="Also simulate the best subset, and show the realised regret.")
@SEED
@PICTURE
@AS_JSON
def run(
    policy: str,
    problem: str,
    instances: Instances,
    horizon: int,
    settings: tuple[str, ...],
    number: int,
    realised: bool,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate one POLICY on one random problem, and show the subset that it found and its regret.

    A Python file must define `problem`, as for `kofn compare`; it has its own N and K.

    \b
    kofn run thompson --problem max --arms 24 --k 5 --horizon 1e6 --out run
    kofn run cmab-sm --set resolution=0.05 --realised
    kofn run doubling --set of=cmab-sm --problem mean
    kofn run dart --problem shop.py --run 7
    """
    import numpy as np

    from kofn.lab.competitors import instance_of, policy_for
    from kofn.lab.simulation import run_seeds, simulate

    if out := picture(out, "run", for_people=not as_json):
        from kofn.lab.plots import draw_run  # a missing package is reported before the run
    for_problem, for_policy, for_plays = run_seeds(seed, number)
    instance = instance_of(instances, for_problem)
    what = f"{policy} on {problem}, N = {instance.n_arms}, K = {instance.k}"
    params = dict(setting(each) for each in settings)
    player = policy_for(policy, params, instance, horizon, for_policy)
    with progress_bar(f"{policy} on {problem}") as progress:
        result = simulate(
            player, instance, horizon, np.random.default_rng(for_plays), realised=realised, progress=progress
        )
    if out:
        write_picture(draw_run(result, what), out)
    final_gap = result.final_gap(instance)
    numbers = result.to_dict() | {"final_gap": final_gap, "best": list(instance.best), "optimum": instance.optimum}
    if as_json:
        echo_json(numbers)
    else:
        low, high = instance.reward_range
        regret = f"{result.regret:,.1f} ({result.regret / horizon / (high - low):.4%} of the reward range per play)"
        rows = {
            "found": f"{result.final}",
            "best": f"{instance.best}",
            "how it was found": None if instance.best_evidence == "computed" else instance.best_evidence,
            "best of a segment": _found_by_segment(result, instance),
            "optimal": "yes" if result.optimal else "no",
            "final gap": f"{final_gap:.3g} of an expected reward of {instance.optimum:.4g} per play",
            "expected regret": regret,
            "realised regret": f"{result.realised.final:,.1f}" if result.realised else None,
            "exploration": f"{result.exploration:,} plays",
            "plan rows": f"{result.plan_rows:,}",
        }
        show(pairs(what, rows))


def _found_by_segment(result: Run, instance: AbstractProblem) -> str | None:
    """Return in how many segments the best subset was found; None if the policy takes no context."""
    from kofn.lab.problems.contextual import segments_of

    if not result.by_segment:
        return None
    best = [segment.problem.best for segment in segments_of(instance)]
    found = sum(ours == theirs for ours, theirs in zip(result.by_segment.values(), best, strict=True))
    return f"found in {found} of {len(best)}"


@cli.command()
@click.option("--arms", type=Count(), required=True, help="N, the number of arms.")
@click.option("--k", type=Count(), required=True, help="K, the size of a subset.")
@click.option("--horizon", type=HORIZON, required=True, help="T, the number of plays.")
@click.option("--resolution", type=float, help="CMAB-SM: the smallest gap to resolve. Default: the paper's lambda.")
@click.option("--lipschitz", type=float, default=1.0, show_default=True, help="CMAB-SM: U, the constant of its bounds.")
@AS_JSON
def budget(arms: int, k: int, horizon: int, resolution: float | None, lipschitz: float, as_json: bool) -> None:
    """Estimate what learning will cost, before anything is played.

    First for `thompson`, the default policy: regret and time to find a good subset, from stored simulations of random
    problems of this size. Then for CMAB-SM: its schedule, and the bounds of its paper.

    \b
    kofn budget --arms 30 --k 15 --horizon 1e6
    """
    from kofn.lab.theory import learning_budget

    answer = learning_budget(arms, k, horizon, lipschitz=lipschitz, resolution=resolution)
    if as_json:
        echo_json(answer.to_dict())
        return
    schedule = {
        "resolution (lambda)": f"{answer.resolution:.4g}",
        "rounds": f"{answer.rounds}",
        "plays of an action, by round": ", ".join(f"{n:,}" for n in answer.plays) or "none",
        "exploration, at most": f"{answer.exploration_plays:,} plays ({answer.exploration_share:.2%} of the horizon)",
        "exploration, the paper's bound": f"{answer.exploration_bound:,.0f} plays",
        "error probability": None if answer.error_probability is None else f"{answer.error_probability:.1e}",
        "regret bound": f"{answer.regret_bound:,.0f}",
        "shortest useful horizon": f"{answer.shortest_useful_horizon:,} plays",
        "unknown horizon (doubling)": f"{answer.doubling_loss:.2f} times the bound",
        "subsets": f"{10**answer.log10_subsets:.3g}" if answer.log10_subsets < 300 else f"1e{answer.log10_subsets:.0f}",
        "UCB over all subsets, its bound": f"{answer.ucb_regret_bound:.3g}",
        "UCB wins from a horizon of": f"{answer.ucb_wins_from:.2g} (paper), {answer.bounds_cross_at:.2g} (its bounds)",
    }
    size = f"N = {arms:,}, K = {k:,}, T = {horizon:,}"
    forecast = [forecast_table(answer.thompson, size)] if answer.thompson.families else [f"thompson, {size}"]
    show(*forecast, answer.thompson.verdict, "", pairs(f"cmab-sm, {size}", schedule), answer.cmab_sm_verdict)


@cli.command()
@click.option("--all", "everything", is_flag=True, help="Also the policies for research.")
@AS_JSON
def policies(everything: bool, as_json: bool) -> None:
    """List the policies for practitioners, or all policies, with their requirements."""
    from kofn.policies.registry import POLICIES

    facts: list[dict[str, Any]] = [
        {
            "name": name,
            "needs_horizon": policy.needs_horizon,
            "linear_memory": policy.linear_memory,
            "keeps_subsets": policy.keeps_subsets,
            "needs": sorted(policy.needs),
            "description": policy.purpose or (policy.__doc__ or "").strip().splitlines()[0],
        }
        for name, policy in POLICIES.items()
        if everything or policy.purpose
    ]
    if as_json:
        echo_json(facts)
        return
    table = new_table("", "policy", "horizon", "memory", "also needs", "what it does")
    for fact in facts:
        horizon = "needs it" if fact["needs_horizon"] else "any"
        memory = "O(N)" if fact["linear_memory"] else "all subsets" if fact["keeps_subsets"] else "O(N^2)"
        table.add_row(fact["name"], horizon, memory, ", ".join(fact["needs"]), fact["description"])
    show(table, *([] if everything else [f"{len(POLICIES) - len(facts)} more are for research: kofn policies --all"]))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that makes SHELL complete kofn's commands.

    \b
    eval "$(kofn completion bash)"     in ~/.bashrc; for zsh, with zsh in ~/.zshrc
    kofn completion fish | source      in fish's config
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has a class for each choice above
    click.echo(kind(cli, {}, "kofn", "_KOFN_COMPLETE").source())


for command in (backup, campaign, choose, compare, forecast, lab, real, replay, restore, serve, suite, token):
    cli.add_command(command)


def main() -> None:
    """Run the command line. An error is one line on stderr and exit code 2."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = cli.main(prog_name="kofn", standalone_mode=False)
    except click.UsageError as wrong:
        where = wrong.ctx.command_path if wrong.ctx else "kofn"
        code = _refuse(f"{wrong.format_message()} ({where} --help)")
    except click.ClickException as wrong:
        code = _refuse(wrong.format_message())
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the exit with a traceback
        click.echo("kofn: stopped", err=True)
        code = 130
    except BrokenPipeError:
        code = 0
    except Exception as error:
        from kofn.core import KofnError

        if isinstance(error, MemoryError):
            code = _refuse("not enough memory for a problem of this size: use fewer arms")
        elif isinstance(error, OSError) and error.strerror:
            code = _refuse(f"{error.filename or 'system error'}: {error.strerror}")
        elif isinstance(error, KofnError | OSError):
            code = _refuse(str(error))
        else:
            raise
    sys.exit(code if isinstance(code, int) else 0)


MAX_MESSAGE = 1000
"""Longest error in characters. The rest is left out: a message may repeat what a file contains."""


def _refuse(message: str) -> int:
    text = " ".join(message[: 2 * MAX_MESSAGE].split())
    click.echo(f"kofn: {text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + '...'}", err=True)
    return 2


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"kofn: note: {message}", err=True)
