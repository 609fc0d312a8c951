"""Draw the pictures of the pages on applications into docs/images: `python -m tools.draw_pictures`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kofn import Bernoulli, Problem
from kofn.lab.logs import DecisionLog, evaluate_all
from kofn.lab.plots import WHEEL
from kofn.lab.problems import Interactions, Pareto, Recommendations, storage
from kofn.lab.problems.applications.recommendations import Order
from kofn.lab.settings import Setting

IMAGES = Path(__file__).parents[1] / "docs" / "images"
GREY = "#b0b0b0"
METHODS = {"ips": GREY, "snips": WHEEL[2], "dr": WHEEL[0]}
LABELS = {"ips": "inverse propensity", "snips": "self-normalised", "dr": "doubly robust"}
ORDERS: tuple[Order, ...] = ("best", "number")


def draw_storage() -> Figure:
    """Draw the survival functions of six servers, with the best three in colour."""
    servers = Pareto([10, 20, 15, 30, 12, 18], tail=[1.2, 4.0, 3.0, 6.0, 1.5, 2.5], timeout=1_000)
    best = storage(servers, k=3).best
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    x = np.geomspace(9, 1_000, 600)
    for arm, curve in enumerate(servers.survival(x)):
        asked = arm in best
        ax.plot(x, curve, color=WHEEL[arm] if asked else GREY, lw=2.2 if asked else 1.2)
        end = int(np.flatnonzero(curve > 1.6e-4)[-1])
        ax.annotate(f"{arm}", (x[end], curve[end]), xytext=(4, 0), textcoords="offset points")
    ax.axvline(1_000, color="black", ls="--", lw=1)
    ax.set(
        xscale="log", yscale="log", ylim=(1e-4, 1.3), xlim=(9, 1_350), xlabel="milliseconds", ylabel="P(latency ≥ x)"
    )
    ax.set_title(f"Six servers; the best three, {best}, in colour")
    ax.grid(alpha=0.25)
    return figure


def draw_interactions() -> Figure:
    """Draw the weights of all pairs, with the best five products marked."""
    problem = Setting("interactions", 24, 5).problem(1)
    assert isinstance(problem, Interactions)
    figure = Figure(figsize=(5.8, 4.8), layout="constrained")
    ax = figure.subplots()
    shown = ax.imshow(problem.weights, cmap="RdBu", vmin=-1, vmax=1)
    rows = np.array([(i, j) for i in problem.best for j in problem.best])
    ax.scatter(rows[:, 1], rows[:, 0], s=42, facecolors="none", edgecolors="black", lw=1.3)
    figure.colorbar(shown, label="weight of the pair")
    ax.set(xlabel="product", ylabel="product", title=f"24 products; circles: pairs of the best five, {problem.best}")
    ax.title.set_fontsize(10)
    return figure


def draw_recommendations() -> Figure:
    """Draw the value of the best list over patience, for both orders."""
    attraction = [0.3, 0.25, 0.3, 0.2, 0.3, 0.1, 0.25, 0.8, 0.1, 0.05, 0.15, 0.1]
    patience = np.linspace(0, 1, 101)
    lists = {order: [Recommendations(attraction, 4, patience=p, order=order) for p in patience] for order in ORDERS}
    top = lists["best"][0].best
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    ax.plot(patience, [each.optimum for each in lists["best"]], color=WHEEL[0], lw=2, label="the page sorts: the top 4")
    ax.plot(patience, [each.optimum for each in lists["number"]], color=WHEEL[1], lw=2, label="fixed order: the best 4")
    naive = [float(each.value([top])[0]) for each in lists["number"]]
    ax.plot(patience, naive, color=GREY, lw=2, ls="--", label="fixed order: the top 4")
    ax.set(
        xlabel="patience",
        ylabel="P(a useful item is found)",
        title="4 of 12 items; the most attractive one is number 7",
        xlim=(0, 1),
    )
    ax.grid(alpha=0.25)
    ax.legend(frameon=False)
    return figure


def draw_replay() -> Figure:
    """Draw the estimates from a log of 5,000 random decisions, and the true values."""
    problem = Problem(Bernoulli([0.1, 0.5, 0.3, 0.2, 0.4, 0.6]), "maximum", k=2)
    found = evaluate_all(DecisionLog.simulate(problem, plays=5_000, seed=1))
    truth = problem.value([each.subset for each in found])
    at = np.arange(len(found))
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    for shift, (name, colour) in zip((-0.22, 0, 0.22), METHODS.items(), strict=True):
        estimates = [getattr(each, name) for each in found]
        reach = [each.interval(of=len(found))[1] - each.value for each in estimates]
        values = [each.value for each in estimates]
        ax.errorbar(at + shift, values, reach, fmt=".", color=colour, lw=1.2, label=LABELS[name])
    ax.scatter(at, truth, marker="_", s=260, color="black", lw=1.5, label="the truth", zorder=3)
    ax.set_xticks(at, [" ".join(map(str, each.subset)) for each in found])
    ax.set(xlabel="subset", ylabel="reward", title="5,000 random decisions; intervals that hold for all 15 at once")
    ax.legend(frameon=False)
    ax.grid(alpha=0.25, axis="y")
    return figure


PICTURES = {
    "storage": draw_storage,
    "interactions": draw_interactions,
    "recommendations": draw_recommendations,
    "replay": draw_replay,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().savefig(IMAGES / f"{name}.png", dpi=130)
