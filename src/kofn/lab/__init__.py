"""The lab: what researchers measure policies with. The ground floor (all other packages) imports nothing of it.

- `problems`: something to learn whose answer is known; `rewards`: functions of a subset; `rivals`: every other policy.
- `simulation`, `arrivals`, `curves`: runs of a policy on a problem, late rewards, and expected regret.
- `compare`, `suite`, `real`, `sweep`, `archive`, `settings`, `competitors`: comparisons under one protocol, resumable.
- `paper`, `published`, `readings`, `theory`: the figures of the CMAB-SM paper, and what it proves.
- `forecast`: how long a campaign will take; `logs`: off-policy estimates and replay; `plots`: pictures.
- `results`, `questions`: what was measured, as data.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn.lab import logs as logs
    from kofn.lab import plots as plots
    from kofn.lab import problems as problems
    from kofn.lab import rewards as rewards
    from kofn.lab import rivals as rivals
    from kofn.lab import theory as theory

__all__ = ["logs", "plots", "problems", "rewards", "rivals", "theory"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"kofn.lab.{name}")
    raise AttributeError(f"module 'kofn.lab' has no attribute {name!r}")
