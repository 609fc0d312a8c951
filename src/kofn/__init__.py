"""kofn picks the best K of N when all you ever see is one number: the reward of the whole subset.

What the modules below promise in their `__all__` can be used from here. It is imported when first used, so that the
command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn import problems as problems
    from kofn import theory as theory
    from kofn.core import *  # noqa: F403
    from kofn.policies import *  # noqa: F403
    from kofn.problems import *  # noqa: F403
    from kofn.regret import *  # noqa: F403
    from kofn.simulation import *  # noqa: F403

__version__ = "0.1.0"

_MODULES = ("core", "policies", "problems", "regret", "simulation")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return ["__version__", *(each for module in _MODULES for each in import_module(f"kofn.{module}").__all__)]
    if name in ("problems", "theory"):
        return import_module(f"kofn.{name}")
    if not name.startswith("_"):
        for module in map(import_module, (f"kofn.{module}" for module in _MODULES)):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'kofn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
