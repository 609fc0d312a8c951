"""Constraints: which subsets are allowed. Rules as plain data, checked for N and K, and the best subset under them."""

from kofn.constraints.constraints import Constraints
from kofn.constraints.rules import Always, AtLeast, AtMost, Budget, Never, NeverTogether, OnlyTogether, Rule

__all__ = [
    "Always",
    "AtLeast",
    "AtMost",
    "Budget",
    "Constraints",
    "Never",
    "NeverTogether",
    "OnlyTogether",
    "Rule",
]
