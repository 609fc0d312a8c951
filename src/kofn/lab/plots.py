"""Figures of results. Each function returns a matplotlib figure and changes no global state of matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.pictures import EngFormatter, Figure
from kofn.lab.compare import Comparison
from kofn.lab.forecast import Forecast
from kofn.lab.paper import Cell, Dominance, PanelResult
from kofn.lab.problems import ArctanExponential, Bernoulli
from kofn.lab.questions import Chart
from kofn.lab.real import RealTable
from kofn.lab.results import Results
from kofn.lab.simulation import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "cmab-sm (figures)": "#0b6e99",
    "cmab-sm (printed)": "#7fb5d1",
    "improved-ucb (figures)": "#c4511d",
    "improved-ucb (printed)": "#eeb08c",
    "csar": "#4b7f52",
    "thompson": "#8a4f9e",
}
PUBLISHED_AS = {"cmab-sm": "cmab-sm (figures)", "ucb": "improved-ucb (figures)", "csar": "csar"}
WHEEL = ("#0b6e99", "#c4511d", "#4b7f52", "#8a4f9e", "#b58900", "#d33682", "#2aa198", "#6c5b4c", "#1f3b73", "#8c1c13")
STYLES = ("-", "--", "-.")
WIDE = 30
"""Ratio of the largest to the smallest regret above which a comparison gets logarithmic axes."""
MAX_BANDS = 6
"""Largest number of policies whose confidence bands are drawn; with more, the bands hide each other."""
SHADES = ("#b7d5e5", "#7fb5d1", "#4795bb", "#0b6e99", "#07455f")


def draw_panel(result: PanelResult) -> Figure:
    """Draw a figure of the paper with one panel for each K: our curves with their bands, the published ones dotted."""
    ks = result.panel.ks
    columns = min(3, len(ks))
    rows = math.ceil(len(ks) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 1.1), layout="constrained")
    figure.suptitle(f"{result.panel.title}: expected regret over {result.horizon:,} plays, mean of {result.runs} runs")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for k, ax in zip(ks, axes, strict=False):
        _draw_cells(ax, result, k)
    for ax in axes[len(ks) :]:
        ax.set_axis_off()
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_cells(ax: Axes, result: PanelResult, k: int) -> None:
    for cell in result.at(k):
        _draw_cell(ax, cell)
    printed = {cell.policy.published: cell.printed for cell in result.at(k) if cell.printed is not None}
    printed |= result.only_published(k)
    for name, curve in printed.items():
        colour = COLOURS[PUBLISHED_AS[name]]
        ax.plot(curve.plays, curve.regret, ":", color=colour, lw=1.8, label=f"{name}, as published")
    _axes(ax, f"K = {k}")
    ax.set_yscale("log")  # from hundreds to hundreds of thousands
    ax.set_ylim(bottom=10)
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_cell(ax: Axes, cell: Cell) -> None:
    colour = COLOURS[cell.policy.name]
    band = cell.band
    ax.plot(band.plays, band.mean, color=colour, lw=1.8, label=cell.policy.name)
    ax.fill_between(band.plays, band.low, band.high, color=colour, alpha=0.18, lw=0)


def _axes(ax: Axes, title: str) -> None:
    ax.set_title(title)
    ax.set_xlabel("plays")
    ax.set_ylabel("regret")
    ax.set_ylim(bottom=0)
    ax.margins(x=0)
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def draw_dominance(figure_of: Dominance) -> Figure:
    """Draw P(X >= x) for each arm: the curve of an arm lies above the curves of the arms it dominates."""
    arms = {"bernoulli": Bernoulli, "arctan-exponential": ArctanExponential}[figure_of.arms](figure_of.parameters)
    x = np.linspace(-0.05, 1.05, 1101)
    figure = Figure(figsize=(5.4, 4), layout="constrained")
    ax = figure.subplots()
    survival = np.array([arms.survival(each) for each in x])
    for index, parameter in enumerate(figure_of.parameters):
        ax.plot(x, survival[:, index], color=SHADES[index], label=f"{figure_of.symbol} = {parameter:g}")
    ax.set(title=f"{figure_of.title}: first-order dominance", xlabel="x", ylabel="P(X ≥ x)")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", reverse=True, frameon=False)  # in the order of the curves, highest first
    return figure


def draw_run(run: Run, title: str) -> Figure:
    """Draw the regret of one run, and mark the end of exploration."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    ax.plot(run.curve.plays, run.curve.regret, color=COLOURS["cmab-sm (figures)"], lw=2, label="expected regret")
    if run.realised is not None:
        ax.plot(
            run.realised.plays,
            run.realised.regret,
            color=COLOURS["improved-ucb (figures)"],
            lw=1,
            label="realised regret",
        )
    if run.exploration < run.horizon:
        ax.axvline(run.exploration, color="grey", ls="--", lw=1, label=f"explored for {run.exploration:,} plays")
    _axes(ax, title)
    ax.legend(frameon=False)
    return figure


