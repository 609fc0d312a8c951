"""Sweeps: on a cluster or not, with workers killed, stopped and gone on with, the numbers are the same."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kofn import Bernoulli, Comparison, Problem, compare
from kofn.lab.archive import RunArchive
from kofn.lab.competitors import Competitor, Trial
from kofn.lab.paper import Panel, run_panel
from kofn.lab.settings import Setting
from kofn.lab.suite import run_suite
from tests.cli.tools import invoke

SETTING = Setting("max", n_arms=6, k=2)
POLICIES = ["dart", "shared-credit", "slots", "uniform"]


def numbers(result: Comparison) -> dict[str, Any]:
    """All that does not depend on the clock, with every point of every curve."""
    said = result.to_dict()
    for row in said["rows"]:
        assert row.pop("seconds") >= 0
    said["trials"] = [
        [
            (trial.run.to_dict(), trial.run.curve.plays.tolist(), trial.run.curve.regret.tolist())
            for trial in each.trials
        ]
        for each in result.standings
    ]
    return said


@pytest.mark.slow
def test_a_sweep_of_1_200_runs_that_loses_a_worker_gives_the_same_numbers(cluster: Any, tmp_path: Path) -> None:
    """The same sweep in local processes and on two workers, one of which is killed on the way."""
    runs, horizon, of = 300, 3_000, 300 * len(POLICIES)
    before, heard = set(cluster.run(os.getpid).values()), []

    def kill(done: int, total: int) -> None:
        heard.append((done, total))
        if done == of // 3:
            os.kill(min(before), signal.SIGKILL)

    there = compare(POLICIES, SETTING, horizon, runs, backend=cluster, archive=tmp_path, progress=kill)
    assert heard == [(done, of) for done in range(1, of + 1)]
    cluster.wait_for_workers(2, timeout=60)  # it may take a moment until Dask has a new one
    assert len(before - set(cluster.run(os.getpid).values())) == 1
    assert numbers(there) == numbers(compare(POLICIES, SETTING, horizon, runs, workers=2))
    assert kept(tmp_path) == of  # each once


# Stopped and gone on with.


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs that are really done, in this process."""
    made: list[tuple[str, int]] = []

    def counted(competitor: Competitor, run: int) -> Trial:
        made.append((competitor.label, run))
        return play(competitor, run)

    play = Competitor.play
    monkeypatch.setattr(Competitor, "play", counted)
    return made


