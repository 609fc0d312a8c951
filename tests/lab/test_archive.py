"""The archive: every digit back, whole lines only, and nothing taken for what it is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Bernoulli, Problem
from kofn.lab.archive import RunArchive, as_archive
from kofn.lab.competitors import Trial, competitors_for
from kofn.lab.settings import Setting
from kofn.policies.registry import policy_named

SETTING = Setting("cross-selling", n_arms=6, k=2)
KEY = {"problem": "max/N6-K2", "label": "mine", "policy": "dart", "horizon": 300, "seed": 1, "digest": "abc"}


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    (competitor,) = competitors_for(["shared-credit"], SETTING, 300, 1)
    return [competitor.play(run) for run in range(3)]


def told(trial: Trial) -> list[Any]:
    run = trial.run
    return [
        run.to_dict(),
        run.curve.plays.tolist(),
        run.curve.regret.tolist(),
        trial.seconds,
        trial.state_bytes,
        trial.final_gap,
    ]


def test_a_run_comes_back_to_the_last_digit(tmp_path: Path, trials: list[Trial]) -> None:
    archive = RunArchive(tmp_path)
    assert archive.read(KEY) == {}
    for number in (2, 0):
        archive.add(KEY, number, trials[number])
    back = archive.read(KEY)
    assert list(back) == [2, 0]
    (path,) = tmp_path.rglob("*.jsonl")
    assert str(path.relative_to(tmp_path)).startswith(f"{kofn.__version__}/max/N6-K2/mine-")
    assert json.loads(path.read_text().splitlines()[0]) == {"kofn": kofn.__version__, "format": 1, **KEY}
    assert {number: told(trial) for number, trial in back.items()} == {n: told(trials[n]) for n in (0, 2)}
    assert back[0].run.curve.regret.dtype == np.float64
    assert back[0].run.final == trials[0].run.final
    assert isinstance(back[0].run.final, tuple)


@pytest.mark.parametrize("key", KEY)
def test_what_differs_in_anything_is_kept_apart(key: str, tmp_path: Path, trials: list[Trial]) -> None:
    other = KEY | {key: 77 if isinstance(KEY[key], int) else "other"}
    archive = RunArchive(tmp_path)
    archive.add(KEY, 0, trials[0])
    assert archive.read(other) == {}
    archive.add(other, 0, trials[1])
    assert told(archive.read(KEY)[0]) == told(trials[0])
    assert RunArchive(tmp_path, "0.0.9").read(KEY) == {}


@pytest.mark.parametrize("left", [1, 30, 200, 100_000])
def test_a_line_that_was_not_finished_is_cut_off(left: int, tmp_path: Path, trials: list[Trial]) -> None:
    archive = RunArchive(tmp_path)
    for number, trial in enumerate(trials):
        archive.add(KEY, number, trial)
    path = archive.path(KEY)
    text = path.read_bytes()
    start = text[:-1].rfind(b"\n") + 1
    path.write_bytes(text[: min(start + left, len(text) - 1)])
    assert sorted(archive.read(KEY)) == [0, 1]
    archive.add(KEY, 2, trials[2])
    assert path.read_bytes() == text


def test_a_head_that_was_not_finished_is_written_again(tmp_path: Path, trials: list[Trial]) -> None:
    archive = RunArchive(tmp_path)
    archive.add(KEY, 0, trials[0])
    text = archive.path(KEY).read_bytes()
    for left in (0, 5):
        archive.path(KEY).write_bytes(text[:left])
        assert archive.read(KEY) == {}
        archive.add(KEY, 0, trials[0])
        assert archive.path(KEY).read_bytes() == text


HEAD = json.dumps({"kofn": "0.1.0", "format": 1, **KEY})


@pytest.mark.parametrize(
    "text",
    [
        "{bad",
        "{}",
        HEAD.replace('"format": 1', '"format": 2'),
        f"{HEAD}\n3",
        f'{HEAD}\n{{"run": 0, "plays": [0, 300], "regret": [0]}}',
    ],
)
def test_a_file_that_is_not_ours_is_refused_by_name(text: str, tmp_path: Path) -> None:
    archive = RunArchive(tmp_path)
    archive.path(KEY).parent.mkdir(parents=True)
    archive.path(KEY).write_text(text + "\n")
    with pytest.raises(
        BadInput,
        match=r"mine-\w+\.jsonl (has no runs of format 1|has format 2, but kofn).* delete it to repeat its runs",
    ):
        archive.read(KEY)


def test_of_another_version_the_last_written_is_found(tmp_path: Path, trials: list[Trial]) -> None:
    import os

    archive = RunArchive(tmp_path)
    own = KEY | {"label": "dart"}
    for time, (digest, trial) in enumerate({"old": trials[0], "new": trials[1]}.items()):
        archive.add(own | {"digest": digest}, 0, trial)
        os.utime(archive.path(own | {"digest": digest}), (time, time))
    archive.add(KEY, 0, trials[2])  # under another label
    archive.add(own | {"label": "dart-2", "policy": "dart-2"}, 0, trials[2])  # which begins like it
    assert told(archive.find("max/N6-K2", "dart", 300, 1)[0]) == told(trials[1])
    assert archive.find("max/N6-K2", "dart", 301, 1) == archive.find("max/N6-K2", "dart", 300, 2) == {}
    assert archive.find("max/N6-K3", "dart", 300, 1) == {}


@pytest.mark.parametrize("label", ["../../x", "", "é" * 300, "a\nb"])
def test_any_label_makes_a_file_inside_the_folder(label: str, tmp_path: Path, trials: list[Trial]) -> None:
    archive = RunArchive(tmp_path / "archive")
    key = KEY | {"label": label, "problem": f"/{label}/Problem(<6 arms>, k=2)"}
    archive.add(key, 0, trials[0])
    assert list(archive.read(key)) == [0]
    (path,) = tmp_path.rglob("*.jsonl")
    assert path.resolve().is_relative_to(tmp_path / "archive" / kofn.__version__)


def test_an_archive_is_a_folder(tmp_path: Path) -> None:
    assert as_archive(None) is None
    assert as_archive(str(tmp_path)) == as_archive(tmp_path) == RunArchive(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"archive must be a folder, but .*file is a file: choose another name"):
        as_archive(tmp_path / "file")
    with pytest.raises(BadInput, match="archive must be a folder, such as 'sweep'; got 7"):
        as_archive(7)  # type: ignore[arg-type]


# What has no name is known by what it does.


def digest(policy: Any = "dart", problem: Any = SETTING, **options: int) -> str:
    asked = {"horizon": 300, "seed": 1} | options
    (competitor,) = competitors_for({"it": policy}, problem, **asked)
    return competitor.checked(archived=True).digest


def bernoulli(*p: float) -> Problem:
    return Problem(Bernoulli(p), lambda x: x.max(axis=-1), k=2)


def test_the_digest_is_that_of_what_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest() == digest() != ""
    assert digest(lambda seed: kofn.Uniform(6, 2, seed=seed)) == digest(lambda s: kofn.Uniform(6, 2, seed=s))
    assert digest(problem=bernoulli(0.1, 0.2, 0.3)) == digest(problem=bernoulli(0.1, 0.2, 0.3))
    before = digest()
    monkeypatch.setattr(policy_named("dart"), "version", 2)
    assert digest() != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"policy": ("cmab-sm", {"resolution": 0.1})}, {"policy": ("cmab-sm", {"resolution": 0.2})}),
        ({"problem": bernoulli(0.1, 0.2, 0.3)}, {"problem": bernoulli(0.1, 0.2, 0.31)}),
        ({"problem": bernoulli(0.1, 0.2, 0.3)}, {"problem": bernoulli(0.3, 0.2, 0.1)}),
        ({"problem": lambda seed: bernoulli(0.1, 0.2, 0.3)}, {"problem": lambda seed: bernoulli(0.1, 0.2, 0.4)}),
        ({"policy": lambda seed: kofn.Uniform(6, 2, seed=seed)}, {"policy": lambda seed: kofn.Uniform(6, 2, seed=1)}),
        ({"policy": "cmab-sm", "horizon": 300}, {"policy": "cmab-sm", "horizon": 301}),
    ],
)
def test_the_digest_tells_apart_what_is_not_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(**one) != digest(**other)
