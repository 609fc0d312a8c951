"""Every error that kofn raises on purpose::

    KofnError
    ├── BadInput            an argument that cannot work (also a ValueError)
    │   ├── BadReward       a reward that is not a number, or outside `reward_range`
    │   ├── BadTally        told of plays that the plan does not want
    │   └── BadRecord       a saved state of another policy, shape or version
    ├── TooManySubsets      a policy over all C(N, K) subsets that would not fit in memory
    ├── BadBackend          runs that cannot be done where they were to be: no cluster, other versions, workers lost
    └── MissingExtra        an optional library is not installed (also an ImportError)

    ShortHorizonWarning     a horizon in which nothing can be learned (a UserWarning)

Whoever catches KofnError catches them all; the warning is none of them.
"""

from __future__ import annotations


class KofnError(Exception):
    """Every error that kofn raises on purpose."""


class BadInput(KofnError, ValueError):
    """An argument that cannot work; the message says what would."""


class BadReward(BadInput):
    """A reward that is not a number, or lies outside the policy's `reward_range`."""


class BadTally(BadInput):
    """Told of plays that the plan does not want."""


class BadRecord(BadInput):
    """A saved state of another policy, shape or version."""


class TooManySubsets(KofnError):
    """A policy over all C(N, K) subsets that would not fit in memory."""


class BadBackend(KofnError):
    """Runs cannot be done where they were to be: no cluster there, workers of other versions, or lost too often."""


class MissingExtra(KofnError, ImportError):
    """An optional library is not installed; the message says how to install it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: pip install 'kofn[{extra}]'")
        self._of = library, extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), self._of


class ShortHorizonWarning(UserWarning):
    """A horizon in which nothing can be learned."""
