"""Plans, tallies, the policy, and every error that kofn raises.

A policy makes a **plan** (subsets, and how many times to play each) and observes **tallies** (the rewards of the
plays). The plays may be made in any order, by anyone, and split in any way. When all plays of a plan are observed, the
policy learns from them and makes the next plan.
"""

from kofn.core.checks import Direction as Direction
from kofn.core.checks import FloatArray as FloatArray
from kofn.core.checks import IntArray as IntArray
from kofn.core.checks import Seed as Seed
from kofn.core.checks import Subset as Subset
from kofn.core.checks import check_range as check_range
from kofn.core.checks import check_sizes as check_sizes
from kofn.core.checks import finite_numbers as finite_numbers
from kofn.core.checks import generator as generator
from kofn.core.checks import seed_number as seed_number
from kofn.core.checks import subset_of as subset_of
from kofn.core.checks import whole as whole
from kofn.core.checks import whole_numbers as whole_numbers
from kofn.core.costs import check_costs as check_costs
from kofn.core.costs import net_range as net_range
from kofn.core.errors import (
    BadBackend,
    BadInput,
    BadRecord,
    BadReward,
    BadScore,
    BadTally,
    CampaignError,
    CampaignExists,
    Conflict,
    KofnError,
    MissingExtra,
    NoSuchCampaign,
    NotAllowed,
    NotRunning,
    ProblemWarning,
    RewardsRefused,
    ShortHorizonWarning,
    StateError,
    StoreError,
    ThinLogWarning,
    TooManySubsets,
    UnknownDecision,
    Unreachable,
)
from kofn.core.insight import Alarm, AttributeInsight, Insight, SegmentInsight
from kofn.core.plan import Plan, Tally
from kofn.core.plan import SettledPlays as SettledPlays
from kofn.core.policy import Policy
from kofn.core.policy import PolicyOptions as PolicyOptions

__all__ = [
    "Alarm",
    "AttributeInsight",
    "BadBackend",
    "BadInput",
    "BadRecord",
    "BadReward",
    "BadScore",
    "BadTally",
    "CampaignError",
    "CampaignExists",
    "Conflict",
    "Insight",
    "KofnError",
    "MissingExtra",
    "NoSuchCampaign",
    "NotAllowed",
    "NotRunning",
    "Plan",
    "Policy",
    "ProblemWarning",
    "RewardsRefused",
    "SegmentInsight",
    "ShortHorizonWarning",
    "StateError",
    "StoreError",
    "Tally",
    "ThinLogWarning",
    "TooManySubsets",
    "UnknownDecision",
    "Unreachable",
]
