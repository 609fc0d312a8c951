"""Thompson sampling for whom: what is best may depend on the context of a play, and segments learn from each other."""

from kofn.policies.contextual.policy import ContextualThompson as ContextualThompson
