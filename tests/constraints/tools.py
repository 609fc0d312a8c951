"""Rules of three kinds about 3 of 9 arms, for tests of policies."""

from kofn import Constraints
from kofn.constraints import Always, AtLeast, AtMost, Budget, Never, NeverTogether, OnlyTogether

N, K = 9, 3
FIXED = Constraints(Always([2]), Never([0, 7]))
QUOTAS = Constraints(AtMost(1, [0, 1, 2]), AtLeast(1, [3, 4]), AtMost(1, [7, 8]))
OTHER = Constraints(
    NeverTogether([1, 5]), NeverTogether([1, 7]), OnlyTogether([3, 8]), Budget(4.0, {7: 3.0, 5: 2.0, 6: 2.0})
)
KINDS = {"fixed": FIXED, "quotas": QUOTAS, "other": OTHER}
