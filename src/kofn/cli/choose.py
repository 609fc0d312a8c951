"""The command `kofn choose`: the best K of N candidates, by a function of a Python file or module."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kofn.cli.functions import load_object
from kofn.cli.options import AS_JSON, Count
from kofn.cli.output import echo_json, pairs, progress_bar, resumable, show, write_picture
from kofn.cli.rules import RULES, all_rules, rules_file

if TYPE_CHECKING:
    from kofn.choosing import Choice


@click.command()
@click.argument("score", metavar="SCRIPT.PY:FUNCTION")
@click.option("--candidates", type=click.Path(path_type=Path), help="File of the candidates, one per line.")
@click.option("--arms", type=Count(), help="Number of candidates, instead of a file: the score gets numbers from 0 on.")
@click.option("-k", "--k", type=Count(), required=True, help="How many candidates to choose.")
@click.option("--budget", type=Count(), help="Most calls of the score. Default: until little is left to gain.")
@click.option("--seconds", type=float, help="Stop after this time.")
@click.option("--minimize", is_flag=True, help="Choose the subset with the lowest score.")
@click.option("--workers", type=Count(), default=1, show_default=True, help="Calls of the score at the same time.")
@click.option(
    "--backend",
    default="threads",
    show_default=True,
    help="Where the score is called: threads, processes, dask, or dask:ADDRESS of a running cluster.",
)
@click.option("--file", type=click.Path(path_type=Path), help="Keep each score here; the same command resumes from it.")
@click.option("--seed", type=Count(least=0), help="The same seed gives the same results. Default: a random one.")
@click.option("--policy", help="The policy that searches. Default: the best one for the budget.")
@RULES
@rules_file('JSON file with a list of such rules, such as [{"rule": "budget", "most": 9, "costs": [["mug", 3.5]]}]')
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the scores into PLOT.png and PLOT.svg.")
@AS_JSON
def choose(
    score: str,
    candidates: Path | None,
    arms: int | None,
    k: int,
    minimize: bool,
    backend: str,
    file: Path | None,
    rules: tuple[dict[str, Any], ...],
    rules_file: IO[str] | None,
    plot: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Choose the K candidates with the best score, with few calls of a function that scores a subset.

    The function gets a list of K candidates and returns a number, noisy or not; it may be `async`. Give it as
    SCRIPT.PY:FUNCTION or MODULE:FUNCTION.

    \b
    kofn choose script.py:score --candidates items.txt -k 5 --budget 300
    kofn choose script.py:error --arms 40 -k 8 --minimize --seconds 600 --workers 4 --file search.jsonl
    kofn choose script.py:score --candidates items.txt -k 5 --rule "at most 1 of mug, cup" --rule "always tray"
    """
    import kofn

    items: list[str] | int
    if candidates is not None and arms is None:
        items = read_candidates(candidates)
    elif arms is not None and candidates is None:
        items = arms
    else:
        raise click.UsageError("give either --candidates FILE or --arms N")
    if plot:
        from kofn.choosing.picture import draw_choice
        from kofn.core.pictures import picture_files

        picture_files(plot)  # refuses a bad name before the calls
    function = score_named(score)
    options: dict[str, Any] = asked | {"file": file, "constraints": all_rules(rules, rules_file)}
    options["direction"] = "minimize" if minimize else "maximize"
    with resumable(file, "the scores so far"), progress_bar("kofn choose") as progress:
        if inspect.iscoroutinefunction(function):
            if backend != "threads":
                raise click.UsageError("an async score is called in this process: leave out --backend")
            import asyncio  # imported here: a fifth of the time of every other command's --help

            choice = asyncio.run(kofn.choose_async(items, k, function, **options, progress=progress))
        else:
            choice = kofn.choose(items, k, function, **options, backend=backend, progress=progress)
    if plot:
        write_picture(draw_choice(choice), plot)
    if as_json:
        echo_json(choice.to_dict())
    else:
        show_choice(choice)


def show_choice(choice: Choice) -> None:
    """Print the chosen candidates, and what is known about them."""
    from kofn.choosing.choice import label

    interval = "too few evaluations for an interval"
    if choice.repeatable:
        interval = "exact: the score is repeatable"
    elif math.isfinite(choice.high - choice.low):
        interval = f"95 % interval {choice.low:.6g} to {choice.high:.6g}"
    rows = {
        "chosen": "\n".join(label(each) for each in choice.subset),
        "value": f"{choice.value:.6g} ({interval})",
        "expected loss": None if choice.expected_loss is None else f"{choice.expected_loss:.2g}",
        "evaluations": f"{choice.evaluations:,}",
        "stopped": choice.reason,
        "policy": choice.policy,
        "seed": f"{choice.seed}",
    }
    show(pairs(f"{len(choice.arms)} candidates, {choice.direction}", rows))


def score_named(name: str) -> Callable[..., Any]:
    """Return the function of SCRIPT.PY:FUNCTION or MODULE:FUNCTION."""
    from kofn.core import BadInput

    found = load_object(name)
    if not callable(found):
        raise BadInput(f"the score must be a function of a list of candidates; {name} is {found!r}")
    return found  # type: ignore[no-any-return]


def read_candidates(path: Path) -> list[str]:
    """Return the lines of a file, without empty ones; the same line twice is refused."""
    from kofn.core import BadInput

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file in UTF-8") from None
    places: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not (candidate := text.strip()):
            continue
        if candidate in places:
            raise BadInput(f"{path}, line {number}: {candidate!r} is listed twice, first in line {places[candidate]}")
        places[candidate] = number
    return list(places)
