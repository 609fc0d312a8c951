"""The file of a search: JSON lines, first what is searched, then a line for each evaluation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple, Self

from kofn.choosing.choice import Evaluation
from kofn.constraints import Constraints
from kofn.core import BadInput, seed_number, subset_of

FORMAT = 1


class Searched(NamedTuple):
    """What is searched: the first line of the file."""

    candidates: list[str]
    k: int
    direction: str
    seed: int | None
    policy: str | None
    constraints: list[dict[str, Any]] | None

    def complete(self, policy: str) -> Searched:
        """Return the same with a seed and a policy."""
        return self._replace(seed=seed_number(None) if self.seed is None else self.seed, policy=self.policy or policy)

    def line(self) -> dict[str, Any]:
        """Return the first line as plain values."""
        return {"kofn": "choose", "format": FORMAT, **self._asdict()}


class Record:
    """An open file that evaluations are appended to; `done` has the evaluations that it already had."""

    def __init__(self, path: Path, searched: Searched, policy: str) -> None:
        """Read the file, if it exists, and compare it with what is searched here; a new one gets this policy."""
        lines = _whole_lines(path)
        self.searched = _continued(path, lines[0], searched) if lines else searched.complete(policy)
        self.done = _evaluations(path, lines[1:], len(searched.candidates), searched.k)
        self._path, self._new = path, not lines

    def __enter__(self) -> Self:
        """Open the file for writing; a new one gets its first line."""
        self._file = self._path.open("a", encoding="utf-8")
        if self._new:
            self._write(self.searched.line())
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, evaluation: Evaluation) -> None:
        """Append an evaluation; it is in the file when this returns."""
        self._write(evaluation.to_dict())

    def _write(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of the file; an unfinished last line, left by a process that was killed, is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        if not whole and not data.startswith(b'{"kofn": "choose"'[: len(data)]):
            raise _foreign(path)
        os.truncate(path, len(whole))
    try:
        return whole.decode().splitlines()
    except UnicodeDecodeError:
        raise _foreign(path) from None


def _foreign(path: Path) -> BadInput:
    return BadInput(f"{path} is not a file of kofn.choose: use another file, or remove it")


def _continued(path: Path, line: str, here: Searched) -> Searched:
    """Return what the file searches, after comparing it with what is searched here."""
    try:
        first = json.loads(line)
        if first["kofn"] != "choose":
            raise _foreign(path)
        if first["format"] != FORMAT:
            raise BadInput(f"{path} has format {first['format']!r}; this kofn reads format {FORMAT}")
        there = Searched(**{name: first[name] for name in Searched._fields})
    except (json.JSONDecodeError, KeyError, TypeError):
        raise _foreign(path) from None
    differences = [
        f"{name} is {getattr(there, name)!r} there and {getattr(here, name)!r} here"
        for name in ("k", "direction", "seed", "policy")
        if getattr(here, name) is not None and getattr(here, name) != getattr(there, name)
    ]
    if there.constraints != here.constraints:
        differences.append(f"constraints are {_rules(there)} there and {_rules(here)} here")
    if there.candidates != here.candidates:
        differences.append(_difference(there.candidates, here.candidates))
    if differences:
        raise BadInput(f"{path} is the file of another search ({'; '.join(differences)}): use another file")
    return there


def _rules(searched: Searched) -> str:
    return "none" if searched.constraints is None else f"({'; '.join(map(str, Constraints.of(searched.constraints)))})"


def _difference(there: list[str], here: list[str]) -> str:
    if len(there) != len(here):
        return f"it has {len(there)} candidates, and here are {len(here)}"
    index = next(index for index, pair in enumerate(zip(there, here, strict=True)) if pair[0] != pair[1])
    return f"candidate {index} is {there[index]!r} there and {here[index]!r} here"


def _evaluations(path: Path, lines: list[str], n_arms: int, k: int) -> dict[int, Evaluation]:
    done: dict[int, Evaluation] = {}
    for place, line in enumerate(lines, 2):
        try:
            found = json.loads(line)
            arms = subset_of(found["arms"], n_arms, k)
            each = Evaluation(int(found["number"]), arms, float(found["value"]), float(found["seconds"]))
        except (ValueError, KeyError, TypeError) as why:
            raise BadInput(f"{path}, line {place} is not an evaluation ({why}): remove that line") from None
        if each.number in done:
            raise BadInput(f"{path}, line {place}: evaluation {each.number} is listed twice; remove one of the lines")
        done[each.number] = each
    return done
