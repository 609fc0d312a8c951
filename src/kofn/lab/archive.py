"""The archive of a sweep: each run is written when it is done, so that an interrupted sweep can be resumed.

The runs of one competitor are one file, `folder/<version>/<problem>/<label>-<digest>.jsonl`. The first line describes
them; each further line is one run, in order of completion. If the machine fails during a write, only the last line can
be incomplete: it is cut off, and its run is repeated.

joblib's cache (`joblib.Memory`, 1.6) knows a function by its code and its arguments: two functions with the same code
and different captured values, such as the lambdas that make policies and problems, get each other's results. An archive
knows a competitor by what it plays (`Entry.digest`). It also has the runs of other versions of kofn.
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
from kofn.lab.competitors import Trial
from kofn.lab.curves import Curve
from kofn.lab.simulation import Run

FORMAT = 1
"""Version of the file format. Files of another format are refused."""


@dataclass(frozen=True)
class RunArchive:
    """A folder of runs, by version of kofn. Only one sweep at a time may write to it."""

    folder: Path
    version: str = __version__

    def path(self, key: Mapping[str, Any]) -> Path:
        """Return the file of one competitor's runs."""
        digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:8]
        return self._folder(key["problem"]) / f"{_file_name(key['label']).replace('/', '-')}-{digest}.jsonl"

    def read(self, key: Mapping[str, Any]) -> dict[int, Trial]:
        """Return the archived runs of one competitor, by run number."""
        path = self.path(key)
        return (_runs(path, key) or {}) if path.exists() else {}

    def add(self, key: Mapping[str, Any], number: int, trial: Trial) -> None:
        """Append one run. After this returns, killing the process does not lose it."""
        path = self.path(key)
        lines = [] if path.exists() and _repair(path) else [{"kofn": self.version, "format": FORMAT, **key}]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write("".join(json.dumps(line) + "\n" for line in [*lines, _to_line(number, trial)]).encode())

    def find(self, problem: str, policy: str, horizon: int, seed: int) -> dict[int, Trial]:
        """Return the runs of a policy under its own name, with any digest; of several files, the newest."""
        asked = {"problem": problem, "label": policy, "policy": policy, "horizon": horizon, "seed": seed}
        paths = self._folder(problem).glob(f"{policy}-*.jsonl")
        for path in sorted(paths, key=lambda each: each.stat().st_mtime_ns, reverse=True):
            if (runs := _runs(path, asked)) is not None:
                return runs
        return {}

    @property
    def versions(self) -> list[str]:
        """The versions of kofn that have runs here."""
        return sorted(each.name for each in self.folder.iterdir() if each.is_dir()) if self.folder.is_dir() else []

    def of_version(self, version: str) -> RunArchive:
        """Return the same archive for the runs of another version."""
        if version not in self.versions:
            known = ", ".join(self.versions) or "none"
            raise BadInput(f"{self.folder} has no results of version {version!r}; it has: {known}")
        return RunArchive(self.folder, version)

    def _folder(self, problem: str) -> Path:
        return self.folder / self.version / _file_name(problem)


def as_archive(folder: RunArchive | Path | str | None) -> RunArchive | None:
    """Return the archive in a folder; an archive or None is returned unchanged."""
    if folder is None or isinstance(folder, RunArchive):
        return folder
    if not isinstance(folder, str | os.PathLike):
        raise BadInput(f"archive must be a folder, such as 'sweep'; got {folder!r}")
    if (path := Path(folder)).exists() and not path.is_dir():
        raise BadInput(f"archive must be a folder, but {path} is a file: choose another name")
    return RunArchive(path)


def _file_name(name: str) -> str:
    """Replace characters that a file system may refuse. The slash of a setting is kept and makes a subfolder."""
    parts = (re.sub(r"[^\w.-]+", "-", part).strip("-.")[:60] for part in name.split("/"))
    return "/".join(part for part in parts if part) or "unnamed"


def _repair(path: Path) -> int:
    """Cut off an incomplete last line, and return the length of the file in bytes."""
    with path.open("r+b") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - 1))
        if file.read() not in (b"", b"\n"):
            length = path.read_bytes().rfind(b"\n") + 1
            file.truncate(length)
    return length


def _runs(path: Path, key: Mapping[str, Any]) -> dict[int, Trial] | None:
    """Return the runs in the file, or None if its first line does not match the key."""
    try:
        if not (lines := _lines(path)):
            return {}
        head, *rest = lines
        written = head["format"]
        if written == FORMAT:
            return dict(map(_from_line, rest)) if key.items() <= head.items() else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as why:
        raise BadInput(f"{path} has no runs of format {FORMAT}, or is damaged: delete it to repeat its runs") from why
    raise BadInput(
        f"{path} has format {written!r}, but kofn {__version__} reads format {FORMAT}: "
        "delete it to repeat its runs, or use the version of kofn that wrote it"
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


_OF_RUN = ("policy", "horizon", "optimal", "plan_rows", "exploration")
_OF_TRIAL = ("seconds", "state_bytes", "final_gap")


def _to_line(number: int, trial: Trial) -> dict[str, Any]:
    """Return the run as plain values; JSON keeps every digit of a float."""
    run = trial.run
    facts = {name: getattr(run, name) for name in _OF_RUN} | {name: getattr(trial, name) for name in _OF_TRIAL}
    curve = {"plays": run.curve.plays.tolist(), "regret": run.curve.regret.tolist()}
    return {"run": number, "final": list(run.final), **facts, **curve}


def _from_line(line: dict[str, Any]) -> tuple[int, Trial]:
    curve = Curve(np.array(line["plays"], float), np.array(line["regret"], float))
    if len(curve.plays) != len(curve.regret) or curve.plays[-1] != line["horizon"]:
        raise ValueError(line["run"])
    run = Run(final=tuple(line["final"]), curve=curve, **{name: line[name] for name in _OF_RUN})
    return line["run"], Trial(run, **{name: line[name] for name in _OF_TRIAL})
