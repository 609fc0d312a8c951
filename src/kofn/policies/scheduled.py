"""Scheduled policies: rounds of the length that CMAB-SM's schedule gives them."""

from __future__ import annotations

from typing import Unpack

from kofn.core import Policy, PolicyOptions, Seed
from kofn.policies.randomised import optional_seed
from kofn.policies.schedule import Form, Schedule


class ScheduledOptions(PolicyOptions, total=False):
    """The options of every scheduled policy."""

    resolution: float | None
    schedule: Form
    seed: Seed


class Scheduled(Policy):
    """A policy that plays the rounds of `self.schedule` with the given resolution."""

    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        resolution: float | None = None,
        schedule: Form = "printed",
        seed: Seed = None,
        **options: Unpack[PolicyOptions],
    ) -> None:
        self.schedule = Schedule(n_arms, k, horizon, resolution, schedule)
        resolution = None if resolution is None else self.schedule.resolution
        own = {"resolution": resolution, "schedule": schedule, "seed": optional_seed(seed)}
        super().__init__(n_arms, k, horizon=self.schedule.horizon, **own, **options)
