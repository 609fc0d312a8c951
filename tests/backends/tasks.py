"""Tasks of the tests of backends. Worker processes import this file: it imports nothing that starts slowly."""

import os
import signal
import time
from pathlib import Path


def square(x: int) -> int:
    return x * x


def slowly(x: int) -> int:
    time.sleep(0.05 * (4 - x))
    return x


def once_killed(x: int, mark: Path) -> int:
    """The fifth takes its worker with it, the first time."""
    if x == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return x


def always_killed(x: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return x
