"""Thompson, the default policy: the policy, its posterior, its prior, sampling from it, the noise, the guarantee, insight."""

from kofn.policies.thompson.policy import Thompson as Thompson
from kofn.policies.thompson.prior import Prior as Prior
