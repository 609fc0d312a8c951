"""Every error that kofn raises on purpose::

    KofnError
    ├── BadInput            an argument that cannot work (also a ValueError)
    │   ├── BadReward       a reward that is not a number, or outside `reward_range`
    │   ├── BadTally        told of plays that the plan does not want
    │   └── BadRecord       a saved state of another policy, shape or version
    ├── TooManySubsets      a policy over all C(N, K) subsets that would not fit in memory
    ├── BadBackend          runs that cannot be done where they were to be: no cluster, other versions, workers lost
    ├── CampaignError       what a campaign or its store cannot do
    │   ├── NoSuchCampaign  the store has no campaign of that name
    │   ├── CampaignExists  the store has one already
    │   ├── UnknownDecision not a decision of this campaign
    │   ├── Conflict        told before, and otherwise
    │   ├── NotRunning      paused or finished
    │   ├── StoreError      a store that cannot be reached, or is of a newer kofn
    │   ├── NotAllowed      a service that refuses the token, or what it is used for
    │   └── Unreachable     a service that does not answer, or is out of order
    └── MissingExtra        an optional library is not installed (also an ImportError)

    ShortHorizonWarning     a horizon in which nothing can be learned (a UserWarning)
    ThinLogWarning          a log that says little of what it was asked (a UserWarning)

Whoever catches KofnError catches them all; the warnings are none of them.
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


class CampaignError(KofnError):
    """What a campaign or its store cannot do."""


class NoSuchCampaign(CampaignError):
    """The store has no campaign of that name."""


class CampaignExists(CampaignError):
    """The store has a campaign of that name already."""


class UnknownDecision(CampaignError):
    """Not a decision of this campaign."""


class Conflict(CampaignError):
    """Told before, and otherwise: a decision has one reward."""


class NotRunning(CampaignError):
    """The campaign is paused or finished."""


class StoreError(CampaignError):
    """A store that cannot be reached, or was made by a newer kofn."""


class NotAllowed(CampaignError):
    """A service refuses the token, or what it is used for."""


class Unreachable(CampaignError):
    """A service does not answer, or is out of order."""


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


class ThinLogWarning(UserWarning):
    """A log that says little of what it was asked."""
