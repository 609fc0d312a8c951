"""The policies: one algorithm, one file. A line here makes one known by its name, everywhere."""

from kofn.policies.cmab_sm import CMABSM
from kofn.policies.doubling import Doubling
from kofn.policies.improved_ucb import ImprovedUCB
from kofn.policies.registry import make_policy, policy_named, register, restore, save

__all__ = ["CMABSM", "Doubling", "ImprovedUCB", "make_policy", "policy_named", "register", "restore", "save"]
