"""Write the benchmark page: tables of ratios from the measurements of `peers.py`."""

from __future__ import annotations

import platform
from typing import Any

INTRO = """\
# Beside other libraries

None of the libraries below chooses K of N from one reward. Their users list all subsets and let a bandit choose from
the list, or use a similar problem type. On this page they do that, and kofn's `thompson` does the same work: all play
the same random instances with the same outcomes (which arms pay in which play is drawn beforehand), in one run on one
machine.

Made by `python -m benchmarks.peers --page docs/background/benchmarks.md` with the extra `bench`; {about}
"""

HOW = """\
## How to read it

- **Work.** {horizon:,} plays of a random instance ([`max` and `mean`](../guides/compare.md): Bernoulli arms,
  p uniform in [0, 1]), one run for each of up to 5 seeds within a budget of seconds. If a library is too slow for one
  run, its first run is cut; **plays** shows where. Regret is compared after the same number of plays of the same
  instances.
- **plays/s** is plays per second of processor time, which other work on the machine hardly changes; for players on
  disk, of wall-clock time. It excludes making the object, the first play (in which many libraries allocate their
  state) and drawing rewards, except in the two rows that simulate.
- **Ratios** are relative to `thompson` by `ask` and `tell` (on disk: to `Campaign`). Slower: how many times fewer plays
  per second. Regret: how many times more was lost. State: how many times more bytes are needed to restore the player
  (its pickle, its saved model or its files; kofn: its JSON record) after the plays of the first run. A list grows until
  all of its subsets have been played, so a run that was cut short has a small one.
- **Fairness.** Each library is used as documented, with its defaults, and with Thompson sampling if it has it.
  Libraries that need rewards of 0 or 1 get a coin with the reward's mean. Vowpal Wabbit's slates need a pool of arms
  for every place: each place gets all arms, and an arm that has a place is left out of the later ones. It explores by
  `--squarecb`, the best of eight of its options tried on two of these very instances, and better than its default.
  A test checks that each library learns an easy problem (`tests/test_peers.py`).
- **Few plays, many subsets.** With 42,504 subsets, 10,000 plays do not try each subset once: UCB is still in its first
  round and Thompson sampling still draws from its prior, so their regret is that of random subsets. The speed of the
  compiled loop there is that of a first round, in which nothing is chosen. Below 100 plays every player guesses, and no
  ratio of regret is given.
"""

FAR = """\
## Long runs, and the physical yardstick

Two loops in machine code (Numba) make one play at a time. The first draws what the arms of one subset pay and chooses
nothing: this is the least that such a loop can cost. The second is UCB1 over all subsets, with nothing around it.
`kofn.simulate` does not go play by play. The table shows seconds for a run of T plays. Those of the loops are
extrapolated from fewer plays (for UCB1, after its first round, in which it tries each subset once and chooses nothing):

| setting | T | kofn, `thompson`, simulated [s] | draws alone [s] | UCB1 [s] | draws / kofn | UCB1 / kofn |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

FEWEST = 100
"""The number of plays below which no ratio of regret is printed."""

BANDITPYLIB = "`No matching distribution found for banditpylib` (message of the installer, Python 3.11)"


def number(value: float) -> str:
    """Format a number with at least two digits, and commas."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:,.1f}" if value >= 0.95 else f"{value:.2g}"


def size(value: float) -> str:
    """Format a number of bytes with a unit."""
    for unit, units in (("MB", 1e6), ("kB", 1e3)):
        if value >= units:
            return f"{number(value / units)} {unit}"
    return f"{value:.0f} B"


def power(horizon: int) -> str:
    return f"10^{len(str(horizon)) - 1}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of one setting; ratios are relative to the first row."""
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
        shown = " | ".join("" if each is None else number(each) for each in cells)
        text += f"| {row['setting']} | {power(row['horizon'])} | {number(row['ours'])} | {shown} |\n"
    return text


def left_out(reasons: dict[str, str]) -> str:
    packages = {**{package: f"`{why}`" for package, why in reasons.items()}, "banditpylib": BANDITPYLIB}
    return "".join(f"- {package}: {why}\n" for package, why in packages.items())


def page(found: dict[str, Any]) -> str:
    """Return the whole page."""
    about = found["about"]
    versions = ", ".join(f"{package} {which}" for package, which in about["versions"].items())
    text = (
        f"it took {about['minutes']:.1f} minutes on {about['cores']} cores shared with other work (load "
        f"{about['load before']:.0f} before, {about['load after']:.0f} after).\n"
        f"Python {platform.python_version()}, {versions}."
    )
    return (
        f"{INTRO.format(about=text)}\n## In memory\n\n{sections(found['rows'], disk=False)}"
        f"## On disk\n\nEvery `ask` and `tell` is on the disk when it returns.\n\n{sections(found['rows'], disk=True)}"
        f"{HOW.format(horizon=about['horizon'])}\n{far(found['far'])}\n"
        f"## Left out\n\n{left_out(found['left_out'])}"
    )
