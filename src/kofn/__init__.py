"""kofn picks the best K of N when all you ever see is one number: the reward of the whole subset.

This package offers the names below. Each is imported from its module when it is first used, so that the command line
starts quickly. `kofn.lab` has what researchers measure with: problems, rivals, theory, logs and plots.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn import constraints as constraints
    from kofn import lab as lab
    from kofn.campaigns import Campaign as Campaign
    from kofn.choosing import *  # noqa: F403
    from kofn.client import AsyncClient as AsyncClient
    from kofn.client import Client as Client
    from kofn.constraints import Constraints as Constraints
    from kofn.core import *  # noqa: F403
    from kofn.lab.compare import *  # noqa: F403
    from kofn.lab.curves import *  # noqa: F403
    from kofn.lab.forecast import *  # noqa: F403
    from kofn.lab.logs.replay import *  # noqa: F403
    from kofn.lab.problems import ArctanExponential as ArctanExponential
    from kofn.lab.problems import Bernoulli as Bernoulli
    from kofn.lab.problems import Beta as Beta
    from kofn.lab.problems import Empirical as Empirical
    from kofn.lab.problems import Problem as Problem
    from kofn.lab.real import *  # noqa: F403
    from kofn.lab.simulation import *  # noqa: F403
    from kofn.policies.cmab_sm import CMABSM as CMABSM
    from kofn.policies.contextual import ContextualThompson as ContextualThompson
    from kofn.policies.doubling import Doubling as Doubling
    from kofn.policies.guaranteed import ThompsonGuaranteed as ThompsonGuaranteed
    from kofn.policies.registry import make_policy as make_policy
    from kofn.policies.registry import policy_named as policy_named
    from kofn.policies.registry import register as register
    from kofn.policies.registry import restore as restore
    from kofn.policies.registry import save as save
    from kofn.policies.thompson import Prior as Prior
    from kofn.policies.thompson import Thompson as Thompson
    from kofn.policies.thompson_sizes import ThompsonSizes as ThompsonSizes
    from kofn.policies.uniform import Uniform as Uniform

__version__ = "0.3.0"

_NAMES = {
    "core": """Alarm AttributeInsight BadBackend BadInput BadRecord BadReward BadScore BadTally CampaignError
        CampaignExists Conflict Insight KofnError MissingExtra NoSuchCampaign NotAllowed NotRunning Plan Policy
        ProblemWarning RewardsRefused SegmentInsight ShortHorizonWarning StoreError Tally ThinLogWarning TooManySubsets
        UnknownDecision Unreachable""",
    "policies.cmab_sm": "CMABSM",
    "policies.contextual": "ContextualThompson",
    "policies.doubling": "Doubling",
    "policies.guaranteed": "ThompsonGuaranteed",
    "policies.registry": "make_policy policy_named register restore save",
    "policies.thompson": "Prior Thompson",
    "policies.thompson_sizes": "ThompsonSizes",
    "policies.uniform": "Uniform",
    "constraints": "Constraints",
    "choosing": "Choice Evaluation choose choose_async",
    "campaigns": "Campaign",
    "client": "AsyncClient Client",
    "lab.compare": "Comparison Standing compare",
    "lab.curves": "Band Curve",
    "lab.forecast": "Forecast forecast",
    "lab.logs.replay": "Replayed replay",
    "lab.problems": "ArctanExponential Bernoulli Beta Empirical Problem",
    "lab.real": "RealCell RealTable run_real",
    "lab.simulation": "Run run_seeds simulate simulate_many",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_PACKAGES = ("constraints", "lab")
_EXTRAS = {"AsyncClient": "httpx", "Campaign": "sqlalchemy", "Client": "httpx"}  # the library that a name needs


def __getattr__(name: str) -> Any:
    if name == "__all__":
        missing = {each for each, library in _EXTRAS.items() if not find_spec(library)}
        return sorted({*_MODULE_OF, *_PACKAGES, "__version__"} - missing)
    if name in _MODULE_OF:
        return getattr(import_module(f"kofn.{_MODULE_OF[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"kofn.{name}")
    raise AttributeError(f"module 'kofn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
