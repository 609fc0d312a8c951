"""The page of the peers: tables of ratios from what `peers.py` measured."""

from __future__ import annotations

import platform
from typing import Any

INTRO = """\
# Beside the libraries that people would use instead

None of the libraries below chooses K of N from one reward. Their users list all subsets and let a bandit choose from
the list, or force the problem into something near it. This page lets them do that, and kofn's `thompson` the same
work beside them: the same random instances and the same luck (which arms pay in which play is drawn beforehand), in
one run on one machine.

Made by `python -m benchmarks.peers --page docs/background/benchmarks.md` with the extra `bench`; {about}
"""

HOW = """\
## How to read it

- **Work.** {horizon:,} plays of a random instance ([`max` and `mean`](compare.md): Bernoulli arms, p uniform in [0,
  1]), a run for each of up to 5 seeds while a budget of seconds lasts. A library too slow for that has its first run
  cut, and **plays** says where. Regret is compared after as many plays of the same instances.
- **plays/s** are plays per second of the processor, which other work on the machine hardly changes; where a disk is
  waited for, of the clock. Making the object and the first play (in which many make what they keep) are not in it,
  nor is drawing rewards, except in the two rows that simulate.
- **Ratios** are against `thompson` by `ask` and `tell` (on disk: against `Campaign`). Slower: how many times fewer
  plays per second. Regret: how many times more was lost. State: how many times more bytes bring the player back (its
  pickle, its saved model or its files; kofn: its JSON record) after the first run's plays. A list grows until all of
  its subsets have been played, so that a run cut short has a small one.
- **Fairness.** Each library is used as its documentation says, with its defaults, and with Thompson sampling where it
  has it. Libraries that want rewards of 0 or 1 are told a coin of the reward's mean. Vowpal Wabbit's slates want a
  pool of arms for every place: each place gets all, and an arm already placed is left out of the later ones; it
  explores by `--squarecb`, the best of eight of its options tried on two of these very instances, and better than its
  default. That each library learns an easy problem is a test (`tests/test_peers.py`).
- **Few plays, many subsets.** With 42,504 subsets a list is not tried once in 10,000 plays: UCB is still on its first
  round and Thompson sampling still draws from its prior, so that their regret is that of chance. The
  compiled loop's speed there is that of a first round, in which nothing is chosen. Below 100 plays everybody guesses,
  and no ratio of regret is given.
"""

FAR = """\
## Long runs, and the physical yardstick

Two loops in machine code (Numba), one play at a time: one draws what the arms of one subset pay and chooses nothing,
which is the least that such a loop can cost; the other is UCB1 over all subsets, with nothing around it.
`kofn.simulate` does not go one play at a time. Seconds for a run of T plays, those of the loops from their speed over
fewer plays (of UCB1 after its first round, in which it tries each subset once and chooses nothing):

| setting | T | kofn, `thompson`, simulated [s] | draws alone [s] | UCB1 [s] | draws / kofn | UCB1 / kofn |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

FEWEST = 100
"""Plays below which regret says nothing of a player."""

BANDITPYLIB = "`No matching distribution found for banditpylib` (the installer's words, Python 3.11)"


def number(value: float) -> str:
    """Two figures or more, with commas."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:,.1f}" if value >= 0.95 else f"{value:.2g}"


def size(value: float) -> str:
    """Bytes, for people."""
    for unit, units in (("MB", 1e6), ("kB", 1e3)):
        if value >= units:
            return f"{number(value / units)} {unit}"
    return f"{value:.0f} B"


def power(horizon: int) -> str:
    return f"10^{len(str(horizon)) - 1}"


def table(rows: list[dict[str, Any]]) -> str:
    """One setting; the first row is the one that the others are compared with."""
    first = rows[0]
    text = (
        "| | plays/s | slower | plays | runs | regret | `thompson` there | regret ratio | state | state ratio |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    for row in rows:
        slower, larger = first["per_second"] / row["per_second"], row["size"] / first["size"]
        more = number(row["regret"] / row["beside"]) if row["plays"] >= FEWEST else ""
        text += (
            f"| {row['player']} | {number(row['per_second'])} | {number(slower)} | {row['plays']:,} | {row['runs']} "
            f"| {number(row['regret'])} | {number(row['beside'])} | {more} "
            f"| {size(row['size'])} | {number(larger)} |\n"
        )
    return text


def sections(rows: list[dict[str, Any]], disk: bool) -> str:
    text = ""
    for setting in dict.fromkeys(row["setting"] for row in rows if row["disk"] == disk):
        here = [row for row in rows if row["setting"] == setting and row["disk"] == disk]
        text += f"### {setting}{' on disk' if disk else ''}: {here[0]['subsets']:,} subsets\n\n{table(here)}\n"
    return text


def far(rows: list[dict[str, Any]]) -> str:
    text = FAR
    for row in rows:
        loops = row["loops"] or [None, None]
        cells = [*loops, *(each and each / row["ours"] for each in loops)]
        said = " | ".join("" if each is None else number(each) for each in cells)
        text += f"| {row['setting']} | {power(row['horizon'])} | {number(row['ours'])} | {said} |\n"
    return text


def left_out(reasons: dict[str, str]) -> str:
    said = {**{package: f"`{why}`" for package, why in reasons.items()}, "banditpylib": BANDITPYLIB}
    return "".join(f"- {package}: {why}\n" for package, why in said.items())


def page(found: dict[str, Any]) -> str:
    """The whole page."""
    about = found["about"]
    versions = ", ".join(f"{package} {which}" for package, which in about["versions"].items())
    said = (
        f"it took {about['minutes']:.1f} minutes on {about['cores']} cores that other work kept busy (load "
        f"{about['load before']:.0f} before, {about['load after']:.0f} after).\n"
        f"Python {platform.python_version()}, {versions}."
    )
    return (
        f"{INTRO.format(about=said)}\n## In memory\n\n{sections(found['rows'], disk=False)}"
        f"## On disk\n\n`ask` and `tell`, each on the disk when it returns.\n\n{sections(found['rows'], disk=True)}"
        f"{HOW.format(horizon=about['horizon'])}\n{far(found['far'])}\n"
        f"## Left out\n\n{left_out(found['left_out'])}"
    )
