"""Stamps: random numbers that tell one state, batch or request from every other."""

from __future__ import annotations

import os
import random
import secrets

_random = random.Random(secrets.randbits(256))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(secrets.randbits(256)))


def new_stamp(bits: int = 62) -> int:
    """Return a random number that no other process or time has. It is not secret."""
    return _random.getrandbits(bits)


def random_share() -> float:
    """Return a random number from 0 to 1, of which no other process has the same sequence."""
    return _random.random()
