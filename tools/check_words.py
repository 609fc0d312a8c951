"""Check the words of the project: phrases that are not plain English, and identifiers that were renamed.

    python -m tools.check_words                  list every forbidden phrase as file:line; exit code 1 if there is one
    python -m tools.check_words docs README.md   the same for some files and folders
    python -m tools.check_words --clashes        count words of the glossary in meanings that they no longer have
    python -m tools.check_words --root OTHER     check another checkout

To forbid a phrase, add a line to PHRASES; a space in it matches any white space, comment signs and line breaks. To
forbid an identifier, add a line to CLASHES.
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
    "afresh": "again, from 0",
    "anew": "again",
    "anybody's turn": "random",
    r"arms (that )?come and go": "add and retire arms",
    "as if nothing had been": "as if the call had not been made",
    "as they are(?! used)": "unchanged",
    "at the least": "at least",
    "at the most": "at most",
    r"at (its|their) word": "as printed",
    "bad company": "beside bad arms",
    "but with probability": "except with probability",
    "came": "got ...; arrived",
    "cannot work": "invalid",
    "faithful to its paper": "name the departures from the paper",
    "for ever": "from then on",
    r"(gone|goes|going|go|went) on with": "continue, resume",
    "he (must|loses)": "it must",
    "how-?manieth": "index",
    r"how (sure|certain) (a|it|that|he)": "the probability of being best, the variance",
    "in words": "describe it",
    r"in parts of (the|what|its|all|r)": "in units of, divided by",
    r"(is|are|was|were) out(?! of)": "in flight",
    r"(is|are) (still )?wanted": "remaining, planned",
    r"(is|was) not said": "not specified",
    "it is there already": "the name is taken",
    r"(a|the) kindest": "the most favourable",
    r"knows? nothing of": "does not depend on",
    "laws? of (a|the) (sum|draw)": "distribution",
    r"lies? from": "is between",
    "like so many": "name the unit",
    r"(loses?|lost|costs?) \S+ a play": "per play",
    "luck with": "the same instances",
    "no knobs?": "no parameters",
    r"nobody (asked|ordered|answers|looks|cares|loses)": "unplanned, without a reward; no policy",
    r"of (its|their) own(?=[.,;:)\"'])": "separate; its own ...",
    "other luck": "other random numbers",
    r"(a|the) policy knows(?! neither)": "has learned",
    r"rank(s|ed)? \S+( \S+)? right": "rank correctly",
    "same luck": "the same outcomes",
    "same weather": "drift affects all rows alike",
    r"says? (nothing|something|little|much)": "is void; carries no information about",
    r"seconds? a (run|play)": "per run",
    "so many(?! that)": "a number of",
    "some [0-9]+": "about",
    "stands? there": "is listed",
    "stopped and gone on": "interrupted and resumed",
    "surely": "clearly, with high probability",
    "takes what it gets": "works with any number",
    "teach(es)? (nothing|something)": "is (not) used for learning",
    "the better the more": "improves with each",
    "to be had for nothing": "free",
    "to go by": "without information",
    r"told (of|off|otherwise|anew)": "observed, recorded with another value",
    r"told (the|that) (noise|horizon)": "given",
    "want(s|ed)? again": "planned again",
    r"what (it|he|she) knows": "what it has learned",
    r"what people (do|write)": "common practice",
    "whose they are": "which one is random",
}
"""Forbidden phrases as regular expressions, each with what to write instead."""


@dataclass(frozen=True)
class Clash:
    """A word of the glossary in a meaning that it no longer has, and its successor; counted in these folders."""

    word: str
    regex: str
    instead: str
    folders: tuple[str, ...] = ("src", "tests")


CAMPAIGNS = ("src/kofn/campaigns", "src/kofn/service", "src/kofn/client")
SWEEPS = ("src/kofn/experiments", "src/kofn/cli")

CLASHES = (
    Clash("run: a batch of decisions", r"\bclass _?Runs?\b|\bruns?\.(count|row|subset)\b|\bRUNS\b", "batch", CAMPAIGNS),
    Clash(
        "problem: an HTTP error",
        r"\b\w*[Pp]roblems?\b(?<!ProblemDetails)(?=\()|service\.problems\b",
        "error",
        CAMPAIGNS,
    ),
    Clash(
        "store: a folder of runs",
        r"\bRunStore\b|\bas_store\b|\bstore=kept\b|experiments\.store\b|\bclass Store\b",
        "archive",
        SWEEPS,
    ),
    Clash("estimate: a sampled value", r"\bEstimated\b", "Sampled"),
    Clash(
        "progress: the plan in progress",
        r"\bcore\.progress\b|\bProgress\(|\bclass Progress\b|\b_progress\b",
        "OpenPlan",
        ("src/kofn/core", "src/kofn/policies", "tests"),
    ),
    Clash("family: a distribution of arms", r"\b[Ff]amil(y|ies)\b", "distribution", ("src/kofn/problems",)),
    Clash(
        "line: a row of the plan",
        r"\bLine\b(?! (numbers|\d))|\b_?lines?\.(row|count|times|total|squares|subset)\b|\border_lines\b",
        "row",
    ),
    Clash("replay: rebuilding a campaign", r"\breplay\w*", "verify", ("src/kofn/campaigns",)),
    Clash("seat: a contender", r"\b_?seat(s|ed)?\b|\bSEATED\b", "contender"),
    Clash(
        "contender: an entry of a comparison",
        r"\b_?[Cc]ontenders?(_for)?\b",
        "competitor, entry",
        ("src/kofn/experiments",),
    ),
    Clash("out: in flight", r"\bPLANS\.c\.out\b|\b_out\b|\.out\b(?! =)", "in_flight", ("src/kofn/core", *CAMPAIGNS)),
    Clash("wanted, untold: remaining", r"\b_?[Ww]ant(ed|ing|s)\b|\b_?untold\b|\bunasked\b", "remaining"),
    Clash(
        "told: observed", r"\bTold\b|\b_told\b|\btold_rows\b|\b_load_told\b|\btold_apart\b", "observed; guaranteed_gap"
    ),
    Clash("spare, extra: filler", r"\b_?spare[sd]?\b|\bextra_back\b|\bdef extra\b", "filler"),
    Clash("others: unplanned", r"\b_load_others\b|\btake_other\b|\bothers_go_on\b", "unplanned"),
    Clash("sure: a probability", r"\.sure\b|\bsure[:=]|\b_sure\b|[\"']sure[\"']", "probability_best"),
    Clash("says: a message", r"\.says\b|\bsays: str\b|\bsays=", "message"),
    Clash("learns_any", r"\blearns_any\b", "accepts_unplanned"),
    Clash("changed(keep, new)", r"\bchanged\(", "with_arms"),
    Clash("at_first", r"\bat_first\b", "prior"),
    Clash("beliefs", r"\b_?[Bb]eliefs?\b", "posterior"),
    Clash("certificate", r"\b_?[Cc]ertificates?\b", "guarantee"),
    Clash("law", r"\b_?(make_)?[Ll]aws?(_of)?\b", "sampler, distribution"),
    Clash(
        "head, base, ledger, story",
        r"\b(read|write|new|insert)_(head|base)\b|\b_?Head\b|\bLedger\b|\bStory\b",
        "transaction, rows",
        CAMPAIGNS,
    ),
    Clash(
        "desk, doorman, upkeep, sound",
        r"\b[Dd]esk\b(?! lamp)|\bDoorman\b|\b[Uu]pkeep\b|\bcheck_sound\b",
        "context, auth, expiry, validate_import",
    ),
    Clash("Simulated", r"\bSimulated\b", "AbstractProblem"),
    Clash(
        "a module name that cannot be guessed",
        r"\.(head|sound|upkeep|desk|guard|drawn|marks|laws|order|family|simulated|checked|answers) import\b",
        "rows, validate_import, expiry, context, auth, batching, elimination, sampling, ...",
    ),
)
"""What the glossary forbids in identifiers, as regular expressions."""

OLD_FORMATS = (
    "src/kofn/policies/registry.py",
    "tests/test_words.py",
)
"""Files that must use old names: they read what older versions wrote, or test this module."""

BETWEEN = r"(?:\s|#|\*|>|//)+"
WORD = re.compile(r"\w")


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
    """Return the regular expression of a phrase in lower-case text, in which a space also matches a line break.

    It may match within a word, which `phrases` checks: a regular expression that begins with a letter is ten times as
    fast as one that begins with the start of a word.
    """
    return re.compile(rf"{phrase.replace(' ', BETWEEN)}\b")


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
        lower = text.lower()
        for regex, instead in PATTERNS.items():
            for start, end in (match.span() for match in regex.finditer(lower)):
                if not WORD.match(lower[start - 1 : start]):
                    line = text.count("\n", 0, start) + 1
                    found.append(Finding(name, line, " ".join(text[start:end].split()), instead))
    return sorted(found, key=lambda each: (each.path, each.line))


def clashes(root: Path = ROOT, among: Iterable[Clash] = CLASHES) -> dict[str, int]:
    """Return how often each forbidden identifier occurs."""
    among = list(among)
    code = {folders: "\n".join(_code(folders, root)) for folders in {each.folders for each in among}}
    return {each.word: len(re.findall(each.regex, code[each.folders])) for each in among}


def _code(folders: Iterable[str], root: Path) -> Iterator[str]:
    skipped = {root / path for path in OLD_FORMATS}
    for file in files(folders, root):
        if file.suffix == ".py" and file not in skipped:
            yield file.read_text(encoding="utf-8")


def main() -> int:
    """Print what was found; the exit code is 1 if there is a forbidden phrase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=EVERYTHING)
    parser.add_argument("--clashes", action="store_true", help="count forbidden identifiers")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    if options.clashes:
        counts = clashes(options.root)
        for each in CLASHES:
            print(f"{counts[each.word]:5}  {each.word}  ->  {each.instead}")
        print(f"{sum(counts.values()):5}  in all")
        return 0
    found = phrases(options.paths, options.root)
    print(*found, sep="\n")
    print(f"{len(found)} forbidden phrases", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
