"""kofn picks the best K of N when all you ever see is one number: the reward of the whole subset.

This module offers the names in `__all__` of the modules below, and the problems that most people need. They are
imported when first used, so that the command line starts quickly.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn import constraints as constraints
    from kofn import evidence as evidence
    from kofn import logs as logs
    from kofn import problems as problems
    from kofn import rewards as rewards
    from kofn import theory as theory
    from kofn.campaigns import Campaign as Campaign
    from kofn.choosing import *  # noqa: F403
    from kofn.client import AsyncClient as AsyncClient
    from kofn.client import Client as Client
    from kofn.constraints import Constraints as Constraints
    from kofn.core import *  # noqa: F403
    from kofn.curves import *  # noqa: F403
    from kofn.experiments.ahead import *  # noqa: F403
    from kofn.experiments.compare import *  # noqa: F403
    from kofn.experiments.real import *  # noqa: F403
    from kofn.logs.replay import *  # noqa: F403
    from kofn.policies import *  # noqa: F403
    from kofn.problems import ArctanExponential as ArctanExponential
    from kofn.problems import Bernoulli as Bernoulli
    from kofn.problems import Beta as Beta
    from kofn.problems import Empirical as Empirical
    from kofn.problems import Problem as Problem
    from kofn.simulation import *  # noqa: F403

__version__ = "0.2.0"

_MODULES = (
    "core",
    "policies",
    "choosing",
    "curves",
    "simulation",
    "logs.replay",
    "experiments.compare",
    "experiments.ahead",
    "experiments.real",
)
_PROBLEMS = ("ArctanExponential", "Bernoulli", "Beta", "Empirical", "Problem")
_NAMESPACES = ("constraints", "evidence", "logs", "problems", "rewards", "theory")
_OPTIONAL = {  # available if the library that it needs is installed
    "AsyncClient": ("client", "httpx"),
    "Campaign": ("campaigns", "sqlalchemy"),
    "Client": ("client", "httpx"),
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        promised = [each for module in _MODULES for each in import_module(f"kofn.{module}").__all__]
        optional = [each for each, (_, library) in _OPTIONAL.items() if find_spec(library)]
        return sorted(["Constraints", "__version__", *promised, *_PROBLEMS, *_NAMESPACES, *optional])
    if name in _OPTIONAL:
        return getattr(import_module(f"kofn.{_OPTIONAL[name][0]}"), name)
    if name in _NAMESPACES:
        return import_module(f"kofn.{name}")
    if name == "Constraints":
        return import_module("kofn.constraints").Constraints
    if name in _PROBLEMS:
        return getattr(import_module("kofn.problems"), name)
    if not name.startswith("_"):
        for module in map(import_module, (f"kofn.{module}" for module in _MODULES)):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'kofn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
