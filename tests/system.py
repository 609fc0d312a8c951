"""Programs that some tests need and that pip does not install. scripts/install-test-system.sh installs them."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRE_ALL = "KOFN_REQUIRE_ALL"
"""Environment variable: when it is set, as `make test` does, a missing program is an error and not a skipped test."""


def require_all() -> bool:
    """Return whether nothing may be skipped."""
    return bool(os.environ.get(REQUIRE_ALL))


def missing(message: str) -> NoReturn:
    """Skip the running test, or raise RuntimeError outside of a test and where nothing may be skipped."""
    if "PYTEST_CURRENT_TEST" in os.environ and not require_all():
        pytest.skip(message)
    raise RuntimeError(message)
