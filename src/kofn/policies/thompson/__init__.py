"""Thompson, the default policy: the policy, its posterior, sampling from it, the noise, the guarantee, insight."""

from kofn.policies.thompson.policy import Thompson as Thompson
