"""Thompson, the default policy: its prior and posterior, sampling from it, the noise, insight."""

from kofn.policies.thompson.policy import Thompson as Thompson
from kofn.policies.thompson.prior import Prior as Prior
