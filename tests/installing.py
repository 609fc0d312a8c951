"""What the tests need of a machine and find missing, they install, one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def found_or_installed(what: str, find: Callable[[], T | None], ways: Iterable[list[str]], missing: str) -> T:
    """What `find` finds, after one of the ways to install it if need be, or RuntimeError that says how to get it."""
    with open(Path(tempfile.gettempdir()) / f"kofn-{what}-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # many test processes start at once: one installs, the others wait
        if found := find():
            return found
        why = "no way to install it was found"
        for command in ways:
            why = _failed(command)
            if found := find():
                return found
    raise RuntimeError(missing.format(why=why))


def _failed(command: list[str]) -> str:
    """Run a command; what it said, in case that it did not help."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return f"`{' '.join(command)}` said {(done.stderr or done.stdout).strip()[-300:]!r}"


def debian(package: str) -> Iterator[list[str]]:
    """How Debian and Ubuntu install a package; nothing elsewhere."""
    if shutil.which("apt-get"):
        become = [] if os.geteuid() == 0 else ["sudo", "-n"]
        install = [*become, "apt-get", "install", "-y", "--no-install-recommends", package]
        yield install
        yield [*become, "apt-get", "update"]  # a new machine has no list of packages yet
        yield install