def stop(after: int) -> Any:
    def progress(done: int, of: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    return progress


def test_a_comparison_that_is_stopped_goes_on_where_it_was(tmp_path: Path, done: list[tuple[str, int]]) -> None:
    asked: dict[str, Any] = {"horizon": 500, "runs": 5, "workers": 1}
    whole = compare(POLICIES, SETTING, **asked)
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        compare(POLICIES, SETTING, **asked, archive=tmp_path, progress=stop(7))
    assert len(done) == 7
    heard: list[tuple[int, int]] = []
    resumed = compare(POLICIES, SETTING, **asked, archive=tmp_path, progress=lambda *at: heard.append(at))
    assert heard == [(number, 20) for number in range(7, 21)]
    assert len(done) == len(set(done)) == 20
    assert numbers(resumed) == numbers(whole)
    assert numbers(compare(POLICIES, SETTING, **asked, archive=str(tmp_path))) == numbers(whole)
    assert len(done) == 20


def test_a_sweep_that_began_here_goes_on_on_a_cluster(cluster: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"horizon": 500, "runs": 6}
    for backend, after in (("local", 5), (cluster, 9)):
        with pytest.raises(KeyboardInterrupt):
            compare(POLICIES, SETTING, **asked, backend=backend, archive=tmp_path, progress=stop(after))
    heard: list[int] = []
    ended = compare(POLICIES, SETTING, **asked, archive=tmp_path, workers=1, progress=lambda now, _: heard.append(now))
    assert heard == list(range(9, 25))
    assert numbers(ended) == numbers(compare(POLICIES, SETTING, **asked, workers=1))


def test_runs_beyond_those_asked_for_are_not_counted(tmp_path: Path, done: list[tuple[str, int]]) -> None:
    asked: dict[str, Any] = {"horizon": 200, "workers": 1}
    whole = compare(["uniform"], SETTING, runs=3, **asked)
    compare(["uniform"], SETTING, runs=6, **asked, archive=tmp_path)
    (path,) = tmp_path.rglob("*.jsonl")
    head, first, *_, last = path.read_text().splitlines()
    path.write_text("\n".join([head, last, first, ""]))  # as they may have come before a stop
    done.clear()
    assert numbers(compare(["uniform"], SETTING, runs=3, **asked, archive=tmp_path)) == numbers(whole)
    assert done == [("uniform", 1), ("uniform", 2)]  # of more runs, only those that are not there


def test_what_has_only_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    def problem(*p: float) -> Problem:
        return Problem(Bernoulli(p), "mean", k=2)

    for p in ((0.1, 0.5, 0.6), (0.1, 0.5, 0.7)):
        for resolution in (0.1, 0.3):
            policies = {"mine": ("cmab-sm", {"resolution": resolution})}
            asked: dict[str, Any] = {"horizon": 20_000, "runs": 2, "workers": 1}
            kept = compare(policies, problem(*p), **asked, archive=tmp_path)
            assert numbers(kept) == numbers(compare(policies, problem(*p), **asked))
    assert len(list(tmp_path.rglob("*.jsonl"))) == 4


def test_the_paper_and_the_suite_go_on_too(
    tmp_path: Path, done: list[tuple[str, int]], cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = Panel("max-12", "", "max", 12, (2,), 3, ())
    asked: dict[str, Any] = {"horizon": 300, "workers": 1}
    whole = run_panel(panel, **asked).to_dict()
    with pytest.raises(KeyboardInterrupt):
        run_panel(panel, **asked, archive=tmp_path, progress=stop(4))
    done.clear()
    assert run_panel(panel, **asked, archive=tmp_path).to_dict() == whole
    assert len(done) == 9 - 4
    monkeypatch.undo()  # what counts runs cannot be sent to a cluster
    assert run_panel(panel, horizon=300, backend=cluster).to_dict() == whole
    few: dict[str, Any] = {"settings": [SETTING], "policies": POLICIES, "horizon": 100, "runs": 2}
    here = list(run_suite(RunArchive(tmp_path / "here"), **few, workers=1))
    there = list(run_suite(RunArchive(tmp_path / "there"), **few, backend=cluster))
    assert [each["finals"] for each in there] == [each["finals"] for each in here]


# The command, stopped from outside.

COMMAND = ["compare", "dart", "uniform", "--arms", "6", "--k", "2", "--horizon", "2000", "--runs", "20", "--json"]


def kept(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") - 1 for path in folder.rglob("*.jsonl"))


def stopped(how: signal.Signals, folder: Path, *options: str) -> tuple[int, str]:
    """The command's exit code and last words when it is sent the signal after the first runs.

    Where tests run in the background of a shell, an interrupt is ignored unless one listens to it.
    """
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from kofn.cli import main; main()"
    argv = [sys.executable, "-c", code, *COMMAND, "--archive", str(folder), *options]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        end = time.monotonic() + 60
        while kept(folder) < 5 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        os.killpg(process.pid, how)  # as a terminal does
        _, said = process.communicate(timeout=60)
    return process.returncode, said


def without_seconds(said: dict[str, Any]) -> dict[str, Any]:
    for row in said["rows"]:
        del row["seconds"]
    return said


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """What the command finds if it is not stopped."""
    return without_seconds(compare(["dart", "uniform"], SETTING, 2_000, 20, workers=1).to_dict())


LOCAL, DASK = ("--workers", "2"), ("--backend", "dask", "--workers", "2")


@pytest.mark.parametrize(
    ("how", "options"),
    [
        pytest.param(signal.SIGINT, LOCAL, id="interrupted-local"),
        pytest.param(signal.SIGINT, DASK, id="interrupted-dask", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, LOCAL, id="killed-local", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, DASK, id="killed-dask", marks=pytest.mark.slow),
    ],
)
def test_a_command_that_is_stopped_goes_on_where_it_was(
    how: signal.Signals, options: tuple[str, ...], whole: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    code, said = stopped(how, folder, *options)
    there = kept(folder)
    assert 5 <= there < 40
    if how == signal.SIGINT:
        assert code == 130
        go_on = f"kofn: the finished runs are in {folder}: the same command resumes from there"
        assert said.endswith(f"{go_on}\n\nkofn: stopped\n")  # a worker may have had its say before
        assert "Traceback" not in said
    again = invoke(*COMMAND, "--archive", str(folder), "--workers", "1")
    assert (again.exit_code, again.stderr) == (0, "")
    assert without_seconds(json.loads(again.stdout)) == whole
    assert kept(folder) == 40


@pytest.mark.parametrize("seconds", [0.3, *(pytest.param(each, marks=pytest.mark.slow) for each in (1.5, 3.0))])
def test_an_interrupted_command_prints_no_traceback(seconds: float, tmp_path: Path) -> None:
    """Ctrl-C reaches the worker processes, too, also while they start. The test above interrupts them at work."""
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from kofn.cli import main; print('ready', flush=True); main()"
    argv = [sys.executable, "-c", code, "compare", "thompson", "--runs", "500", "--workers", "2", "--json"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        for _ in range(30):  # one that comes while the workers are started is ignored: a person would try again
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
                break
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "\nkofn: stopped\n")
