"""Draws of subsets are random, and the same in each run of the tests: whatever passes, passes again."""

import pytest

from kofn.campaigns.store import stamps


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    stamps._random.seed(1)
