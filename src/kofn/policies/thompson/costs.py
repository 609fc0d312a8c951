"""A change of what arms cost: every reward changes by a known amount, and what was learned changes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kofn.core import FloatArray
from kofn.policies.thompson.alarms import Alarms
from kofn.policies.thompson.noise import Range

if TYPE_CHECKING:
    from kofn.policies.thompson.policy import Thompson


def recharged(policy: Thompson, more: FloatArray, reward_range: tuple[float, float]) -> Thompson:
    """Return the policy after the cost of each arm rises by `more`, in units of the reward.

    `reward_range` is the range of rewards net of the new costs. Plans are as short as after the first one, and
    alarms begin again: what the changed costs lead to has yet to be seen.
    """
    fresh = policy.with_params(reward_range=reward_range)
    seen, by = fresh._range, more / (reward_range[1] - reward_range[0])
    if not seen.seen:
        return fresh
    fresh._alarms = Alarms()
    fresh._learned = min(fresh._learned, -(-policy.n_arms // policy.k))
    if not fresh._knows:
        fresh._noise.range = seen.moved(-float(by.mean()) * policy.k, 1.0)
        return fresh
    posterior, ordered = fresh._posterior, np.sort(by)
    own = float(by[posterior.incumbent].sum())
    low = max(seen.low - float(ordered[-policy.k :].sum()), min(seen.low - own, 0.0))
    high = min(seen.high - float(ordered[: policy.k].sum()), max(seen.high - own, 1.0))
    largest = posterior.charge(by, (seen.low, seen.high), (low, high), fresh._allowed)
    fresh._noise.rescale((seen.width / (high - low)) ** 2, largest)
    fresh._noise.range = Range(low, high)
    return fresh
