"""Where the runs of a sweep are kept: a line for each as it comes, so that a sweep that was stopped goes on.

The runs of one contender are one file, `folder/<version>/<problem>/<label>-<digest>.jsonl`: a line that says what they
are of, then a line for each run, in the order in which they came. A line is whole or, when the machine went down while
it was written, the last: it is cut off, and its run done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kofn import __version__
from kofn.core import BadInput
from kofn.curves import Curve
from kofn.experiments.contenders import Trial
from kofn.simulation import Run

FORMAT = 1
"""The version of the files; it changes when an older kofn could not read a newer one."""


@dataclass(frozen=True)
class Store:
    """Where runs are kept, by version of kofn. One sweep at a time may write to it."""

    folder: Path
    version: str = __version__

    def path(self, key: Mapping[str, Any]) -> Path:
        """The file of one contender's runs."""
        digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:8]
        return self._folder(key["problem"]) / f"{_plain(key['label']).replace('/', '-')}-{digest}.jsonl"

    def read(self, key: Mapping[str, Any]) -> dict[int, Trial]:
        """The runs that are there, by number."""
        path = self.path(key)
        return (_runs(path, key) or {}) if path.exists() else {}

    def add(self, key: Mapping[str, Any], number: int, trial: Trial) -> None:
        """Keep one more run. When this returns, a killed process does not lose it."""
        path = self.path(key)
        lines = [] if path.exists() and _cut(path) else [{"kofn": self.version, "format": FORMAT, **key}]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write("".join(json.dumps(line) + "\n" for line in [*lines, _line(number, trial)]).encode())

    def find(self, problem: str, policy: str, horizon: int, seed: int) -> dict[int, Trial]:
        """The runs of a policy under its own name, whatever its digest: the last written, if there are several."""
        wanted = {"problem": problem, "label": policy, "policy": policy, "horizon": horizon, "seed": seed}
        paths = self._folder(problem).glob(f"{policy}-*.jsonl")
        for path in sorted(paths, key=lambda each: each.stat().st_mtime_ns, reverse=True):
            if (runs := _runs(path, wanted)) is not None:
                return runs
        return {}

    @property
    def versions(self) -> list[str]:
        """The versions that have results."""
        return sorted(each.name for each in self.folder.iterdir() if each.is_dir()) if self.folder.is_dir() else []

    def of_version(self, version: str) -> Store:
        """The same store, for the results of another version."""
        if version not in self.versions:
            there = ", ".join(self.versions) or "none"
            raise BadInput(f"{self.folder} has no results of version {version!r}; it has: {there}")
        return Store(self.folder, version)

    def _folder(self, problem: str) -> Path:
        return self.folder / self.version / _plain(problem)


def as_store(what: Store | Path | str | None) -> Store | None:
    """The store, or that of the folder."""
    if what is None or isinstance(what, Store):
        return what
    if not isinstance(what, str | os.PathLike):
        raise BadInput(f"a store is a folder, such as 'sweep', not {what!r}")
    if (folder := Path(what)).exists() and not folder.is_dir():
        raise BadInput(f"a store is a folder, but {folder} is a file: give another name")
    return Store(folder)


def _plain(name: str) -> str:
    """The name with nothing that a file system may refuse; a setting keeps its slash, and so its folder."""
    parts = (re.sub(r"[^\w.-]+", "-", part).strip("-.")[:60] for part in name.split("/"))
    return "/".join(part for part in parts if part) or "unnamed"


def _cut(path: Path) -> int:
    """The length of the file; what is no whole line at its end is cut off, or the next line would be part of it."""
    with path.open("r+b") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - 1))
        if file.read() not in (b"", b"\n"):
            length = path.read_bytes().rfind(b"\n") + 1
            file.truncate(length)
    return length


def _runs(path: Path, key: Mapping[str, Any]) -> dict[int, Trial] | None:
    """The runs in the file; None when they are not those of the key."""
    try:
        if not (lines := _lines(path)):
            return {}
        head, *rest = lines
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
        return dict(map(_trial, rest)) if key.items() <= head.items() else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as why:
        raise BadInput(f"{path} is not a file that kofn {__version__} wrote: delete it to do its runs again") from why


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def _line(number: int, trial: Trial) -> dict[str, Any]:
    """The run as plain values; JSON keeps every digit of a float."""
    run = trial.run
    return {
        "run": number,
        "policy": run.policy,
        "horizon": run.horizon,
        "final": list(run.final),
        "optimal": run.optimal,
        "decisions": run.decisions,
        "exploration": run.exploration,
        "seconds": trial.seconds,
        "state_bytes": trial.state_bytes,
        "plays": run.curve.plays.tolist(),
        "regret": run.curve.regret.tolist(),
    }


def _trial(line: dict[str, Any]) -> tuple[int, Trial]:
    curve = Curve(np.array(line["plays"], float), np.array(line["regret"], float))
    if len(curve.plays) != len(curve.regret) or curve.plays[-1] != line["horizon"]:
        raise ValueError(line["run"])
    names = ("policy", "horizon", "optimal", "decisions", "exploration")
    run = Run(**{name: line[name] for name in names}, final=tuple(line["final"]), curve=curve)
    return line["run"], Trial(run, line["seconds"], line["state_bytes"])
