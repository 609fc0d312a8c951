"""Pictures: what is drawn is what was computed, and the same bytes for the same numbers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.figure import Figure

from kofn import BadInput, Curve, Run
from kofn.core.pictures import save_figure
from kofn.lab.paper import FIGURES, Dominance, Panel, PanelResult, run_panel
from kofn.lab.plots import draw_dominance, draw_panel, draw_run
from kofn.lab.published import published

PNG = b"\x89PNG\r\n\x1a\n"


def panel_named(name: str) -> Panel:
    panel = FIGURES[name]
    assert isinstance(panel, Panel)
    return panel


def dominance_named(name: str) -> Dominance:
    figure = FIGURES[name]
    assert isinstance(figure, Dominance)
    return figure


@pytest.fixture(scope="module")
def max12() -> PanelResult:
    return run_panel(panel_named("max-12"), horizon=2_000, runs=2, workers=1)


@pytest.fixture(scope="module")
def five() -> PanelResult:
    """Five K, as at N = 24, where UCB's subsets are many."""
    panel = Panel("max-24", "Maximum, N = 24", "max", 24, (2, 3, 5, 7, 11), 2, (2,))
    return run_panel(panel, horizon=2_000, workers=1)


def labels(ax: Axes) -> list[str]:
    return [str(line.get_label()) for line in ax.lines]


def line(ax: Axes, label: str) -> Any:
    return next(each for each in ax.lines if each.get_label() == label)


# A figure of the paper.


def test_a_panel_has_a_picture_for_each_k(max12: PanelResult) -> None:
    figure = draw_panel(max12)
    assert [ax.get_title() for ax in figure.axes] == ["K = 2", "K = 3", "K = 5"]
    assert {(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes} == {("plays", "regret")}
    assert figure.get_suptitle() == "Maximum, N = 12: expected regret over 2,000 plays, mean of 2 runs"
    assert all((ax.get_ylim()[0], ax.get_yscale()) == (10, "log") for ax in figure.axes)


def test_each_line_is_our_mean_and_each_band_its_width(max12: PanelResult) -> None:
    figure = draw_panel(max12)
    for k, ax in zip((2, 3, 5), figure.axes, strict=True):
        bands = [each for each in ax.collections if isinstance(each, FillBetweenPolyCollection)]
        assert len(bands) == len(max12.at(k)) == 5
        for cell, band in zip(max12.at(k), bands, strict=True):
            drawn = line(ax, cell.policy.name)
            assert drawn.get_xdata().tolist() == cell.band.plays.tolist()
            assert drawn.get_ydata().tolist() == cell.band.mean.tolist()
            heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
            assert heights.max() == pytest.approx(cell.band.high.max())
            assert heights.min() == pytest.approx(cell.band.low.min())


def test_the_published_curves_are_dotted_over_ours(max12: PanelResult) -> None:
    figure = draw_panel(max12)
    for k, ax in zip((2, 3, 5), figure.axes, strict=True):
        for name in ("cmab-sm", "ucb"):
            drawn = line(ax, f"{name}, as published")
            assert drawn.get_linestyle() == ":"
            assert drawn.get_ydata().tolist() == published()["max", 12, k, name].regret.tolist()
        assert line(ax, "cmab-sm, as published").get_color() == line(ax, "cmab-sm (figures)").get_color()
        assert line(ax, "ucb, as published").get_color() == line(ax, "improved-ucb (figures)").get_color()


def test_places_without_a_k_stay_empty(five: PanelResult) -> None:
    figure = draw_panel(five)
    assert len(figure.axes) == 6
    assert [ax.get_title() for ax in figure.axes if ax.axison] == [f"K = {k}" for k in (2, 3, 5, 7, 11)]
    assert not figure.axes[-1].axison


# Dominance.


@pytest.mark.parametrize(("name", "symbol"), [("dominance-bernoulli", "p"), ("dominance-exponential", "scale")])
def test_each_arm_lies_above_the_one_it_dominates(name: str, symbol: str) -> None:
    of = dominance_named(name)
    figure = draw_dominance(of)
    (ax,) = figure.axes
    assert labels(ax) == [f"{symbol} = {parameter:g}" for parameter in of.parameters]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == labels(ax)[::-1]  # the strongest on top
    curves = np.array([each.get_ydata() for each in ax.lines])
    assert (np.diff(curves, axis=0) >= 0).all()
    assert (np.diff(curves, axis=0).max(axis=1) > 0.01).all()
    assert (curves[:, 0] == 1).all()  # below 0
    assert (curves[:, -1] == 0).all()  # above 1
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "P(X ≥ x)")


