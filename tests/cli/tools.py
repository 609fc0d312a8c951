"""The command line in this process, for tests that do not need a process of its own."""

import inspect
from typing import Any

from click.testing import CliRunner, Result

from kofn.cli import cli


def invoke(*arguments: str, catch: bool = False) -> Result:
    """Run `kofn ARGUMENTS`; with `catch`, the result has the exception.

    stdout and stderr are apart, which click before 8.2 does only if it is told to.
    """
    told: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**told).invoke(cli, arguments, catch_exceptions=catch)
