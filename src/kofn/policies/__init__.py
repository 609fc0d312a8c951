"""The policies: one algorithm, one file. An import here makes a policy available by its name."""

from typing import TYPE_CHECKING

from kofn.policies.case import CASE as CASE
from kofn.policies.cmab_sm import CMABSM as CMABSM
from kofn.policies.combinatorial_thompson import CombinatorialThompson as CombinatorialThompson
from kofn.policies.contextual import ContextualThompson as ContextualThompson
from kofn.policies.csar import CSAR as CSAR
from kofn.policies.cucb import CUCB as CUCB
from kofn.policies.dart import DART as DART
from kofn.policies.doubling import Doubling as Doubling
from kofn.policies.etcg import ETCG as ETCG
from kofn.policies.glm_max import GLMMax as GLMMax
from kofn.policies.improved_ucb import ImprovedUCB as ImprovedUCB
from kofn.policies.linear_thompson import LinearThompson as LinearThompson
from kofn.policies.oful import OFUL as OFUL
from kofn.policies.oracle import Oracle as Oracle
from kofn.policies.pairwise_thompson import PairwiseThompson as PairwiseThompson
from kofn.policies.registry import make_policy as make_policy
from kofn.policies.registry import policy_named as policy_named
from kofn.policies.registry import register as register
from kofn.policies.registry import restore as restore
from kofn.policies.registry import save as save
from kofn.policies.shared_credit import SharedCredit as SharedCredit
from kofn.policies.shared_credit import SharedCreditUCB as SharedCreditUCB
from kofn.policies.slate_glm import SlateGLM as SlateGLM
from kofn.policies.slots import Slots as Slots
from kofn.policies.sub_ucb import SubUCB as SubUCB
from kofn.policies.thompson import Prior as Prior
from kofn.policies.thompson import Thompson as Thompson
from kofn.policies.thompson_sizes import ThompsonSizes as ThompsonSizes
from kofn.policies.thompson_subsets import ThompsonSubsets as ThompsonSubsets
from kofn.policies.uniform import Uniform as Uniform

if not TYPE_CHECKING:  # type checkers read "as" above instead
    __all__ = sorted(name for name, of in vars().items() if getattr(of, "__module__", "").startswith("kofn.policies."))
