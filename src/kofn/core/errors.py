"""Every error that kofn raises on purpose::

    KofnError
    ├── BadInput            an invalid argument (also a ValueError)
    │   ├── BadReward       a reward that is not a number, or outside `reward_range`
    │   ├── BadTally        plays that are not in the plan, or more than are remaining
    │   └── BadRecord       a saved state of another policy, shape or format
    ├── TooManySubsets      a policy over all C(N, K) subsets that does not fit in memory
    ├── BadBackend          runs that cannot be executed: no cluster, other versions, workers lost
    ├── BadScore            a function given to `choose` failed, or returned no number
    ├── CampaignError       a campaign, its store or its service refuses a call, or fails
    │   ├── NoSuchCampaign  the store has no campaign of that name
    │   ├── CampaignExists  the store already has a campaign of that name
    │   ├── UnknownDecision not a decision of this campaign
    │   ├── Conflict        another reward is already recorded
    │   ├── NotRunning      paused or finished
    │   ├── StoreError      a store that cannot be reached, or was made by a newer kofn
    │   │   └── StateError  what a campaign has stored about itself cannot be read or computed
    │   ├── NotAllowed      a service refuses the token, or the token does not allow the request
    │   ├── Unreachable     a service does not answer, or fails
    │   └── RewardsRefused  buffered rewards that a service refused
    └── MissingExtra        an optional library is not installed (also an ImportError)

    ShortHorizonWarning     a horizon in which nothing can be learned (a UserWarning)
    ThinLogWarning          a log with little information about the question (a UserWarning)
    ProblemWarning          a problem that is slow, cannot be repeated, or has a better best (a UserWarning)

Catch KofnError to catch all errors; it does not include the warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KofnError(Exception):
    """Every error that kofn raises on purpose."""


class BadInput(KofnError, ValueError):
    """An invalid argument; the message says what is accepted."""


class BadReward(BadInput):
    """A reward that is not a number, or is outside the policy's `reward_range`."""


class BadTally(BadInput):
    """Plays that are not in the plan, or more than are remaining."""


class BadRecord(BadInput):
    """A saved state of another policy, shape or format."""


class TooManySubsets(KofnError):
    """A policy over all C(N, K) subsets that does not fit in memory."""


class CampaignError(KofnError):
    """A campaign, its store or its service refuses a call, or fails."""


class NoSuchCampaign(CampaignError):
    """The store has no campaign of that name."""


class CampaignExists(CampaignError):
    """The store already has a campaign of that name."""


class UnknownDecision(CampaignError):
    """Not a decision of this campaign."""


class Conflict(CampaignError):
    """Another reward is already recorded: a decision has one reward."""


class NotRunning(CampaignError):
    """The campaign is paused or finished."""


class StoreError(CampaignError):
    """A store that cannot be reached, or was made by a newer kofn."""


class StateError(StoreError):
    """What a campaign has stored about itself cannot be read or computed. The request is not to blame."""


class NotAllowed(CampaignError):
    """A service refuses the token, or the token does not allow the request."""


class Unreachable(CampaignError):
    """A service does not answer, or fails."""


class RewardsRefused(CampaignError):
    """Rewards in a client's buffer that were not recorded. `refused` lists them, each with its error."""

    def __init__(self, message: str, refused: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.refused = list(refused)


class BadBackend(KofnError):
    """Runs that cannot be executed: no cluster, workers of other versions, or workers lost too often."""


class BadScore(KofnError):
    """The score given to `choose` raised an exception, or returned something else than a finite number.

    `arms` and `subset` describe the call that failed, and `history` has the evaluations before it.
    """

    def __init__(self, message: str, arms: Sequence[int] = (), subset: Sequence[Any] = (), history: Any = ()) -> None:
        super().__init__(message)
        self.arms, self.subset, self.history = tuple(arms), list(subset), tuple(history)


class MissingExtra(KofnError, ImportError):
    """An optional library is not installed; the message says how to install it."""

    def __init__(self, library: str, extra: str, install: str | None = None) -> None:
        how = install or f"pip install 'kofn[{extra}]'"
        super().__init__(f"{library} is not installed: {how}")
        self._of = library, extra, install

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str | None]]:
        return type(self), self._of


class ShortHorizonWarning(UserWarning):
    """A horizon in which nothing can be learned."""


class ThinLogWarning(UserWarning):
    """A log with little information about the question."""


class ProblemWarning(UserWarning):
    """A problem from a function that is slow, cannot be repeated, or has a better subset than its best one."""
