"""Check the words of the project: phrases that are not plain English, and identifiers that were renamed.

    python -m tools.check_words                  list every forbidden phrase as file:line; exit code 1 if there is one
    python -m tools.check_words docs README.md   the same for some files and folders
    python -m tools.check_words --clashes        count the identifiers that the glossary forbids
    python -m tools.check_words --root OTHER     check another checkout

To forbid a phrase, add a line to PHRASES. A space in a phrase matches any white space, comment signs and line breaks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVERYTHING = ("README.md", "CHANGELOG.md", "src", "docs", "examples", "benchmarks")
SUFFIXES = {".py", ".md", ".js", ".html", ".css"}

PHRASES = {
    "anybody's turn": "random",
    "as they are(?! used)": "unchanged",
    "at the least": "at least",
    "at the most": "at most",
    r"but \S+ came": "got ...",
    "but with probability": "except with probability",
    "faithful to its paper": "name the departures from the paper",
    r"(gone|goes|going|go|went) on with": "continue, resume",
    "he (must|loses)": "it must",
    "how-?manieth": "index",
    r"how (sure|certain) (a|it|that|he)": "the probability of being best, the variance",
    "in words": "describe it",
    r"in parts of (the|what|its|all|r)": "in units of, divided by",
    r"(is|are|was|were) out(?! of)": "in flight",
    r"(is|are) (still )?wanted": "remaining, planned",
    "it is there already": "the name is taken",
    "laws? of (a|the) (sum|draw)": "distribution",
    "like so many": "name the unit",
    "no knobs?": "no parameters",
    r"nobody (asked|ordered|answers|looks|cares)": "unplanned, without a reward",
    "same luck": "the same outcomes",
    "same weather": "drift affects all rows alike",
    r"says? (nothing|something|little|much) of": "carries no information about",
    "so many(?! that)": "a number of",
    "stands? there": "is listed",
    "stopped and gone on": "interrupted and resumed",
    "takes what it gets": "works with any number",
    "teach(es)? (nothing|something)": "is (not) used for learning",
    "the better the more": "improves with each",
    "to be had for nothing": "free",
    r"told (of|off|otherwise|anew)": "observed, recorded with another value",
    "want(s|ed)? again": "planned again",
    "what it knows": "what it has learned",
    "whose they are": "which one is random",
}
"""Forbidden phrases as regular expressions, each with what to write instead."""

IDENTIFIERS = {
    r"\blearns_any\b": "accepts_unplanned",
    r"\bspared?s?\b": "filler",
    r"\bchanged\(": "with_arms",
    r"\.sure\b|\bsure[:=]|\bsure: float|\b_sure\b|[\"']sure[\"']": "probability_best",
    r"\.says\b|\bsays[:=] ?": "message",
    r"\b[Bb]eliefs\b|\b_beliefs\b": "Posterior, posterior",
    r"\b[Cc]ertificate\b|\b_certificate\b": "Guarantee, guarantee",
    r"\bWanted\b|\bwanted\b": "remaining",
    r"\buntold\b": "remaining",
    r"\b[Dd]esk\b": "Context, context",
    r"\b[Uu]pkeep\b": "expiry",
    r"\bseats?\b|\bSEATED\b|\b_seat\b": "contenders",
    r"\bat_first\b": "prior",
    r"\.(head|sound|upkeep|desk|guard|drawn|marks|laws|order|family|simulated|checked|answers) import\b": (
        "a module name that can be guessed"
    ),
    r"\bSimulated\b": "Problem (an abstract base)",
    r"\bFamily\b": "Distribution or Setting",
}
"""Identifiers that the glossary forbids, each with its successor."""

BETWEEN = r"(?:\s|#|\*|>|//)+"


@dataclass(frozen=True)
class Finding:
    """A forbidden phrase at a line of a file."""

    path: str
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}; write: {self.instead}"


def pattern(phrase: str) -> re.Pattern[str]:
    """Return the regular expression of a phrase, in which a space also matches a line break."""
    return re.compile(rf"\b{phrase.replace(' ', BETWEEN)}\b", re.IGNORECASE)


PATTERNS = {pattern(phrase): instead for phrase, instead in PHRASES.items()}


def files(paths: Iterable[str], root: Path = ROOT) -> Iterator[Path]:
    """Yield the text files among these files and folders, in order."""
    for path in paths:
        place = root / path
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (each for each in inside if each.suffix in SUFFIXES and each.is_file())


def phrases(paths: Iterable[str] = EVERYTHING, root: Path = ROOT) -> list[Finding]:
    """Return every forbidden phrase in these files and folders."""
    found = []
    for file in files(paths, root):
        text, name = file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()
        for regex, instead in PATTERNS.items():
            for match in regex.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(Finding(name, line, " ".join(match[0].split()), instead))
    return sorted(found, key=lambda each: (each.path, each.line))


def clashes(root: Path = ROOT) -> dict[str, int]:
    """Return how often each forbidden identifier occurs in the source and the tests."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in files(("src", "tests"), root) if file.suffix == ".py")
    return {regex: len(re.findall(regex, text)) for regex in IDENTIFIERS}


def main() -> int:
    """Print what was found; the exit code is 1 if there is a forbidden phrase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=EVERYTHING)
    parser.add_argument("--clashes", action="store_true", help="count the forbidden identifiers")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    if options.clashes:
        for regex, count in clashes(options.root).items():
            print(f"{count:5}  {regex}  ->  {IDENTIFIERS[regex]}")
        return 0
    found = phrases(options.paths, options.root)
    print(*found, sep="\n")
    print(f"{len(found)} forbidden phrases", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
