"""Thompson, the default policy: posterior, sampling, noise and guarantee, each in a file of its own."""

from kofn.policies.thompson.policy import Thompson as Thompson
