"""The part that runs on a worker of a cluster: it checks its versions and computes a batch of tasks."""

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
def environment() -> dict[str, str]:
    """Return what the digits of a result depend on: versions, and a digest of kofn's own code."""
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


def compute_batch(expected: dict[str, str], packed: bytes) -> tuple[float, list[tuple[int, Any]]]:
    """Return the seconds it took, and each task's number with its result."""
    if wrong := [name for name, here in environment().items() if expected.get(name) != here]:
        others = ", ".join(f"{name} {environment()[name]} instead of {expected.get(name)}" for name in wrong)
        raise BadBackend(
            f"the worker on {platform.node()} may give other digits: it has {others}. Install the same everywhere"
        )
    try:
        function, batch = pickle.loads(packed)
    except ModuleNotFoundError as missing:
        raise BadBackend(
            f"the worker on {platform.node()} has no module {missing.name!r}: install it there, or define policies and "
            "problems in the main program, which is sent to the workers"
        ) from None
    start = time.perf_counter()
    results = [(number, function(*task)) for number, task in batch]
    return time.perf_counter() - start, results
