"""The picture of a choice."""

from __future__ import annotations

import math

from kofn.choosing.choice import Choice
from kofn.core.pictures import Figure

BEST, CHOSEN = "#0b6e99", "#c4511d"


def draw_choice(choice: Choice) -> Figure:
    """Draw the score of each evaluation, and the value of the choice; of a repeatable score, also the best so far.

    The best of noisy scores is no value of any subset: it grows with their number.
    """
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    numbers = [each.number for each in choice.history]
    ax.plot(numbers, [each.value for each in choice.history], ".", color="grey", ms=4, label="score")
    if choice.repeatable:
        ax.step(numbers, list(choice.best_so_far()), where="post", color=BEST, lw=2, label="best so far")
    ax.axhline(choice.value, color=CHOSEN, ls="--", lw=1, label=f"value of the choice, {choice.value:.4g}")
    if not choice.repeatable and math.isfinite(choice.high - choice.low):
        ax.axhspan(choice.low, choice.high, color=CHOSEN, alpha=0.15, lw=0, label="its 95 % interval")
    ax.set(xlabel="evaluation", ylabel="score", title=f"{len(choice.arms)} candidates, {choice.direction}")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure
