"""The rivals: one algorithm, one file. `kofn.policies.registry` has the name of each."""

from kofn.lab.rivals.case import CASE
from kofn.lab.rivals.combinatorial_thompson import CombinatorialThompson
from kofn.lab.rivals.csar import CSAR
from kofn.lab.rivals.cucb import CUCB
from kofn.lab.rivals.dart import DART
from kofn.lab.rivals.etcg import ETCG
from kofn.lab.rivals.glm_max import GLMMax
from kofn.lab.rivals.improved_ucb import ImprovedUCB
from kofn.lab.rivals.linear_thompson import LinearThompson
from kofn.lab.rivals.oful import OFUL
from kofn.lab.rivals.oracle import Oracle
from kofn.lab.rivals.pairwise_thompson import PairwiseThompson
from kofn.lab.rivals.shared_credit import SharedCredit, SharedCreditUCB
from kofn.lab.rivals.slate_glm import SlateGLM
from kofn.lab.rivals.slots import Slots
from kofn.lab.rivals.sub_ucb import SubUCB
from kofn.lab.rivals.thompson_subsets import ThompsonSubsets

__all__ = [
    "CASE",
    "CSAR",
    "CUCB",
    "DART",
    "ETCG",
    "OFUL",
    "CombinatorialThompson",
    "GLMMax",
    "ImprovedUCB",
    "LinearThompson",
    "Oracle",
    "PairwiseThompson",
    "SharedCredit",
    "SharedCreditUCB",
    "SlateGLM",
    "Slots",
    "SubUCB",
    "ThompsonSubsets",
]