# One run.


def a_run(*, exploration: int, realised: bool = False) -> Run:
    curve = Curve(np.array([0.0, 40.0, 100.0]), np.array([0.0, 8.0, 9.0]))
    lucky = Curve(curve.plays, np.array([0.0, 7.0, 11.0])) if realised else None
    return Run("cmab-sm", 100, (0, 1), True, 3, exploration, curve, lucky)


def test_a_run_shows_its_curve_and_where_exploration_ended() -> None:
    (ax,) = draw_run(a_run(exploration=40), "cmab-sm on max").axes
    assert labels(ax) == ["expected regret", "explored for 40 plays"]
    assert np.asarray(ax.lines[0].get_xydata()).tolist() == [[0, 0], [40, 8], [100, 9]]
    assert np.asarray(ax.lines[1].get_xdata()).tolist() == [40, 40]
    assert ax.get_title() == "cmab-sm on max"
    assert ax.get_legend() is not None


def test_a_run_shows_its_realised_regret() -> None:
    (ax,) = draw_run(a_run(exploration=100, realised=True), "").axes
    assert labels(ax) == ["expected regret", "realised regret"]
    assert np.asarray(ax.lines[1].get_ydata()).tolist() == [0, 7, 11]


# Files.


def all_figures(result: PanelResult) -> list[Figure]:
    dominance = draw_dominance(dominance_named("dominance-exponential"))
    return [draw_panel(result), dominance, draw_run(a_run(exploration=40, realised=True), "run")]


@pytest.mark.slow
def test_files_are_the_same_bytes_for_the_same_numbers(max12: PanelResult, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    for index, figures in enumerate(zip(all_figures(max12), all_figures(max12), strict=True)):
        written = []
        for folder, figure in zip(("one", "two"), figures, strict=True):
            written.append(save_figure(figure, tmp_path / folder / f"figure{index}"))
        assert [path.name for path in written[0]] == [f"figure{index}.png", f"figure{index}.svg"]
        for first, second in zip(*written, strict=True):
            assert first.read_bytes() == second.read_bytes()
        assert written[0][0].read_bytes().startswith(PNG)
        assert b"<svg" in written[0][1].read_bytes()[:1_000]


@pytest.mark.parametrize(
    ("name", "stem"), [("run", "run"), ("run.png", "run"), ("run.svg", "run"), ("v1.2", "v1.2"), ("a.b.png", "a.b")]
)
def test_a_dot_in_a_name_is_part_of_it(name: str, stem: str, tmp_path: Path) -> None:
    files = save_figure(draw_run(a_run(exploration=40), ""), tmp_path / name)
    assert files == [tmp_path / f"{stem}.png", tmp_path / f"{stem}.svg"]
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_is_no_file_name(path: str) -> None:
    with pytest.raises(BadInput, match="a picture needs a file name"):
        save_figure(Figure(), Path(path))


# Without matplotlib.

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def without_matplotlib(program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + program, *argv], capture_output=True, text=True, check=False)


def test_missing_matplotlib_is_named_with_its_extra() -> None:
    done = without_matplotlib(
        "import kofn\n"
        "try:\n"
        "    import kofn.lab.plots\n"
        "except kofn.MissingExtra as why:\n"
        "    assert isinstance(why, ImportError)\n"
        "    print(why)\n"
    )
    assert (done.stdout, done.stderr) == ("matplotlib is not installed: pip install 'kofn[plots]'\n", "")


@pytest.mark.parametrize("argv", [["paper", "max-12"], ["run", "--out", "picture"]])
def test_commands_say_so_before_they_start(argv: list[str], tmp_path: Path) -> None:
    done = without_matplotlib(f"import os, kofn.cli; os.chdir({str(tmp_path)!r}); kofn.cli.main()", *argv)
    assert done.returncode == 2
    assert done.stderr == "kofn: matplotlib is not installed: pip install 'kofn[plots]'\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_picture_needs_no_matplotlib() -> None:
    done = without_matplotlib("import kofn.cli; kofn.cli.main()", "run", "--arms", "4", "--k", "2", "--json")
    assert done.returncode == 0