def draw_forecast(forecast: Forecast) -> Figure:
    """Draw the loss of shipping over days, true and estimated, the threshold, and when campaigns are ready."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    days, true, high = np.array(forecast.curve).T
    ax.plot(days, high, color=COLOURS["improved-ucb (figures)"], lw=2, label="limit of the loss, as estimated")
    ax.plot(days, np.maximum(true, forecast.loss / 1000), color=COLOURS["cmab-sm (figures)"], lw=2, label="true loss")
    ax.axhline(forecast.loss, color="grey", ls="--", lw=1, label=f"ready below {forecast.loss:.3g}")
    if forecast.days_10 is not None:
        last = forecast.days if forecast.days_90 is None else forecast.days_90
        ax.axvspan(forecast.days_10, last, color=COLOURS["csar"], alpha=0.15, label="80 % become ready here")
    ax.set(xscale="log", yscale="log", xlabel="days", ylabel="loss per play of shipping the best subset")
    ax.set_title(f"N = {forecast.n_arms}, K = {forecast.k}, {forecast.per_day:,} plays per day, {forecast.runs} runs")
    ax.grid(alpha=0.25)
    ax.legend(frameon=False)
    return figure


def draw_comparison(result: Comparison) -> Figure:
    """Draw the mean regret of each policy, with the best first in the legend; references are dotted.

    Confidence bands are drawn for up to MAX_BANDS policies. If regrets differ by orders of magnitude, both axes are
    logarithmic.
    """
    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = figure.subplots()
    finals = [float(standing.finals.mean()) for standing in result.ranked]
    wide = max(finals) > WIDE * max(1.0, min(final for final in finals if final > 0 or max(finals) == 0))
    for index, standing in enumerate(result.ranked):
        colour = WHEEL[index % len(WHEEL)]
        style = ":" if standing.reference else STYLES[index // len(WHEEL) % len(STYLES)]
        t = np.geomspace(1, result.horizon, 201) if wide else standing.band.plays
        mean = np.mean([trial.run.curve.at(t) for trial in standing.trials], axis=0)
        ax.plot(t, mean, style, color=colour, lw=1.8, label=f"{standing.name}  {finals[index]:,.0f}")
        if len(finals) <= MAX_BANDS and not wide:
            band = standing.band
            ax.fill_between(band.plays, band.low, band.high, color=colour, alpha=0.12, lw=0)
    _axes(ax, f"{result.problem}: expected regret, mean of {result.runs} runs")
    if wide:
        ax.set(xscale="log", yscale="log", xlim=(1, result.horizon), ylim=(0.5, None))
    figure.legend(loc="outside right center", frameon=False)
    return figure


def draw_real(table: RealTable) -> Figure:
    """Draw a panel for each real problem: regret relative to random subsets, by budget; 1 is no learning at all.

    Baselines are dashed. The policies with the lowest ratios over all problems have colours; the others are grey.
    """
    problems = [fact.problem for fact in table.facts]
    columns = min(4, len(problems))
    rows = math.ceil(len(problems) / columns)
    figure = Figure(figsize=(4.0 * columns, 3.0 * rows + 1.2), layout="constrained")
    figure.suptitle(f"Regret relative to random subsets, mean of {table.runs} runs; dashed: common searches")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    order = [row["policy"] for row in table.summary()]
    for fact, ax in zip(table.facts, axes, strict=False):
        for policy in reversed(order):
            cells = [table.cell(fact.problem, policy, budget) for budget in table.budgets]
            points = [(cell.budget, cell.regret / (cell.budget * fact.random_gap)) for cell in cells if cell]
            if points:
                at = order.index(policy)
                colour, width = (WHEEL[at], 2.0) if at < len(WHEEL) else ("#bbbbbb", 0.9)
                style = "--" if any(cell and cell.kind == "baseline" for cell in cells) else "-"
                label = policy if at < len(WHEEL) else None
                ax.plot(*zip(*points, strict=True), style, color=colour, lw=width, label=label)
        _axes(ax, fact.problem)
        ax.set(xscale="log", ylabel="", ylim=(0, 1.3))
        ax.yaxis.set_major_formatter("{x:.1f}")
    for ax in axes[len(problems) :]:
        ax.set_axis_off()
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    shown = {name: handles[name] for name in order if name in handles}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def draw_results(results: Results) -> Figure:
    """Draw the chart of a question, narrow enough for a phone: lines by a number, or a row of dots for each name."""
    chart = results.question.chart
    points = results.points(chart)
    places = list(dict.fromkeys(x for by_x in points.values() for x in by_x))
    figure = Figure(figsize=(5, 4.2 if chart.lines else 1.6 + 0.26 * len(places)), layout="constrained")
    ax = figure.subplots()
    for (name, by_x), colour, marker in zip(points.items(), WHEEL, "osD^vP*X", strict=False):
        label = f"{chart.series} {name}" if name[0].isdigit() else name
        at = [(float(x) if chart.lines else places.index(x), y) for x, y in by_x.items() if y > 0 or not chart.log]
        x, y = zip(*(at if chart.lines else [each[::-1] for each in at]), strict=True)
        ax.plot(x, y, marker, ls="-" if chart.lines else "", color=colour, ms=5, lw=1.8, alpha=0.85, label=label)
    if chart.lines:
        ax.set(xscale="log", xlabel=chart.x.replace("_", " "), ylabel=chart.label)
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    else:
        ax.set(yticks=range(len(places)), yticklabels=places)
        ax.invert_yaxis()
        figure.supxlabel(chart.label, fontsize="medium")
    _value_axis(ax, chart)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _value_axis(ax: Axes, chart: Chart) -> None:
    """Set the scale and the numbers of the axis of values, and draw the line for comparison."""
    axis = ax.yaxis if chart.lines else ax.xaxis
    (ax.set_yscale if chart.lines else ax.set_xscale)("log" if chart.log else "linear")
    low, high = ax.get_ylim() if chart.lines else ax.get_xlim()
    axis.set_major_formatter(_short)
    if chart.log:
        axis.set_minor_formatter(_short if high < 10 * low else "")
    if chart.at is not None:
        (ax.axhline if chart.lines else ax.axvline)(chart.at, color="grey", ls="--", lw=1)


def _short(x: float, _: float) -> str:
    return f"{x:.4g}" if x < 1000 else EngFormatter(sep="")(x)
