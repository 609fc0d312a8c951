"""What a worker of a cluster does: it makes sure that it is the same kofn, and computes a batch of tasks."""

from __future__ import annotations

import hashlib
import pickle
import platform
import time
from functools import cache
from pathlib import Path
from typing import Any

from kofn import __version__
from kofn.core import BadBackend


@cache
def facts() -> dict[str, str]:
    """What the digits of a result depend on: versions, and a digest of kofn's own code."""
    import numpy as np
    import scipy

    code = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        code.update(str(path.relative_to(folder).as_posix()).encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return {
        "kofn": __version__,
        "kofn's code": code.hexdigest()[:8],
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def differences(asked_by: dict[str, str]) -> str:
    """What is not the same here as where a task comes from, in words; nothing where all is."""
    wrong = [name for name, here in facts().items() if asked_by.get(name) != here]
    return ", ".join(f"{name} {facts()[name]} and not {asked_by.get(name)}" for name in wrong)


def do(asked_by: dict[str, str], packed: bytes) -> tuple[float, list[tuple[int, Any]]]:
    """The seconds it took, and each task's number with its result."""
    if wrong := differences(asked_by):
        raise BadBackend(
            f"the worker on {platform.node()} may give other digits, for it has {wrong}: install the same everywhere"
        )
    try:
        function, batch = pickle.loads(packed)
    except ModuleNotFoundError as missing:
        raise BadBackend(
            f"the worker on {platform.node()} has no module {missing.name!r}: install it there, or define policies and "
            "problems in the program itself, which is sent along"
        ) from None
    start = time.perf_counter()
    results = [(number, function(*task)) for number, task in batch]
    return time.perf_counter() - start, results
