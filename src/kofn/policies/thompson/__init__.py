"""Thompson, the default policy: the policy, its posterior, sampling from it, the noise and the guarantee."""

from kofn.policies.thompson.policy import Thompson as Thompson
